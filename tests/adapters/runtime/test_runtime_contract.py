"""What every runtime promises, kept by the real one and by the fake."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import attrs
import pytest
import trio

from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Exit, Handle, Runtime, RuntimeFault, WorkloadSpec
from adapters.runtime.process import ProcessRuntime
from tests.support.puppeteer import SECRET, puppet, tell, until_gone


class World(Protocol):
    """A runtime and what happens to its programs from outside."""

    @property
    def runtime(self) -> Runtime:
        """The runtime of the peer that lives now."""
        ...

    def restart(self) -> None:
        """Have a new runtime in place of one whose peer was killed."""

    async def end(self, handle: Handle, code: int) -> None:
        """Let a program end by itself."""

    async def write(self, handle: Handle, text: str) -> None:
        """Let a program write."""

    async def ignore_term(self, handle: Handle) -> None:
        """Let a program not end when asked."""

    async def leave(self, workload: str) -> None:
        """Have something run under this peer's name that no record names."""


@attrs.define
class ProcessWorld:
    data: Path
    # A peer finds its processes by this across the machine, tests that run beside this one included.
    instance: str = attrs.field(factory=lambda: secrets.token_hex(8), init=False)
    runtime: Runtime = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.runtime = ProcessRuntime(self.data, self.instance)

    async def end(self, handle: Handle, code: int) -> None:
        await tell(handle, "exit", code)

    async def write(self, handle: Handle, text: str) -> None:
        await tell(handle, "write", text)

    async def ignore_term(self, handle: Handle) -> None:
        await tell(handle, "ignore-term")

    async def leave(self, workload: str) -> None:
        other = ProcessRuntime(self.data, self.instance)
        handle = await other.start(puppet(workload))
        await tell(handle, "spawn")
        leader = (await tell(handle, "look"))["pid"]
        await tell(handle, "exit", 0)
        await until_gone(leader)


@attrs.define
class FakeWorld:
    data: Path
    runtime: FakeRuntime = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.runtime = FakeRuntime(self.data)

    async def end(self, handle: Handle, code: int) -> None:
        self.runtime.end(handle.workload, code)

    async def write(self, handle: Handle, text: str) -> None:
        self.runtime.write(handle.workload, text)

    async def ignore_term(self, handle: Handle) -> None:
        self.runtime.make_stubborn(handle.workload)

    async def leave(self, workload: str) -> None:
        self.runtime.plant(workload)


