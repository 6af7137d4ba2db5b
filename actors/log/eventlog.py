"""The event log: what was told, durable before anyone reads it (F4, F5, F6).

`tell` puts facts into the pen's batch; once durable they are indexed and folded in order, and then the
streams are woken together. A stream is a cursor: it reads the tail in memory, or files where it is behind.
"""

import logging
from collections.abc import Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import Protocol

import attrs
import msgspec
import trio

from actors.log.days import DayFiles, Segment
from actors.log.index import Code, EventIndex, EventQuery
from actors.log.journal import Journal, JournalStatistics
from actors.log.linefile import LineFile, NoRoom
from actors.log.stretches import Gap, Stretch, stretches_of
from actors.messages.envelope import EnvelopeEncoder, Fact, Head, event_id, event_seq
from actors.messages.times import time_text

logger = logging.getLogger("best_peer.log")

TAIL_FACTS = 4096
TAIL_BYTES = 8 << 20
"""The newest facts stay in memory, as many as fit both: where live streams and most pages read."""

PAGE_BYTES = 4 << 20
"""A page ends early past this many bytes; its cursor goes on from there."""

_CHECKPOINT_EVERY = 4096
"""Facts replayed before others get a turn: a stop while a long log is read is to be noticed."""

ROOM_RETRY_SECONDS = 1.0
"""How often a fact that must be told tries again while the disk is full."""


class Fold(Protocol):
    """State that follows from facts. Never fails on a fact that was told."""

    def apply(self, fact: Fact, time: str) -> None:
        """Take a fact that was just told."""
        ...

    def replay(self, head: Head) -> None:
        """Take a fact read from the log at start."""
        ...


class Clock(Protocol):
    """Wall time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


@attrs.frozen
class Told:
    """A fact in the tail."""

    seq: int
    code: Code
    correlation: str | None
    line: bytes
    frame: bytes


@attrs.frozen
class Page:
    """Facts in order, as they lie in the log.

    `after` is the number of the last fact looked at, when there may be more behind it; else None.
    """

    lines: list[bytes]
    after: int | None


@attrs.frozen
class Read:
    """What a cursor read: facts with their numbers, and where it now stands."""

    facts: list[tuple[int, bytes]]
    position: int


@attrs.frozen
class _Telling:
    """A fact on its way, its event already encoded."""

    fact: Fact
    data: msgspec.Raw


@attrs.define
class _Write:
    """A batch's lines, and where they were written."""

    time: str
    lines: list[bytes]
    path: Path | None = None
    offset: int = 0


