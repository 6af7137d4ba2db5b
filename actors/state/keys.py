"""Keys: who may do what, folded from the records of their issue and end (F12, F13)."""

from typing import Final, Literal

import attrs
import msgspec

Scope = Literal["deploy", "jobs", "prompt", "workspaces", "metrics", "all"]
SCOPES: tuple[Scope, ...] = ("deploy", "jobs", "prompt", "workspaces", "metrics", "all")


@attrs.frozen
class Grant:
    """What an approver gives (F12).

    Args:
        scopes: what the key may do; `all` is every scope and every holder's workloads.
        memory_bytes: most device memory its workloads may hold together; None is no share.
        deployments, jobs: how many at once; None is not counted.
        workspaces: how many it may own.
        expires_seconds: how long the key lives from its issue; None is until revoked.
        open_jobs: its jobs run outside the closed box.
        accelerators_only: it never sees or uses the host's CPU.
    """

    scopes: tuple[Scope, ...] = ("all",)
    memory_bytes: int | None = None
    deployments: int | None = None
    jobs: int | None = None
    workspaces: int = 8
    expires_seconds: int | None = None
    open_jobs: bool = False
    accelerators_only: bool = False


@attrs.frozen
class Key:
    """One credential. `holder` is the opaque id that events name; the secret itself is never kept.

    Times are milliseconds since the epoch. `ran_out`: it was seen past its end, and stays closed though the
    clock is set back.
    """

    holder: str
    name: str
    grant: Grant
    issued_ms: int
    expires_ms: int | None = None
    agent_label: str | None = None
    address: str | None = None
    revoked_ms: int | None = None
    ran_out: bool = False

    def is_open(self, now_ms: int) -> bool:
        """Whether it opens anything at `now_ms`."""
        return self.revoked_ms is None and not self.is_over(now_ms)

    def is_over(self, now_ms: int) -> bool:
        """Whether its time is over."""
        return self.ran_out or (self.expires_ms is not None and now_ms >= self.expires_ms)

    @property
    def sees_all(self) -> bool:
        """Whether it reads and ends every holder's workloads."""
        return "all" in self.grant.scopes

    @property
    def is_tenant(self) -> bool:
        """Whether it has a share: a key without one is the owner's own."""
        return self.grant.memory_bytes is not None

    @property
    def boxes_jobs(self) -> bool:
        """Whether its jobs run in the closed box: code that the machine's owner did not write (F31)."""
        return self.is_tenant and not self.grant.open_jobs

    @property
    def is_metrics_only(self) -> bool:
        """Whether it is a collector's, that opens the metrics and nothing else."""
        return self.grant.scopes == ("metrics",)

    def may(self, scope: str) -> bool:
        """Whether it may send what needs `scope`; `any` is every key's but a collector's."""
        if self.is_metrics_only:
            return scope == "metrics"
        return scope == "any" or self.sees_all or scope in self.grant.scopes


Closer = Literal["owner", "agent"]
"""Who ended a key: the machine's owner took it back, or its agent gave it back."""


@attrs.frozen
class Ending:
    """How a key was ended, and what becomes of its work. Times are milliseconds since the epoch.

    Args:
        at_ms: when it closed.
        by: who ended it first.
        ends_work: whether what it runs must end; else that runs on.
        work_ended_ms: when all of that was seen to have ended; None is not yet.
    """

    at_ms: int
    by: Closer
    ends_work: bool
    work_ended_ms: int | None = None


class Issued(msgspec.Struct, tag="issued", tag_field="record", kw_only=True):
    """A key was issued: its secret's digest, and what it may do."""

    key: Key
    digest: str
    device_digest: str


class Approved(msgspec.Struct, tag="approved", tag_field="record", kw_only=True):
    """A code was approved; its device's next poll is answered with a key, also after a restart."""

    device_digest: str
    user_code: str
    client_id: str
    name: str
    grant: Grant
    approved_ms: int
    agent_label: str | None = None
    address: str | None = None


class Withdrawn(msgspec.Struct, tag="withdrawn", tag_field="record", kw_only=True):
    """An approval was taken back before its device had fetched its key."""

    device_digest: str
    at_ms: int


class Revoked(msgspec.Struct, tag="revoked", tag_field="record", kw_only=True):
    """A key was taken or given back. `ends_work`: what it runs must end."""

    holder: str
    at_ms: int
    by: Closer
    ends_work: bool


class RanOut(msgspec.Struct, tag="ran-out", tag_field="record", kw_only=True):
    """A key was seen past its end: whatever the clock says after, it opens nothing."""

    holder: str
    at_ms: int


class WorkEnded(msgspec.Struct, tag="work-ended", tag_field="record", kw_only=True):
    """All work of a revoked key was seen to end."""

    holder: str
    at_ms: int


KeyRecord = Issued | Approved | Withdrawn | Revoked | RanOut | WorkEnded

