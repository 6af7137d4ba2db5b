"""What is said of the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from peer.checks.clock import Kept, judge, kept_in_step, look, newest_fact

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
FACT = (
    '{"specversion":"1.0","id":"evt-1","source":"urn:x","type":"JobStarted","time":"%s",'
    '"correlationid":"c","causationid":"c","holder":"h","data":{}}\n'
)


@pytest.mark.parametrize("year", [1970, 2025, 2105])
def test_a_year_that_cannot_be_is_a_problem(year: int) -> None:
    (line,) = judge(datetime(year, 6, 1, tzinfo=UTC).timestamp(), "yes", None)
    assert line.state == "problem"
    assert f"{year}-06-01" in line.what


@pytest.mark.parametrize(("kept", "state"), [("yes", "ok"), ("unknown", "ok"), ("no", "warning")])
def test_a_clock_that_nothing_keeps_in_step_is_a_warning(kept: Kept, state: str) -> None:
    (line,) = judge(NOW, kept, NOW - 60)
    assert line.state == state
    assert "2026-11-30 12:00:00 UTC" in line.what


def test_whether_it_is_kept_is_unknown_and_not_fine_where_nobody_says() -> None:
    assert "cannot be told here" in judge(NOW, "unknown", None)[0].what


def test_a_log_that_is_ahead_shows_that_the_clock_was_set_back() -> None:
    first, _ = judge(NOW, "yes", NOW + 3600)
    assert first.state == "warning"
    assert "1 h ahead" in first.what
    assert [line.state for line in judge(NOW, "yes", NOW + 1)] == ["ok"]


def test_the_newest_fact_is_the_last_whole_line(tmp_path: Path) -> None:
    assert newest_fact(tmp_path) is None
    (tmp_path / "events").mkdir()
    day = tmp_path / "events" / "2026-11-30.jsonl"
    day.write_text("")
    assert newest_fact(tmp_path) is None
    day.write_text(FACT % "2026-11-30T11:00:00.000Z" + FACT % "2026-11-30T12:00:00.000Z" + '{"torn')
    assert newest_fact(tmp_path) == NOW
    day.write_text("no fact\n")
    assert newest_fact(tmp_path) is None


def test_the_kernel_is_asked_and_nothing_is_set(tmp_path: Path) -> None:
    assert kept_in_step() in ("yes", "no", "unknown")
    assert look(tmp_path)[0].subject == "clock"
