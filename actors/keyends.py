"""Ends keys: taken back by the owner, given back by an agent (F13).

A key closes at once, before the disk is asked; what the disk did not keep is tried again. Whoever asked may
leave: what was begun goes on without them.
"""

import contextlib
from collections.abc import Callable, Sequence

import attrs
import msgspec

from actors.issuing import Issue
from actors.log.journal import Batch, JournalUnavailable
from actors.log.linefile import NoRoom
from actors.messages.commands import PullImage
from actors.rules.refusal import Refusal
from actors.state.keys import Approved, Key, KeyRecord, Revoked, Withdrawn
from actors.store import Store
from adapters.clock.port import Clock


@attrs.frozen
class RevokedKeys:
    """What a revoke did.

    Args:
        keys: those it closed.
        closed_before: those that were closed already and left work running, which ends now.
        withdrawn: approvals whose agents had not fetched their keys, and get none now.
        kept: False where the disk did not keep it: after a restart the keys open again, and work that has not
            ended by then runs on. The peer goes on trying to keep it.
    """

    keys: tuple[Key, ...]
    closed_before: tuple[Key, ...]
    withdrawn: tuple[Approved, ...]
    kept: bool


@attrs.frozen(eq=False)
class _Wish:
    """That a key be closed or an approval withdrawn, and what the disk has said to it.

    Args:
        record: what is to be written.
        batch: what it waits in; None where it could not be put.
        reopens: whether the key would open again without it.
    """

    record: Revoked | Withdrawn
    batch: Batch[KeyRecord] | None
    reopens: bool

    @property
    def is_kept(self) -> bool:
        return self.batch is not None and self.batch.event.is_set() and self.batch.error is None

    @property
    def is_lost(self) -> bool:
        return self.batch is None or self.batch.error is not None


