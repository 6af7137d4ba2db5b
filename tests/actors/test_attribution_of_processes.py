"""Real processes on a made-up driver's card: whose they are, and when their memory has come back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import trio

from actors.attribution import attribution
from actors.house import Bounds, House
from actors.kernel.workers import Workers
from actors.messages.commands import Accepted, DeployModel
from actors.messages.envelope import EnvelopeEncoder
from actors.release import until_released
from actors.store import Store
from adapters.clock.fake import FakeClock
from adapters.gpu.host import HostGpu
from adapters.gpu.joined import JoinedGpu
from adapters.gpu.nvml import NvmlGpu
from adapters.pids import are_the_machines
from adapters.runtime.process import ProcessRuntime
from tests.support.nvml.driver import GIB, NvmlDriver, Process
from tests.support.puppeteer import puppet, tell

if TYPE_CHECKING:
    from pathlib import Path

    from actors.looks import CardUse


@pytest.fixture
def house(nvml: NvmlDriver, tmp_path: Path) -> House:
    """A house that is not started, over real processes and the made-up driver."""
    clock = FakeClock()
    store = Store(tmp_path / "data", EnvelopeEncoder("urn:test", {}), clock)
    gpu = JoinedGpu(NvmlGpu(patience=60), HostGpu())
    runtime = ProcessRuntime(tmp_path / "data", os.urandom(8).hex())
    return House(store, Workers(), clock, runtime, {}, gpu, bounds=Bounds(release=60))


async def on_card(house: House, nvml: NvmlDriver) -> tuple[int, int]:
    """A program of a ready deployment and one that it started; their numbers."""
    uuid = nvml.cards[0].uuid
    accepted = Accepted("c", "h", "c", "t", DeployModel("m", "ollama", GIB), "dep-1", "gpu-0", uuid)
    house.store.world.accept(accepted)
    house.store.world.deployments["dep-1"].reach("ready", "t")
    handle = await house.runtime.start(puppet())
    await tell(handle, "spawn")
    leader = (await tell(handle, "look"))["pid"]
    (child,) = await house.runtime.processes("dep-1") - {leader}
    return leader, child


async def look(house: House, nvml: NvmlDriver) -> CardUse:
    found = (await attribution(house))[nvml.cards[0].uuid]
    assert found is not None
    return found


async def test_a_program_and_what_it_started_are_the_peers_and_this_test_is_a_stranger(
    house: House, nvml: NvmlDriver, tmp_path: Path
) -> None:
    leader, child = await on_card(house, nvml)
    stranger, ended = os.getpid(), 4_194_303
    nvml.cards[0].processes = [Process(pid, GIB) for pid in (leader, child, stranger, ended)]
    nvml.write()
    try:
        use = await look(house, nvml)
    finally:
        await house.runtime.stop("dep-1", grace_seconds=0)

    assert {(one.workload, one.process.pid) for one in use.own} == {("dep-1", leader), ("dep-1", child)}
    assert use.held_by("dep-1") == 2 * GIB
    told = {one.pid for one in use.others}, {one.pid for one in use.gone}, {one.pid for one in use.unsure}
    # In a container the numbers tell nothing of who is no workload's.
    numbers = await trio.to_thread.run_sync(are_the_machines, HostGpu().proc)
    assert told == (({stranger}, {ended}, set()) if numbers else (set(), set(), {stranger, ended}))


async def test_a_look_enters_the_driver_once_for_all_that_it_shows(house: House, nvml: NvmlDriver) -> None:
    nvml.cards[0].processes = [Process(os.getpid(), GIB)]
    nvml.write()
    for entered in range(1, 6):
        use = await look(house, nvml)
        assert (len(use.others) + len(use.unsure), use.unlisted is not None) == (1, True)
        assert nvml_readings(house) == entered


async def test_a_card_has_its_memory_back_when_the_driver_has_let_go_of_the_dead(
    house: House, nvml: NvmlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.release.AGAIN_SECONDS", 0.01)
    leader, child = await on_card(house, nvml)
    card = nvml.cards[0]
    total, free, used, reserved = card.memory or (0, 0, 0, 0)
    card.memory = (total, free - 8 * GIB, used + 8 * GIB, reserved)
    card.processes = [Process(leader, 7 * GIB), Process(child, GIB)]
    nvml.write()
    await look(house, nvml)
    await house.runtime.stop("dep-1", grace_seconds=0)
    released: list[str | None] = []

    async def wait() -> None:
        released.append(await until_released(house, house.store.world.deployments["dep-1"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for step in ("the driver lists the dead still", "and then only counts what they held"):
            before = nvml_readings(house)
            while nvml_readings(house) < before + 2:  # noqa: ASYNC110 - a thread makes no event of it
                await trio.sleep(0.01)
            assert released == [], step
            card.processes = []
            nvml.write()
        card.memory = (total, free, used, reserved)
        nvml.write()
    assert released == [None]


def nvml_readings(house: House) -> int:
    assert isinstance(house.gpu, JoinedGpu)
    assert isinstance(house.gpu.cards, NvmlGpu)
    return house.gpu.cards.readings
