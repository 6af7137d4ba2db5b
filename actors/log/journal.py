"""The pen: one writer, and one write and one sync for all that wait (group commit).

There is no timer: while one batch is being synced in its thread, the next one forms. What waits is one
`trio.Event` a batch. Once durable, a batch is handed to the fold in order, with no checkpoint in between, and
only then are those who wait woken.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import attrs
import trio

from actors.log.linefile import NoRoom

E = TypeVar("E")
P = TypeVar("P")

MOST_PENDING = 65_536
"""Entries that may wait for one sync; past it the disk is not keeping up and a caller is told so."""


class JournalUnavailable(Exception):
    """Raised when the journal is not taking entries: stopped, failed and not yet reopened, or overrun.

    Whether an entry that waited was stored is not known; the reopened file tells.
    """


class Batch(Generic[E]):
    """Entries that become durable together."""

    __slots__ = ("entries", "error", "event")

    def __init__(self) -> None:
        self.entries: list[E] = []
        self.event = trio.Event()
        self.error: NoRoom | JournalUnavailable | None = None

    async def wait(self) -> None:
        """Wait until durable and folded.

        Raises:
            NoRoom: nothing was stored.
            JournalUnavailable: see there.
        """
        await self.event.wait()
        if self.error is not None:
            # One error for all that wait: without this each of them would lengthen its traceback.
            raise self.error.with_traceback(None)

    def finish(self, error: NoRoom | JournalUnavailable | None = None) -> None:
        """Wake all that wait."""
        self.error = error
        self.event.set()


@attrs.frozen
class JournalStatistics:
    """Attributes:

    pending: entries that wait for the next sync.
    peak: most that ever waited.
    entries: entries made durable since it was opened.
    batches: syncs they took.
    """

    pending: int
    peak: int
    entries: int
    batches: int


class Journal(Generic[E, P]):
    """Makes entries durable in order."""

    def __init__(
        self,
        *,
        prepare: Callable[[list[E]], P],
        write: Callable[[P], None],
        committed: Callable[[list[E], P], None],
        failed: Callable[[list[E]], None] = lambda _: None,
    ) -> None:
        """Args:

        prepare: turns entries into what is written; quick, on the loop, right before the write.
        write: makes it durable; runs in this journal's own thread, one call at a time.
        committed: folds it; never fails, never waits.
        failed: gives back what was reserved for entries that were not kept, or not known to be.
        """
        self._prepare = prepare
        self._write = write
        self._committed = committed
        self._failed = failed
        self._forming: Batch[E] = Batch()
        self._wake = trio.Event()
        self._open = False
        # Its own thread: the default pool is shared, and a sync behind forty slow reads is a stuck peer.
        self._limiter = trio.CapacityLimiter(1)
        self._peak = self._entries = self._batches = 0

    def put(self, *entries: E) -> Batch[E]:
        """Put entries into the batch that forms, all or none. Never a checkpoint.

        They are stored even if nobody waits.

        Raises:
            JournalUnavailable: nothing was put.
        """
        batch = self._forming
        if not self._open or len(batch.entries) + len(entries) > MOST_PENDING:
            raise JournalUnavailable("the log takes nothing now")
        batch.entries += entries
        self._wake.set()
        return batch

    async def append(self, entry: E) -> None:
        """Put one entry and wait until it is durable and folded.

        Raises:
            NoRoom, JournalUnavailable: as `Batch.wait`.
        """
        await self.put(entry).wait()

    def statistics(self) -> JournalStatistics:
        """How many wait, waited and were written."""
        return JournalStatistics(len(self._forming.entries), self._peak, self._entries, self._batches)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; what was put by then is still written.

        Raises:
            OSError: the file is in an unknown state. All that wait have been told so.
        """
        self._open = True
        try:
            task_status.started()
            while True:
                while not self._forming.entries:
                    self._wake = trio.Event()
                    await self._wake.wait()
                # The write is shielded, so writers that never pause would else keep a stop out for ever.
                await trio.lowlevel.checkpoint_if_cancelled()
                await self._store(self._swap())
        except trio.Cancelled:
            self._open = False
            rest = self._swap()
            if rest.entries:
                await self._store(rest)  # noqa: ASYNC102 - its one await is shielded; see there for why unbounded
            raise
        finally:
            self._open = False
            # After a failure the file must be looked at before anything is written to it again.
            self._give_back(self._swap(), JournalUnavailable("the log has failed"))

    async def _store(self, batch: Batch[E]) -> None:
        try:
            payload = self._prepare(batch.entries)
            # Shielded without a deadline: a thread that syncs cannot be cancelled anyway, and what it did
            # must be folded. Who stops the peer has a hard exit behind a disk that hangs.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._write, payload, limiter=self._limiter)
            self._committed(batch.entries, payload)
        except NoRoom as full:
            self._give_back(batch, full)
            return
        except BaseException:
            self._give_back(batch, JournalUnavailable("the log failed while it wrote"))
            raise
        self._entries += len(batch.entries)
        self._batches += 1
        batch.finish()

    def _give_back(self, batch: Batch[E], error: NoRoom | JournalUnavailable) -> None:
        try:
            self._failed(batch.entries)
        finally:
            batch.finish(error)

    def _swap(self) -> Batch[E]:
        batch, self._forming = self._forming, Batch()
        self._peak = max(self._peak, len(batch.entries))
        return batch