class EventLog:
    """One door's log. Made by `open`; `run` is its pen."""

    def __init__(self, data: Path, encoder: EnvelopeEncoder, clock: Clock, fold: Fold) -> None:
        self._files = DayFiles(data)
        self._encoder = encoder
        self._clock = clock
        self._fold = fold
        self._index = EventIndex()
        self._tail: list[Told] = []
        self._tail_bytes = 0
        # Where the numbers in ids run apart from rows, because a day was removed: (row, seq) from there on.
        self._breaks: list[tuple[int, int]] = []
        self._next_seq = 0
        self._news = trio.Event()
        self._journal = Journal[_Telling, _Write](
            prepare=self._prepare, write=self._write, committed=self._committed
        )
        self._is_full = False

    @classmethod
    async def open(cls, data: Path, encoder: EnvelopeEncoder, clock: Clock, fold: Fold) -> "EventLog":
        """Read what was told, fold it, and cut off what a crash tore.

        Raises:
            OSError: a file cannot be read or written.
        """
        log = cls(data, encoder, clock, fold)
        paths = log._files.found()
        for number, path in enumerate(paths):
            await log._replay(path, is_last=number == len(paths) - 1)
        return log

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled, and what was told by then.

        Raises:
            OSError: the files are in an unknown state: open the log anew.
        """
        try:
            await self._journal.run(task_status=task_status)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file being written: for who opened a log and does not run it."""
        self._files.close()

    async def tell(self, *facts: Fact, room_seconds: float = inf) -> None:
        """Make facts durable, in order. While the disk is full this waits: a fact is never dropped.

        A caller that is cancelled meanwhile may still have told them. One whose facts are better not told
        than told late says how long it waits for room.

        Raises:
            NoRoom: there was none for so long; nothing was told.
            JournalUnavailable: the log has failed or stopped.
            UnicodeEncodeError, TypeError: a fact holds what JSON cannot; nothing was told.
        """
        if not facts:
            return
        give_up_at = trio.current_time() + room_seconds
        # Encoded here, so that what is no JSON fails its teller and not the pen of all.
        telling = [_Telling(fact, self._encoder.data(fact)) for fact in facts]
        while True:
            try:
                await self._journal.put(*telling).wait()
            except NoRoom as full:
                if trio.current_time() >= give_up_at:
                    raise
                self._note_full(full)
                await trio.sleep(ROOM_RETRY_SECONDS)
            else:
                return

    @property
    def end(self) -> int:
        """The number the next fact will have."""
        return self._next_seq

    @property
    def index(self) -> EventIndex:
        """The index, for statistics."""
        return self._index

    def statistics(self) -> JournalStatistics:
        """The pen's figures."""
        return self._journal.statistics()

    async def wait_for_news(self, position: int) -> None:
        """Wait until facts from number `position` on exist."""
        while self._next_seq <= position:
            await self._news.wait()

    async def page(self, query: EventQuery, after: int | None, limit: int) -> Page:
        """Up to `limit` facts (1 or more) that answer the query, numbered above `after`."""
        first = 0 if after is None else self._row_behind(after)
        exact = query.correlation is not None or query.since is not None or query.until is not None
        lines: list[bytes] = []
        size = last = 0
        while True:
            wanted = limit + 1 - len(lines)
            rows = list(islice(self._index.select(query, first), wanted))
            found = await self._lines(rows)
            for row, line in zip(rows, found, strict=False):
                if line is None or (exact and not _answers(query, line)):
                    continue
                if len(lines) == limit or (lines and size + len(line) > PAGE_BYTES):
                    return Page(lines, self._seq(last))
                lines.append(line)
                size += len(line)
                last = row
            if len(rows) < wanted and len(found) == len(rows):
                return Page(lines, None)
            first = rows[len(found) - 1] + 1

    async def read(self, query: EventQuery, position: int, most: int) -> Read:
        """Facts from number `position` on that answer the query, `most` at a time, for a cursor."""
        if self._tail and position >= self._tail[0].seq:
            return self._read_tail(query, position, most)
        first = self._row_behind(position - 1)
        end = self._next_seq
        rows = list(islice(self._index.select(query, first), most))
        lines = await self._lines(rows)
        facts: list[tuple[int, bytes]] = []
        for row, line in zip(rows, lines, strict=False):
            if line is not None and _answers(query, line):
                seq = self._seq(row)
                facts.append((seq, _frame(seq, line)))
        if len(rows) < most and len(lines) == len(rows):
            return Read(facts, end)
        return Read(facts, self._seq(rows[len(lines) - 1]) + 1)

    def position_after(self, identifier: str) -> int:
        """Where a stream goes on that last saw this event id; 0 when the id is not one of this log's."""
        seq = event_seq(identifier)
        return 0 if seq is None or seq >= self._next_seq else seq + 1

    def _read_tail(self, query: EventQuery, position: int, most: int) -> Read:
        tail = self._tail
        # Within the tail numbers have no gaps: gaps come from days removed before the start.
        at = position - tail[0].seq
        facts: list[tuple[int, bytes]] = []
        fits: dict[int, bool] = {}
        is_timed = query.since is not None or query.until is not None
        while at < len(tail) and len(facts) < most:
            told = tail[at]
            at += 1
            code = told.code
            fit = fits.get(id(code))
            if fit is None:
                fit = fits[id(code)] = code.fits(query)
            if not fit or (query.correlation is not None and query.correlation != told.correlation):
                continue
            if not is_timed or _answers(query, told.line):
                facts.append((told.seq, told.frame))
        return Read(facts, tail[0].seq + at)

    async def _lines(self, rows: list[int]) -> list[bytes | None]:
        """The lines of the first of these rows: fewer than rows where they are many bytes."""
        if not rows:
            return []
        tail_row = len(self._index) - len(self._tail)
        if rows[0] >= tail_row:
            return [self._tail[row - tail_row].line for row in rows]
        return await trio.to_thread.run_sync(self._files.read, rows, PAGE_BYTES)

    def _row_behind(self, seq: int) -> int:
        """The first row whose number is above `seq`."""
        row = len(self._index)
        for first_row, first_seq in reversed(self._breaks):
            if seq < first_seq:
                row = first_row
                continue
            return min(row, first_row + seq - first_seq + 1)
        return 0 if self._breaks else row

    def _seq(self, row: int) -> int:
        for first_row, first_seq in reversed(self._breaks):
            if row >= first_row:
                return first_seq + row - first_row
        return row

    def _prepare(self, telling: list[_Telling]) -> _Write:
        now = self._clock.now_ms()
        line, seq = self._encoder.line, self._next_seq
        lines = [line(told.fact, seq + at, now, told.data) for at, told in enumerate(telling)]
        return _Write(time_text(now), lines)

    def _write(self, write: _Write) -> None:
        write.path, write.offset = self._files.write(write.time[:10], write.lines)

    def _committed(self, telling: list[_Telling], write: _Write) -> None:
        if self._is_full:
            self._is_full = False
            logger.warning("there is room again: facts that waited are told now")
        time, source, offset = write.time, self._encoder.source, write.offset
        assert write.path is not None
        for told, line in zip(telling, write.lines, strict=True):
            fact, seq = told.fact, self._next_seq
            row = self._index.add(fact.type, fact.holder, source, fact.correlation, time)
            self._files.note(write.path, offset, len(line) + 1, row)
            self._number(row, seq)
            self._keep_in_tail(Told(seq, self._index.code(row), fact.correlation, line, _frame(seq, line)))
            offset += len(line) + 1
            self._next_seq = seq + 1
            self._fold.apply(fact, time)
        news, self._news = self._news, trio.Event()
        news.set()

    def _note_full(self, full: NoRoom) -> None:
        if not self._is_full:
            # Said once, not once a second for each that waits: the log of a full disk must not fill another.
            self._is_full = True
            logger.error("%s: facts wait to be told; free some room", full)

    def _number(self, row: int, seq: int) -> None:
        if not self._breaks or self._breaks[-1][1] + row - self._breaks[-1][0] != seq:
            self._breaks.append((row, seq))

    def _keep_in_tail(self, told: Told) -> None:
        self._tail.append(told)
        self._tail_bytes += len(told.line)
        if len(self._tail) > 2 * TAIL_FACTS or (self._tail_bytes > 2 * TAIL_BYTES and len(self._tail) > 1):
            # Dropped by halves, so that the cost a fact stays constant.
            drop = max(1, len(self._tail) // 2)
            self._tail_bytes -= sum(len(t.line) for t in self._tail[:drop])
            del self._tail[:drop]

    async def _replay(self, path: Path, *, is_last: bool) -> None:
        segment = self._files.begin(path, len(self._index))
        # An older peer's file is read as it is: it is never written, so nothing can be glued to its end.
        is_written = is_last and path.parent == self._files.folder
        gap: Gap | None = None
        without_pause = 0
        for found in stretches_of(path, torn_is_fact=not is_written):
            if gap is not None:
                _passed_over(path, gap)
            gap = found if isinstance(found, Gap) else None
            if isinstance(found, Stretch):
                self._replay_stretch(segment, found)
                without_pause += len(found.heads)
                if without_pause >= _CHECKPOINT_EVERY:
                    without_pause = 0
                    await trio.lowlevel.checkpoint()
        if is_written:
            file = LineFile(path)
            self._files.adopt_for_writing(file)
            if gap is not None:
                file.set_aside_from(gap.start)
        elif gap is not None:
            _passed_over(path, gap)

    def _replay_stretch(self, segment: Segment, found: Stretch) -> None:
        heads = found.heads
        self._number_heads(heads)
        self._index.add_many(heads)
        segment.add_many(found.offset, found.lengths)
        replay = self._fold.replay
        for head in heads:
            replay(head)

    def _number_heads(self, heads: Sequence[Head]) -> None:
        """Take the numbers from the ids: they run on, but where a day was removed."""
        row, seq = len(self._index), self._next_seq
        # Facts that stand side by side were told one after the other: the ends of a stretch say enough.
        end = seq + len(heads)
        if self._breaks and heads[0].id == event_id(seq) and heads[-1].id == event_id(end - 1):
            self._next_seq = end
            return
        for at, head in enumerate(heads):
            seq = max(seq, event_seq(head.id) or 0)
            self._number(row + at, seq)
            seq += 1
        self._next_seq = seq


def _passed_over(path: Path, gap: Gap) -> None:
    logger.error("%s: bytes %d to %d are no fact and are passed over", path, gap.start, gap.end)


def _frame(seq: int, line: bytes) -> bytes:
    """A server-sent event whose id is the fact's own (E07)."""
    return b"id: %b\ndata: %b\n\n" % (event_id(seq).encode(), line)


_times = msgspec.json.Decoder(Head)


def _answers(query: EventQuery, line: bytes) -> bool:
    if query.correlation is None and query.since is None and query.until is None:
        return True
    head = _times.decode(line)
    return (
        (query.correlation is None or head.correlationid == query.correlation)
        and (query.since is None or head.time >= query.since)
        and (query.until is None or head.time <= query.until)
    )
