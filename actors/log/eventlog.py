"""The event log: what was told, durable before anyone reads it (F4, F5, F6).

`tell` puts facts into the pen's batch; once durable they are indexed and folded in order, and then the
streams are woken together. A stream is a cursor: it reads the tail in memory, or files where it is behind.
"""

import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import attrs
import msgspec
import trio

from actors.log.days import DayFiles
from actors.log.index import Code, EventIndex, EventQuery
from actors.log.journal import Journal, JournalStatistics
from actors.log.linefile import LineFile, NoRoom, lines_of
from actors.messages.envelope import EnvelopeEncoder, Fact, Head, event_id, event_seq
from actors.messages.times import time_text

logger = logging.getLogger("best_peer.log")

TAIL_FACTS = 4096
TAIL_BYTES = 8 << 20
"""The newest facts stay in memory, as many as fit both: where live streams and most pages read."""

PAGE_BYTES = 4 << 20
"""A page ends early past this many bytes; its cursor goes on from there."""

ROOM_RETRY_SECONDS = 1.0
"""How often a fact that must be told tries again while the disk is full."""

_CHECKPOINT_EVERY = 4096


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
        self._journal = Journal[Fact, list[tuple[str, bytes]]](
            prepare=self._prepare, write=self._write, committed=self._committed
        )
        self._now_ms = 0
        self._placed: list[tuple[Path, int, int]] = []

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
        log._index.end_bulk()
        return log

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled, and what was told by then.

        Raises:
            OSError: the files are in an unknown state: open the log anew.
        """
        try:
            await self._journal.run(task_status=task_status)
        finally:
            self._files.close()

    async def tell(self, *facts: Fact) -> None:
        """Make facts durable, in order. While the disk is full this waits: a fact is never dropped.

        A caller that is cancelled meanwhile may still have told them.

        Raises:
            JournalUnavailable: the log has failed or stopped.
        """
        waiting: Sequence[Fact] = facts
        while True:
            try:
                batch = None
                for fact in waiting:
                    batch = self._journal.put(fact)
                if batch is not None:
                    await batch.wait()
            except NoRoom as full:
                logger.error("%s: waiting to tell %s; free some room", full, facts[0].type)  # noqa: TRY400
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
            for row, line in zip(rows, await self._lines(rows), strict=True):
                if line is None or (exact and not _answers(query, line)):
                    continue
                if len(lines) == limit or (lines and size + len(line) > PAGE_BYTES):
                    return Page(lines, self._seq(last))
                lines.append(line)
                size += len(line)
                last = row
            if len(rows) < wanted:
                return Page(lines, None)
            first = rows[-1] + 1

    async def read(self, query: EventQuery, position: int, most: int) -> Read:
        """Facts from number `position` on that answer the query, `most` at a time, for a cursor."""
        if self._tail and position >= self._tail[0].seq:
            return self._read_tail(query, position, most)
        first = self._row_behind(position - 1)
        end = self._next_seq
        rows = list(islice(self._index.select(query, first), most))
        facts: list[tuple[int, bytes]] = []
        for row, line in zip(rows, await self._lines(rows), strict=True):
            if line is not None and _answers(query, line):
                seq = self._seq(row)
                facts.append((seq, _frame(seq, line)))
        return Read(facts, self._seq(rows[-1]) + 1 if len(rows) == most else end)

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
        while at < len(tail) and len(facts) < most:
            told = tail[at]
            at += 1
            code = told.code
            fit = fits.get(id(code))
            if fit is None:
                fit = fits[id(code)] = code.fits(query)
            if fit and (query.correlation is None or query.correlation == told.correlation):
                facts.append((told.seq, told.frame))
        return Read(facts, tail[0].seq + at)

    async def _lines(self, rows: list[int]) -> list[bytes | None]:
        if not rows:
            return []
        tail_row = len(self._index) - len(self._tail)
        if rows[0] >= tail_row:
            return [self._tail[row - tail_row].line for row in rows]
        return await trio.to_thread.run_sync(self._files.read, rows)

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

    def _prepare(self, facts: list[Fact]) -> list[tuple[str, bytes]]:
        self._now_ms = self._clock.now_ms()
        day = time_text(self._now_ms)[:10]
        line, seq, now = self._encoder.line, self._next_seq, self._now_ms
        return [(day, line(fact, seq + at, now)) for at, fact in enumerate(facts)]

    def _write(self, lines: list[tuple[str, bytes]]) -> None:
        self._placed = self._files.write(lines)

    def _committed(self, facts: list[Fact], lines: list[tuple[str, bytes]]) -> None:
        time, source = time_text(self._now_ms), self._encoder.source
        for fact, (_, line), placed in zip(facts, lines, self._placed, strict=True):
            kind = fact.type
            row = self._index.add(kind, fact.holder, source, fact.correlation, time)
            self._files.note(*placed, row)
            self._number(row, self._next_seq)
            self._keep_in_tail(
                Told(
                    self._next_seq,
                    self._index.code(row),
                    fact.correlation,
                    line,
                    _frame(self._next_seq, line),
                )
            )
            self._next_seq += 1
            self._fold.apply(fact, time)
        news, self._news = self._news, trio.Event()
        news.set()

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
        decode = msgspec.json.Decoder(Head).decode
        add, note, replay = self._index.add_in_bulk, segment.add, self._fold.replay
        row, seq = len(self._index), self._next_seq
        offset, bad_from, count = 0, -1, 0
        for line in lines_of(path):
            length = len(line)
            try:
                head = decode(line)
                whole = line.endswith(b"\n") or not is_last
            except (msgspec.DecodeError, UnicodeDecodeError):
                whole = False
            if not whole:
                bad_from = offset if bad_from < 0 else bad_from
                offset += length
                continue
            if bad_from >= 0:
                logger.error("%s: bytes %d to %d are no fact and are passed over", path, bad_from, offset)
                bad_from = -1
            try:
                found = int(head.id[4:])
            except ValueError:
                found = seq
            if found != seq or not self._breaks:
                seq = max(found, seq)
                self._number(row, seq)
            add(head.type, head.holder, head.source, head.correlationid, head.time)
            note(offset, length)
            replay(head)
            offset += length
            row += 1
            seq += 1
            count += 1
            if count % _CHECKPOINT_EVERY == 0:
                await trio.lowlevel.checkpoint()
        self._next_seq = seq
        if is_last:
            file = LineFile(path)
            if bad_from >= 0:
                file.set_aside_from(bad_from)
            if path.parent == self._files.folder:
                self._files.adopt_for_writing(file)
            else:
                file.close()


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
