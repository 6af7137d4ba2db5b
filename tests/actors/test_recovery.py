"""A restart: the fold of the log, squared with what still runs; nothing silently lost (F8, F37).

Each test leaves one house and opens another over the same folder, where the fake runtime remembers what ran.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from actors.kernel.child import Backoff
from actors.log.accepted import Record
from actors.messages.commands import RevokeAgent
from adapters.engine.fake import FakeEngine
from adapters.engine.port import ModelNotFound
from adapters.gpu.fake import FakeGpu
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import NotEnded
from tests.support.houses import MIB, Disk, Household, deploy, open_house
from tests.support.soak.history import problems

if TYPE_CHECKING:
    from pathlib import Path

    from actors.state.keys import Key


def hold_starts(runtime: FakeRuntime, engine: FakeEngine) -> None:
    runtime.hold_starts()


def hold_loads(runtime: FakeRuntime, engine: FakeEngine) -> None:
    engine.hold_loads()


def hold_answers(runtime: FakeRuntime, engine: FakeEngine) -> None:
    engine.hold_answers()


def key_of(house: Household) -> Key:
    (key,) = house.store.ring.all()
    return key


async def check(house: Household, sent: dict[str, str]) -> None:
    """As `Household.check`, over both lives."""
    house.accepted.update(sent)
    await house.check()


async def test_a_deploy_accepted_and_not_begun_is_carried_out(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_starts) as house:
        command, deployment = await house.deploying(await house.key())
    async with open_house(tmp_path) as again:
        assert deployment in again.store.world.deployments
        assert again.store.world.promised == {"cpu": 64 * MIB}
        await again.completed(command)
        await check(again, house.accepted)
        assert await again.types() == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]
        assert (await again.facts())[0]["data"]["deployment"] == deployment


async def test_a_program_started_and_not_told_is_found_and_told(tmp_path: Path) -> None:
    """Killed between the start and its fact."""
    async with open_house(tmp_path, prepare=hold_starts) as house:
        _, deployment = await house.deploying(await house.key())
    FakeRuntime(tmp_path).plant(deployment)
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        assert await again.types() == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]
        assert again.runtime.starts == []
        ready = (await again.facts())[-1]
        assert "load_ms" not in ready["data"], "how long it took to load is not known to this peer"


async def test_a_loading_engine_that_survived_becomes_ready(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_loads) as house:
        await house.deploying(await house.key())
        await house.told("WeightsLoading")
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        assert await again.types() == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]


async def test_a_loading_engine_that_did_not_survive_fails_the_deploy_with_the_fix(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_loads) as house:
        command, deployment = await house.deploying(await house.key())
        await house.told("WeightsLoading")
    FakeRuntime(tmp_path).end(deployment, 137)
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        fact = (await again.facts(command))[-1]
        assert (fact["type"], fact["data"]["code"]) == ("DeploymentFailed", "INTERRUPTED")
        assert fact["data"]["fix"]
        assert again.store.world.promised == {}


async def test_a_ready_engine_that_survived_answers_on(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        deployment = await house.ready(await house.key())
    async with open_house(tmp_path) as again:
        assert again.store.world.promised == {"cpu": 64 * MIB}
        prompt = await again.prompt(key_of(again), deployment)
        await again.completed(prompt)
        await check(again, house.accepted)
        assert await again.types(prompt) == ["PromptAnswered"]


async def test_a_ready_engine_that_did_not_survive_is_told_to_have_ended(tmp_path: Path) -> None:
    """An adopted one's exit code is told as unknown."""
    async with open_house(tmp_path) as house:
        deployment = await house.ready(await house.key())
    FakeRuntime(tmp_path).end(deployment, 1)
    async with open_house(tmp_path) as again:
        fact = await again.told("DeploymentEnded")
        assert fact["data"]["exit_code"] is None
        await check(again, house.accepted)


