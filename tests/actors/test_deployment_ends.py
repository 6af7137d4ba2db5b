"""Ends that meet: an undeploy, a key taken back, an engine that ends by itself, a disk that is slow or full.

Whatever comes together, each command completes once, no fact is told twice, and what was reserved comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors.ending import REVOKED
from actors.log.linefile import NoRoom
from actors.rules.refusal import Refusal
from tests.support.houses import Disk, Household, deploy, open_house

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.state.keys import Key
    from adapters.engine.fake import FakeEngine
    from adapters.runtime.fake import FakeRuntime

PHASES = ("accepted", "loading", "ready")


def hold_in(phase: str) -> Callable[[FakeRuntime, FakeEngine], None]:
    """Let deployments come as far as a phase and no farther."""

    def prepare(runtime: FakeRuntime, engine: FakeEngine) -> None:
        if phase == "accepted":
            runtime.hold_starts()
        if phase == "loading":
            engine.hold_loads()

    return prepare


async def in_phase(house: Household, key: Key, phase: str) -> tuple[str, str]:
    """A deploy that has come that far: the command's id and the deployment's."""
    command = await house.send(key, deploy())
    await house.until(lambda: any(d.phase == phase for d in house.store.world.deployments.values()))
    (deployment,) = house.store.world.deployments
    if phase == "ready":
        await house.until(lambda: house.house.addresses.get(deployment) is not None)
    return command, deployment


@pytest.mark.parametrize("phase", PHASES)
async def test_an_undeploy_is_carried_out_in_every_phase(tmp_path: Path, phase: str) -> None:
    async with open_house(tmp_path, prepare=hold_in(phase)) as house:
        key = await house.key()
        command, deployment = await in_phase(house, key, phase)
        undeploy = await house.undeploy(key, deployment)
        await house.completed(command, undeploy)
        await house.check()
        assert (await house.types(command))[-1] == (
            "DeploymentReady" if phase == "ready" else "DeploymentEnded"
        )
        assert await house.types(undeploy) == ["Undeployed"]
        assert house.store.world.promised == {}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_key_taken_back_ends_its_work_in_every_phase(tmp_path: Path, phase: str) -> None:
    async with open_house(tmp_path, prepare=hold_in(phase)) as house:
        key = await house.key()
        other = await house.key("other")
        command, _ = await in_phase(house, key, phase)
        await house.revoke(key)
        fact = await house.told("DeploymentEnded", causation=command)
        assert fact["data"]["reason"] == REVOKED
        await house.until(lambda: not house.store.ring.ending())
        await house.check()
        assert house.store.world.promised == {}
        assert not house.store.ring.ending()
        assert other.is_open(house.clock.now_ms())


async def test_an_undeploy_before_it_is_ready_completes_both_commands(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_in("loading")) as house:
        key = await house.key()
        _, deployment = await in_phase(house, key, "loading")
        undeploy = await house.undeploy(key, deployment)
        await house.completed(undeploy)
        last = await house.facts()
        assert [f["type"] for f in last[-2:]] == ["DeploymentEnded", "Undeployed"]
        assert last[-2]["data"]["reason"] == "it was undeployed before it was ready"


async def test_an_owner_undeploys_anothers_and_each_reads_its_own_fact(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        tenant, owner = await house.key("tenant", scopes=("deploy",)), await house.key("owner")
        deployment = await house.ready(tenant)
        undeploy = await house.undeploy(owner, deployment)
        await house.completed(undeploy)
        await house.check()
        assert (await house.facts())[-1]["holder"] == owner.holder


async def test_a_second_undeploy_is_refused_while_the_first_is_under_way(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_in("loading")) as house:
        key = await house.key()
        _, deployment = await in_phase(house, key, "loading")
        house.runtime.make_stubborn(deployment)
        await house.undeploy(key, deployment)
        with pytest.raises(Refusal) as refused:
            await house.undeploy(key, deployment)
        assert refused.value.code == "DEPLOYMENT_ENDING"
        house.runtime.end(deployment, 0)
        await house.check()


async def test_an_undeploy_while_its_end_is_being_told_completes_once(tmp_path: Path, disk: Disk) -> None:
    """The engine has died and that is on its way to the disk when the undeploy is accepted."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("events")
        house.runtime.end(deployment, 1)
        await house.until(lambda: house.house.addresses.get(deployment) is None)
        undeploy = await house.undeploy(key, deployment)
        disk.release("events")
        await house.completed(undeploy)
        await house.check()
        assert (await house.types())[-2:] == ["DeploymentEnded", "Undeployed"]


async def test_an_undeploy_while_its_failure_is_being_told_completes_once(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path, prepare=hold_in("loading")) as house:
        key = await house.key()
        command, deployment = await in_phase(house, key, "loading")
        disk.hold("events")
        house.runtime.end(deployment, 1)
        await house.until(lambda: house.store.events.statistics().pending == 0)
        undeploy = await house.undeploy(key, deployment)
        disk.release("events")
        await house.completed(command, undeploy)
        await house.check()
        assert (await house.types())[-2:] == ["DeploymentFailed", "Undeployed"]


