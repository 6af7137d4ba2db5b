"""Admission: decided and reserved in one go, durable or leaving nothing; retries answered (F3, F8, F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from actors.messages.commands import Command, DeployModel, Prompt, RevokeAgent, RunJob, StopJob, Turn
from actors.rules.refusal import Refusal
from adapters.engine.fake import FakeEngine
from adapters.engine.port import Plan
from adapters.gpu.fake import FakeGpu, cpu_device
from tests.support.houses import MIB, Disk, Household, deploy, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from actors.state.keys import Key
    from adapters.runtime.fake import FakeRuntime


def hold_loads(runtime: FakeRuntime, engine: FakeEngine) -> None:
    engine.hold_loads()


async def refusal(house: Household, key: Key, body: Command, **more: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await house.submit(key, body, **more)
    return refused.value


async def together(
    house: Household, key: Key, bodies: list[Command], **more: Any
) -> tuple[int, list[Refusal]]:
    """Send commands at the same moment: how many were accepted, and the others' refusals."""
    refused: list[Refusal] = []
    accepted = 0

    async def one(body: Command) -> None:
        nonlocal accepted
        try:
            await house.submit(key, body, **more)
        except Refusal as no:
            refused.append(no)
        else:
            accepted += 1

    async with trio.open_nursery() as nursery:
        for body in bodies:
            nursery.start_soon(one, body)
    return accepted, refused


async def test_deploys_that_arrive_together_never_overshoot_a_device(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=FakeGpu((cpu_device(10 * 64 * MIB),))) as house:
        key = await house.key()
        accepted, refused = await together(house, key, [deploy() for _ in range(40)])
        assert accepted == 10
        assert {r.code for r in refused} == {"INSUFFICIENT_MEMORY"}
        assert house.store.world.promised == {"cpu": 10 * 64 * MIB}
        await house.check()


