"""Whoever asks is shown a look that is as young as it has to be, and looks are shared (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.shared import Shared

if TYPE_CHECKING:
    from trio.testing import MockClock


@attrs.define(eq=False)
class Looking:
    """Shows how manyth look it is; each waits until it is let go, where it has a gate."""

    looks: int = 0
    gate: trio.Event | None = None

    async def look(self) -> int:
        self.looks += 1
        number = self.looks
        if self.gate is not None:
            await self.gate.wait()
        return number


@attrs.define(eq=False)
class Asking:
    """Tasks that ask, and what they were shown."""

    shared: Shared[int]
    looking: Looking
    shown: list[int] = attrs.field(factory=list)

    async def now(self) -> None:
        self.shown.append(await self.shared.now(self.looking.look))

    async def recent(self) -> None:
        self.shown.append(await self.shared.recent(1.0, self.looking.look))


@pytest.fixture
def asking() -> Asking:
    return Asking(Shared(), Looking())


async def test_now_is_never_what_was_begun_before(asking: Asking) -> None:
    await asking.now()
    await asking.now()
    assert asking.shown == [1, 2]


async def test_those_who_ask_for_now_during_a_look_share_the_next(asking: Asking) -> None:
    gate = asking.looking.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.now)
        await wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(asking.now)
        await wait_all_tasks_blocked()
        gate.set()
    assert asking.shown == [1, 2, 2, 2, 2, 2]


async def test_recent_is_what_was_begun_so_long_ago_and_no_longer(
    asking: Asking, mock_clock: MockClock
) -> None:
    assert asking.shared.latest(1.0) is None
    await asking.recent()
    mock_clock.jump(1.0)
    await asking.recent()
    assert asking.shared.latest(1.0) == 1
    mock_clock.jump(0.1)
    assert asking.shared.latest(1.0) is None
    await asking.recent()
    assert asking.shown == [1, 1, 2]


async def test_its_age_is_counted_from_when_it_was_begun(asking: Asking, mock_clock: MockClock) -> None:
    gate = asking.looking.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.now)
        await wait_all_tasks_blocked()
        mock_clock.jump(2.0)
        gate.set()
    assert asking.shared.latest(1.0) is None


async def test_recent_shares_the_look_in_hand_however_old(asking: Asking, mock_clock: MockClock) -> None:
    """Else a look that takes long would be made anew for each who asks."""
    gate = asking.looking.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asking.recent)
        await wait_all_tasks_blocked()
        mock_clock.jump(2.0)
        for _ in range(5):
            nursery.start_soon(asking.recent)
        await wait_all_tasks_blocked()
        gate.set()
    assert asking.shown == [1] * 6


async def test_a_look_that_is_given_up_shows_nothing_and_the_next_in_turn_looks(asking: Asking) -> None:
    gate = asking.looking.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def leaves() -> None:
            with scope:
                await asking.now()

        nursery.start_soon(leaves)
        await wait_all_tasks_blocked()
        nursery.start_soon(asking.recent)
        nursery.start_soon(asking.now)
        await wait_all_tasks_blocked()
        scope.cancel()
        gate.set()
    assert asking.shown == [2, 2]
