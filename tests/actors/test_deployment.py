"""A deployment's facts, in order, whatever its engine does (F19)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
import trio

from actors.deployment import DeploymentActor
from actors.house import Bounds
from actors.rules.refusal import Refusal
from adapters.engine.fake import FakeEngine
from adapters.engine.llamacpp import ALIVE_SECONDS
from adapters.engine.port import EngineMissing, EngineUnreachable, ModelUnusable, PromiseTooSmall
from adapters.gpu.fake import FakeGpu, cpu_device
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Executable, NotEnded, StartFailed, WorkloadSpec
from tests.support.houses import HANG, MIB, Household, deploy, open_house

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from actors.house import House
    from adapters.engine.port import Progress, Served
    from adapters.runtime.port import Handle


def held_loads(runtime: FakeRuntime, engine: FakeEngine) -> None:
    engine.hold_loads()


async def loading(house: Household, **more: Any) -> tuple[str, str]:
    """A deploy whose engine runs and loads: the command's id and the deployment's."""
    key = await house.key()
    command = await house.send(key, deploy(**more))
    fact = await house.told("WeightsLoading", causation=command)
    return command, fact["data"]["deployment"]


async def test_a_deploy_is_told_in_order_under_its_own_correlation(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        receipt = await house.submit(key, deploy(), correlation="corr-1")
        await house.told("DeploymentReady")
        facts = await house.facts()
    assert [f["type"] for f in facts] == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]
    assert {f["causationid"] for f in facts} == {receipt.id}
    assert {f["correlationid"] for f in facts} == {"corr-1"}
    assert {f["holder"] for f in facts} == {key.holder}
    assert len({f["data"]["deployment"] for f in facts}) == 1
    started = facts[0]["data"]
    assert (started["device"], started["device_uuid"], started["isolation"]) == ("cpu", "cpu", "process")
    assert started["memory_bytes"] == 64 * MIB
    assert facts[2]["data"]["context_tokens"] > 0
    assert facts[2]["data"]["load_ms"] >= 0


async def test_an_engine_knows_again_what_it_serves(tmp_path: Path) -> None:
    """What its plan says travels with the workload."""
    async with open_house(tmp_path) as house:
        deployment = await house.ready(await house.key())
        assert house.runtime.starts[0].detail == {"model": "small"}
        assert house.runtime.starts[0].workload == deployment


@attrs.define(eq=False)
class SteppingEngine(FakeEngine):
    """Says how far it is, one percent after another, each once the last was heard."""

    heard: Callable[[int], Awaitable[None]] | None = None

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        assert self.heard is not None
        for percent in range(-10, 120):
            progress(percent)
            await self.heard(min(100, max(0, percent)))
        return await super().make_ready(handle, progress)


async def test_loading_is_told_in_steps_and_never_past_a_hundred(tmp_path: Path) -> None:
    engine = SteppingEngine()

    async with open_house(tmp_path, engines=lambda _: {"llamacpp": engine}) as house:

        async def heard(percent: int) -> None:
            told = house.store.world.events_told
            await house.until(lambda: told.get("WeightsLoading", 0) == 1 + percent // 5)

        engine.heard = heard
        await house.ready(await house.key())
        told = [f["data"].get("progress_pct") for f in await house.facts() if f["type"] == "WeightsLoading"]
    assert told == [None, *range(5, 101, 5)]


async def test_an_engine_that_dies_before_it_is_ready_fails_thedeploy(tmp_path: Path) -> None:
    """With its exit code and the last lines it wrote."""
    async with open_house(tmp_path, prepare=held_loads) as house:
        command, deployment = await loading(house)
        house.runtime.end(deployment, 139, output="loading\nsegmentation fault\n")
        await house.completed(command)
        await house.at_rest()
        fact = (await house.facts())[-1]
        assert fact["type"] == "DeploymentFailed"
        assert fact["data"]["exit_code"] == 139
        assert fact["data"]["output"] == ["loading", "segmentation fault"]
        assert "segmentation fault" in fact["data"]["reason"]
        assert house.store.world.promised == {}
        assert await house.runtime.tail(deployment) == ()


async def test_an_engine_without_memory_fails_the_deploy_as_that(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=held_loads) as house:
        command, deployment = await loading(house)
        house.runtime.end(deployment, 137, out_of_memory=True)
        await house.completed(command)
        assert (await house.facts())[-1]["data"]["code"] == "OUT_OF_MEMORY"


@pytest.mark.parametrize("code", [0, 1, 137, 143])
async def test_a_ready_engine_that_ends_is_told_whatever_its_code(tmp_path: Path, code: int) -> None:
    async with open_house(tmp_path) as house:
        deployment = await house.ready(await house.key())
        house.runtime.end(deployment, code, output="last words\n")
        fact = await house.told("DeploymentEnded")
        await house.at_rest()
        assert fact["data"]["exit_code"] == code
        assert fact["data"]["output"] == ["last words"]
        assert fact["data"]["reason"]
        assert not house.store.world.deployments
        assert house.house.addresses.get(deployment) is None


async def test_a_ready_engine_that_runs_out_of_memory_is_told_as_that(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        deployment = await house.ready(await house.key())
        house.runtime.end(deployment, 137, out_of_memory=True)
        fact = await house.told("OutOfMemory")
        await house.at_rest()
        assert fact["data"]["exit_code"] == 137
        assert fact["data"]["fix"]
        assert await house.types() == [
            "DeploymentStarted",
            "WeightsLoading",
            "DeploymentReady",
            "OutOfMemory",
        ]
        assert house.store.world.promised == {}


async def test_a_model_that_gives_no_answer_in_time_is_ended(tmp_path: Path) -> None:
    bounds = Bounds(ready=HANG, load=0.02)
    async with open_house(tmp_path, bounds=bounds, prepare=held_loads) as house:
        key = await house.key()
        command = await house.send(key, deploy())
        await house.completed(command)
        await house.at_rest()
        fact = (await house.facts())[-1]
        assert (fact["type"], fact["data"]["code"]) == ("DeploymentFailed", "LOAD_TIMEOUT")
        assert "BEST_PEER_LOAD_SECONDS" in fact["data"]["fix"]
        assert await house.runtime.running() == ()


async def test_an_engine_that_gives_up_is_ended_and_its_reason_told(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path) as house:
        house.engine.fail_next_load(ModelUnusable("no conversations", fix="another model"))
        key = await house.key()
        command = await house.send(key, deploy())
        await house.completed(command)
        await house.at_rest()
        fact = (await house.facts())[-1]
        assert (fact["data"]["code"], fact["data"]["reason"]) == ("MODEL_UNUSABLE", "no conversations")
        assert await house.runtime.running() == ()


async def test_a_dead_program_explains_more_than_a_port_that_does_not_answer(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=held_loads) as house:
        house.engine.fail_next_load(EngineUnreachable("connection refused", fix="look"))
        command, deployment = await loading(house)
        assert house.engine._loading is not None
        house.engine._loading.set()
        house.runtime.end(deployment, 1, output="no such option\n")
        await house.completed(command)
        fact = (await house.facts())[-1]
        assert fact["data"]["exit_code"] == 1
        assert "no such option" in fact["data"]["reason"]


async def test_a_program_that_cannot_start_fails_thedeploy(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.runtime.fail_next_start(StartFailed("no such program", fix="install it"))
        key = await house.key()
        command = await house.send(key, deploy())
        await house.completed(command)
        await house.at_rest()
        assert await house.types(command) == ["DeploymentFailed"]
        data = (await house.facts())[-1]["data"]
        assert (data["code"], data["fix"]) == ("START_FAILED", "install it")
        assert "exit_code" not in data
        assert house.store.world.promised == {}


async def test_a_model_that_is_gone_by_its_turn_fails_thedeploy(tmp_path: Path) -> None:
    """It was there at admission, and was taken away before the actor asked again."""

    class Fickle(FakeEngine):
        async def plan(self, model: str, memory_bytes: int) -> Any:
            plan = await super().plan(model, memory_bytes)
            self.fail_next_plan(EngineMissing("the program is gone", fix="install it"))
            return plan

    async with open_house(tmp_path, engines=lambda e: {"llamacpp": Fickle(lives=e.lives)}) as house:
        key = await house.key()
        command = await house.send(key, deploy())
        await house.completed(command)
        assert await house.types(command) == ["DeploymentFailed"]
        assert (await house.facts())[-1]["data"]["code"] == "ENGINE_UNAVAILABLE"


async def test_a_device_that_is_gone_fails_thedeploy(tmp_path: Path) -> None:
    gpu = FakeGpu()
    gpu.then(cpu_device())
    gpu.then()
    async with open_house(tmp_path, gpu=gpu) as house:
        key = await house.key()
        command = await house.send(key, deploy())
        await house.completed(command)
        assert await house.types(command) == ["DeploymentFailed"]
        assert "not there any more" in (await house.facts())[-1]["data"]["reason"]


async def test_an_engine_whose_port_was_taken_is_started_again(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=held_loads) as house:
        command, deployment = await loading(house)
        house.runtime.end(deployment, 1, output="couldn't bind HTTP server socket\n")
        await house.until(lambda: len(house.runtime.starts) == 2)
        assert house.engine._loading is not None
        house.engine._loading.set()
        await house.completed(command)
        assert await house.types() == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]


async def test_an_engine_whose_port_is_always_taken_fails_in_the_end(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=held_loads) as house:
        command, deployment = await loading(house)
        for start in (1, 2, 3):
            await house.until(lambda n=start: len(house.runtime.starts) == n)  # type: ignore[misc]
            house.runtime.end(deployment, 1, output="couldn't bind HTTP server socket\n")
        await house.completed(command)
        await house.at_rest()
        assert await house.types() == ["DeploymentStarted", "WeightsLoading", "DeploymentFailed"]
        assert (await house.facts())[-1]["data"]["code"] == "PORT_TAKEN"


@attrs.define(eq=False)
class HungEngine(FakeEngine):
    """Answers prompts until it hangs."""

    hangs: bool = False
    probes: int = 0

    async def is_alive(self, handle: Handle) -> bool:
        self.probes += 1
        return not self.hangs and await super().is_alive(handle)


async def test_a_ready_engine_that_answers_nothing_any_more_is_ended(tmp_path: Path) -> None:
    """The door promises that a ready deployment answers until its end is told."""
    engines: list[HungEngine] = []

    def hung(engine: FakeEngine) -> dict[str, FakeEngine]:
        engines.append(HungEngine(lives=engine.lives))
        return {"llamacpp": engines[0]}

    async with open_house(tmp_path, engines=hung, bounds=Bounds(probe=0.005)) as house:
        deployment = await house.ready(await house.key())
        house.runtime.write(deployment, "deadlock\n")
        await house.until(lambda: engines[0].probes > 3)
        assert deployment in house.store.world.deployments
        engines[0].hangs = True
        fact = await house.told("DeploymentEnded")
        await house.at_rest()
        assert "answered nothing" in fact["data"]["reason"]
        assert fact["data"]["output"] == ["deadlock"]
        assert await house.runtime.running() == ()
        assert house.store.world.promised == {}


async def test_an_engine_that_hangs_is_known_within_half_a_minute(autojump_clock: MockClock) -> None:
    """From a look that was answered, each later one taking all the time that it may."""

    class Mute(FakeEngine):
        async def is_alive(self, handle: Handle) -> bool:
            await trio.sleep(ALIVE_SECONDS)
            return False

    runtime = FakeRuntime()
    handle = await runtime.start(WorkloadSpec("dep-1", "h-1", Executable(("engine",))))
    house = cast("House", SimpleNamespace(bounds=Bounds(), runtime=runtime))
    begun = trio.current_time()
    await DeploymentActor(house, "dep-1")._until_hung(Mute(), handle)
    assert trio.current_time() - begun <= 30


async def test_one_missed_look_ends_nothing(tmp_path: Path) -> None:
    engines: list[HungEngine] = []

    def hung(engine: FakeEngine) -> dict[str, FakeEngine]:
        engines.append(HungEngine(lives=engine.lives))
        return {"llamacpp": engines[0]}

    async with open_house(tmp_path, engines=hung, bounds=Bounds(probe=0.005)) as house:
        deployment = await house.ready(await house.key())
        for _ in range(3):
            seen = engines[0].probes
            engines[0].hangs = True
            await house.until(lambda n=seen: engines[0].probes > n)  # type: ignore[misc]
            engines[0].hangs = False
            await house.until(lambda n=seen: engines[0].probes > n + 2)  # type: ignore[misc]
        assert deployment in house.store.world.deployments


async def test_a_promise_that_is_too_small_is_refused_at_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.engine.fail_next_plan(PromiseTooSmall("needs 9", fix="send 9", least_bytes=9))
        key = await house.key()
        with pytest.raises(Refusal) as refused:
            await house.send(key, deploy())
        assert refused.value.code == "MEMORY_TOO_SMALL"
        assert refused.value.details["least_bytes"] == 9
        assert house.store.world.unfinished == {}


class Unkillable(FakeRuntime):
    """Its programs survive being killed, so many times."""

    refusals = 0

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        if self.refusals:
            self.refusals -= 1
            raise NotEnded(f"{workload} is still there")
        await super().stop(workload, grace_seconds=grace_seconds)


async def test_a_wish_to_stop_is_kept_until_the_program_is_gone(
    tmp_path: Path,
) -> None:
    """Easily missed 20: tried again until it stops; its memory stays promised until then."""
    async with open_house(tmp_path, make_runtime=Unkillable) as house:
        assert isinstance(house.runtime, Unkillable)
        house.runtime.refusals = 1000
        key = await house.key()
        deployment = await house.ready(key)
        undeploy = await house.undeploy(key, deployment)
        await house.until(lambda: house.runtime.refusals < 997)  # type: ignore[attr-defined]
        assert house.store.world.promised == {"cpu": 64 * MIB}
        house.runtime.refusals = 0
        await house.completed(undeploy)
        assert await house.runtime.running() == ()
        assert house.store.world.promised == {}
