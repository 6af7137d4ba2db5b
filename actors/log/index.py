"""Where in the log a fact is, by correlation, holder, type and time: tens of bytes a fact.

A row is a fact's place in the log as it lies on disk, counted from 0. Facts of one holder, type and source
share a code; each code has its ascending rows, and so has each type that `all` keys read, whoever's it is.
Correlations are in sorted runs. Times are kept as the range of each block of rows, since a clock may jump
back and rows are not in the order of their times.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import attrs

from actors.log.runs import LARGEST, SortedRuns
from actors.rules.visibility import WORKLOAD_FACTS, Reader

BLOCK = 1024
"""Rows whose times are kept as one range."""


@attrs.frozen
class EventQuery:
    """Which facts a reader asks for; filters combine (E02).

    `reader` None is the machine's owner. Times are RFC 3339 text in the log's own form, inclusive.
    """

    reader: Reader | None
    type: str | None = None
    correlation: str | None = None
    source: str | None = None
    since: str | None = None
    until: str | None = None


@attrs.frozen
class Code:
    """What facts of one code have in common, and their rows."""

    holder: str | None
    type: str
    source: str
    rows: array[int] = attrs.field(factory=lambda: array("I"))

    def fits(self, query: EventQuery) -> bool:
        """Whether facts of this code pass the query's reader, type and source."""
        return (
            (query.type is None or query.type == self.type)
            and (query.source is None or query.source == self.source)
            and (query.reader is None or query.reader.may_read(self.holder, self.type))
        )


class EventIndex:
    """Finds rows. Adding one costs the same whatever the log's length."""

    def __init__(self) -> None:
        self._codes = array("I")
        self._code_list: list[Code] = []
        self._code_of: dict[tuple[str | None, str, str], int] = {}
        self._of_holder: dict[str | None, list[Code]] = {}
        self._public: dict[str, array[int]] = {}
        self._correlations = SortedRuns()
        self._bulk: list[int] = []
        self._earliest: list[str] = []
        self._latest: list[str] = []

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, kind: str, holder: str | None, source: str, correlation: str | None, time: str) -> int:
        """Enter the next fact; its row."""
        row = self._add(kind, holder, source, time)
        if correlation is not None:
            self._correlations.add(correlation, row)
        return row

    def add_in_bulk(
        self, kind: str, holder: str | None, source: str, correlation: str | None, time: str
    ) -> None:
        """Enter the next fact while the log is read at start; `end_bulk` afterwards."""
        row = self._add(kind, holder, source, time)
        if correlation is not None:
            bulk = self._bulk
            bulk.append((hash(correlation) & 0xFFFFFFFF) << 32 | row)
            if len(bulk) >= LARGEST:
                self.end_bulk()

    def end_bulk(self) -> None:
        """Make what was entered in bulk findable."""
        if self._bulk:
            self._correlations.add_run(self._bulk)
            self._bulk = []

    def code(self, row: int) -> Code:
        """What the fact of a row shares with others."""
        return self._code_list[self._codes[row]]

    def select(self, query: EventQuery, first: int = 0) -> Iterator[int]:
        """Rows from `first` on that may answer the query, ascending.

        Reader, type and source are exact. Correlation and time are not: whoever reads the line compares.
        """
        first, end = self._within_times(query, first)
        if query.correlation is not None:
            codes, code_list = self._codes, self._code_list
            fits: dict[int, bool] = {}
            for row in self._correlations.rows(query.correlation, first):
                if row >= end:
                    return
                number = codes[row]
                fit = fits.get(number)
                if fit is None:
                    fit = fits[number] = code_list[number].fits(query)
                if fit:
                    yield row
            return
        if query.reader is None and query.type is None and query.source is None:
            yield from range(first, end)
            return
        yield from _merge(self._sequences(query), first, end)

    def size_bytes(self) -> int:
        """Memory held for rows, in bytes."""
        arrays = [self._codes, *(code.rows for code in self._code_list), *self._public.values()]
        return self._correlations.size_bytes() + sum(a.buffer_info()[1] * a.itemsize for a in arrays)

    def _add(self, kind: str, holder: str | None, source: str, time: str) -> int:
        codes = self._codes
        row = len(codes)
        key = (holder, kind, source)
        number = self._code_of.get(key)
        if number is None:
            number = self._new_code(key)
        codes.append(number)
        self._code_list[number].rows.append(row)
        if kind in WORKLOAD_FACTS:
            self._public[kind].append(row)
        if row % BLOCK == 0:
            self._earliest.append(time)
            self._latest.append(time)
        else:
            if time > self._latest[-1]:
                self._latest[-1] = time
            if time < self._earliest[-1]:
                self._earliest[-1] = time
        return row

    def _new_code(self, key: tuple[str | None, str, str]) -> int:
        number = self._code_of[key] = len(self._code_list)
        code = Code(*key)
        self._code_list.append(code)
        self._of_holder.setdefault(code.holder, []).append(code)
        if code.type in WORKLOAD_FACTS:
            self._public.setdefault(code.type, array("I"))
        return number

    def _sequences(self, query: EventQuery) -> list[Sequence[int]]:
        reader = query.reader
        if reader is None or query.source is not None:
            # The owner's console and a filter by source look at every code: holders times types.
            return [code.rows for code in self._code_list if code.fits(query)]
        own = [code for code in self._of_holder.get(reader.holder, ()) if code.fits(query)]
        if not reader.sees_all:
            return [code.rows for code in own]
        public = [rows for kind, rows in self._public.items() if query.type is None or query.type == kind]
        return [*public, *(code.rows for code in own if code.type not in WORKLOAD_FACTS)]

    def _within_times(self, query: EventQuery, first: int) -> tuple[int, int]:
        end = len(self._codes)
        if query.since is not None:
            since = query.since
            block = next((b for b, latest in enumerate(self._latest) if latest >= since), None)
            first = end if block is None else max(first, block * BLOCK)
        if query.until is not None:
            until = query.until
            last = len(self._earliest) - 1
            while last >= 0 and self._earliest[last] > until:
                last -= 1
            end = min(end, (last + 1) * BLOCK)
        return first, end


def _merge(sequences: list[Sequence[int]], first: int, end: int) -> Iterator[int]:
    walks = [_walk(rows, first, end) for rows in sequences]
    return walks[0] if len(walks) == 1 else heapq.merge(*walks)


def _walk(rows: Sequence[int], first: int, end: int) -> Iterator[int]:
    for at in range(bisect_left(rows, first), len(rows)):
        row = rows[at]
        if row >= end:
            return
        yield row
