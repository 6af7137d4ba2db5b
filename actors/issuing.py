"""Makes keys of approvals: each approval is redeemed once, and its key told once (F10, F13; RFC 8628)."""

import secrets

import attrs
import trio

from actors.codes import LIFETIME_SECONDS, digest
from actors.log.journal import Batch, JournalUnavailable
from actors.log.linefile import NoRoom
from actors.state.keys import Approved, Issued, Key, KeyRecord
from actors.store import Store
from adapters.clock.port import Clock

KEY_PREFIX = "bp_"


@attrs.frozen
class Credential:
    """A key as it is shown once."""

    secret: str = attrs.field(repr=False)
    key: Key


@attrs.define(eq=False)
class Issue:
    """A key that was made and not told yet. `since` is of Trio's clock, in seconds.

    Args:
        is_awaited: whether a device waits for it now.
        is_withdrawn: it was taken back as it was made: where the disk does not keep it, neither comes its
            approval back.
    """

    approved: Approved
    credential: Credential
    batch: Batch[KeyRecord]
    since: float
    is_awaited: bool = False
    is_withdrawn: bool = False


class Issuing:
    """The keys of one door as they are made."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._issues: dict[str, Issue] = {}
        """By the device code's digest, the oldest first: until they are told, or as long as a code waits."""

    def find(self, device_digest: str) -> Issue | None:
        """The key that was made for a device and not told: it left while the disk was asked."""
        self._forget()
        return self._issues.get(device_digest)

    def redeem(self, approved: Approved) -> Issue:
        """Make the key of an approval. Never a checkpoint: of two polls at once one gets it (R12).

        Raises:
            JournalUnavailable: none was made.
        """
        self._forget()
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        now = self._clock.now_ms()
        seconds = approved.grant.expires_seconds
        key = Key(
            holder="h-" + secrets.token_urlsafe(16),
            name=approved.name,
            grant=approved.grant,
            issued_ms=now,
            expires_ms=None if seconds is None else now + seconds * 1000,
            agent_label=approved.agent_label,
            address=approved.address,
        )
        record = Issued(key=key, digest=digest(secret), device_digest=approved.device_digest)
        batch = self._store.keys.put(record)
        self._store.ring.redeem(approved.device_digest)
        issue = Issue(approved, Credential(secret, key), batch, trio.current_time())
        self._issues[approved.device_digest] = issue
        return issue

    def withdraw(self, name: str) -> tuple[Issue, ...]:
        """Keys of a connection's name that were made and not told: none is made of their approvals again.

        Those that the disk did not keep are forgotten. Never a checkpoint.
        """
        found = tuple(issue for issue in self._issues.values() if issue.approved.name == name)
        for issue in found:
            issue.is_withdrawn = True
            if issue.batch.error is not None:
                self._issues.pop(issue.approved.device_digest, None)
        return found

    async def tell(self, issue: Issue) -> Credential:
        """The key, once it is durable. A device that leaves before may ask again.

        Raises:
            NoRoom, JournalUnavailable: it was not kept; its approval may be redeemed again.
        """
        device = issue.approved.device_digest
        issue.is_awaited = True
        try:
            await issue.batch.wait()
        except (NoRoom, JournalUnavailable):
            self._issues.pop(device, None)
            if not issue.is_withdrawn:
                self._store.ring.apply(issue.approved)
            raise
        finally:
            issue.is_awaited = False
        self._issues.pop(device, None)
        return issue.credential

    def _forget(self) -> None:
        # Their devices have long given up; the secrets need not stay.
        long_ago = trio.current_time() - LIFETIME_SECONDS
        while self._issues and (oldest := next(iter(self._issues.values()))).since < long_ago:
            del self._issues[oldest.approved.device_digest]
