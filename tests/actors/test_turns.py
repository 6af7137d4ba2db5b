"""Turns come in the order they were asked for (F23)."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.turns import Turn, Turns


async def test_turns_come_in_the_order_of_lining_up_whatever_runs_first() -> None:
    turns = Turns(1)
    places = [turns.line_up() for _ in range(20)]
    came: list[int] = []

    async def take(number: int) -> None:
        async with places[number]:
            came.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in reversed(range(20)):
            nursery.start_soon(take, number)
    assert came == list(range(20))
    assert turns.statistics() == (0, 0)


async def test_so_many_have_their_turn_at_once() -> None:
    turns = Turns(3)
    places = [turns.line_up() for _ in range(5)]
    assert [p.come.is_set() for p in places] == [True, True, True, False, False]
    places[1].give_back()
    assert places[3].come.is_set()
    assert not places[4].come.is_set()


async def test_who_leaves_the_line_holds_up_nobody() -> None:
    """A count that does not come back after a cancel (httpcore #1093)."""
    turns = Turns(1)
    first, second, third = turns.line_up(), turns.line_up(), turns.line_up()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with second:
            pytest.fail("it was not its turn")
    first.give_back()
    assert third.come.is_set()
    third.give_back()
    assert turns.statistics() == (0, 0)


async def test_giving_back_twice_gives_one_place_back() -> None:
    turns = Turns(1)
    first, second, third = turns.line_up(), turns.line_up(), turns.line_up()
    first.give_back()
    first.give_back()
    assert second.come.is_set()
    assert not third.come.is_set()


@given(st.integers(1, 4), st.lists(st.integers(-1, 30), max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_more_than_may_have_their_turn_and_none_waits_beside_a_free_place(
    at_once: int, steps: list[int]
) -> None:
    """-1 lines up; any other number gives the turn of one back, waiting or not."""
    turns, places, left = Turns(at_once), list[Turn](), set[int]()
    for step in steps:
        if step < 0:
            places.append(turns.line_up())
        elif step < len(places):
            places[step].give_back()
            left.add(step)
        present = [n for n in range(len(places)) if n not in left]
        assert [n for n in present if places[n].come.is_set()] == present[:at_once]
