"""A deployment in a container: its image first, and a container engine that may go away (F19, F22, F37)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

from actors.house import Bounds
from adapters.engine.fake import FakeEngine
from adapters.images.port import EngineDown, ImageDenied
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Container, StartFailed
from tests.support.houses import HANG, Household, deploy, open_house
from tests.support.shelves import DIGEST, PINNED, TAG, Shelf, image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from adapters.engine.port import Progress, Served
    from adapters.runtime.port import Handle

WHOLE = [
    "ImagePulling",
    "ImagePulling",
    "ImagePulled",
    "DeploymentStarted",
    "WeightsLoading",
    "DeploymentReady",
]


@asynccontextmanager
async def open_containers(
    folder: Path,
    *,
    shelf: Shelf | None = None,
    engine: Callable[..., FakeEngine] = FakeEngine,
    reference: str = TAG,
    **more: Any,
) -> AsyncIterator[Household]:
    """A house whose engine is an image."""
    images = cast("Any", shelf or Shelf())
    async with open_house(
        folder,
        make_runtime=lambda path: FakeRuntime(path, images=images),
        engines=lambda given: {"llamacpp": engine(lives=given.lives, reference=reference)},
        **more,
    ) as house:
        yield house


async def test_an_image_is_told_before_its_engine_starts_and_is_what_starts(tmp_path: Path) -> None:
    async with open_containers(tmp_path) as house:
        command = await house.send(await house.key(), deploy())
        await house.told("DeploymentReady", causation=command)
        await house.check()
        facts = await house.facts(command)
        assert [f["type"] for f in facts] == WHOLE
        assert len({f["data"]["deployment"] for f in facts}) == 1
        pulled = facts[2]["data"]
        assert (pulled["image"], pulled["digest"], pulled["held"]) == (TAG, DIGEST, False)
        (spec,) = house.runtime.starts
        assert isinstance(spec.program, Container)
        assert spec.program.image == PINNED, (
            "what runs is the image that was pulled, not what its tag names now"
        )
        assert spec.program.tasks == 4096
        assert spec.device_uuids == (), "the processor is not handed over: it is there"


async def test_a_held_image_named_by_digest_is_not_pulled(tmp_path: Path) -> None:
    shelf = Shelf(holds={PINNED: image(PINNED)})
    async with open_containers(tmp_path, shelf=shelf, reference=PINNED) as house:
        command = await house.send(await house.key(), deploy())
        await house.told("DeploymentReady", causation=command)
        facts = await house.facts(command)
        assert [f["type"] for f in facts] == WHOLE[1:]
        assert facts[0]["data"]["progress_pct"] == 100
        assert facts[1]["data"]["held"] is True
        assert shelf.pulled == []


async def test_an_image_that_cannot_be_had_fails_the_deploy_with_its_code_and_fix(tmp_path: Path) -> None:
    shelf = Shelf(faults=[ImageDenied("the registry refuses", fix="log in there")])
    async with open_containers(tmp_path, shelf=shelf) as house:
        command = await house.send(await house.key(), deploy())
        await house.completed(command)
        await house.check()
        facts = await house.facts(command)
        assert [f["type"] for f in facts] == ["ImagePulling", "DeploymentFailed"]
        told = facts[-1]["data"]
        assert (told["code"], told["reason"], told["fix"]) == (
            "IMAGE_DENIED",
            "the registry refuses",
            "log in there",
        )
        assert "exit_code" not in told, "nothing had run"
        assert house.store.world.promised == {}


@pytest.mark.parametrize("how", ["undeployed", "revoked"])
async def test_an_end_in_mid_pull_ends_the_pull(tmp_path: Path, how: str) -> None:
    shelf = Shelf()
    shelf.hold_pulls()
    async with open_containers(tmp_path, shelf=shelf) as house:
        key = await house.key()
        command, deployment = await house.deploying(key)
        await house.until(lambda: shelf.says is not None)
        if how == "undeployed":
            await house.completed(await house.undeploy(key, deployment))
        else:
            await house.revoke(key)
        await house.told("DeploymentEnded", causation=command)
        await house.check()
        assert shelf.says is None
        assert "ImagePulled" not in await house.types()
        assert house.runtime.starts == []
        assert house.store.world.promised == {}


async def test_a_restart_in_mid_pull_pulls_again(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.hold_pulls()
    async with open_containers(tmp_path, shelf=shelf) as house:
        command, deployment = await house.deploying(await house.key())
        await house.until(lambda: shelf.says is not None)
    async with open_containers(tmp_path) as again:
        await again.told("DeploymentReady", causation=command)
        await again.check()
        assert await again.types(command) == ["ImagePulling", *WHOLE]
        assert {f["data"]["deployment"] for f in await again.facts(command)} == {deployment}


async def test_an_engine_whose_port_was_taken_starts_again_in_the_same_image(tmp_path: Path) -> None:
    shelf = Shelf()
    async with open_containers(tmp_path, shelf=shelf, engine=held_engine) as house:
        command, deployment = await house.deploying(await house.key())
        await house.told("WeightsLoading", causation=command)
        house.runtime.end(deployment, 1, output="couldn't bind HTTP server socket, hostname: 127.0.0.1\n")
        await house.until(lambda: len(house.runtime.starts) == 2)
        assert shelf.pulled == [TAG]


def held_engine(**more: Any) -> FakeEngine:
    """An engine whose models never load."""
    made = FakeEngine(**more)
    made.hold_loads()
    return made


async def test_a_start_that_fails_tells_its_own_code(tmp_path: Path) -> None:
    def fail(runtime: FakeRuntime, engine: FakeEngine) -> None:
        runtime.fail_next_start(StartFailed("no toolkit", fix="install it", code="DEVICE_UNAVAILABLE"))

    async with open_containers(tmp_path, prepare=fail) as house:
        command = await house.send(await house.key(), deploy())
        fact = await house.told("DeploymentFailed", causation=command)
        assert fact["data"]["code"] == "DEVICE_UNAVAILABLE"


async def test_what_its_users_should_know_is_told_with_ready(tmp_path: Path) -> None:
    def noting(**more: Any) -> FakeEngine:
        return FakeEngine(**more, note="it runs on the CPU")

    async with open_containers(tmp_path, engine=noting) as house:
        command = await house.send(await house.key(), deploy())
        fact = await house.told("DeploymentReady", causation=command)
        assert fact["data"]["note"] == "it runs on the CPU"


@attrs.define(eq=False)
class MuteEngine(FakeEngine):
    """An engine that never answers anything."""

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        return await super().make_ready(handle, lambda percent: None)


async def test_an_engine_that_does_not_answer_at_all_has_a_bound_of_its_own(tmp_path: Path) -> None:
    def mute(**more: Any) -> FakeEngine:
        made = MuteEngine(**more)
        made.hold_loads()
        return made

    async with open_containers(tmp_path, engine=mute, bounds=Bounds(ready=0.05, load=HANG)) as house:
        command = await house.send(await house.key(), deploy())
        fact = await house.told("DeploymentFailed", causation=command)
        assert fact["data"]["code"] == "READY_TIMEOUT"
        assert "BEST_PEER_READY_SECONDS" in fact["data"]["fix"]
        await house.check()


async def test_a_container_engine_that_comes_back_in_time_starts_what_waited(tmp_path: Path) -> None:
    back: list[Callable[[], None]] = []

    def away(runtime: FakeRuntime, engine: FakeEngine) -> None:
        back.append(runtime.go_away())

    async with open_containers(tmp_path, prepare=away) as house:
        command = await house.send(await house.key(), deploy())
        back[0]()
        await house.told("DeploymentReady", causation=command)
        await house.check()


async def test_a_deploy_not_yet_started_does_not_wait_for_ever(tmp_path: Path) -> None:
    """What may have been started all the same is ended when the engine is back."""
    shelf = Shelf()
    gate = shelf.hold_pulls()
    async with open_containers(tmp_path, shelf=shelf, bounds=Bounds(away=0.05)) as house:
        command, deployment = await house.deploying(await house.key())
        await house.until(lambda: shelf.says is not None)
        back = house.runtime.go_away()
        gate.set()
        fact = await house.told("DeploymentFailed", causation=command)
        assert fact["data"]["code"] == "RUNTIME_UNAVAILABLE"
        assert "may hold its memory" in fact["data"]["memory_note"]
        assert house.store.world.promised == {}
        back()
        house.runtime.plant(deployment)
        await house.check()


async def test_a_ready_deployment_outlasts_its_container_engine_being_away(tmp_path: Path) -> None:
    """After a restart nothing is known of it until the container engine is back, and that is waited for."""
    async with open_containers(tmp_path) as house:
        deployment = await house.ready(await house.key())
    back: list[Callable[[], None]] = []

    def away(runtime: FakeRuntime, engine: FakeEngine) -> None:
        back.append(runtime.go_away())

    async with open_containers(tmp_path, prepare=away, bounds=Bounds(away=0.01)) as again:
        await again.until(lambda: again.house.workers.get(deployment) is not None)
        assert deployment in again.store.world.deployments
        back[0]()
        await again.until(lambda: again.house.addresses.get(deployment) is not None)
        await again.check()
        assert (await again.types())[-1] == "DeploymentReady"


async def test_an_undeploy_while_the_container_engine_is_away_is_kept(tmp_path: Path) -> None:
    async with open_containers(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        back = house.runtime.go_away()
        undeploy = await house.undeploy(key, deployment)
        await house.until(lambda: house.house.addresses.get(deployment) is None)
        assert undeploy in house.store.world.unfinished
        back()
        await house.completed(undeploy)
        await house.check()


@attrs.define(eq=False)
class SilentEngine(FakeEngine):
    """An engine that nobody reaches once it is silent."""

    silent: bool = False
    probes: int = 0

    async def is_alive(self, handle: Handle) -> bool:
        self.probes += 1
        return not self.silent and await super().is_alive(handle)


async def test_silence_while_the_container_engine_is_away_ends_nothing(tmp_path: Path) -> None:
    engines: list[SilentEngine] = []

    def silent(**more: Any) -> FakeEngine:
        engines.append(SilentEngine(**more))
        return engines[-1]

    async with open_containers(tmp_path, engine=silent, bounds=Bounds(probe=0.005)) as house:
        deployment = await house.ready(await house.key())
        back = house.runtime.go_away()
        engines[0].silent = True
        seen = engines[0].probes
        await house.until(lambda: engines[0].probes > seen + 6)
        engines[0].silent = False
        back()
        seen = engines[0].probes
        await house.until(lambda: engines[0].probes > seen + 3)
        assert deployment in house.store.world.deployments
        assert (await house.types())[-1] == "DeploymentReady"


async def test_a_pull_is_begun_again_when_the_container_engine_went_away_under_it(tmp_path: Path) -> None:
    shelf = Shelf(faults=[EngineDown("restarting", fix="wait")])
    async with open_containers(tmp_path, shelf=shelf) as house:
        command = await house.send(await house.key(), deploy())
        await house.told("DeploymentReady", causation=command)
        assert shelf.pulled == [TAG, TAG]
