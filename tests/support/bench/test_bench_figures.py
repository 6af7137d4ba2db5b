"""The benchmarks' own arithmetic, and what they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bench.figures import Goal, Line, Pairs, Spread, alternate
from tests.support.bench.history import BLOCK, HOLDER, write_history
from tests.support.bench.report import Results, markdown_text, terminal_text

MISSED = Line("reading", "50/s", "100/s", 0.5, "0.50", Goal("at least", 0.85), "it is slow")
MET = Line("writing", "99/s", "100/s", 0.99, "0.99", Goal("at least", 0.85), "never told")


def test_a_ratio_is_taken_round_by_round_so_that_a_slow_round_slows_both() -> None:
    pairs = Pairs((10.0, 1.0, 10.0), (20.0, 2.0, 20.0))
    assert pairs.ratio == Spread(0.5, 0.5, 0.5)


def test_a_spread_has_the_quartiles() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(3, 2, 4)


@pytest.mark.parametrize(
    ("goal", "reached", "missed"),
    [(Goal("at least", 0.85), 0.85, 0.84), (Goal("at most", 2), 2, 2.01), (Goal("under", 1, "%"), 0.9, 1)],
)
def test_a_goal_is_met_from_its_value_on(goal: Goal, reached: float, missed: float) -> None:
    assert goal.is_met(reached)
    assert not goal.is_met(missed)


def test_measures_alternate_and_change_places() -> None:
    order: list[str] = []
    alternate(2, lambda: order.append("ours"), lambda: order.append("baseline"))
    assert order == ["ours", "baseline", "baseline", "ours"]


def test_a_miss_is_told_with_its_cause_and_a_met_goal_without() -> None:
    results = Results(["a machine"], "scripts/bench", {"reads": [MISSED, MET]}, {"start": "no program"})
    document = markdown_text(results)
    assert "| reading | 50/s | 100/s | 0.50 | at least 0.85x | **no** |" in document
    assert "- **reading** (0.50): it is slow\n" in document
    assert "never told" not in document
    assert "- **start** could not be measured: no program\n" in document
    assert "MISSED  0.50 (goal at least 0.85x)" in terminal_text(results)


def test_a_log_with_a_past_is_whole_blocks_with_a_conversation_each(tmp_path: Path) -> None:
    history = write_history(tmp_path, 2 * BLOCK)
    days = sorted((tmp_path / "events").iterdir())
    lines = [line for day in days for line in day.read_bytes().splitlines(keepends=True)]
    assert len(lines) == history.facts == 2 * BLOCK
    assert sum(map(len, lines)) == history.size_bytes
    for conversation in history.conversations:
        own = [line for line in lines if conversation.encode() in line]
        assert len(own) > 100
        assert all(f'"holder":"{HOLDER}"'.encode() in line for line in own)
