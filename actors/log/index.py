"""Where in the log a fact is, by correlation, holder, type and time: tens of bytes a fact.

A row is a fact's place in the log as it lies on disk, counted from 0. Facts of one holder, type and source
share a code; each code has its ascending rows, and so has each type that `all` keys read, whoever's it is.
Correlations are in small hash tables. Times are kept as the range of each block of rows, since a clock may
jump back and rows are not in the order of their times.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import cast

import attrs

from actors.log.keyrows import KeyRows
from actors.messages.envelope import Head
from actors.rules.visibility import SHARED_FACTS, Reader

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
        # For each code the arrays that take its rows: its own, and its type's where `all` keys read it.
        self._places: list[tuple[array[int], ...]] = []
        self._of_holder: dict[str | None, list[Code]] = {}
        self._public: dict[str, array[int]] = {}
        self._correlations = KeyRows()
        self._earliest: list[str] = []
        self._latest: list[str] = []

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, kind: str, holder: str | None, source: str, correlation: str | None, time: str) -> int:
        """Enter the next fact; its row."""
        row = len(self._codes)
        key = (holder, kind, source)
        number = self._code_of.get(key)
        if number is None:
            number = self._new_code(key)
        self._codes.append(number)
        for rows in self._places[number]:
            rows.append(row)
        self._note_times(row, time, time)
        if correlation is not None:
            self._correlations.add(correlation, row)
        return row

    def add_many(self, heads: Sequence[Head]) -> None:
        """Enter the next facts: the same as `add` for each, but column by column and so much faster."""
        first = len(self._codes)
        numbers = self._numbers([(head.holder, head.type, head.source) for head in heads])
        self._codes.extend(numbers)
        places = self._places
        for row, number in enumerate(numbers, first):
            for rows in places[number]:
                rows.append(row)
        times = [head.time for head in heads]
        for at, until in _blocks(first, len(times)):
            self._note_times(first + at, min(times[at:until]), max(times[at:until]))
        self._correlations.add_many([head.correlationid for head in heads], first)

    def code(self, row: int) -> Code:
        """What the fact of a row shares with others."""
        return self._code_list[self._codes[row]]

    def select(self, query: EventQuery, first: int = 0) -> Iterator[int]:
        """Rows from `first` on that may answer the query, ascending.

        Reader, type and source are exact. Correlation and time are not: whoever reads the line compares.
        """
        for start, end in self._within_times(query, first):
            yield from self._select_within(query, start, end)

    def size_bytes(self) -> int:
        """Memory held for rows, in bytes."""
        arrays = [self._codes, *(code.rows for code in self._code_list), *self._public.values()]
        return self._correlations.size_bytes() + sum(a.buffer_info()[1] * a.itemsize for a in arrays)

    def _numbers(self, keys: list[tuple[str | None, str, str]]) -> list[int]:
        while True:
            numbers = [self._code_of.get(key) for key in keys]
            if None not in numbers:
                return cast("list[int]", numbers)
            for key, number in zip(keys, numbers, strict=True):
                if number is None and key not in self._code_of:
                    self._new_code(key)

    def _new_code(self, key: tuple[str | None, str, str]) -> int:
        number = self._code_of[key] = len(self._code_list)
        code = Code(*key)
        self._code_list.append(code)
        self._of_holder.setdefault(code.holder, []).append(code)
        if code.type in SHARED_FACTS:
            self._places.append((code.rows, self._public.setdefault(code.type, array("I"))))
        else:
            self._places.append((code.rows,))
        return number

    def _note_times(self, row: int, earliest: str, latest: str) -> None:
        """Widen the range of the row's block by facts of that block."""
        if row % BLOCK == 0:
            self._earliest.append(earliest)
            self._latest.append(latest)
            return
        if latest > self._latest[-1]:
            self._latest[-1] = latest
        if earliest < self._earliest[-1]:
            self._earliest[-1] = earliest

    def _sequences(self, query: EventQuery) -> list[Sequence[int]]:
        reader = query.reader
        if reader is None or query.source is not None:
            # The owner's console and a filter by source look at every code: holders times types.
            return [code.rows for code in self._code_list if code.fits(query)]
        own = [code for code in self._of_holder.get(reader.holder, ()) if code.fits(query)]
        if not reader.sees_all:
            return [code.rows for code in own]
        public = [rows for kind, rows in self._public.items() if query.type is None or query.type == kind]
        return [*public, *(code.rows for code in own if code.type not in SHARED_FACTS)]

    def _select_within(self, query: EventQuery, first: int, end: int) -> Iterator[int]:
        if query.correlation is not None:
            return self._correlated(query, query.correlation, first, end)
        if query.reader is None and query.type is None and query.source is None:
            return iter(range(first, end))
        return _merge(self._sequences(query), first, end)

    def _correlated(self, query: EventQuery, correlation: str, first: int, end: int) -> Iterator[int]:
        codes, code_list = self._codes, self._code_list
        fits: dict[int, bool] = {}
        for row in self._correlations.rows(correlation, first):
            if row >= end:
                return
            number = codes[row]
            fit = fits.get(number)
            if fit is None:
                fit = fits[number] = code_list[number].fits(query)
            if fit:
                yield row

    def _within_times(self, query: EventQuery, first: int) -> Iterator[tuple[int, int]]:
        """Ranges of rows from `first` on whose blocks may hold what the query's times ask for.

        Block by block: one wrong hour of the clock must not make each later query read the whole log.
        """
        end = len(self._codes)
        if query.since is None and query.until is None:
            yield first, end
            return
        since, until = query.since or "", query.until
        start = -1
        for block in range(first // BLOCK, len(self._latest)):
            if self._latest[block] >= since and (until is None or self._earliest[block] <= until):
                if start < 0:
                    start = max(first, block * BLOCK)
            elif start >= 0:
                yield start, block * BLOCK
                start = -1
        if start >= 0:
            yield start, end


def _blocks(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Rows from `first` on, `count` of them, cut where blocks begin: each piece from and until, from 0."""
    at = 0
    while at < count:
        until = min(count, at + BLOCK - (first + at) % BLOCK)
        yield at, until
        at = until


def _merge(sequences: list[Sequence[int]], first: int, end: int) -> Iterator[int]:
    walks = [_walk(rows, first, end) for rows in sequences]
    return walks[0] if len(walks) == 1 else heapq.merge(*walks)


def _walk(rows: Sequence[int], first: int, end: int) -> Iterator[int]:
    for at in range(bisect_left(rows, first), len(rows)):
        row = rows[at]
        if row >= end:
            return
        yield row