async def test_a_prompt_in_flight_is_asked_again(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_answers) as house:
        key = await house.key()
        deployment = await house.ready(key)
        prompts = [await house.prompt(key, deployment) for _ in range(20)]
        await house.until(lambda: len(house.engine.asked) == 16)
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        for prompt in prompts:
            assert await again.types(prompt) == ["PromptAnswered"]


async def test_a_prompt_in_flight_fails_when_its_engine_did_not_survive(tmp_path: Path) -> None:
    """And it fails at once: it does not wait for what will never come."""
    async with open_house(tmp_path, prepare=hold_answers) as house:
        key = await house.key()
        deployment = await house.ready(key)
        prompts = [await house.prompt(key, deployment) for _ in range(20)]
    FakeRuntime(tmp_path).end(deployment, 1)
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        for prompt in prompts:
            (fact,) = await again.facts(prompt)
            assert (fact["type"], fact["data"]["code"]) == ("PromptFailed", "DEPLOYMENT_ENDED")


@pytest.mark.parametrize("survives", [True, False])
@pytest.mark.parametrize("phase", ["loading", "ready"])
async def test_an_undeploy_under_way_is_carried_on(tmp_path: Path, phase: str, *, survives: bool) -> None:
    """The wish to stop outlives the peer."""
    async with open_house(tmp_path, prepare=hold_loads if phase == "loading" else None) as house:
        key = await house.key()
        if phase == "ready":
            deployment = await house.ready(key)
        else:
            _, deployment = await house.deploying(key)
            await house.told("WeightsLoading")
        house.runtime.make_stubborn(deployment)
        undeploy = await house.undeploy(key, deployment)
    if not survives:
        FakeRuntime(tmp_path).end(deployment, 1)
    async with open_house(tmp_path, prepare=hold_loads) as again:
        await again.completed(undeploy)
        await check(again, house.accepted)
        assert await again.runtime.running() == ()
        assert again.store.world.promised == {}
        assert (await again.types())[-1] == "Undeployed"


async def test_an_undeploy_whose_deployment_has_gone_is_completed(tmp_path: Path) -> None:
    """Killed between the fact that ended the deployment and the fact that completes the undeploy."""
    async with open_house(tmp_path, prepare=hold_loads) as house:
        key = await house.key()
        _, deployment = await house.deploying(key)
        await house.told("WeightsLoading")
        undeploy = await house.undeploy(key, deployment)
        await house.completed(undeploy)
    day = next((tmp_path / "events").iterdir())
    lines = day.read_bytes().splitlines(keepends=True)
    assert b"Undeployed" in lines[-1]
    day.write_bytes(b"".join(lines[:-1]))
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        assert (await again.types())[-1] == "Undeployed"