@pytest.fixture(params=["process", "fake"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made: World = ProcessWorld(tmp_path) if request.param == "process" else FakeWorld(tmp_path)
    yield made
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
        for workload in await made.runtime.running():
            await made.runtime.stop(workload, grace_seconds=0)


async def test_a_started_program_is_reached_on_loopback_with_its_secret(world: World) -> None:
    handle = await world.runtime.start(puppet())

    assert handle.workload == "dep-1"
    assert handle.holder == "h-1"
    assert handle.base_url.startswith("http://127.0.0.1:")
    assert handle.secret == SECRET
    assert SECRET not in repr(handle)
    assert handle.detail == {"model": "tiny"}
    assert not handle.adopted


async def test_starting_again_finds_the_program_that_runs(world: World) -> None:
    first = await world.runtime.start(puppet())

    assert await world.runtime.start(puppet()) == first
    assert await world.runtime.find("dep-1") == first


async def test_two_starts_at_once_start_one_program(world: World) -> None:
    handles: list[Handle] = []

    async def start() -> None:
        handles.append(await world.runtime.start(puppet()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start)
        nursery.start_soon(start)

    assert handles[0] == handles[1]


async def test_programs_get_ports_of_their_own(world: World) -> None:
    one = await world.runtime.start(puppet("dep-1"))
    two = await world.runtime.start(puppet("dep-2"))

    assert one.base_url != two.base_url


async def test_what_was_never_started_is_not_found(world: World) -> None:
    assert await world.runtime.find("dep-1") is None
    assert await world.runtime.running() == ()
    assert await world.runtime.tail("dep-1") == ()
    assert await world.runtime.wait("dep-1") == Exit(None)
    await world.runtime.stop("dep-1", grace_seconds=1)
    await world.runtime.discard("dep-1")


async def test_all_who_wait_learn_how_a_program_ended(world: World) -> None:
    handle = await world.runtime.start(puppet())
    exits: list[Exit] = []

    async def wait() -> None:
        exits.append(await world.runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await world.write(handle, "so long\n")
        await world.end(handle, 3)

    assert exits == [Exit(3, ("so long",))] * 2
    assert await world.runtime.wait("dep-1") == exits[0]
    assert await world.runtime.find("dep-1") is None
    assert await world.runtime.running() == ()


async def test_a_program_runs_on_when_nobody_waits_any_more(world: World) -> None:
    handle = await world.runtime.start(puppet())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.runtime.wait, "dep-1")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert await world.runtime.find("dep-1") == handle
    await world.end(handle, 0)
    assert (await world.runtime.wait("dep-1")).code == 0


async def test_a_stopped_program_is_gone(world: World) -> None:
    await world.runtime.start(puppet())

    await world.runtime.stop("dep-1", grace_seconds=30)

    assert await world.runtime.find("dep-1") is None
    assert await world.runtime.running() == ()
    await world.runtime.stop("dep-1", grace_seconds=30)


async def test_a_program_that_does_not_end_when_asked_is_killed(world: World) -> None:
    handle = await world.runtime.start(puppet())
    await world.ignore_term(handle)

    await world.runtime.stop("dep-1", grace_seconds=0.05)

    assert await world.runtime.wait("dep-1") == Exit(137)


async def test_the_tail_is_there_while_a_program_runs_and_after(world: World) -> None:
    handle = await world.runtime.start(puppet())
    await world.write(handle, "".join(f"line {n}\n" for n in range(30)) + "\x1b[31mred\x1b[0m half")
    lines = await world.runtime.tail("dep-1")
    await world.end(handle, 1)

    assert lines == (*(f"line {n}" for n in range(11, 30)), "red half")
    assert (await world.runtime.wait("dep-1")).output == lines
    assert await world.runtime.tail("dep-1") == lines


async def test_a_discarded_workload_leaves_nothing(world: World) -> None:
    handle = await world.runtime.start(puppet())
    await world.write(handle, "words\n")
    await world.end(handle, 1)
    await world.runtime.wait("dep-1")

    await world.runtime.discard("dep-1")

    assert await world.runtime.tail("dep-1") == ()
    assert await world.runtime.wait("dep-1") == Exit(None)


async def test_a_workload_that_runs_is_not_discarded(world: World) -> None:
    handle = await world.runtime.start(puppet())

    with pytest.raises(RuntimeFault, match="still runs"):
        await world.runtime.discard("dep-1")

    assert await world.runtime.find("dep-1") == handle


async def test_a_workload_that_ended_can_be_started_afresh(world: World) -> None:
    first = await world.runtime.start(puppet())
    await world.write(first, "of the first\n")
    await world.end(first, 1)
    await world.runtime.wait("dep-1")

    second = await world.runtime.start(puppet())

    assert await world.runtime.find("dep-1") == second
    assert await world.runtime.tail("dep-1") == ()
    await world.end(second, 0)
    assert await world.runtime.wait("dep-1") == Exit(0)


async def test_a_restarted_peer_adopts_what_runs(world: World) -> None:
    before = await world.runtime.start(puppet())
    await world.write(before, "of before\n")
    world.restart()

    found = await world.runtime.find("dep-1")

    assert found == attrs.evolve(before, adopted=True)
    assert await world.runtime.start(puppet()) == found
    assert await world.runtime.running() == ("dep-1",)
    exits: list[Exit] = []

    async def wait() -> None:
        exits.append(await world.runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await world.end(found, 3)
    assert exits[0].code is None
    assert await world.runtime.find("dep-1") is None


async def test_an_adopted_program_can_be_stopped(world: World) -> None:
    await world.runtime.start(puppet())
    world.restart()

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
    ended = await world.runtime.start(puppet("dep-1"))
    await world.runtime.start(puppet("dep-2"))
    await world.end(ended, 0)
    await world.runtime.wait("dep-1")
    assert await world.runtime.kept() == ("dep-1", "dep-2")

    await world.runtime.discard("dep-1")
    assert await world.runtime.kept() == ("dep-2",)

    world.restart()
    assert await world.runtime.kept() == ("dep-2",)


async def test_a_runtime_says_what_it_is(world: World) -> None:
    assert world.runtime.name in ("process", "fake")
    assert world.runtime.isolation == "process"
    assert world.runtime.has_jobs == (world.runtime.name != "process")


def test_the_specification_shows_no_secret() -> None:
    spec: WorkloadSpec = puppet()

    assert SECRET not in repr(spec)