class KeyEnds:
    """The keys of one door as they close."""

    def __init__(self, store: Store, clock: Clock, closed: Callable[[str | None], None]) -> None:
        """Args:

        store: keeps the keys.
        clock: wall time, for when they closed.
        closed: called with the holder whose key has just closed, or whose work is to end now; with None as an
            approval is withdrawn.
        """
        self._store = store
        self._clock = clock
        self._closed = closed
        self._wishes: dict[str, _Wish] = {}
        """By holder, or by the digest of a device code, until they are seen to be kept. Not in the fold: that
        is made from the disk whenever the log is opened."""

    def is_closing(self, holder: str) -> bool:
        """Whether a key was closed that the disk may still call open."""
        return not self.is_kept(holder) and self._wishes[holder].reopens

    def is_kept(self, holder: str) -> bool:
        """Whether the disk has kept what was last said of a key's end."""
        wish = self._wishes.get(holder)
        return wish is None or wish.is_kept

    async def revoke(
        self,
        name_or_holder: str,
        *,
        ends_work: bool,
        unfetched: Sequence[Approved] = (),
        making: Sequence[Issue] = (),
    ) -> RevokedKeys:
        """Take keys back, by the connection's name or the holder's id (F13). They are closed at once.

        With `ends_work` also what keys of that name left running that were taken or given back before.
        Whoever was approved under the name and has not fetched a key gets none. Cancelling the wait loses the
        answer alone.

        Args:
            name_or_holder: whose.
            ends_work: whether what they run ends.
            unfetched: approvals under the name that no key was made of.
            making: keys of the name that the disk still writes.

        Raises:
            Refusal: UNKNOWN_KEY.
        """
        named = self._store.ring.named(name_or_holder)
        # One that the disk did not keep is revoked again, so that this writes it.
        keys = [k for k in named if k.revoked_ms is None or self.is_closing(k.holder)]
        working = self._working()
        closed = [k for k in named if k.holder in working and k not in keys]
        new = [issue.credential.key for issue in making]
        if not keys and not new and not unfetched and not (closed and ends_work):
            raise _nothing_to_revoke(name_or_holder, is_known=bool(named), has_work=bool(closed))
        if not ends_work:
            closed = []
        now = self._clock.now_ms()
        # All are put before the first is waited for: they reach the disk though nobody waits any more.
        wishes = [
            self._close(Revoked(holder=key.holder, at_ms=now, by="owner", ends_work=ends_work))
            for key in (*keys, *closed)
        ]
        wishes += [
            self._close(Revoked(holder=key.holder, at_ms=now, by="owner", ends_work=ends_work), is_new=True)
            for key in new
        ]
        # Where the disk keeps no such key, its approval is there still.
        approvals = (*unfetched, *(issue.approved for issue in making))
        wishes += [self._withdraw(Withdrawn(device_digest=a.device_digest, at_ms=now)) for a in approvals]
        kept = [await _was_kept(wish) for wish in wishes]
        return RevokedKeys((*keys, *new), tuple(closed), tuple(unfetched), all(kept))

    async def was_kept(self, holder: str) -> bool:
        """Wait until the disk has said whether it kept that a key was closed, and what it said."""
        wish = self._wishes.get(holder)
        return wish is None or await _was_kept(wish)

    async def give_back(self, holder: str) -> Key:
        """An agent returns its own key; its work runs on.

        Raises:
            NoRoom, JournalUnavailable: it is closed, and not kept yet.
        """
        wish = self._close(Revoked(holder=holder, at_ms=self._clock.now_ms(), by="agent", ends_work=False))
        if wish.batch is None:
            raise JournalUnavailable("the log takes nothing now")
        await wish.batch.wait()
        key = self._store.ring.get(holder)
        assert key is not None
        return key

    def take_up(self) -> None:
        """The fold may be new: close in it what the disk does not know of."""
        for wish in tuple(self._wishes.values()):
            if not wish.is_kept:
                self._fold(wish.record)

    def keep_again(self) -> bool:
        """Put once more what the disk did not keep; whether all is kept."""
        for holder, wish in tuple(self._wishes.items()):
            if wish.is_kept:
                del self._wishes[holder]
            elif wish.is_lost:
                self._wishes[holder] = self._put(wish.record, reopens=wish.reopens)
        return not self._wishes

    def _close(self, record: Revoked, *, is_new: bool = False) -> _Wish:
        """Close a key now, and have it written. Never a checkpoint.

        One that `is_new` is in the fold only once the disk has kept it, which may be before it keeps this.
        """
        key = self._store.ring.get(record.holder)
        reopens = is_new or (key is not None and key.revoked_ms is None)
        before = self._wishes.get(record.holder)
        if before is not None and not before.is_kept and isinstance(before.record, Revoked):
            # One record says both.
            ends_work = record.ends_work or before.record.ends_work
            record = msgspec.structs.replace(before.record, ends_work=ends_work)
            reopens = reopens or before.reopens
        self._fold(record)
        wish = self._wishes[record.holder] = self._put(record, reopens=reopens)
        return wish

    def _withdraw(self, record: Withdrawn) -> _Wish:
        self._fold(record)
        wish = self._wishes[record.device_digest] = self._put(record, reopens=False)
        return wish

    def _fold(self, record: Revoked | Withdrawn) -> None:
        if isinstance(record, Withdrawn):
            self._store.ring.withdraw(record.device_digest)
            self._closed(None)
            return
        self._store.ring.close(record.holder, record.at_ms, ends_work=record.ends_work, by=record.by)
        self._closed(record.holder)

    def _put(self, record: Revoked | Withdrawn, *, reopens: bool) -> _Wish:
        try:
            return _Wish(record, self._store.keys.put(record), reopens)
        except JournalUnavailable:
            return _Wish(record, None, reopens)

    def _working(self) -> set[str]:
        """Holders under whose keys anything runs, or is fetched for them."""
        world = self._store.world
        return {
            *(deployment.holder for deployment in world.deployments.values()),
            *(job.holder for job in world.jobs.values()),
            *(a.holder for a in world.unfinished.values() if isinstance(a.body, PullImage)),
        }


async def _was_kept(wish: _Wish) -> bool:
    if wish.batch is not None:
        with contextlib.suppress(NoRoom, JournalUnavailable):
            await wish.batch.wait()
    return wish.is_kept


def unknown_key(name: str) -> Refusal:
    """No key was ever called that."""
    return Refusal("UNKNOWN_KEY", f"no key has the name or holder id {name}; best-peer keys lists them")


def _nothing_to_revoke(name: str, *, is_known: bool, has_work: bool) -> Refusal:
    if not is_known:
        return unknown_key(name)
    if has_work:
        what = (
            f"{name} was taken or given back before: its key opens nothing; what it left runs on, "
            f"and best-peer revoke {name} ends it"
        )
    else:
        what = f"{name} was taken or given back before: its key opens nothing, and nothing of it runs"
    return Refusal("UNKNOWN_KEY", what)
