"""Engines that are killed, stopped and started again under what they run."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from adapters.runtime.port import Exit, NotEnded, RuntimeUnavailable, StartFailed, WorkloadSpec
from tests.support.docker.bed import DockerBed
from tests.support.docker.gated import until_said
from tests.support.docker.kernel import cgroup_processes
from tests.support.docker.own import OwnEngine, open_own_engine
from tests.support.puppeteer import until_gone
from tests.support.runtimes import DockerWorld, docker_runtime, open_docker_world, until_up

MIB = 1 << 20
HANG = 120
LIVES_ON = "--live-restore"


@asynccontextmanager
async def own(
    bed: DockerBed, *flags: str, patience: float = 30, disk_bytes: int | None = None
) -> AsyncIterator[tuple[OwnEngine, DockerWorld]]:
    async with (
        open_own_engine(bed, *flags, disk_bytes=disk_bytes) as engine,
        open_docker_world(bed, socket=engine.socket, patience=patience) as world,
    ):
        yield engine, world


async def do(what: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(what)


async def test_the_engine_says_how_its_users_are_mapped(docker_bed: DockerBed) -> None:
    async with own(docker_bed, "--userns-remap=default") as (_, world):
        assert world.runtime.isolation == "user-namespace"
        assert not any("no job" in remark for remark in world.runtime.remarks())

        for is_boxed, inside in ((True, 65534), (False, 0)):
            await world.runtime.start(world.job("sleep", "99", is_boxed=is_boxed, memory=64 * MIB))
            pids = await world.runtime.processes("job-1")
            owners = {os.stat(f"/proc/{pid}").st_uid for pid in pids}
            await world.runtime.stop("job-1", grace_seconds=0)
            # Root inside is nobody outside.
            assert owners == {100_000 + inside}

        command = "touch /tmp/a && id -u"
        ended = await world.run(world.job("sh", "-c", command, is_boxed=True, memory=64 * MIB))
        assert ended.output == ("65534",)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_what_an_engine_ends_with_itself_is_interrupted(docker_bed: DockerBed, how: str) -> None:
    async with own(docker_bed, patience=1) as (engine, world):
        await world.runtime.start(world.job("sh", "-c", "echo up; sleep 999"))
        ends: list[Exit] = []

        async def wait() -> None:
            ends.append(await world.runtime.wait("job-1"))

        with trio.fail_after(HANG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await until_said(world.runtime, "job-1", "up")
                await do(engine.kill if how == "kill" else engine.stop)
                await do(engine.start)
            await world.restart()
            seen_later = await world.runtime.wait("job-1")

        assert ends[0].interrupted
        assert ends[0].code in (137, 143)
        assert ends[0].ended_at is not None
        assert ends[0].output == ("up",)
        assert seen_later == ends[0]


async def test_what_somebody_else_ends_is_not_interrupted(docker_bed: DockerBed) -> None:
    async with own(docker_bed) as (_, world):
        assert any("live-restore" in remark for remark in world.runtime.remarks())
        await world.runtime.start(world.job("sleep", "999"))
        await world.client.call("POST", f"/containers/bp-{world.instance}-job-1/kill")

        with trio.fail_after(HANG):
            ended = await world.runtime.wait("job-1")

        assert (ended.code, ended.interrupted) == (137, False)


async def test_an_end_of_the_programs_own_stays_one_across_a_restart(docker_bed: DockerBed) -> None:
    async with own(docker_bed, patience=1) as (engine, world):
        assert (await world.run(world.job("sh", "-c", "echo done; exit 3"))).code == 3
        await do(engine.stop)
        await do(engine.start)
        await world.restart()

        ended = await world.runtime.wait("job-1")

        assert (ended.code, ended.output, ended.interrupted) == (3, ("done",), False)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_containers_run_on_where_the_engine_restores_them(docker_bed: DockerBed, how: str) -> None:
    async with own(docker_bed, LIVES_ON, patience=1) as (engine, world):
        handle = await world.runtime.start(world.spec())
        await world.write(handle, "before\n")
        ends: list[Exit] = []

        async def wait() -> None:
            ends.append(await world.runtime.wait("dep-1"))

        with trio.fail_after(HANG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await until_said(world.runtime, "dep-1", "before")
                await do(engine.kill if how == "kill" else engine.stop)
                await do(engine.start)

                assert await world.runtime.find("dep-1") == handle
                assert ends == []
                await until_up(handle)
                await world.write(handle, "after\n")
                await world.end(handle, 3)

        assert (ends[0].code, ends[0].output, ends[0].interrupted) == (3, ("before", "after"), False)


async def test_an_end_while_the_engine_is_away_is_known_when_it_is_back(docker_bed: DockerBed) -> None:
    async with own(docker_bed, LIVES_ON, patience=1) as (engine, world):
        await world.runtime.start(world.job("sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 3"))
        (pid, *_) = sorted(await world.runtime.processes("job-1"))
        await do(engine.kill)
        os.mknod(f"/proc/{pid}/root/tmp/go")
        with trio.fail_after(HANG):
            await until_gone(pid)
            await do(engine.start)
            ended = await world.runtime.wait("job-1")

        assert (ended.code, ended.interrupted) == (3, False)


async def test_while_the_engine_is_away_nothing_is_known_and_nothing_is_made_up(
    docker_bed: DockerBed,
) -> None:
    async with own(docker_bed, LIVES_ON, patience=0.2) as (engine, world):
        await world.runtime.start(world.job("sleep", "999"))
        async with (
            world.runtime.follow("job-1") as chunks,
            world.runtime.events() as events,
        ):
            await do(engine.kill)
            with trio.fail_after(HANG):
                for stream in (chunks, events):
                    with pytest.raises(RuntimeUnavailable):
                        await anext(stream)
        for look in (world.runtime.find, world.runtime.processes, world.runtime.discard):
            with pytest.raises(RuntimeUnavailable):
                await look("job-1")
        for ask in (world.runtime.running, world.runtime.kept):
            with pytest.raises(RuntimeUnavailable):
                await ask()
        with pytest.raises(RuntimeUnavailable):
            async with world.runtime.follow("job-1"):
                pass
        with pytest.raises(RuntimeUnavailable):
            async with world.runtime.events():
                pass
        with pytest.raises(NotEnded):
            await world.runtime.stop("job-1", grace_seconds=0)
        with pytest.raises(StartFailed) as failed:
            await world.runtime.start(world.job("true", workload="job-2"))
        assert failed.value.code == "RUNTIME_UNAVAILABLE"
        assert "docker" in failed.value.fix
        assert await world.runtime.tail("job-1") == ()

        await do(engine.start)

        assert await world.runtime.running() == ("job-1",)
        await world.runtime.stop("job-1", grace_seconds=0)


async def test_an_engine_killed_at_any_moment_of_a_start_leaves_one_container(docker_bed: DockerBed) -> None:
    async with own(docker_bed, LIVES_ON, patience=20) as (engine, world):
        for moment in (0.0, 0.02, 0.06, 0.12, 0.25):
            spec = world.job("sleep", "999", workload=f"job-{int(1000 * moment)}")
            with trio.fail_after(HANG):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_start, world, spec)
                    await trio.sleep(moment)
                    await do(engine.kill)
                    await do(engine.start)
                await world.runtime.start(spec)

        assert len(await world.runtime.running()) == 5
        assert len(engine.containers()) == 5
        for workload in await world.runtime.running():
            await world.runtime.stop(workload, grace_seconds=0)
            await world.runtime.discard(workload)
        assert engine.containers() == []


async def test_an_engine_killed_as_a_container_begins_leaves_nothing_running(
    docker_bed: DockerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test's engine may run among numbers of its own: its containers are in groups all the same.
    monkeypatch.setattr("adapters.runtime.docker.groups.are_the_machines", lambda proc: True)
    async with own(docker_bed, LIVES_ON, patience=20) as (engine, world):
        for number in range(5):
            spec = world.job("sleep", "999", workload=f"job-{number}")
            with trio.fail_after(HANG):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_start, world, spec)
                    while not any(map(is_program, cgroup_processes(engine.cgroup))):
                        await trio.lowlevel.checkpoint()
                    # Now and then this is before the engine has written down that it runs.
                    await do(engine.kill)
                    await do(engine.start)
                await world.runtime.start(spec)
                await world.runtime.stop(spec.workload, grace_seconds=0)
                await world.runtime.discard(spec.workload)

                for pid in cgroup_processes(engine.cgroup):
                    await until_gone(pid)


def is_program(pid: int) -> bool:
    """Whether a process is what a container runs, and no part of its making."""
    with suppress(OSError):
        return b"docker-init" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


async def _start(world: DockerWorld, spec: WorkloadSpec) -> None:
    with suppress(StartFailed):
        await world.runtime.start(spec)


async def test_a_wait_outlasts_any_patience(docker_bed: DockerBed) -> None:
    async with own(docker_bed, LIVES_ON, patience=0.05) as (engine, world):
        await world.runtime.start(world.job("sleep", "999"))
        with trio.fail_after(HANG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.runtime.wait, "job-1")
                await do(engine.kill)
                # It takes far longer to start than one call is tried again for.
                await do(engine.start)
                async with docker_runtime(world.client, world.instance) as other:
                    await other.stop("job-1", grace_seconds=0)


async def test_a_full_disk_is_said_and_nothing_is_left(docker_bed: DockerBed) -> None:
    async with own(docker_bed, disk_bytes=120 * MIB) as (engine, world):
        filler = engine.data / "filler"
        with filler.open("wb") as file, suppress(OSError):
            while True:
                file.write(b"x" * MIB)

        async def start_many() -> None:
            for number in range(200):
                await world.runtime.start(world.job("true", workload=f"job-{number}"))

        with pytest.raises(StartFailed) as failed:
            await start_many()

        assert failed.value.code == "NO_ROOM"
        assert "docker system df" in failed.value.fix
        filler.unlink()
        assert (await world.run(world.job("true", workload="job-x"))).code == 0
