"""What a runtime of containers promises beside what every runtime does."""

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from adapters.runtime.port import Chunk, Container, ContainerRuntime, EngineEvent, Exit
from tests.support.runtimes import DockerWorld, FakeWorld, open_docker_world

KINDS = ("fake", pytest.param("docker", marks=pytest.mark.docker))


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DockerWorld | FakeWorld]:
    if request.param == "docker":
        async with open_docker_world(request.getfixturevalue("docker_bed")) as contained:
            yield contained
    else:
        yield FakeWorld(tmp_path, is_contained=True)


def runtime_of(world: DockerWorld | FakeWorld) -> ContainerRuntime:
    return world.runtime


async def followed(runtime: ContainerRuntime, workload: str) -> bytes:
    with trio.fail_after(60):
        async with runtime.follow(workload) as chunks:
            return b"".join([chunk.data async for chunk in chunks])


async def test_a_prepared_container_does_not_run(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    await runtime.prepare(world.spec())

    assert await runtime.running() == ()
    assert await runtime.kept() == ("dep-1",)
    assert await runtime.find("dep-1") is None
    assert await runtime.wait("dep-1") == Exit(None)
    assert await runtime.tail("dep-1") == ()
    assert await runtime.processes("dep-1") == frozenset()


async def test_a_prepared_container_is_the_one_that_is_started(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    await runtime.prepare(world.spec())
    await runtime.prepare(world.spec())

    handle = await runtime.start(world.spec())

    assert await runtime.running() == ("dep-1",)
    assert not handle.adopted
    await world.end(handle, 4)
    assert (await runtime.wait("dep-1")).code == 4


@pytest.mark.parametrize("how", ["stop", "discard"])
async def test_a_prepared_container_can_be_given_up(world: DockerWorld | FakeWorld, how: str) -> None:
    runtime = runtime_of(world)
    await runtime.prepare(world.spec())

    if how == "stop":
        await runtime.stop("dep-1", grace_seconds=1)
    await runtime.discard("dep-1")

    assert await runtime.kept() == ()


async def test_preparing_what_runs_leaves_it_alone(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    handle = await runtime.start(world.spec())

    await runtime.prepare(world.spec())

    assert await runtime.find("dep-1") == handle


async def test_who_follows_from_before_the_start_misses_nothing(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    await runtime.prepare(world.spec())
    heard = bytearray()

    async def listen(chunks: AsyncIterator[Chunk]) -> None:
        async for chunk in chunks:
            heard.extend(chunk.data)

    async with runtime.follow("dep-1") as chunks, trio.open_nursery() as nursery:
        nursery.start_soon(listen, chunks)
        handle = await runtime.start(world.spec())
        await world.write(handle, "first\n")
        await world.write(handle, "half")
        await world.end(handle, 0)

    assert bytes(heard) == b"first\nhalf"


async def test_who_follows_later_begins_with_the_oldest(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    handle = await runtime.start(world.spec())
    await world.write(handle, "before\n")

    async with runtime.follow("dep-1") as chunks, trio.open_nursery() as nursery:
        assert (await anext(chunks)).data == b"before\n"
        nursery.start_soon(world.write, handle, "after\n")
        assert (await anext(chunks)).data == b"after\n"
        nursery.start_soon(world.end, handle, 0)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)

    assert await followed(runtime, "dep-1") == b"before\nafter\n"


async def test_what_was_never_made_wrote_nothing(world: DockerWorld | FakeWorld) -> None:
    assert await followed(runtime_of(world), "dep-1") == b""


async def test_who_stops_following_holds_nothing_up(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    await runtime.prepare(world.spec())
    async with runtime.follow("dep-1"):
        handle = await runtime.start(world.spec())

    await world.write(handle, "alone\n" * 50_000)
    await world.end(handle, 0)

    assert (await runtime.wait("dep-1")).code == 0


async def test_a_container_has_processes_while_it_runs(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    handle = await runtime.start(world.spec())
    other = await runtime.start(world.spec("dep-2"))

    mine, others = await runtime.processes("dep-1"), await runtime.processes("dep-2")

    assert mine
    assert others
    assert not mine & others
    assert await runtime.all_processes() == {"dep-1": mine, "dep-2": others}
    assert await runtime.all_processes(mine) == {"dep-1": mine, "dep-2": frozenset()}
    await world.end(handle, 0)
    await runtime.wait("dep-1")
    assert await runtime.processes("dep-1") == frozenset()
    assert set(await runtime.all_processes()) == {"dep-2"}
    await world.end(other, 0)


async def test_the_engine_tells_that_a_container_ended(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    async with runtime.events() as events:
        handle = await runtime.start(world.spec())
        await world.end(handle, 7)

        with trio.fail_after(30):
            assert await anext(events) == EngineEvent("dep-1", "die", 7)


async def test_nobody_reaches_a_job(world: DockerWorld | FakeWorld) -> None:
    runtime = runtime_of(world)
    spec = world.spec("job-1")
    assert isinstance(spec.program, Container)

    handle = await runtime.start(attrs.evolve(spec, program=attrs.evolve(spec.program, port=None)))

    assert handle.base_url == ""
    await runtime.stop("job-1", grace_seconds=0)


async def test_an_end_is_known_with_its_time_and_code_to_the_next_peer(
    world: DockerWorld | FakeWorld,
) -> None:
    handle = await runtime_of(world).start(world.spec())
    await world.write(handle, "so long\n")
    await world.end(handle, 5)
    ended = await runtime_of(world).wait("dep-1")
    await world.restart()

    assert await runtime_of(world).wait("dep-1") == ended
    assert ended.code == 5
    await runtime_of(world).discard("dep-1")
    assert await runtime_of(world).kept() == ()
