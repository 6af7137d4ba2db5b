"""What an admission relies on is read for it; what a refusal only tells may be a moment old (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.readings import Reading, Readings
from actors.rules.room import room_on
from actors.uses import RECENT_SECONDS
from adapters.gpu.fake import FakeGpu, cpu_device
from adapters.runtime.fake import FakeRuntime
from tests.support.grounds import Ground, ground_on

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trio.testing import MockClock

    from adapters.gpu.port import Device

TOTAL, FREE, PROMISED = 1000, 500, 200
FITS, DEPENDS, REFUSED = 300, 400, 501
"""Of the free memory the one that runs may still take all that it was promised, or nothing."""


@attrs.define(eq=False)
class AskedRuntime(FakeRuntime):
    """Counts how often it is asked for everybody's processes, and answers when it may."""

    asked: int = attrs.field(default=0, init=False)
    gate: trio.Event | None = attrs.field(default=None, init=False)

    async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        return await super().all_processes(among)


@attrs.define
class Door:
    """Who asks, and the workload that uses something."""

    ground: Ground
    runtime: AskedRuntime
    readings: Readings

    async def ask(self, memory_bytes: int) -> Reading:
        return await self.readings.for_promise(memory_bytes)

    def free(self, memory_bytes: int) -> None:
        self.ground.gpu.put(machine(memory_bytes))

    def use(self, memory_bytes: int) -> None:
        self.ground.gpu.used = {7: memory_bytes}


def machine(free: int) -> Device:
    return attrs.evolve(cpu_device(TOTAL), memory_free_bytes=free)


@pytest.fixture
def door(tmp_path: Path, mock_clock: MockClock) -> Door:
    """On a clock that stands still."""
    del mock_clock
    runtime = AskedRuntime()
    ground = ground_on(tmp_path, FakeGpu((machine(FREE),)), runtime)
    ground.serve("dep-1", 7, device="cpu", memory_bytes=PROMISED)
    made = Door(ground, runtime, Readings(ground.house))
    made.use(50)
    return made


async def test_a_promise_that_fits_whatever_is_used_asks_nobody(door: Door) -> None:
    assert (await door.ask(FITS)).uses == {}
    assert door.runtime.asked == 0


async def test_what_promises_and_free_memory_refuse_asks_once_in_a_while(
    door: Door, mock_clock: MockClock
) -> None:
    for _ in range(20):
        assert (await door.ask(REFUSED)).uses == {"dep-1": 50}
    assert door.runtime.asked == 1
    assert door.ground.gpu.reads == 21, "once more for the one that asked"
    mock_clock.jump(RECENT_SECONDS)
    await door.ask(REFUSED)
    assert door.runtime.asked == 1
    mock_clock.jump(0.01)
    door.use(60)
    assert (await door.ask(REFUSED)).uses == {"dep-1": 60}
    assert door.runtime.asked == 2


async def test_those_that_are_refused_at_once_share_one_question_and_the_devices_are_their_own(
    door: Door,
) -> None:
    gate = door.runtime.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.ask, REFUSED)
        await wait_all_tasks_blocked()
        for _ in range(19):
            nursery.start_soon(door.ask, REFUSED)
        await wait_all_tasks_blocked()
        assert door.ground.gpu.reads == 20
        gate.set()
    assert door.runtime.asked == 1
    assert door.ground.gpu.reads == 40, "what is told of use was read before what is told of the devices"


async def test_what_use_decides_is_asked_for_however_lately_others_were(door: Door) -> None:
    """Else what a workload gave back or took a moment ago would admit what has no room."""
    await door.ask(REFUSED)
    door.use(0)
    assert (await door.ask(DEPENDS)).uses == {"dep-1": 0}
    door.use(200)
    assert (await door.ask(DEPENDS)).uses == {"dep-1": 200}
    assert door.runtime.asked == 3


async def test_what_use_decides_shares_no_question_that_was_asked_before_it(door: Door) -> None:
    """One that is in hand may have counted a workload already that has taken more since."""
    shown: list[Reading] = []

    async def decided() -> None:
        shown.append(await door.ask(DEPENDS))

    gate = door.runtime.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(door.ask, REFUSED)
        await wait_all_tasks_blocked()
        for _ in range(5):
            nursery.start_soon(decided)
        await wait_all_tasks_blocked()
        assert door.runtime.asked == 1
        gate.set()
    assert [each.uses for each in shown] == [{"dep-1": 50}] * 5
    assert door.runtime.asked == 2, "one for all that asked during the first"


async def test_what_may_fit_by_the_time_the_others_have_answered_is_asked_for_anew(door: Door) -> None:
    """Memory came back while it shared a question that began before it."""
    shown: list[Reading] = []

    async def refused() -> None:
        shown.append(await door.ask(REFUSED))

    gate = door.runtime.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused)
        await wait_all_tasks_blocked()
        door.free(600)
        gate.set()
    assert door.runtime.asked == 2
    (reading,) = shown
    assert room_on(reading.devices[0], door.ground.house.store.world, reading.uses).by_driver == 450


async def test_who_came_since_counts_as_using_nothing_of_its_promise(door: Door) -> None:
    """It was not there to be asked, and what the devices show may lack what it takes."""
    await door.ask(REFUSED)
    door.ground.serve("dep-2", 8, device="cpu", memory_bytes=100)
    reading = await door.ask(REFUSED)
    assert reading.uses == {"dep-1": 50, "dep-2": 0}
    assert door.runtime.asked == 1


async def test_what_is_told_is_of_devices_as_they_are_now(door: Door) -> None:
    await door.ask(REFUSED)
    door.free(400)
    reading = await door.ask(REFUSED)
    assert room_on(reading.devices[0], door.ground.house.store.world, reading.uses).by_driver == 250
    assert door.runtime.asked == 1