REMEMBERED_CODES: Final = 1024
"""Used codes kept, the latest, so that a second approval learns of it, across restarts too."""


class KeyRing:
    """The fold of key records. Finding a key costs the same however many there are."""

    def __init__(self) -> None:
        self._by_digest: dict[str, str] = {}
        self._keys: dict[str, Key] = {}
        self._by_name: dict[str, list[str]] = {}
        self._approved: dict[str, Approved] = {}
        self._used: dict[str, None] = {}
        """User codes whose key was issued, the latest last."""
        self._endings: dict[str, Ending] = {}
        self._ending: set[str] = set()

    def apply(self, record: KeyRecord) -> None:
        """Take a record that is durable."""
        match record:
            case Issued(key=key, digest=digest, device_digest=device):
                self._keys[key.holder] = key
                self._by_digest[digest] = key.holder
                self._by_name.setdefault(key.name, []).append(key.holder)
                self.redeem(device)
            case Approved():
                self._approved[record.device_digest] = record
                self._used.pop(record.user_code, None)
            case Withdrawn(device_digest=device):
                self.withdraw(device)
            case Revoked(holder=holder, at_ms=at_ms, by=by, ends_work=ends_work):
                self.close(holder, at_ms, ends_work=ends_work, by=by)
            case RanOut(holder=holder):
                self.run_out(holder)
            case WorkEnded(holder=holder, at_ms=at_ms):
                self._end_work(holder, at_ms)

    def redeem(self, device_digest: str) -> None:
        """Take an approval out before its key is durable, so that it is redeemed once."""
        approved = self._approved.pop(device_digest, None)
        if approved is not None:
            self._used[approved.user_code] = None
            if len(self._used) > REMEMBERED_CODES:
                del self._used[next(iter(self._used))]

    def withdraw(self, device_digest: str) -> None:
        """Take an approval back: its device gets nothing. Also before the disk has kept it."""
        self._approved.pop(device_digest, None)

    def close(self, holder: str, at_ms: int, *, ends_work: bool, by: Closer = "owner") -> None:
        """Close a key at once; also before the disk has kept it (F13). What is closed stays as it was."""
        key = self._keys.get(holder)
        if key is None:
            return
        ending = self._endings.get(holder)
        if ending is None:
            ending = Ending(at_ms, by, ends_work)
            self._keys[holder] = attrs.evolve(key, revoked_ms=at_ms)
        self._endings[holder] = attrs.evolve(ending, ends_work=ending.ends_work or ends_work)
        if ends_work and ending.work_ended_ms is None:
            self._ending.add(holder)

    def run_out(self, holder: str) -> None:
        """Close a key for good whose end was seen; also before the disk has kept it."""
        key = self._keys.get(holder)
        if key is not None:
            self._keys[holder] = attrs.evolve(key, ran_out=True)

    def _end_work(self, holder: str, at_ms: int) -> None:
        ending = self._endings.get(holder)
        # It is written after the revoke: of a key that is open it says nothing.
        if ending is not None and ending.work_ended_ms is None:
            self._endings[holder] = attrs.evolve(ending, work_ended_ms=at_ms)
            self._ending.discard(holder)

    def ending_of(self, holder: str) -> Ending | None:
        """How a key was ended; None for one that was not, though its time may be over."""
        return self._endings.get(holder)

    def by_digest(self, digest: str) -> Key | None:
        """The key whose secret has this digest, open or not."""
        holder = self._by_digest.get(digest)
        return None if holder is None else self._keys[holder]

    def get(self, holder: str) -> Key | None:
        """The key of a holder."""
        return self._keys.get(holder)

    def named(self, name_or_holder: str) -> tuple[Key, ...]:
        """Keys by connection name, or the one with that holder id."""
        if name_or_holder in self._keys:
            return (self._keys[name_or_holder],)
        return tuple(self._keys[h] for h in self._by_name.get(name_or_holder, ()))

    def all(self) -> tuple[Key, ...]:
        """Every key ever issued, oldest first."""
        return tuple(self._keys.values())

    def approved(self, device_digest: str) -> Approved | None:
        """An approval whose key was not fetched yet."""
        return self._approved.get(device_digest)

    def approvals(self) -> tuple[Approved, ...]:
        """Every approval whose key was not fetched yet, oldest first; also those that came too late."""
        return tuple(self._approved.values())

    def approved_under(self, user_code: str) -> Approved | None:
        """The same by its user code; there are few, since each waits ten minutes at most for its device."""
        return next((a for a in self._approved.values() if a.user_code == user_code), None)

    def was_used(self, user_code: str) -> bool:
        """Whether a code's key was issued, as far as that is remembered."""
        return user_code in self._used

    def ending(self) -> tuple[str, ...]:
        """Holders whose key was taken back and whose work must end and was not seen to."""
        return tuple(self._ending)

    def __len__(self) -> int:
        return len(self._keys)
