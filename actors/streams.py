"""Event streams: cursors over the log, counted and ended by holder (F6).

There is no queue per reader. A stream's task is its connection's own; it asks its cursor for what is new
and writes it, so a reader that stalls holds one batch and its socket, and the server drops it at its write
deadline.
"""

from collections import OrderedDict

import trio

from actors.log.eventlog import Read
from actors.log.index import EventQuery
from actors.store import Store

BATCH = 256
"""Most facts written at once: a stalled reader holds no more."""

BATCH_BYTES = 256 << 10
"""A batch is cut past this size; one larger fact still goes out alone."""


class LastBatch:
    """The batch that was joined last: streams that are sent the same facts share its bytes."""

    def __init__(self) -> None:
        self._first = self._last = -1
        self._frames = b""

    def join(self, read: Read) -> tuple[bytes, int]:
        """The frames of what was read, one at least, and where the reader then stands."""
        facts = read.facts
        first, last = facts[0][0], facts[-1][0]
        # Where none between the two was left out, the two tell which facts they are.
        is_run = last - first == len(facts) - 1
        if is_run and first == self._first and last == self._last:
            return self._frames, read.position
        frames = [frame for _, frame in facts]
        if len(frames) > 1 and sum(map(len, frames)) > BATCH_BYTES:
            fitting = _fitting(frames)
            return b"".join(frames[:fitting]), facts[fitting][0]
        joined = b"".join(frames)
        if is_run:
            self._first, self._last, self._frames = first, last, joined
        return joined, read.position


def _fitting(frames: list[bytes]) -> int:
    """How many of these, which are too large together, fit a batch; one at least."""
    size = len(frames[0])
    for at, frame in enumerate(frames[1:], 1):
        size += len(frame)
        if size > BATCH_BYTES:
            return at
    return len(frames)


class Stream:
    """One subscriber's cursor."""

    def __init__(self, store: Store, query: EventQuery, position: int, last_batch: LastBatch) -> None:
        self._events = store.events
        self._query = query
        self._position = position
        self._last_batch = last_batch
        self._is_ended = False
        self._scope: trio.CancelScope | None = None

    def end(self, reason: str) -> None:
        """Make `next` return None, now or at its next call."""
        self._is_ended = True
        if self._scope is not None:
            self._scope.cancel(reason)

    async def next(self, *, quiet_seconds: float) -> bytes | None:
        """The frames of what is new, joined; b'' when nothing came for `quiet_seconds`, None at the end."""
        with trio.move_on_after(quiet_seconds) as self._scope:
            while not self._is_ended:
                read = await self._events.read(self._query, self._position, BATCH)
                if read.facts:
                    frames, self._position = self._last_batch.join(read)
                    return frames
                self._position = read.position
                await self._events.wait_for_news(self._position)
        return None if self._is_ended else b""


class Streams:
    """The open streams of one door."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, OrderedDict[Stream, None]] = {}
        self._count = 0
        self._last_batch = LastBatch()

    def open(self, holder: str, query: EventQuery, last_event_id: str | None, most: int | None) -> Stream:
        """A stream from now on, or from behind the event that was seen last.

        Past `most` of one holder the oldest ends, which to its client is a stream that closed.
        """
        events = self._store.events
        position = events.end if last_event_id is None else events.position_after(last_event_id)
        stream = Stream(self._store, query, position, self._last_batch)
        held = self._open.setdefault(holder, OrderedDict())
        while most is not None and len(held) >= most:
            oldest = next(iter(held))
            self.close(holder, oldest)
            oldest.end("a newer stream of the same key took its place")
        held = self._open.setdefault(holder, OrderedDict())
        held[stream] = None
        self._count += 1
        return stream

    def close(self, holder: str, stream: Stream) -> None:
        """The subscriber has left. Closing twice is harmless."""
        held = self._open.get(holder)
        if held is None or stream not in held:
            return
        del held[stream]
        self._count -= 1
        if not held:
            del self._open[holder]

    def count(self, holder: str) -> int:
        """How many a holder has open."""
        return len(self._open.get(holder, ()))

    def end_all(self, holder: str, reason: str) -> None:
        """End a holder's streams: its key has closed."""
        for stream in tuple(self._open.get(holder, ())):
            stream.end(reason)

    def end_everything(self) -> None:
        """End every stream: the peer is stopping."""
        for holder in tuple(self._open):
            self.end_all(holder, "the peer is stopping")

    def __len__(self) -> int:
        return self._count
