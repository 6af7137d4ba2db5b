"""The rows of a key are found as a dict of lists would find them, however they were entered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from actors.log import keyrows
from actors.log.keyrows import KeyRows

KEYS = [f"key {n}" for n in range(9)]
SOME = st.lists(st.sampled_from([*KEYS, None]), max_size=20)


class Multimap(RuleBasedStateMachine):
    """Rows are entered one by one and many at once; small tables fill and share buckets all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.real = KeyRows()
        self.model: dict[str, list[int]] = {key: [] for key in KEYS}
        self.next_row = 0

    @initialize(rows=st.integers(1, 30), buckets=st.sampled_from([1, 2, 8]), collide=st.booleans())
    def bounds(self, rows: int, buckets: int, collide: bool) -> None:
        self.patch.setattr(keyrows, "ROWS", rows)
        self.patch.setattr(keyrows, "_BUCKETS", buckets)
        self.patch.setattr(keyrows, "_BUCKET", buckets - 1)
        if collide:
            # Keys that share all 32 bits, and the largest there are.
            self.patch.setattr(keyrows, "hash", lambda key: -1 - int(key[-1]) % 3, raising=False)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=20), gap=st.integers(0, 40))
    def add(self, keys: list[str], gap: int) -> None:
        for key in keys:
            self.real.add(key, self._row(key))
            self.next_row += gap

    @rule(keys=SOME)
    def add_many(self, keys: list[str | None]) -> None:
        first = self.next_row
        for key in keys:
            self._row(key)
        self.real.add_many(keys, first)

    def _row(self, key: str | None) -> int:
        if key is not None:
            self.model[key].append(self.next_row)
        self.next_row += 1
        return self.next_row - 1

    @rule(key=st.sampled_from(KEYS), place=st.integers(0, 1000), beside=st.integers(-1, 1))
    def look(self, key: str, place: int, beside: int) -> None:
        rows = self.model[key] or [0]
        first = max(0, rows[place % len(rows)] + beside)
        same = [k for k in KEYS if self._short(k) == self._short(key)]
        assert list(self.real.rows(key, first)) == sorted(
            r for k in same for r in self.model[k] if r >= first
        )

    @rule()
    def look_for_a_stranger(self) -> None:
        assert self._collides or list(self.real.rows("a key nobody entered")) == []

    def _short(self, key: str) -> int:
        short: int = getattr(keyrows, "hash", hash)(key) & 0xFFFFFFFF
        return short

    @property
    def _collides(self) -> bool:
        return hasattr(keyrows, "hash")

    def teardown(self) -> None:
        self.patch.undo()


TestMultimap = Multimap.TestCase
TestMultimap.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(first=st.integers(0, 300), rows=st.integers(1, 50))
@settings(max_examples=30, deadline=None)
def test_one_key_on_every_row_is_found_from_any_row_on(first: int, rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyrows, "ROWS", rows)
        real = KeyRows()
        real.add_many(["key"] * 300, 0)
        assert list(real.rows("key", first)) == list(range(first, 300))


def test_tables_of_full_size_hold_their_last_row() -> None:
    real, count = KeyRows(), 2 * keyrows.ROWS + 1
    real.add_many([str(row) for row in range(count)], 0)
    for row in (0, keyrows.ROWS - 1, keyrows.ROWS, count - 2, count - 1):
        assert list(real.rows(str(row))) == [row]
    assert len(real._tables) == 3


def test_a_row_one_past_a_table_begins_the_next() -> None:
    real = KeyRows()
    real.add("a", 0)
    real.add("b", keyrows.ROWS - 1)
    real.add("c", 2 * keyrows.ROWS - 1)
    real.add("d", 2 * keyrows.ROWS)
    assert [list(real.rows(key)) for key in "abcd"] == [
        [0],
        [keyrows.ROWS - 1],
        [2 * keyrows.ROWS - 1],
        [2 * keyrows.ROWS],
    ]
    only = KeyRows()
    only.add("a", 7)
    only.add("b", 7 + keyrows.ROWS)
    assert [list(only.rows(key)) for key in "ab"] == [[7], [7 + keyrows.ROWS]]


def test_a_row_is_seven_bytes() -> None:
    real = KeyRows()
    real.add_many([str(row) for row in range(keyrows.ROWS)], 0)
    assert real.size_bytes() <= 7.5 * keyrows.ROWS
