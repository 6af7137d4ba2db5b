"""A share and a count come back however a workload ends, and never twice (F12).

Each way of ending leaves the key holding nothing: exactly what it held is then admitted again, and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors.messages.commands import Command
from actors.rules.refusal import Refusal
from adapters.engine.port import EngineUnreachable
from adapters.images.port import PullFailed
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import StartFailed
from tests.support.houses import MIB, Disk, Household, deploy, job, open_house

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from actors.state.keys import Key
    from adapters.engine.fake import FakeEngine

SHARE = 64 * MIB


def one_deployment() -> Command:
    return deploy(SHARE)


def one_job() -> Command:
    return job(memory_bytes=SHARE)


async def tenant(house: Household) -> Key:
    """A key that one deployment, or one job, fills."""
    return await house.key("tenant", memory_bytes=SHARE, deployments=1, jobs=1)


async def refused(house: Household, key: Key, body: Command) -> str:
    with pytest.raises(Refusal) as no:
        await house.send(key, body)
    return no.value.code


async def undeployed(house: Household, key: Key, disk: Disk) -> None:
    await house.completed(await house.undeploy(key, await house.ready(key, SHARE)))


async def undeployed_by_another(house: Household, key: Key, disk: Disk) -> None:
    owner = await house.key("owner")
    await house.completed(await house.undeploy(owner, await house.ready(key, SHARE)))


async def undeployed_while_it_loads(house: Household, key: Key, disk: Disk) -> None:
    house.engine.hold_loads()
    _, deployment = await house.deploying(key, SHARE)
    await house.told("WeightsLoading")
    await house.completed(await house.undeploy(key, deployment))


async def its_engine_ends(house: Household, key: Key, disk: Disk) -> None:
    house.runtime.end(await house.ready(key, SHARE), 1)


async def its_load_fails(house: Household, key: Key, disk: Disk) -> None:
    house.engine.fail_next_load(EngineUnreachable("it does not answer", fix="deploy again"))
    await house.completed(await house.send(key, one_deployment()))


async def its_engine_does_not_start(house: Household, key: Key, disk: Disk) -> None:
    house.runtime.fail_next_start(StartFailed("no such program", fix="install it"))
    await house.completed(await house.send(key, one_deployment()))


async def a_job_finishes(house: Household, key: Key, disk: Disk) -> None:
    house.runtime.end(await house.running(key, memory_bytes=SHARE), 3)


async def a_job_runs_out_of_memory(house: Household, key: Key, disk: Disk) -> None:
    house.runtime.end(await house.running(key, memory_bytes=SHARE), 137, out_of_memory=True)


async def a_job_is_stopped(house: Household, key: Key, disk: Disk) -> None:
    await house.completed(await house.stop_job(key, await house.running(key, memory_bytes=SHARE)))


async def a_job_is_stopped_while_it_is_pulled(house: Household, key: Key, disk: Disk) -> None:
    _, name = await house.job_in(key, "pulling", memory_bytes=SHARE)
    await house.completed(await house.stop_job(key, name))


async def a_jobs_pull_breaks_off(house: Household, key: Key, disk: Disk) -> None:
    house.images.fail_pull("busybox", PullFailed("it broke off", fix="try again"))
    await house.completed(await house.send(key, one_job()))


async def a_job_does_not_start(house: Household, key: Key, disk: Disk) -> None:
    house.runtime.fail_next_start(
        StartFailed("no such program", fix="name another", code="COMMAND_NOT_FOUND")
    )
    await house.completed(await house.send(key, one_job()))


async def the_disk_keeps_no_command(house: Household, key: Key, disk: Disk) -> None:
    disk.full.add("accepted.jsonl")
    for body in (one_deployment(), one_job()):
        assert await refused(house, key, body) == "NO_ROOM"
    disk.full.clear()


async def its_sender_leaves_and_the_disk_keeps_nothing(house: Household, key: Key, disk: Disk) -> None:
    for body in (one_deployment(), one_job()):
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.send, key, body)
            await house.until(lambda: house.store.world.holding(key.holder).memory_bytes == SHARE)
            nursery.cancel_scope.cancel("the client has left")
        disk.full.add("accepted.jsonl")
        disk.release("accepted.jsonl")
        await house.until(lambda: not house.store.world.holding(key.holder).memory_bytes)
        disk.full.clear()


WAYS = [
    undeployed,
    undeployed_by_another,
    undeployed_while_it_loads,
    its_engine_ends,
    its_load_fails,
    its_engine_does_not_start,
    a_job_finishes,
    a_job_runs_out_of_memory,
    a_job_is_stopped,
    a_job_is_stopped_while_it_is_pulled,
    a_jobs_pull_breaks_off,
    a_job_does_not_start,
    the_disk_keeps_no_command,
    its_sender_leaves_and_the_disk_keeps_nothing,
]


async def holds_one_and_no_more(house: Household, key: Key) -> None:
    """The share is whole again, and is still one."""
    world = house.store.world
    await house.until(
        lambda: not world.holding(key.holder).deployments and not world.holding(key.holder).jobs
    )
    assert world.holding(key.holder).memory_bytes == 0
    assert world.promised == {}
    await house.send(key, one_deployment())
    assert await refused(house, key, one_deployment()) == "DEPLOYMENTS_EXCEEDED"
    assert await refused(house, key, one_job()) == "SHARE_EXCEEDED"
    assert world.holding(key.holder).memory_bytes == SHARE
    await house.at_rest()
    (deployment,) = world.holding(key.holder).deployments
    await house.completed(await house.undeploy(key, deployment))
    await house.send(key, one_job())
    assert await refused(house, key, one_job()) == "JOBS_EXCEEDED"
    assert await refused(house, key, one_deployment()) == "SHARE_EXCEEDED"


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
async def test_it_comes_back(
    tmp_path: Path, disk: Disk, way: Callable[[Household, Key, Disk], Awaitable[None]]
) -> None:
    async with open_house(tmp_path) as house:
        key = await tenant(house)
        await way(house, key, disk)
        gate = house.engine._loading
        if gate is not None:
            gate.set()
        await holds_one_and_no_more(house, key)
        await house.check()


@pytest.mark.parametrize("survives", [True, False])
@pytest.mark.parametrize("what", ["deployment", "job"])
async def test_a_restart_keeps_what_is_held_and_gives_back_what_has_ended(
    tmp_path: Path, what: str, *, survives: bool
) -> None:
    async with open_house(tmp_path) as house:
        key = await tenant(house)
        if what == "job":
            name = await house.running(key, memory_bytes=SHARE)
        else:
            name = await house.ready(key, SHARE)
    if not survives:
        FakeRuntime(tmp_path).end(name, 0)
    async with open_house(tmp_path) as again:
        again.accepted.update(house.accepted)
        (key,) = again.store.ring.all()
        if survives:
            assert again.store.world.holding(key.holder).memory_bytes == SHARE
            assert await refused(again, key, deploy(MIB)) != "INSUFFICIENT_MEMORY"
            owner = await again.key("owner")
            ending = again.stop_job if what == "job" else again.undeploy
            await again.completed(await ending(owner, name))
        await holds_one_and_no_more(again, key)
        await again.check()


@pytest.mark.parametrize("what", ["deployment", "job"])
async def test_what_was_accepted_and_not_begun_is_held_through_a_restart_and_once(
    tmp_path: Path, what: str
) -> None:
    def hold(runtime: FakeRuntime, engine: FakeEngine) -> None:
        runtime.hold_starts()

    body = one_job() if what == "job" else one_deployment()
    async with open_house(tmp_path, prepare=hold) as house:
        key = await tenant(house)
        await house.send(key, body)
    for _ in range(2):
        async with open_house(tmp_path, prepare=hold) as again:
            assert again.store.world.holding(key.holder).memory_bytes == SHARE
            assert await refused(again, key, body) == f"{what.upper()}S_EXCEEDED"
            assert (
                await refused(again, key, one_job() if what != "job" else one_deployment())
                == "SHARE_EXCEEDED"
            )
    async with open_house(tmp_path) as last:
        last.accepted.update(house.accepted)
        await last.at_rest()
        assert last.store.world.holding(key.holder).memory_bytes == SHARE
        await last.revoke(key)
        await last.until(lambda: not last.store.ring.ending())
        assert last.store.world.promised == {}
        await last.check()


@pytest.mark.parametrize(("jobs", "deployments"), [(3, None), (None, 3), (2, 2)])
async def test_admissions_that_arrive_together_never_pass_a_count(
    tmp_path: Path, jobs: int | None, deployments: int | None
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(jobs=jobs, deployments=deployments)
        said: list[str] = []

        async def one(body: Command) -> None:
            try:
                await house.send(key, body)
            except Refusal as no:
                said.append(no.code)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                if jobs is not None:
                    nursery.start_soon(one, job("sleep", memory_bytes=MIB if number % 2 else None))
                if deployments is not None:
                    nursery.start_soon(one, deploy())
        holding = house.store.world.holding(key.holder)
        assert len(holding.jobs) == (jobs or 0)
        assert len(holding.deployments) == (deployments or 0)
        assert said.count("JOBS_EXCEEDED") == (0 if jobs is None else 20 - jobs)
        assert said.count("DEPLOYMENTS_EXCEEDED") == (0 if deployments is None else 20 - deployments)