@pytest.mark.parametrize(
    ("grant", "code"),
    [
        ({"memory_bytes": 3 * 64 * MIB}, "SHARE_EXCEEDED"),
        ({"deployments": 3}, "DEPLOYMENTS_EXCEEDED"),
    ],
)
async def test_deploys_that_arrive_together_never_overshoot_a_keys_share(
    tmp_path: Path, grant: dict[str, Any], code: str
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(**grant)
        accepted, refused = await together(house, key, [deploy() for _ in range(20)])
        assert accepted == 3
        assert {r.code for r in refused} == {code}
        assert house.store.world.holding(key.holder).memory_bytes == 3 * 64 * MIB
        await house.check()


async def test_what_is_promised_and_not_used_yet_is_kept_free_beside_other_programs(tmp_path: Path) -> None:
    """Another program holds half of the memory; a ready engine has taken a quarter of its promise."""
    cpu = attrs.evolve(cpu_device(1024 * MIB), memory_free_bytes=412 * MIB)
    async with open_house(tmp_path, gpu=FakeGpu((cpu,))) as house:
        key = await house.key()
        deployment = await house.ready(key, 400 * MIB)
        house.runtime.set_processes(deployment, frozenset({7, 8}))
        house.gpu.used = {7: 60 * MIB, 8: 40 * MIB}
        refused = await refusal(house, key, deploy(113 * MIB))
        assert refused.code == "INSUFFICIENT_MEMORY"
        assert refused.details["driver_bytes"] == 112 * MIB
        await house.ready(key, 112 * MIB)


async def test_what_one_that_is_ready_holds_is_all_its_promise_where_nobody_knows(tmp_path: Path) -> None:
    cpu = attrs.evolve(cpu_device(1024 * MIB), memory_free_bytes=412 * MIB)
    async with open_house(tmp_path, gpu=FakeGpu((cpu,))) as house:
        key = await house.key()
        await house.ready(key, 400 * MIB)
        house.gpu.used = {}
        assert (await refusal(house, key, deploy(1000 * MIB))).details["driver_bytes"] == 412 * MIB


async def test_what_ended_makes_room_again(tmp_path: Path) -> None:
    """A count that does not come back is the commonest fault of all."""
    async with open_house(tmp_path, gpu=FakeGpu((cpu_device(64 * MIB),))) as house:
        key = await house.key(memory_bytes=64 * MIB, deployments=1)
        for _ in range(5):
            deployment = await house.ready(key)
            assert (await refusal(house, key, deploy())).code == "DEPLOYMENTS_EXCEEDED"
            undeploy = await house.undeploy(key, deployment)
            await house.completed(undeploy)
        await house.check()
        assert house.store.world.promised == {}


async def test_one_command_sent_many_times_at_once_is_one_command(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        accepted, refused = await together(house, key, [deploy() for _ in range(20)], identifier="cmd-same")
        assert (accepted, refused) == (20, [])
        assert len(house.store.world.deployments) == 1
        assert len(house.store.accepted) == 1
        await house.check()


async def test_a_retry_is_answered_as_before_also_after_a_restart(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        first = await house.submit(key, deploy(), identifier="cmd-1", correlation="corr-1")
        assert await house.submit(key, deploy(), identifier="cmd-1", correlation="corr-1") == first
        await house.completed("cmd-1")
    async with open_house(tmp_path) as again:
        assert await again.submit(key, deploy(), identifier="cmd-1", correlation="corr-1") == first
        await again.at_rest()
        assert len(again.store.world.deployments) == 1


async def test_an_id_is_its_first_senders_with_its_first_content(tmp_path: Path) -> None:
    """Easily missed 3: a command's id serves as its correlation and is owned alike."""
    async with open_house(tmp_path) as house:
        key, other = await house.key(), await house.key("other")
        await house.submit(key, deploy(), identifier="cmd-1", correlation="corr-1")
        changed = await refusal(house, key, deploy(65 * MIB), identifier="cmd-1", correlation="corr-1")
        assert (changed.code, changed.details["field"]) == ("DUPLICATE_ID", "/id")
        for name in ("cmd-1", "corr-1"):
            by_id = await refusal(house, other, RevokeAgent(), identifier=name)
            assert (by_id.code, by_id.details["field"]) == ("ID_NOT_YOURS", "/id")
            by_correlation = await refusal(house, other, RevokeAgent(), correlation=name)
            assert (by_correlation.code, by_correlation.details["field"]) == (
                "ID_NOT_YOURS",
                "/correlationid",
            )
        await house.submit(key, deploy(), correlation="corr-1")
        await house.check()


async def test_a_sender_that_leaves_loses_the_answer_alone(tmp_path: Path, disk: Disk) -> None:
    """The accepted command runs on and its retry is answered (hypercorn #210)."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: house.submit(key, deploy(), identifier="cmd-1"))
            await house.until(lambda: bool(house.store.world.unfinished))
            nursery.cancel_scope.cancel()
        disk.release("accepted.jsonl")
        await house.told("DeploymentReady", causation="cmd-1")
        assert (await house.submit(key, deploy(), identifier="cmd-1")).id == "cmd-1"
        await house.check()


async def test_commands_that_a_full_disk_did_not_keep_leave_nothing_of_any(
    tmp_path: Path, disk: Disk
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=1 << 40)
        deployment = await house.ready(key)
        disk.full.add("accepted.jsonl")
        bodies: list[Command] = [deploy() for _ in range(5)]
        bodies += [Prompt(deployment, (Turn("user", "x"),)) for _ in range(5)]
        accepted, refused = await together(house, key, bodies)
        assert accepted == 0
        assert {r.code for r in refused} == {"NO_ROOM"}
        assert house.store.world.unfinished == {}
        assert house.store.world.holding(key.holder).memory_bytes == 64 * MIB
        disk.full.clear()
        assert await house.types() == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]
        await house.check()


async def test_a_command_that_was_not_kept_does_not_count_for_the_pace(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path, commands_per_minute=2) as house:
        key = await house.key(memory_bytes=1 << 40)
        disk.full.add("accepted.jsonl")
        for _ in range(5):
            assert (await refusal(house, key, deploy())).code == "NO_ROOM"
        disk.full.clear()
        await house.send(key, deploy(), identifier="cmd-1")
        await house.send(key, deploy(), identifier="cmd-1")
        await house.send(key, deploy())
        paced = await refusal(house, key, deploy())
        assert paced.code == "TOO_MANY_COMMANDS"
        assert 1 <= paced.details["retry_after_seconds"] <= 60
        await house.check()


async def test_the_owners_own_keys_are_not_paced(tmp_path: Path) -> None:
    async with open_house(tmp_path, commands_per_minute=1) as house:
        key = await house.key()
        for _ in range(3):
            await house.send(key, deploy())
        await house.check()


class Slow(FakeEngine):
    """Plans when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = trio.Event()
        self.asked_to_plan = 0

    async def plan(self, model: str, memory_bytes: int) -> Plan:
        self.asked_to_plan += 1
        await self.go.wait()
        return await super().plan(model, memory_bytes)


async def test_a_key_taken_back_while_its_command_is_looked_at_gets_nothing(tmp_path: Path) -> None:
    """Else its work would begin after all its work was seen to have ended."""
    engine = Slow()
    async with open_house(tmp_path, engines=lambda _: {"llamacpp": engine}) as house:
        key = await house.key()

        async def refused() -> None:
            assert (await refusal(house, key, deploy())).code == "UNAUTHORIZED"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await house.until(lambda: engine.asked_to_plan == 1)
            await house.revoke(key)
            await house.until(lambda: not house.store.ring.ending())
            engine.go.set()
        assert house.store.world.promised == {}
        await house.check()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (RunJob("IMAGE"), "INVALID_IMAGE"),
        (RunJob("image", memory_bytes=1 << 60), "INSUFFICIENT_MEMORY"),
        (RunJob("image", device="gpu-7"), "UNKNOWN_DEVICE"),
        (RunJob("image", isolation="vm"), "ISOLATION_UNAVAILABLE"),
        (StopJob("job-1"), "UNKNOWN_JOB"),
        (DeployModel("m", "vllm", MIB), "ENGINE_UNAVAILABLE"),
        (DeployModel("m", "llamacpp", 1), "MEMORY_TOO_SMALL"),
        (DeployModel("m", "llamacpp", 1 << 60), "INSUFFICIENT_MEMORY"),
        (DeployModel("m", "llamacpp", 64 * MIB, device="gpu-7"), "UNKNOWN_DEVICE"),
        (DeployModel("m", "llamacpp", 64 * MIB, isolation="vm"), "ISOLATION_UNAVAILABLE"),
        (Prompt("dep-of-nobody", (Turn("user", "x"),)), "UNKNOWN_DEPLOYMENT"),
    ],
)
async def test_what_cannot_be_done_is_refused_at_once_and_leaves_nothing(
    tmp_path: Path, body: Command, code: str
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        refused = await refusal(house, key, body)
        assert refused.code == code
        assert refused.message
        assert house.store.world.unfinished == {}
        assert len(house.store.accepted) == 0


async def test_commands_under_way_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.desk.MOST_UNFINISHED", 3)
    async with open_house(tmp_path, prepare=hold_loads) as house:
        key = await house.key()
        for _ in range(3):
            await house.send(key, deploy())
        refused = await refusal(house, key, deploy())
        assert refused.code == "TOO_MANY_UNFINISHED"
        assert refused.details["retry_after_seconds"] > 0
        assert house.engine._loading is not None
        house.engine._loading.set()
        await house.check()
        await house.send(key, deploy())
        await house.check()
