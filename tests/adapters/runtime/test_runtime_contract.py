"""What every runtime promises, kept by the real ones and by the fake."""

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from adapters.runtime.port import Exit, Handle, RuntimeFault
from tests.support.puppeteer import SECRET
from tests.support.runtimes import FakeWorld, ProcessWorld, World, how, open_docker_world

KINDS = ("process", "fake", "fake container", pytest.param("docker", marks=pytest.mark.docker))


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "docker":
        async with open_docker_world(request.getfixturevalue("docker_bed")) as contained:
            yield contained
        return
    made: ProcessWorld | FakeWorld
    made = (
        ProcessWorld(tmp_path) if request.param == "process" else FakeWorld(tmp_path, request.param != "fake")
    )
    yield made
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
        for workload in await made.runtime.running():
            await made.runtime.stop(workload, grace_seconds=0)


async def test_a_started_program_is_reached_on_loopback_with_its_secret(world: World) -> None:
    handle = await world.runtime.start(world.spec())

    assert handle.workload == "dep-1"
    assert handle.holder == "h-1"
    assert handle.base_url.startswith("http://127.0.0.1:")
    assert handle.secret == SECRET
    assert SECRET not in repr(handle)
    assert handle.detail == {"model": "tiny"}
    assert not handle.adopted


async def test_starting_again_finds_the_program_that_runs(world: World) -> None:
    first = await world.runtime.start(world.spec())

    assert await world.runtime.start(world.spec()) == first
    assert await world.runtime.find("dep-1") == first


