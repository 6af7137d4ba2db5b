"""What is kept in memory of a fact that is on disk: tens of bytes, whatever the fact."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from actors.log.days import DayFiles
from actors.log.index import EventIndex
from actors.messages.times import time_text

FACTS = 200_000
MOST_BYTES = 64
KINDS = ("PromptAnswered", "PromptAnswered", "DeploymentStarted", "DeploymentReady", "Undeployed")


def test_a_fact_costs_at_most_64_bytes_with_a_correlation_of_its_own(tmp_path: Path) -> None:
    index, files = EventIndex(), DayFiles(tmp_path)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    segment = files.begin(tmp_path / "2026-11-30.jsonl", 0)
    for row in range(FACTS):
        kind, holder = KINDS[row % 5], f"h-{row % 50}"
        time = time_text(1_796_000_000_000 + row)
        index.add_in_bulk(kind, holder, "urn:best-peer:x", f"correlation-{row}", time)
        segment.add(600 * row, 600)
    index.end_bulk()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    told = index.size_bytes() + len(segment.offsets) * segment.offsets.itemsize
    assert told / FACTS <= MOST_BYTES
    # What it says of itself is what it takes, up to what does not grow with the facts.
    assert (after - before) / FACTS <= MOST_BYTES
    assert after - before <= 1.3 * told + 500_000


def test_a_fact_told_live_costs_no_more(tmp_path: Path) -> None:
    index = EventIndex()
    for row in range(FACTS):
        index.add(KINDS[row % 5], f"h-{row % 50}", "urn:x", f"correlation-{row}", "2026-11-30T00:00:00.000Z")
    assert index.size_bytes() / FACTS <= MOST_BYTES - 8