async def test_a_revoke_under_way_is_carried_on(tmp_path: Path) -> None:
    """Easily missed 20: tried again until it stops, across restarts."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        house.runtime.make_stubborn(deployment)
        await house.revoke(key)
        assert house.store.ring.ending() == (key.holder,)
    async with open_house(tmp_path) as again:
        fact = await again.told("DeploymentEnded")
        assert fact["data"]["reason"] == "its credential was taken back by the owner of this machine"
        await again.until(lambda: not again.store.ring.ending())
        await check(again, house.accepted)
        assert await again.runtime.running() == ()


async def test_a_revoked_keys_engine_that_ended_meanwhile_is_told_by_its_reason(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        house.runtime.make_stubborn(deployment)
        await house.revoke(key)
    FakeRuntime(tmp_path).end(deployment, 1)
    async with open_house(tmp_path) as again:
        fact = await again.told("DeploymentEnded")
        assert "taken back" in fact["data"]["reason"]
        await check(again, house.accepted)


async def test_a_key_given_back_stays_given_back_and_its_work_runs_on(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        command = await house.send(key, RevokeAgent())
        await house.completed(command)
        assert await house.types(command) == ["AgentRevoked"]
    async with open_house(tmp_path) as again:
        assert not key_of(again).is_open(again.clock.now_ms())
        assert deployment in again.store.world.deployments
        await check(again, house.accepted)


async def test_what_runs_and_belongs_to_nobody_is_ended(tmp_path: Path) -> None:
    FakeRuntime(tmp_path).plant("dep-of-nobody")
    async with open_house(tmp_path) as house:
        await house.check()
        assert await house.runtime.running() == ()


class Unkillable(FakeRuntime):
    """What it is asked to end stays, until it is told to let go."""

    lets_go = False

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        if not self.lets_go:
            raise NotEnded(f"{workload} is still there")
        await super().stop(workload, grace_seconds=grace_seconds)


async def test_an_orphan_that_cannot_be_ended_keeps_nobody_from_starting(tmp_path: Path) -> None:
    FakeRuntime(tmp_path).plant("dep-of-nobody")
    async with open_house(tmp_path, make_runtime=Unkillable) as house:
        await house.ready(await house.key())
        assert isinstance(house.runtime, Unkillable)
        assert "dep-of-nobody" in await house.runtime.running()
        house.runtime.lets_go = True
        await house.check()
        assert "dep-of-nobody" not in await house.runtime.running()


async def test_a_model_that_is_gone_by_the_restart_fails_the_deploy(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_starts) as house:
        command, _ = await house.deploying(await house.key())

    def gone(runtime: FakeRuntime, engine: FakeEngine) -> None:
        engine.fail_next_plan(ModelNotFound("it was removed", fix="add it"))

    async with open_house(tmp_path, prepare=gone) as again:
        await check(again, house.accepted)
        assert await again.types(command) == ["DeploymentFailed"]
        assert (await again.facts())[-1]["data"]["code"] == "MODEL_NOT_FOUND"


async def test_a_model_that_is_gone_costs_a_running_engine_nothing(tmp_path: Path) -> None:
    """It is loading already: whether it may be planned is settled."""
    async with open_house(tmp_path, prepare=hold_loads) as house:
        command, _ = await house.deploying(await house.key())
        await house.told("WeightsLoading")

    def gone(runtime: FakeRuntime, engine: FakeEngine) -> None:
        engine.fail_next_plan(ModelNotFound("it was removed", fix="add it"))

    async with open_house(tmp_path, prepare=gone) as again:
        await check(again, house.accepted)
        assert (await again.types(command))[-1] == "DeploymentReady"


@pytest.mark.parametrize("phase", ["accepted", "loading", "ready"])
async def test_a_peer_started_without_the_engine_ends_what_it_served(tmp_path: Path, phase: str) -> None:
    hold = {"accepted": hold_starts, "loading": hold_loads, "ready": None}[phase]
    async with open_house(tmp_path, prepare=hold) as house:
        command, _ = await house.deploying(await house.key())
        if phase != "accepted":
            await house.told("WeightsLoading" if phase == "loading" else "DeploymentReady")
    async with open_house(tmp_path, engines=lambda engine: {"vllm": FakeEngine("vllm")}) as again:
        await again.told("DeploymentEnded" if phase == "ready" else "DeploymentFailed", causation=command)
        await check(again, house.accepted)
        assert await again.runtime.running() == ()


async def test_a_device_that_is_gone_by_the_restart_fails_the_deploy(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold_starts) as house:
        command, _ = await house.deploying(await house.key())
    gpu = FakeGpu(())
    async with open_house(tmp_path, gpu=gpu) as again:
        await check(again, house.accepted)
        assert await again.types(command) == ["DeploymentFailed"]


def write_accepted(folder: Path, record: Record) -> None:
    with (folder / "accepted.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")


def record(kind: str, data: object, **more: Any) -> Record:
    return Record(
        id="cmd-old",
        holder="h-agent-1",
        correlationid="corr-old",
        hash="x",
        type=kind,
        at="2026-01-01T00:00:00.000Z",
        data=msgspec.Raw(msgspec.json.encode(data)),
        **more,
    )


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("FlyToTheMoon", {"when": "now"}),
        ("Prompt", {"deployment": "dep-1", "mood": "sad"}),
        ("Prompt", ["no", "object"]),
        ("UndeployModel", None),
    ],
)
async def test_a_command_of_another_version_completes_in_command_failed(
    tmp_path: Path, kind: str, data: object
) -> None:
    write_accepted(tmp_path, record(kind, data))
    async with open_house(tmp_path) as house:
        await house.at_rest()
        (fact,) = await house.facts()
        assert (fact["type"], fact["causationid"]) == ("CommandFailed", "cmd-old")
        assert fact["correlationid"] == "corr-old"
        assert (fact["data"]["command"], fact["data"]["command_type"]) == ("cmd-old", kind)
        assert fact["data"]["code"] == "UNKNOWN_COMMAND"
        assert fact["data"]["fix"]
    async with open_house(tmp_path) as again:
        await again.at_rest()
        assert len(await again.facts()) == 1


async def test_a_deploy_of_another_shape_whose_engine_runs_is_finished_by_its_deployment(
    tmp_path: Path,
) -> None:
    """An upgrade in place keeps what runs (Easily missed 30): its commands complete as they always did."""
    async with open_house(tmp_path, prepare=hold_loads) as house:
        command, deployment = await house.deploying(await house.key())
        await house.told("WeightsLoading")
    lines = (tmp_path / "accepted.jsonl").read_bytes().splitlines()
    old = json.loads(lines[0])
    old["data"]["a_field_of_then"] = 1
    (tmp_path / "accepted.jsonl").write_bytes(json.dumps(old).encode() + b"\n")
    async with open_house(tmp_path) as again:
        await again.told("DeploymentReady", causation=command)
        await check(again, house.accepted)
        assert deployment in again.store.world.deployments
    async with open_house(tmp_path) as once_more:
        await once_more.at_rest()
        assert "CommandFailed" not in await once_more.types()


async def test_a_key_given_back_that_nobody_knows_fails_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past its budget: told, and not tried at every start."""
    monkeypatch.setattr(Backoff, "seconds", lambda self, attempt: 0.001)
    write_accepted(tmp_path, record("RevokeAgent", {}))
    async with open_house(tmp_path) as house:
        fact = await house.told("CommandFailed")
        assert (fact["data"]["code"], fact["data"]["command_type"]) == ("INTERNAL", "RevokeAgent")
        await house.at_rest()
        assert len(await house.facts()) == 1


