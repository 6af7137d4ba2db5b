"""What is kept in memory of a fact that is on disk: tens of bytes, whatever the fact."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from actors.log.days import DayFiles
from actors.log.index import EventIndex
from actors.messages.envelope import Head
from actors.messages.times import time_text

FACTS = 200_000
MOST_BYTES = 64
KINDS = ("PromptAnswered", "PromptAnswered", "DeploymentStarted", "DeploymentReady", "Undeployed")


def test_a_fact_costs_at_most_64_bytes_with_a_correlation_of_its_own(tmp_path: Path) -> None:
    assert _filled(tmp_path, FACTS) / FACTS <= MOST_BYTES


def test_what_it_says_of_itself_is_what_it_takes(tmp_path: Path) -> None:
    facts = FACTS // 5
    tracemalloc.start()
    keep: list[object] = []
    told = _filled(tmp_path, facts, keep)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(keep) == 2
    # Beside what grows with the facts: codes, block times, and lists that are given back.
    assert told <= taken <= 1.3 * told + 500_000


def test_a_fact_told_live_costs_no_more() -> None:
    index = EventIndex()
    for row in range(FACTS):
        index.add(KINDS[row % 5], f"h-{row % 50}", "urn:x", f"correlation-{row}", "2026-11-30T00:00:00.000Z")
    assert index.size_bytes() / FACTS <= MOST_BYTES - 8


def _head(row: int) -> Head:
    time = time_text(1_796_000_000_000 + row)
    return Head(
        f"evt-{row}", KINDS[row % 5], time, "urn:best-peer:x", f"correlation-{row}", None, f"h-{row % 50}"
    )


def _filled(folder: Path, facts: int, keep: list[object] | None = None) -> int:
    """Fill an index and the offsets of a file as a start does; the bytes they say they take."""
    index, files = EventIndex(), DayFiles(folder)
    if keep is not None:
        keep += [index, files]
    segment = files.begin(folder / "2026-11-30.jsonl", 0)
    for first in range(0, facts, 100):
        index.add_many([_head(row) for row in range(first, first + 100)])
        segment.add_many(600 * first, [600] * 100)
    return index.size_bytes() + len(segment.offsets) * segment.offsets.itemsize
