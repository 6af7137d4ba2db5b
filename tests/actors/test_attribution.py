"""Whose the programs on a card are, and when that is not to be known."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import attrs

from actors.attribution import CardUse, attribution
from adapters.engine.fake import FakeEngine
from adapters.engine.port import Engine
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.gpu.port import DeviceProcess, Program
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Runtime
from tests.support.houses import Household, open_house

FIRST, SECOND = cuda_device(0).uuid, cuda_device(1).uuid


def cards() -> FakeGpu:
    return FakeGpu((cuda_device(0), cuda_device(1), cpu_device()))


def on_cards(engine: FakeEngine) -> dict[str, Engine]:
    """An engine that runs on cards."""
    engine.name = "ollama"
    return {"ollama": engine}


async def on_card(household: Household, *pids: int, device: str = "gpu-0") -> str:
    """A ready deployment on a card whose program has these numbers."""
    deployment = await household.ready(await household.key(), GIB, device=device, engine="ollama")
    household.runtime.set_processes(deployment, frozenset(pids))
    return deployment


def shown(use: CardUse | None) -> dict[str, list[Any]]:
    """The numbers of each kind."""
    assert use is not None
    kinds = {kind: [one.pid for one in getattr(use, kind)] for kind in ("others", "unsure", "gone")}
    return {"own": [(o.workload, o.process.pid) for o in use.own], **kinds}


async def test_each_program_is_its_workloads_or_somebody_elses(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        first = await on_card(household, 7, 8)
        second = await on_card(household, 17, device="gpu-1")
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"), DeviceProcess(99, GIB, "graphics"))
        gpu.hold(SECOND, DeviceProcess(17, GIB, "compute"), DeviceProcess(8, GIB, "compute"))

        use = await attribution(household.house)

        assert shown(use[FIRST]) == {"own": [(first, 7)], "others": [99], "unsure": [], "gone": []}
        assert shown(use[SECOND])["own"] == [(second, 17), (first, 8)], "by whose they are, not by the card"
        assert "cpu" not in use


async def test_what_no_fact_knows_any_more_is_the_peers_until_it_has_ended(tmp_path: Path) -> None:
    """Else a program that is being killed would make its card busy, as its owner's."""
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        deployment = await on_card(household, 7)
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"))
        household.store.world.deployments.clear()

        use = await attribution(household.house)

        assert shown(use[FIRST]) == {"own": [(deployment, 7)], "others": [], "unsure": [], "gone": []}


async def test_a_card_that_its_driver_says_nothing_of_is_unknown_and_hides_no_other(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        gpu.held[FIRST] = None
        assert await attribution(household.house) == {FIRST: None, SECOND: CardUse(unlisted=0)}
        gpu.hold(SECOND, DeviceProcess(99, GIB, "compute"))
        use = await attribution(household.house)
        assert use[FIRST] is None
        assert shown(use[SECOND])["others"] == [99]


async def test_a_number_that_somebody_else_has_by_now_is_not_the_peers(tmp_path: Path) -> None:
    """Between the driver's answer and the runtime's the listed process ends, and its number is used again."""
    gpu = cards()

    @attrs.define
    class Meanwhile:
        """The number goes to another process between the driver's answer and the runtime's."""

        inner: FakeRuntime
        is_armed: bool = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        async def all_processes(self, among: frozenset[int] | None) -> Mapping[str, frozenset[int]]:
            if self.is_armed:
                gpu.others[7] = Program(5000, "another")
            return await self.inner.all_processes(among)

    made: list[Meanwhile] = []

    def wrap(runtime: FakeRuntime) -> Runtime:
        made.append(Meanwhile(runtime))
        return cast("Runtime", made[0])

    async with open_house(tmp_path, gpu=gpu, engines=on_cards, wrap_runtime=wrap) as household:
        deployment = await on_card(household, 7)
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"))
        assert shown((await attribution(household.house))[FIRST])["own"] == [(deployment, 7)]

        made[0].is_armed = True
        use = await attribution(household.house)

        assert shown(use[FIRST]) == {"own": [], "others": [], "unsure": [], "gone": [7]}


async def test_what_has_ended_and_is_listed_still_is_nobodys(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"))
        gpu.ended.add(7)
        assert shown((await attribution(household.house))[FIRST])["gone"] == [7]


async def test_beside_a_workload_that_cannot_be_told_nobody_is_somebody_else(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        await on_card(household)
        for uuid in (FIRST, SECOND):
            gpu.hold(uuid, DeviceProcess(99, GIB, "compute"))

        use = await attribution(household.house)

        assert shown(use[FIRST])["unsure"] == [99]
        assert shown(use[SECOND])["others"] == [99], "it serves on the first card alone"


async def test_while_the_engine_is_away_its_workloads_cannot_be_told(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        await on_card(household, 7)
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"))
        come_back = household.runtime.go_away()
        assert shown((await attribution(household.house))[FIRST])["unsure"] == [7]
        come_back()


async def test_a_system_that_numbers_in_another_way_tells_the_peers_own_alone(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        deployment = await on_card(household, 7)
        gpu.is_machines = False
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"), DeviceProcess(99, GIB, "compute"))
        gpu.hold(SECOND, DeviceProcess(98, GIB, "compute"))

        use = await attribution(household.house)

        assert shown(use[FIRST])["own"] == [(deployment, 7)]
        assert shown(use[FIRST])["unsure"] == [99]
        assert shown(use[SECOND])["others"] == [98], "nothing of the peer's is on the second card"

        gpu.hold(FIRST, DeviceProcess(70_007, GIB, "compute"))
        found = (await attribution(household.house))[FIRST]
        assert found is not None
        assert found.held_by(deployment) is None, "what is listed there may be its"


async def test_what_a_workload_holds_is_unknown_if_any_part_of_it_is(tmp_path: Path) -> None:
    gpu = cards()
    async with open_house(tmp_path, gpu=gpu, engines=on_cards) as household:
        deployment = await on_card(household, 7, 8)
        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"), DeviceProcess(8, 2 * GIB, "compute"))
        use = (await attribution(household.house))[FIRST]
        assert use is not None
        assert use.held_by(deployment) == 3 * GIB
        assert use.held_by("dep-other") == 0

        gpu.hold(FIRST, DeviceProcess(7, GIB, "compute"), DeviceProcess(8, None, "compute"))
        use = (await attribution(household.house))[FIRST]
        assert use is not None
        assert use.held_by(deployment) is None