async def test_a_command_that_is_not_durable_yet_is_not_taken_up(tmp_path: Path, disk: Disk) -> None:
    """The actors alone were restarted: it begins when the disk has kept it, and once."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.prompt, key, deployment)
            await house.until(lambda: bool(house.store.world.unfinished))
            house.tree.recover()
            await trio.testing.wait_all_tasks_blocked()
            assert house.engine.asked == []
            disk.release("accepted.jsonl")
        await house.check()
        assert len(house.engine.asked) == 1


async def test_many_restarts_in_the_midst_of_everything_tell_nothing_twice(tmp_path: Path) -> None:
    """Six lives of one folder, each left while deploys, prompts and undeploys are under way."""
    sent: dict[str, str] = {}
    for life in range(6):
        prepare = (hold_starts, hold_loads, hold_answers, None)[life % 4]
        async with open_house(tmp_path, prepare=prepare) as house:
            house.accepted.update(sent)
            key = key_of(house) if len(house.store.ring) else await house.key()
            for deployment in tuple(house.store.world.deployments.values()):
                if deployment.phase == "ready":
                    for _ in range(3):
                        await house.prompt(key, deployment.id)
                if life > 2 and deployment.phase != "ending":
                    await house.undeploy(key, deployment.id)
            for _ in range(3):
                await house.send(key, deploy())
            for _ in range(life * 7):
                await trio.lowlevel.checkpoint()
            assert problems(await house.facts(), house.accepted, all_done=False) == []
            sent = house.accepted
    async with open_house(tmp_path) as last:
        await check(last, sent)
