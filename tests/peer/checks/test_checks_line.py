"""Looks: each is bounded, none ends the others, and their lines come in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from peer.checks.line import Line, Look, in_thread, lines_of, look_at_all, ok, problem, warning, worst

if TYPE_CHECKING:
    from collections.abc import Sequence


def said(*lines: Line) -> Look:
    async def run() -> Sequence[Line]:
        await trio.lowlevel.checkpoint()
        return lines

    return Look("said", run)


@pytest.fixture
def autojump_clock() -> MockClock:
    return MockClock(autojump_threshold=0)


async def test_a_look_that_hangs_is_a_line_and_hides_no_other(autojump_clock: MockClock) -> None:
    async def hang() -> Sequence[Line]:
        await trio.sleep_forever()
        raise AssertionError

    told: list[Line] = []
    await look_at_all([Look("disk", hang, seconds=7), said(ok("after", "it"))], told.append)
    assert [line.subject for line in told] == ["disk", "after"]
    assert told[0].state == "problem"
    assert "no answer within 7 seconds" in told[0].what


async def test_a_look_that_fails_is_a_line_and_hides_no_other() -> None:
    async def fail() -> Sequence[Line]:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("of a kind nobody thought of")

    told: list[Line] = []
    await look_at_all([Look("clock", fail), said(ok("after", "it"))], told.append)
    assert told[0].state == "problem"
    assert "RuntimeError: of a kind nobody thought of" in told[0].what
    assert told[1] == ok("after", "it")


async def test_lines_come_in_order_and_as_soon_as_those_before_them_are_there() -> None:
    first = trio.Event()

    async def wait() -> Sequence[Line]:
        await first.wait()
        return [ok("first", "1")]

    told: list[Line] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_at_all, [Look("first", wait), said(ok("second", "2"))], told.append)
        await trio.testing.wait_all_tasks_blocked()
        assert told == []
        first.set()
    assert [line.subject for line in told] == ["first", "second"]


async def test_what_blocks_runs_in_a_thread_of_its_own() -> None:
    assert await lines_of(Look("x", in_thread(lambda: [ok("x", "looked")]))) == [ok("x", "looked")]


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([], "ok"),
        ([ok("a", "b")], "ok"),
        ([warning("a", "b", "c"), ok("a", "b")], "warning"),
        ([problem("a", "b", "c"), warning("a", "b", "c")], "problem"),
        ([ok("a", "b"), warning("a", "b", "c"), problem("a", "b", "c")], "problem"),
    ],
)
def test_the_worst_line_decides(lines: list[Line], state: str) -> None:
    assert worst(lines) == state
