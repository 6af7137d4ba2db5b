"""Sixty new commands in any sixty seconds (F7)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.rules.pace import WINDOW_SECONDS, Pace
from actors.rules.refusal import Refusal


def accepted(pace: Pace, holder: str, now: float) -> bool:
    try:
        pace.check(holder, now)
    except Refusal:
        return False
    pace.count(holder, now)
    return True


def test_refuses_the_command_past_the_limit_with_the_seconds_to_wait() -> None:
    pace = Pace(2)
    assert accepted(pace, "h", 10.0)
    assert accepted(pace, "h", 20.5)
    with pytest.raises(Refusal) as refused:
        pace.check("h", 30.0)
    assert refused.value.code == "TOO_MANY_COMMANDS"
    assert refused.value.details == {"limit": 2, "retry_after_seconds": 40}
    assert accepted(pace, "h", 70.0)
    assert not accepted(pace, "h", 70.0)


def test_a_refused_command_does_not_count() -> None:
    pace = Pace(1)
    assert accepted(pace, "h", 0.0)
    assert not any(accepted(pace, "h", float(now)) for now in range(1, 60))
    assert accepted(pace, "h", 60.0)


def test_the_wait_is_a_second_at_least() -> None:
    pace = Pace(1)
    assert accepted(pace, "h", 0.0)
    with pytest.raises(Refusal) as refused:
        pace.check("h", 59.9999)
    assert refused.value.details["retry_after_seconds"] == 1


def test_one_holder_costs_no_other() -> None:
    pace = Pace(1)
    assert accepted(pace, "h-1", 0.0)
    assert accepted(pace, "h-2", 0.0)


def test_a_command_that_was_not_kept_is_uncounted() -> None:
    pace = Pace(1)
    assert accepted(pace, "h", 0.0)
    pace.take_back("h")
    assert accepted(pace, "h", 1.0)
    pace.take_back("a stranger")


@given(st.integers(1, 5), st.lists(st.floats(0, 40), max_size=40))
@settings(max_examples=100, deadline=None)
def test_no_window_of_sixty_seconds_ever_holds_more(most: int, gaps: list[float]) -> None:
    pace, now = Pace(most), 1000.0
    times: list[float] = []
    for gap in gaps:
        now += gap
        fits = sum(now - t < WINDOW_SECONDS for t in times) < most
        assert accepted(pace, "h", now) is fits
        if fits:
            times.append(now)
