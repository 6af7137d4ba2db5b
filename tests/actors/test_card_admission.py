"""Admission on a card: what is promised, and what its driver sees free after the last release (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from actors.messages.commands import Command, RunJob
from actors.readings import MOST_LOOKS
from actors.rules.refusal import Refusal
from adapters.gpu.fake import GIB, FakeGpu, cuda_device
from adapters.gpu.port import DeviceProcess
from tests.support.houses import MIB, Household, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from actors.state.keys import Key


async def refusal(house: Household, key: Key, body: Command) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await house.send(key, body)
    return refused.value


async def test_a_card_is_asked_what_is_promised_and_what_its_driver_sees_free(tmp_path: Path) -> None:
    """A stranger holds a third of it; a job that runs has taken a quarter of its promise."""
    card = attrs.evolve(cuda_device(memory_bytes=1200 * MIB), memory_free_bytes=700 * MIB)
    async with open_house(tmp_path, gpu=FakeGpu((card,))) as house:
        key = await house.key()
        name = await house.running(key, memory_bytes=400 * MIB)
        house.runtime.set_processes(name, frozenset({7}))
        own, stranger = DeviceProcess(7, 100 * MIB, "compute"), DeviceProcess(9, 400 * MIB, "graphics")
        house.gpu.hold(card.uuid, own, stranger)
        refused = await refusal(house, key, RunJob("image", memory_bytes=401 * MIB))
        assert refused.code == "INSUFFICIENT_MEMORY"
        assert refused.details["unpromised_bytes"] == 800 * MIB
        assert refused.details["driver_bytes"] == 400 * MIB
        await house.running(key, memory_bytes=400 * MIB)


async def test_where_the_driver_does_not_say_what_a_workload_holds_its_promise_counts_as_used(
    tmp_path: Path,
) -> None:
    card = attrs.evolve(cuda_device(memory_bytes=1200 * MIB), memory_free_bytes=700 * MIB)
    async with open_house(tmp_path, gpu=FakeGpu((card,))) as house:
        key = await house.key()
        name = await house.running(key, memory_bytes=400 * MIB)
        house.runtime.set_processes(name, frozenset({7}))
        house.gpu.hold(card.uuid, DeviceProcess(7, None, "compute"))
        refused = await refusal(house, key, RunJob("image", memory_bytes=701 * MIB))
        assert refused.details["driver_bytes"] == 700 * MIB


async def test_what_was_read_before_a_promise_came_back_is_read_again(tmp_path: Path) -> None:
    """Else a card would be refused for memory that was given back while it was read."""

    class Ends(FakeGpu):
        async def devices(self) -> Any:
            read = await super().devices()
            if ending:
                house.runtime.end(ending.pop(), 0)
                await house.until(lambda: not house.store.world.jobs)
                self.put(cuda_device(memory_bytes=GIB))
            return read

    ending: list[str] = []
    async with open_house(tmp_path, gpu=Ends((cuda_device(memory_bytes=GIB),))) as house:
        key = await house.key()
        ending.append(await house.running(key))
        house.gpu.put(attrs.evolve(cuda_device(memory_bytes=GIB), memory_free_bytes=0))
        await house.running(key, memory_bytes=GIB)


async def test_readings_that_never_are_young_enough_end_and_the_last_decides(tmp_path: Path) -> None:
    class Churning(FakeGpu):
        async def devices(self) -> Any:
            read = await super().devices()
            if jobs:
                before = house.store.world.releases
                house.runtime.end(jobs.pop(), 0)
                await house.until(lambda: house.store.world.releases > before)
            return read

    jobs: list[str] = []
    async with open_house(tmp_path, gpu=Churning()) as house:
        key = await house.key()
        jobs += [await house.running(key) for _ in range(2 * MOST_LOOKS)]
        refused = await refusal(house, key, RunJob("image", memory_bytes=1 << 50))
        assert refused.code == "INSUFFICIENT_MEMORY"
        assert (house.gpu.reads, len(jobs)) == (MOST_LOOKS, MOST_LOOKS)
