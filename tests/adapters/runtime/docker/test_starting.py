"""Starts whose calls are dropped, whose answers are lost, or that others cut in on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import pytest
import trio

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.runtime import DockerRuntime
from adapters.runtime.port import Exit, Handle, StartFailed
from tests.support.docker.bed import DockerBed
from tests.support.docker.contents import build_image
from tests.support.docker.gated import HANG, SHUT, open_gate, until_said
from tests.support.docker.lossy import LossyTransport
from tests.support.docker.use import containers_of, push_as
from tests.support.runtimes import DockerWorld, docker_runtime, how, open_docker_world, pulled


@pytest.fixture
async def world(docker_bed: DockerBed) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed) as made:
        yield made


@asynccontextmanager
async def lossy(
    bed: DockerBed, world: DockerWorld
) -> AsyncIterator[tuple[DockerRuntime, list[tuple[str, str]]]]:
    """A runtime of the same instance, and the list of calls whose answers it loses from now on."""
    endpoint = unix_endpoint(bed.socket)
    transport = LossyTransport(endpoint)
    async with (
        DockerClient(endpoint, transport=transport) as client,
        docker_runtime(client, world.instance) as runtime,
    ):
        yield runtime, transport.lost


MOMENTS = (0, 5, 10, 20, 40, 80, 160, 320)
"""Milliseconds after which a start is dropped: before, in and after each of its calls."""


async def test_a_start_that_was_dropped_is_found_by_the_next(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    for moment in MOMENTS:
        spec = world.job("sleep", "99", workload=f"job-{moment}")
        with trio.move_on_after(moment / 1000):
            await world.runtime.start(spec)

        await world.runtime.start(spec)

    assert set(await world.runtime.running()) == {f"job-{moment}" for moment in MOMENTS}
    assert len(containers_of(docker_bed, world.instance)) == len(MOMENTS)


async def test_a_start_that_was_dropped_can_be_ended_for_good(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    for moment in MOMENTS:
        workload = f"job-{moment}"
        with trio.move_on_after(moment / 1000):
            await world.runtime.start(world.job("sleep", "99", workload=workload))

        await world.runtime.stop(workload, grace_seconds=0)
        await world.runtime.discard(workload)

    assert containers_of(docker_bed, world.instance) == []


@pytest.mark.parametrize(
    "lost",
    [
        [("POST", "/containers/create")],
        [("POST", "/start")],
        [("POST", "/containers/create"), ("POST", "/start")],
        [("GET", "/json")] * 3,
    ],
)
async def test_an_answer_that_is_lost_starts_nothing_twice(
    docker_bed: DockerBed, world: DockerWorld, lost: list[tuple[str, str]]
) -> None:
    async with lossy(docker_bed, world) as (runtime, loses):
        loses.extend(lost)

        handle = await runtime.start(world.job("sh", "-c", "echo once; sleep 99"))

        assert loses == []
        assert not handle.adopted
        assert len(containers_of(docker_bed, world.instance)) == 1


async def test_a_job_that_ended_before_the_lost_answer_was_missed_is_not_run_again(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    async with lossy(docker_bed, world) as (runtime, loses):
        loses.append(("POST", "/start"))
        await runtime.start(world.job("sh", "-c", "echo once; exit 3"))

        assert how(await runtime.wait("job-1")) == Exit(3, ("once",))
        assert len(containers_of(docker_bed, world.instance)) == 1


async def test_a_start_that_fails_behind_a_lost_answer_fails_all_the_same(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    spec = attrs.evolve(world.job("true"), device_uuids=("GPU-1",))
    async with lossy(docker_bed, world) as (runtime, loses):
        loses.append(("POST", "/start"))

        with pytest.raises(StartFailed, match="NVIDIA container toolkit"):
            await runtime.start(spec)

        assert containers_of(docker_bed, world.instance) == []


@pytest.mark.parametrize("lost", [("POST", "/kill"), ("POST", "/wait"), ("DELETE", "")])
async def test_an_end_whose_answer_is_lost_comes_all_the_same(
    docker_bed: DockerBed, world: DockerWorld, lost: tuple[str, str]
) -> None:
    async with lossy(docker_bed, world) as (runtime, loses):
        script = f"trap '{SHUT}; exit 4' TERM; echo up; while :; do sleep 0.1; done"
        await runtime.start(world.job("sh", "-c", script))
        await until_said(runtime, "job-1", "up")
        loses.append(lost)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(runtime.stop, "job-1", grace_seconds=HANG))
            # It lives until its end is waited for, however busy the machine is.
            with trio.fail_after(HANG):
                while loses and lost[0] == "POST":  # noqa: ASYNC110 - the transport sets no event
                    await trio.sleep(0.02)
            await open_gate(runtime, "job-1")
        ended = await runtime.wait("job-1")
        await runtime.discard("job-1")

        assert loses == []
        assert ended.code == 4
        assert not ended.interrupted
        assert containers_of(docker_bed, world.instance) == []


async def test_what_was_prepared_is_started_only_for_the_same_specification(world: DockerWorld) -> None:
    await world.runtime.prepare(world.job("sh", "-c", "echo old"))

    ended = await world.run(world.job("sh", "-c", "echo new"))

    assert ended.output == ("new",)


async def test_an_earlier_end_makes_room_for_a_new_start(world: DockerWorld) -> None:
    assert (await world.run(world.job("sh", "-c", "echo old; exit 1"))).code == 1

    assert how(await world.run(world.job("sh", "-c", "echo new"))) == Exit(0, ("new",))


async def test_of_two_peers_of_one_name_one_runs_a_workload(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    handles: list[Handle] = []

    async def start(runtime: DockerRuntime) -> None:
        # One may remove what the other was about to start.
        with suppress(StartFailed):
            handles.append(await runtime.start(world.job("sleep", "99")))

    async with docker_runtime(world.client, world.instance) as other, trio.open_nursery() as nursery:
        nursery.start_soon(start, world.runtime)
        nursery.start_soon(start, other)

    assert await world.runtime.running() == ("job-1",)
    assert len(containers_of(docker_bed, world.instance)) == 1
    assert handles


async def test_a_volume_that_the_engine_would_keep_on_its_disk_starts_no_box(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    image = build_image(config={"Volumes": {"data": {}}})
    reference = await pulled(docker_bed, world.client, push_as(docker_bed, image, f"{world.instance}/volume"))

    with pytest.raises(StartFailed, match="volume"):
        await world.runtime.start(world.job("true", image=reference, is_boxed=True))

    assert await world.runtime.kept() == ()
