"""Issues keys and takes them back: the device flow's rules behind the door (F10, F12, F13; RFC 8628)."""

import contextlib
from collections.abc import Callable

import attrs
import trio

from actors.approver import Approver, Registration, admitted
from actors.codes import LIFETIME_SECONDS, Code, Codes, Lifetime, State, digest, normal_user_code
from actors.issuing import Credential, Issue, Issuing
from actors.keyends import KeyEnds, RevokedKeys
from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.rules.grants import check_asked, default_expiry
from actors.rules.refusal import Refusal
from actors.state.keys import Approved, Grant, Key, RanOut
from actors.store import Store
from adapters.clock.port import Clock

_UNKNOWN_DEVICE_CODE = (
    "this device_code is unknown: it was used already, or waited when this peer was started; begin again"
)
_TURNED_AWAY = "the owner of this machine turned this sign-in away"


class PollRefused(Exception):
    """Raised to a device that polls: an RFC 6749 error code, and words for people."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(description)
        self.error = error
        self.description = description


@attrs.frozen
class Begun:
    """A sign-in that waits for its approval."""

    device_code: str = attrs.field(repr=False)
    user_code: str
    expires_in: int
    interval: int


@attrs.frozen
class Waiting:
    """What a person sees of a code: whom they would let in. `state` says how it stands."""

    user_code: str
    state: str
    name: str | None = None
    client_id: str | None = None
    agent_label: str | None = None
    address: str | None = None
    lifetime: Lifetime = "durable"
    seconds_left: int = 0


class Registrar:
    """Decides on the loop, without a checkpoint between look and change; waits only for the disk."""

    def __init__(
        self, store: Store, clock: Clock, approver: Approver, closed: Callable[[str | None], None]
    ) -> None:
        """Args:

        store: keeps the keys.
        clock: wall time, for when keys end.
        approver: who may approve, and what is granted.
        closed: as `KeyEnds` has it.
        """
        self._store = store
        self._clock = clock
        self._approver = approver
        self.ends = KeyEnds(store, clock, closed)
        self.began_ms = clock.now_ms()
        """Since when it is remembered which key was used last."""
        self._codes = Codes(trio.current_time)
        self._issuing = Issuing(store, clock)
        self._used_ms: dict[str, int] = {}

    def authenticate(self, secret: str) -> Key | None:
        """The key of a secret, if it opens anything now."""
        now = self._clock.now_ms()
        key = self._store.ring.by_digest(digest(secret))
        if key is None or self.ends.is_closing(key.holder):
            return None
        if not key.is_open(now):
            self.note_end(key)
            return None
        self._used_ms[key.holder] = now
        return key

    def last_used_ms(self, holder: str) -> int | None:
        """When a key last opened a request, in memory alone; None is not since `began_ms`."""
        return self._used_ms.get(holder)

    def note_end(self, key: Key) -> None:
        """Where a key's time is over, keep that it was seen to be: no clock that is set back opens it again.

        What the disk has no room for holds until the log is opened anew.
        """
        now, found = self._clock.now_ms(), self._store.ring.get(key.holder)
        if found is None or found.ran_out or found.revoked_ms is not None or not found.is_over(now):
            return
        self._store.ring.run_out(key.holder)
        with contextlib.suppress(JournalUnavailable):
            self._store.keys.put(RanOut(holder=key.holder, at_ms=now))

    def seconds_left(self, key: Key) -> float:
        """How long a key still opens; infinity when it has no end."""
        found = self._store.ring.get(key.holder)
        if found is not None and found.ran_out:
            return 0.0
        if key.expires_ms is None:
            return float("inf")
        return max(0.0, (key.expires_ms - self._clock.now_ms()) / 1000)

    def attest(self, proof: str) -> bool:
        """Whether a proof is the approver's. Asked first, so that a stranger learns nothing."""
        return self._approver.attest(proof)

    def begin(
        self,
        *,
        client_id: str,
        address: str | None,
        name: str,
        agent_label: str | None,
        lifetime: Lifetime,
    ) -> Begun:
        """Begin a sign-in; it has no effect until it is approved.

        Raises:
            TooManyCodes: a ceiling is reached (F11).
        """
        device_code, code = self._codes.begin(
            client_id=client_id, address=address, name=name, agent_label=agent_label, lifetime=lifetime
        )
        return Begun(device_code, code.user_code, LIFETIME_SECONDS, round(code.interval))

    def look(self, user_code: str) -> Waiting:
        """How a code stands, for the person's page and before an approval."""
        normal = normal_user_code(user_code)
        code = self._codes.by_user(normal)
        if code is None:
            return Waiting(normal, self._ended(normal) or "unknown")
        return self._waiting(code)

    def waiting(self) -> tuple[Waiting, ...]:
        """Sign-ins that wait for their approval, or whose agent has yet to fetch its key; oldest first."""
        codes = self._codes.waiting()
        known = {code.device_digest for code in codes}
        # What was approved before a restart is known from the disk alone.
        earlier = [
            approved
            for approved in self._store.ring.approvals()
            if approved.device_digest not in known
            and self._codes.ended(approved.device_digest) is None
            and not self._is_late(approved)
        ]
        return (
            *(self._approved_before(approved) for approved in earlier),
            *(self._waiting(code) for code in codes),
        )

    def _approved_before(self, approved: Approved) -> Waiting:
        age_seconds = (self._clock.now_ms() - approved.approved_ms) // 1000
        return Waiting(
            user_code=approved.user_code,
            state="approved",
            name=approved.name,
            client_id=approved.client_id,
            agent_label=approved.agent_label,
            address=approved.address,
            seconds_left=max(0, LIFETIME_SECONDS - age_seconds),
        )

    def _waiting(self, code: Code) -> Waiting:
        return Waiting(
            user_code=code.user_code,
            state=code.state,
            name=code.name,
            client_id=code.client_id,
            agent_label=code.agent_label,
            address=code.address,
            lifetime=code.lifetime,
            seconds_left=max(0, round(code.expires_at - trio.current_time())),
        )

    def _ended(self, user_code: str) -> State | None:
        """How a code stands that does not wait: also one that was approved or used before a restart."""
        state = self._codes.ended(user_code)
        if state is not None:
            return state
        approved = self._store.ring.approved_under(user_code)
        if approved is not None:
            return "expired" if self._is_late(approved) else "approved"
        return "used" if self._store.ring.was_used(user_code) else None

    def _is_late(self, approved: Approved) -> bool:
        return self._clock.now_ms() - approved.approved_ms > LIFETIME_SECONDS * 1000

    async def approve(self, user_code: str, grant: Grant, *, proof: str) -> Approved:
        """Approve a waiting code; the device's next poll gets a key.

        Args:
            user_code: what waits.
            grant: what is asked for it.
            proof: whoever approves; `attest` took it.

        Raises:
            Refusal: UNKNOWN_CODE, CODE_USED, CODE_DENIED, CODE_EXPIRED, CODE_APPROVED, INVALID_GRANT,
                NOT_ADMITTED, APPROVAL_UNAVAILABLE.
            NoRoom, JournalUnavailable: nothing was approved.
        """
        code = self._pending(user_code)
        normal = code.user_code
        is_session = code.lifetime == "session"
        check_asked(grant, is_session=is_session)
        registration = Registration(
            user_code=normal,
            name=code.name,
            client_id=code.client_id,
            agent_label=code.agent_label,
            address=code.address,
            is_session=is_session,
            proof=proof,
        )
        granted = await admitted(self._approver, registration, grant)
        seconds = default_expiry(granted, is_session=is_session)
        approved = Approved(
            device_digest=code.device_digest,
            user_code=normal,
            client_id=code.client_id,
            name=code.name,
            grant=attrs.evolve(granted, expires_seconds=seconds),
            approved_ms=self._clock.now_ms(),
            agent_label=code.agent_label,
            address=code.address,
        )
        # Taken before the disk is asked, so that of two approvals at once one is told it came second.
        if code.state != "pending":
            raise _no_code(normal, code.state)
        code.approval = self._store.keys.put(approved)
        code.state = "approved"
        try:
            await code.approval.wait()
        finally:
            code.settle()
        return approved

    def deny(self, user_code: str) -> Waiting:
        """Turn a waiting code away: its device's next poll is told so, and its place is free (RFC 8628 3.5).

        Raises:
            Refusal: UNKNOWN_CODE, CODE_USED, CODE_DENIED, CODE_EXPIRED, CODE_APPROVED.
        """
        code = self._pending(user_code)
        self._codes.end(code, "denied")
        return self._waiting(code)

    def _pending(self, user_code: str) -> Code:
        """The code that waits for its approval.

        Raises:
            Refusal: it does not, and how it stands.
        """
        normal = normal_user_code(user_code)
        code = self._codes.by_user(normal)
        if code is None or code.state != "pending":
            raise _no_code(normal, code.state if code else self._ended(normal))
        return code

    async def poll(self, device_code: str, client_id: str) -> Credential:
        """A device asks for its key; each device code is answered with one once.

        A device that left before its key was told asks again.

        Raises:
            PollRefused: authorization_pending, slow_down, access_denied, expired_token, invalid_grant.
            NoRoom, JournalUnavailable: nothing was issued; poll again.
        """
        device = digest(device_code)
        issue = self._issuing.find(device)
        if issue is not None and issue.approved.client_id == client_id:
            if issue.is_awaited:
                raise PollRefused("authorization_pending", "this key is being made; poll again")
            return await self._told(issue)
        code = self._codes.by_device(device)
        if code is None and self._codes.ended(device) == "expired":
            raise PollRefused("expired_token", "this code has run out; begin again")
        if code is None and self._codes.ended(device) == "denied":
            raise PollRefused("access_denied", _TURNED_AWAY)
        if code is not None:
            if code.client_id != client_id:
                raise PollRefused("invalid_grant", "this device_code belongs to another client_id")
            if code.must_slow_down(trio.current_time()):
                raise PollRefused("slow_down", f"poll every {round(code.interval)} seconds, not faster")
        approved = self._store.ring.approved(device)
        if approved is None:
            if code is not None and code.state in ("pending", "approved"):
                raise PollRefused("authorization_pending", "nobody has approved this sign-in yet")
            raise PollRefused("invalid_grant", _UNKNOWN_DEVICE_CODE)
        if approved.client_id != client_id or (code is None and self._is_late(approved)):
            raise PollRefused("invalid_grant", _UNKNOWN_DEVICE_CODE)
        issue = self._issuing.redeem(approved)
        if code is not None:
            self._codes.end(code, "used")
        return await self._told(issue)

    async def _told(self, issue: Issue) -> Credential:
        try:
            return await self._issuing.tell(issue)
        except (NoRoom, JournalUnavailable):
            if not issue.is_withdrawn:
                raise
            # There is nothing to poll for again: the owner took it back while it was made.
            self._codes.deny(issue.approved.user_code, issue.approved.device_digest)
            raise PollRefused("access_denied", _TURNED_AWAY) from None

    async def revoke(self, name_or_holder: str, *, ends_work: bool) -> RevokedKeys:
        """As `KeyEnds.revoke`, also what the disk still writes; the codes of what is withdrawn are denied."""
        made = self._issuing.withdraw(name_or_holder)
        unfetched = [
            *(a for a in self._store.ring.approvals() if a.name == name_or_holder),
            *self._being_approved(name_or_holder),
            *(issue.approved for issue in made if issue.batch.error is not None),
        ]
        for approved in unfetched:
            self._codes.deny(approved.user_code, approved.device_digest)
        making = [issue for issue in made if not issue.batch.event.is_set()]
        return await self.ends.revoke(name_or_holder, ends_work=ends_work, unfetched=unfetched, making=making)

    def _being_approved(self, name: str) -> list[Approved]:
        """Approvals under a name that the disk has not answered for yet."""
        found = []
        for code in self._codes.waiting():
            if code.name == name and code.approval is not None and not code.approval.event.is_set():
                records = (r for r in code.approval.entries if isinstance(r, Approved))
                found += [r for r in records if r.device_digest == code.device_digest]
        return found

    async def give_back(self, holder: str) -> Key:
        """As `KeyEnds.give_back`."""
        return await self.ends.give_back(holder)


def _no_code(user_code: str, state: str | None) -> Refusal:
    match state:
        case "used":
            return Refusal("CODE_USED", f"{user_code} was used already: its agent has its key")
        case "approved":
            return Refusal(
                "CODE_APPROVED",
                f"{user_code} is approved already: its agent fetches its key, "
                "which best-peer revoke takes back",
            )
        case "denied":
            return Refusal(
                "CODE_DENIED", f"{user_code} was denied: its agent is told so; ask it to begin again"
            )
        case "expired":
            return Refusal("CODE_EXPIRED", f"{user_code} has run out; ask the agent to begin again")
        case _:
            return Refusal(
                "UNKNOWN_CODE",
                f"no sign-in waits under {user_code or 'that code'}: look at it again; one that waited when "
                "this peer was last started is gone, and its agent begins again",
            )
