"""Sorted runs find the rows of a key as a dict of lists would, in whatever order they were merged."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.log import runs
from actors.log.runs import SortedRuns

KEYS = [f"key {n}" for n in range(9)]


class Multimap(RuleBasedStateMachine):
    """Rows are added one by one and in bulk; small bounds make runs form and merge all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.real = SortedRuns()
        self.model: dict[str, list[int]] = {key: [] for key in KEYS}
        self.next_row = 0

    @initialize(recent=st.integers(1, 6), largest=st.integers(1, 40), collide=st.booleans())
    def bounds(self, recent: int, largest: int, collide: bool) -> None:
        self.patch.setattr(runs, "RECENT", recent)
        self.patch.setattr(runs, "LARGEST", largest)
        if collide:
            # Keys that share their 32 bits, and the largest there are.
            self.patch.setattr(runs, "hash", lambda key: -1 - int(key[-1]) % 3, raising=False)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=20), gap=st.integers(0, 5))
    def add(self, keys: list[str], gap: int) -> None:
        for key in keys:
            self.real.add(key, self._row(key))
            self.next_row += gap

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=60))
    @precondition(lambda self: not self.real._recent)
    def add_in_bulk(self, keys: list[str]) -> None:
        self.real.add_run([self.real.pack(key, self._row(key)) for key in keys])

    def _row(self, key: str) -> int:
        self.model[key].append(self.next_row)
        self.next_row += 1
        return self.next_row - 1

    @rule(key=st.sampled_from(KEYS), place=st.integers(0, 1000), beside=st.integers(-1, 1))
    def look(self, key: str, place: int, beside: int) -> None:
        rows = self.model[key] or [0]
        first = max(0, rows[place % len(rows)] + beside)
        found = list(self.real.rows(key, first))
        own = [row for row in self.model[key] if row >= first]
        assert found == sorted(found)
        assert set(own) <= set(found)
        same_hash = {k for k in KEYS if runs.SortedRuns.pack(k, 0) == runs.SortedRuns.pack(key, 0)}
        assert found == sorted(r for k in same_hash for r in self.model[k] if r >= first)

    @invariant()
    def strangers_have_no_rows(self) -> None:
        if not hasattr(runs, "hash"):
            assert list(self.real.rows("a key nobody added")) == []

    @invariant()
    def every_run_covers_rows_of_its_own(self) -> None:
        last = -1
        for run in self.real._runs:
            rows = sorted(entry & 0xFFFFFFFF for entry in run)
            assert list(run) == sorted(run)
            assert rows[0] > last
            last = rows[-1]

    def teardown(self) -> None:
        self.patch.undo()


TestMultimap = Multimap.TestCase
TestMultimap.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=60))
@settings(max_examples=30, deadline=None)
def test_runs_stay_few_and_none_grows_without_end(sizes: list[int]) -> None:
    """Or a look-up would slow down, or one merge stop everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "LARGEST", 256)
        real = SortedRuns()
        for first, size in zip(accumulate([0, *sizes]), sizes, strict=False):
            real.add_run([real.pack("key", row) for row in range(first, first + size)])
        lengths = [len(run) for run in real._runs]
        assert sum(lengths) == sum(sizes)
        assert max(lengths) <= max(400, 3 * 256 // 2)
        small = [n for n in lengths if n <= 128]
        assert len(small) <= 9, "each at least twice the next"
        assert len(lengths) <= 9 + sum(sizes) // 128


def test_a_row_is_eight_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SortedRuns()
    real.add_run([real.pack(str(row), row) for row in range(10_000)])
    assert real.size_bytes() < 8.2 * 10_000