async def test_an_undeploy_while_ready_is_being_told_ends_a_ready_deployment(
    tmp_path: Path, disk: Disk
) -> None:
    """What was told is not followed by its contrary: it was ready, and so it was not undeployed before."""
    async with open_house(tmp_path, prepare=hold_in("loading")) as house:
        key = await house.key()
        command, deployment = await in_phase(house, key, "loading")
        disk.hold("events")
        assert house.engine._loading is not None
        batches = house.store.events.statistics().batches
        house.engine._loading.set()
        await house.until(lambda: bool(house.store.events._journal._limiter.borrowed_tokens))
        undeploy = await house.undeploy(key, deployment)
        assert house.store.events.statistics().batches == batches
        disk.release("events")
        await house.completed(command, undeploy)
        await house.check()
        told = await house.types()
        assert told[-1] == "Undeployed"
        assert "DeploymentReady" in told
        assert "DeploymentEnded" not in told


async def test_a_key_taken_back_while_its_end_is_being_told_is_told_once(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("events")
        house.runtime.end(deployment, 7)
        await house.until(lambda: house.house.addresses.get(deployment) is None)
        await house.revoke(key)
        disk.release("events")
        await house.told("DeploymentEnded")
        await house.check()
        assert (await house.types()).count("DeploymentEnded") == 1


async def test_an_undeploy_is_not_completed_before_it_is_durable(tmp_path: Path, disk: Disk) -> None:
    """Its deployment ends by itself meanwhile: no power cut may take back a command whose end was told."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.undeploy, key, deployment)
            await house.until(lambda: house.store.world.deployments[deployment].phase == "ending")
            house.runtime.end(deployment, 1)
            await house.told("DeploymentEnded")
            await house.until(lambda: deployment not in house.store.world.deployments)
            assert "Undeployed" not in await house.types()
            disk.release("accepted.jsonl")
        await house.check()
        assert (await house.types())[-1] == "Undeployed"


async def test_an_undeploy_that_was_not_kept_leaves_the_deployment_as_it_was(
    tmp_path: Path, disk: Disk
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.full.add("accepted.jsonl")
        with pytest.raises(Refusal) as refused:
            await house.undeploy(key, deployment)
        assert refused.value.code == "NO_ROOM"
        assert house.store.world.deployments[deployment].phase == "ready"
        assert house.store.world.unfinished == {}
        disk.full.clear()
        prompt = await house.prompt(key, deployment)
        await house.completed(prompt)
        assert await house.types(prompt) == ["PromptAnswered"]
        await house.check()


async def test_an_undeploy_that_was_not_kept_is_not_told_when_its_deployment_ended(
    tmp_path: Path, disk: Disk
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("accepted.jsonl")
        disk.full.add("accepted.jsonl")
        with pytest.RaisesGroup(Refusal):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(house.undeploy, key, deployment)
                await house.until(lambda: house.store.world.deployments[deployment].phase == "ending")
                house.runtime.end(deployment, 1)
                await house.told("DeploymentEnded")
                disk.release("accepted.jsonl")
        await house.check()
        assert "Undeployed" not in await house.types()


async def test_a_deploy_that_was_not_kept_leaves_nothing(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=1 << 30, deployments=1)
        disk.full.add("accepted.jsonl")
        with pytest.raises(Refusal) as refused:
            await house.send(key, deploy())
        assert refused.value.code == "NO_ROOM"
        assert isinstance(refused.value.__cause__, NoRoom)
        world = house.store.world
        assert (world.promised, world.deployments, world.unfinished) == ({}, {}, {})
        assert world.holding(key.holder).memory_bytes == 0
        assert house.runtime.starts == []
        assert await house.facts() == []
        disk.full.clear()
        await house.ready(key)
        await house.check()


async def test_a_fact_that_must_be_told_waits_for_room(tmp_path: Path, disk: Disk) -> None:
    """The disk is full when the engine dies: it is told once, when there is room again."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.full.add("events")
        house.runtime.end(deployment, 1)
        await house.until(lambda: house.house.addresses.get(deployment) is None)
        undeploy = await house.undeploy(key, deployment)
        disk.full.clear()
        await house.completed(undeploy)
        await house.check()
        assert (await house.types())[-2:] == ["DeploymentEnded", "Undeployed"]


async def test_an_undeploy_and_a_revoke_together_end_it_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        house.runtime.make_stubborn(deployment)
        undeploy = await house.undeploy(key, deployment)
        await house.revoke(key)
        house.runtime.end(deployment, 0)
        await house.completed(undeploy)
        await house.until(lambda: not house.store.ring.ending())
        await house.check()
        assert (await house.types())[-1] == "Undeployed"


async def test_a_revoke_and_then_an_owners_undeploy_complete_both(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key, owner = await house.key(scopes=("deploy",)), await house.key("owner")
        deployment = await house.ready(key)
        house.runtime.make_stubborn(deployment)
        await house.revoke(key)
        undeploy = await house.undeploy(owner, deployment)
        house.runtime.end(deployment, 0)
        await house.completed(undeploy)
        await house.check()


async def test_a_holder_is_told_when_another_key_ends_its_deployment(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        holder = await house.key(scopes=("deploy",))
        everybodys = await house.key("owner")
        deployment = await house.ready(holder)
        await house.completed(await house.undeploy(everybodys, deployment))
        ended = await house.told("DeploymentEnded")
        undeployed = await house.told("Undeployed")
    assert ended["holder"] == holder.holder
    assert "everybody's" in ended["data"]["reason"]
    assert undeployed["holder"] == everybodys.holder
