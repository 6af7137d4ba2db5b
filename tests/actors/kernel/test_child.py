"""Restart budgets and back-off are plain arithmetic over the caller's clock."""

from __future__ import annotations

from actors.kernel.child import Backoff, Budget, RestartCount


def test_a_back_off_doubles_up_to_its_most() -> None:
    backoff = Backoff(first=0.5, most=3.0)
    assert [backoff.seconds(n) for n in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_back_off_stays_finite_after_any_number_of_attempts() -> None:
    assert Backoff().seconds(10_000) == 10.0


def test_restarts_are_numbered_until_the_budget_is_gone() -> None:
    count = RestartCount(Budget(restarts=3, seconds=10))
    assert [count.spend(t) for t in (0.0, 1.0, 2.0, 3.0)] == [1, 2, 3, None]
    assert count.total == 3


def test_a_restart_comes_back_when_its_window_has_passed() -> None:
    count = RestartCount(Budget(restarts=2, seconds=10))
    assert [count.spend(t) for t in (0.0, 5.0, 9.9, 10.0)] == [1, 2, None, 2]


def test_a_budget_of_none_allows_no_restart() -> None:
    assert RestartCount(Budget(restarts=0)).spend(0.0) is None