async def test_two_starts_at_once_start_one_program(world: World) -> None:
    handles: list[Handle] = []

    async def start() -> None:
        handles.append(await world.runtime.start(world.spec()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        nursery.start_soon(start)

    assert handles[0] == handles[1]


async def test_programs_get_ports_of_their_own(world: World) -> None:
    one = await world.runtime.start(world.spec("dep-1"))
    two = await world.runtime.start(world.spec("dep-2"))

    assert one.base_url != two.base_url


async def test_what_was_never_started_is_not_found(world: World) -> None:
    assert await world.runtime.find("dep-1") is None
    assert await world.runtime.running() == ()
    assert await world.runtime.tail("dep-1") == ()
    assert await world.runtime.wait("dep-1") == Exit(None)
    await world.runtime.stop("dep-1", grace_seconds=1)
    await world.runtime.discard("dep-1")


async def test_all_who_wait_learn_how_a_program_ended(world: World) -> None:
    handle = await world.runtime.start(world.spec())
    exits: list[Exit] = []

    async def wait() -> None:
        exits.append(await world.runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await world.write(handle, "so long\n")
        await world.end(handle, 3)

    assert [how(end) for end in exits] == [Exit(3, ("so long",))] * 2
    assert await world.runtime.wait("dep-1") == exits[0]
    assert await world.runtime.find("dep-1") is None
    assert await world.runtime.running() == ()


async def test_a_program_runs_on_when_nobody_waits_any_more(world: World) -> None:
    handle = await world.runtime.start(world.spec())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.runtime.wait, "dep-1")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert await world.runtime.find("dep-1") == handle
    await world.end(handle, 0)
    assert (await world.runtime.wait("dep-1")).code == 0


async def test_a_stopped_program_is_gone(world: World) -> None:
    await world.runtime.start(world.spec())

    await world.runtime.stop("dep-1", grace_seconds=30)

    assert await world.runtime.find("dep-1") is None
    assert await world.runtime.running() == ()
    await world.runtime.stop("dep-1", grace_seconds=30)


async def test_a_program_that_does_not_end_when_asked_is_killed(world: World) -> None:
    handle = await world.runtime.start(world.spec())
    await world.ignore_term(handle)

    await world.runtime.stop("dep-1", grace_seconds=0.05)

    assert how(await world.runtime.wait("dep-1")) == Exit(137)


async def test_the_tail_is_there_while_a_program_runs_and_after(world: World) -> None:
    handle = await world.runtime.start(world.spec())
    await world.write(handle, "".join(f"line {n}\n" for n in range(30)))
    running = await world.runtime.tail("dep-1")
    await world.write(handle, "\x1b[31mred\x1b[0m half")
    await world.end(handle, 1)
    ended = await world.runtime.wait("dep-1")

    assert running == tuple(f"line {n}" for n in range(10, 30))
    assert ended.output == (*(f"line {n}" for n in range(11, 30)), "red half")
    assert await world.runtime.tail("dep-1") == ended.output


async def test_a_discarded_workload_leaves_nothing(world: World) -> None:
    handle = await world.runtime.start(world.spec())
    await world.write(handle, "words\n")
    await world.end(handle, 1)
    await world.runtime.wait("dep-1")

    await world.runtime.discard("dep-1")

    assert await world.runtime.tail("dep-1") == ()
    assert await world.runtime.wait("dep-1") == Exit(None)


async def test_a_workload_that_runs_is_not_discarded(world: World) -> None:
    handle = await world.runtime.start(world.spec())

    with pytest.raises(RuntimeFault, match="still runs"):
        await world.runtime.discard("dep-1")

    assert await world.runtime.find("dep-1") == handle


async def test_a_workload_that_ended_can_be_started_afresh(world: World) -> None:
    first = await world.runtime.start(world.spec())
    await world.write(first, "of the first\n")
    await world.end(first, 1)
    await world.runtime.wait("dep-1")

    second = await world.runtime.start(world.spec())

    assert await world.runtime.find("dep-1") == second
    assert await world.runtime.tail("dep-1") == ()
    await world.end(second, 0)
    assert how(await world.runtime.wait("dep-1")) == Exit(0)


async def test_a_restarted_peer_adopts_what_runs(world: World) -> None:
    before = await world.runtime.start(world.spec())
    await world.write(before, "of before\n")
    await world.restart()

    found = await world.runtime.find("dep-1")

    assert found == attrs.evolve(before, adopted=True)
    assert await world.runtime.start(world.spec()) == found
    assert await world.runtime.running() == ("dep-1",)
    exits: list[Exit] = []

    async def wait() -> None:
        exits.append(await world.runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await world.end(found, 3)
    assert exits[0].code == (3 if world.knows_ends else None)
    assert await world.runtime.find("dep-1") is None


async def test_an_adopted_program_can_be_stopped(world: World) -> None:
    await world.runtime.start(world.spec())
    await world.restart()

    await world.runtime.stop("dep-1", grace_seconds=30)

    assert await world.runtime.running() == ()


async def test_what_runs_and_nobody_knows_is_named_and_can_be_ended(world: World) -> None:
    await world.leave("dep-9")
    assert await world.runtime.running() == ("dep-9",)

    await world.runtime.stop("dep-9", grace_seconds=30)

    assert await world.runtime.running() == ()


async def test_what_is_kept_is_named_until_it_is_discarded(world: World) -> None:
    """Running or ended, started by this peer or by one that was killed."""
    assert await world.runtime.kept() == ()
    ended = await world.runtime.start(world.spec("dep-1"))
    await world.runtime.start(world.spec("dep-2"))
    await world.end(ended, 0)
    await world.runtime.wait("dep-1")
    assert await world.runtime.kept() == ("dep-1", "dep-2")

    await world.runtime.discard("dep-1")
    assert await world.runtime.kept() == ("dep-2",)

    await world.restart()
    assert await world.runtime.kept() == ("dep-2",)


async def test_a_runtime_says_what_it_is(world: World) -> None:
    assert world.runtime.name in ("process", "fake", "docker")
    assert world.runtime.isolation == ("container" if world.runtime.name == "docker" else "process")
    assert world.runtime.has_jobs == (world.runtime.name != "process")


async def test_the_specification_shows_no_secret(world: World) -> None:
    assert SECRET not in repr(world.spec())
