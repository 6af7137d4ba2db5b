"""Which rows bear a key, in seven bytes a row: small hash tables, each over its own range of rows.

A dict of ten million correlations would cost gigabytes. Here a table takes `ROWS` rows and is never touched
again: nothing is sorted, merged or made larger, so that entering a row always costs the same. A hash of 32
bits may stand for two keys (about one chance in four thousand million a pair): whoever reads a row compares
the key itself.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

ROWS = 65_535
"""Rows of one table: their places in it, counted from 1, fit two bytes."""

_BUCKETS = 1 << 15
_BUCKET = _BUCKETS - 1
_HASH = 0xFFFFFFFF


class _Table:
    """For each bucket its newest place, and for each place the next older one of its bucket; 0 is none."""

    __slots__ = ("first", "hashes", "newest", "older")

    def __init__(self, first: int) -> None:
        self.first = first
        self.hashes = array("I")
        self.older = array("H")
        self.newest = array("H", bytes(2 * _BUCKETS))

    def add(self, keys: Iterable[str | None]) -> None:
        """Enter the keys of the next rows; None where a row bears none."""
        hashes, older, newest = self.hashes, self.older, self.newest
        for place, key in enumerate(keys, len(hashes) + 1):
            if key is None:
                hashes.append(0)
                older.append(0)
                continue
            short = hash(key) & _HASH
            bucket = short & _BUCKET
            hashes.append(short)
            older.append(newest[bucket])
            newest[bucket] = place

    def rows(self, short: int, first: int) -> list[int]:
        """Rows from `first` on with that hash, descending."""
        found = []
        hashes, older = self.hashes, self.older
        place = self.newest[short & _BUCKET]
        least = first - self.first
        while place > least and place:
            if hashes[place - 1] == short:
                found.append(self.first + place - 1)
            place = older[place - 1]
        return found


class KeyRows:
    """An append-only multimap from string keys to ascending row numbers."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: list[_Table] = []

    def add(self, key: str, row: int) -> None:
        """Enter a row, higher than every row before it."""
        table = self._tables[-1] if self._tables else None
        if table is None or row - table.first >= ROWS:
            table = _Table(row)
            self._tables.append(table)
        skipped = row - table.first - len(table.hashes)
        if skipped:
            table.add([None] * skipped)
        table.add((key,))

    def add_many(self, keys: list[str | None], row: int) -> None:
        """Enter rows from `row` on, higher than every row before them, each with its key or none."""
        rest = iter(keys)
        left = len(keys)
        while left:
            table = self._tables[-1] if self._tables else None
            if table is None or table.first + len(table.hashes) != row or len(table.hashes) == ROWS:
                table = _Table(row)
                self._tables.append(table)
            fits = min(left, ROWS - len(table.hashes))
            table.add(islice(rest, fits))
            row += fits
            left -= fits

    def rows(self, key: str, first: int = 0) -> Iterator[int]:
        """Rows from `first` on that bear the key, ascending; rarely one that bears another of its hash."""
        short = hash(key) & _HASH
        for table in tuple(self._tables):
            if table.first + len(table.hashes) > first:
                yield from reversed(table.rows(short, first))

    def size_bytes(self) -> int:
        """Memory held, in bytes."""
        return sum(
            part.buffer_info()[1] * part.itemsize
            for table in self._tables
            for part in (table.hashes, table.older, table.newest)
        )
