"""Which rows bear a key, in eight bytes a row: sorted runs of (32-bit hash, row).

A dict of ten million correlations would cost gigabytes. Here the last few thousand entries stay in a small
dict and older ones in sorted arrays, each covering its own range of rows; two neighbours of one size are
merged, up to `LARGEST`, so that no merge stops the loop for more than some milliseconds. A hash may stand for
two keys (about one chance in four thousand million a pair): whoever reads a row compares the key itself.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

RECENT = 8192
"""Entries kept in the dict before they become a run."""

LARGEST = 1 << 18
"""Entries of a run that is merged no more."""

_LOW = 0xFFFFFFFF


class SortedRuns:
    """An append-only multimap from string keys to ascending row numbers below 2^32."""

    __slots__ = ("_count", "_recent", "_runs")

    def __init__(self) -> None:
        self._runs: list[array[int]] = []
        self._recent: dict[int, list[int]] = {}
        self._count = 0

    def add(self, key: str, row: int) -> None:
        """Enter a row, higher than every row before it."""
        short = hash(key) & _LOW
        rows = self._recent.get(short)
        if rows is None:
            self._recent[short] = [row]
        else:
            rows.append(row)
        self._count += 1
        if self._count >= RECENT:
            packed = [short << 32 | row for short, rows in self._recent.items() for row in rows]
            self._recent = {}
            self._count = 0
            self.add_run(packed)

    @staticmethod
    def pack(key: str, row: int) -> int:
        """The entry of a key and a row, for `add_run`."""
        return (hash(key) & _LOW) << 32 | row

    def add_run(self, packed: list[int]) -> None:
        """Enter many rows at once, all higher than every row before them; the list is taken over."""
        packed.sort()
        self._runs.append(array("Q", packed))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]) <= LARGEST:
            last = self._runs.pop()
            merged = [*self._runs.pop(), *last]
            merged.sort()  # two sorted halves: one linear pass of timsort
            self._runs.append(array("Q", merged))

    def rows(self, key: str, first: int = 0) -> Iterator[int]:
        """Rows from `first` on that bear the key, ascending; rarely one that bears another of its hash."""
        short = hash(key) & _LOW
        low, high = short << 32 | first, (short + 1) << 32
        for run in self._runs:
            at = bisect_left(run, low)
            while at < len(run) and run[at] < high:
                yield run[at] & _LOW
                at += 1
        for row in tuple(self._recent.get(short, ())):
            if row >= first:
                yield row

    def size_bytes(self) -> int:
        """Memory held by the runs, in bytes."""
        return sum(run.buffer_info()[1] * run.itemsize for run in self._runs)
