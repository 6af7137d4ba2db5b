"""What workloads use of their devices, and that nobody waits for ever to know it (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from actors.uses import device_uses
from adapters.gpu.fake import GIB, FakeGpu, cpu_device
from adapters.gpu.port import DeviceProcess
from adapters.runtime.fake import FakeRuntime
from tests.support.grounds import CARD, Ground, ground_on

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trio.testing import MockClock


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return ground_on(tmp_path, FakeGpu((CARD, cpu_device())))


async def test_each_workload_uses_what_its_processes_hold_of_its_own_device(ground: Ground) -> None:
    ground.serve("dep-card", 1, 2)
    ground.serve("dep-idle", 3)
    ground.serve("dep-host", 4, 5, device="cpu")
    ground.serve("dep-early", 6, started=False)
    ground.gpu.hold(CARD.uuid, *(DeviceProcess(pid, GIB, "compute") for pid in (1, 2, 6, 99)))
    ground.gpu.used = {1: 7, 2: 7, 4: 100, 5: 11}

    uses = await device_uses(ground.house)

    assert uses == {"dep-card": 2 * GIB, "dep-idle": 0, "dep-host": 111}


async def test_what_is_not_known_of_one_is_left_out_and_hides_no_other(ground: Ground) -> None:
    ground.serve("dep-card", 1)
    ground.serve("dep-untold")
    ground.serve("dep-host", 4, device="cpu")
    ground.gpu.hold(CARD.uuid, DeviceProcess(1, GIB, "compute"))

    assert await device_uses(ground.house) == {"dep-card": GIB}


async def test_two_hundred_workloads_are_asked_for_in_one_question(tmp_path: Path) -> None:
    class Counts(FakeRuntime):
        asked = 0

        async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
            self.asked += 1
            return await super().all_processes(among)

    runtime = Counts()
    ground = ground_on(tmp_path, FakeGpu((CARD, cpu_device())), runtime)
    for number in range(200):
        ground.serve(f"dep-{number}", 1000 + number, device=CARD.uuid if number % 2 else "cpu")
    ground.gpu.used = {1000 + number: 1 for number in range(200)}

    assert len(await device_uses(ground.house)) == 200
    assert runtime.asked == 2, "once for the cards and once for the host"


async def test_many_who_ask_at_once_share_a_look_that_began_after_they_asked(tmp_path: Path) -> None:
    class Slow(FakeGpu):
        looks = 0

        async def processes(self) -> Any:
            self.looks += 1
            await go.wait()
            return await super().processes()

    go, gpu = trio.Event(), Slow((CARD, cpu_device()))
    ground = ground_on(tmp_path, gpu)
    ground.serve("dep-card", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(device_uses, ground.house)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(50):
            nursery.start_soon(device_uses, ground.house)
        await trio.testing.wait_all_tasks_blocked()
        assert gpu.looks == 1
        go.set()
    assert gpu.looks == 2, "the first began before the others asked"


@pytest.mark.parametrize("hangs", ["driver", "runtime"])
async def test_what_never_answers_is_not_waited_for(
    tmp_path: Path, autojump_clock: MockClock, hangs: str
) -> None:
    class HangingGpu(FakeGpu):
        async def processes(self) -> Any:
            await trio.sleep_forever()

    class HangingRuntime(FakeRuntime):
        async def all_processes(self, among: frozenset[int] | None = None) -> Any:
            await trio.sleep_forever()

    made = HangingGpu if hangs == "driver" else FakeGpu
    runtime = HangingRuntime() if hangs == "runtime" else None
    ground = ground_on(tmp_path, made((CARD, cpu_device())), runtime)
    ground.serve("dep-card", 1)
    ground.gpu.used = {4: 11}
    ground.serve("dep-host", 4, device="cpu")

    uses = await device_uses(ground.house)

    assert uses == ({"dep-host": 11} if hangs == "driver" else {})
