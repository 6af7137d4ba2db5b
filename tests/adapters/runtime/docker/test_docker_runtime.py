"""Containers on a real engine: how they end, why they do not start, and whose they are."""

import json
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from adapters.runtime.docker.confine import ImageConfig
from adapters.runtime.port import EngineEvent, Executable, Exit, RuntimeFault, StartFailed
from tests.support.docker.bed import DockerBed
from tests.support.docker.contents import build_image
from tests.support.docker.gated import SHUT, open_gate, run_once_started, until_said
from tests.support.docker.images import Image
from tests.support.docker.use import async_engine_client, containers_of, push_as
from tests.support.puppeteer import SECRET, puppet
from tests.support.runtimes import DockerWorld, docker_runtime, how, open_docker_world, pulled, remove_all

MIB = 1 << 20


@pytest.fixture
async def world(docker_bed: DockerBed) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed) as made:
        yield made


async def held(bed: DockerBed, world: DockerWorld, image: str | Image, name: str) -> str:
    """An image that the engine holds; what to run it by."""
    return await pulled(bed, world.client, push_as(bed, image, f"runtime/{world.instance}/{name}"))


async def test_a_job_that_ends_within_milliseconds_is_told_whole(world: DockerWorld) -> None:
    assert how(await world.run(world.job("sh", "-c", "echo done; exit 3"))) == Exit(3, ("done",))


async def test_the_time_of_an_end_is_the_engines(world: DockerWorld) -> None:
    ended = await world.run(world.job("true"))

    found = await world.client.call("GET", f"/containers/bp-{world.instance}-job-1/json")
    assert ended.ended_at == f"{found['State']['FinishedAt'][:23]}Z"


async def test_output_that_is_no_text_is_made_safe(world: DockerWorld) -> None:
    script = r"printf 'a\377b\000c\n\033[31mred\n'; printf 'no end'"

    ended = await world.run(world.job("sh", "-c", script))

    assert ended.output == ("a\ufffdb\ufffdc", "red", "no end")


async def test_out_and_error_are_told_apart_and_bytes_are_kept(world: DockerWorld) -> None:
    spec = world.job("sh", "-c", r"printf 'a\377'; printf 'b\376' >&2")
    await world.runtime.prepare(spec)
    heard = {"out": b"", "err": b""}

    async with world.runtime.follow("job-1") as chunks:
        await world.runtime.start(spec)
        with trio.fail_after(30):
            async for chunk in chunks:
                heard[chunk.stream] += chunk.data

    assert heard == {"out": b"a\xff", "err": b"b\xfe"}


async def test_all_of_much_output_is_heard_from_before_the_start(world: DockerWorld) -> None:
    spec = world.job("sh", "-c", "dd if=/dev/zero bs=1M count=40 2>/dev/null")
    await world.runtime.prepare(spec)
    count = 0

    async with world.runtime.follow("job-1") as chunks:
        await world.runtime.start(spec)
        with trio.fail_after(60):
            async for chunk in chunks:
                count += len(chunk.data)

    assert count == 40 * MIB


async def test_a_job_that_ignores_the_request_to_end_is_killed(world: DockerWorld) -> None:
    await world.runtime.start(world.job("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"))
    await until_said(world.runtime, "job-1", "up")

    await world.runtime.stop("job-1", grace_seconds=0.1)

    assert how(await world.runtime.wait("job-1")) == Exit(137, ("up",))


async def test_a_job_may_end_well_when_it_is_asked_to(world: DockerWorld) -> None:
    script = "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.1; done"
    await world.runtime.start(world.job("sh", "-c", script))
    await until_said(world.runtime, "job-1", "up")

    await world.runtime.stop("job-1", grace_seconds=30)

    assert how(await world.runtime.wait("job-1")) == Exit(4, ("up", "bye"))


async def test_a_child_that_outlives_its_job_ends_with_it(world: DockerWorld) -> None:
    # As no other test sleeps: those beside this one are on the same machine.
    seconds = f"{10**6 + secrets.randbelow(10**8)}"
    child = f"setsid sleep {seconds} & echo up; {SHUT}; exit 0"
    await world.runtime.start(world.job("sh", "-c", child))
    await until_said(world.runtime, "job-1", "up")
    await open_gate(world.runtime, "job-1")
    ended = await world.runtime.wait("job-1")

    assert ended.code == 0
    assert await world.runtime.processes("job-1") == frozenset()
    assert seconds.encode() not in await trio.to_thread.run_sync(_command_lines)


async def test_a_paused_container_can_be_stopped(world: DockerWorld) -> None:
    await world.runtime.start(world.job("sleep", "3600"))
    await world.client.call("POST", f"/containers/bp-{world.instance}-job-1/pause")
    assert await world.runtime.running() == ("job-1",)

    await world.runtime.stop("job-1", grace_seconds=0.1)

    assert await world.runtime.running() == ()


@pytest.mark.parametrize("command", ["/bin/nope", "nope", "/etc/passwd", "/tmp"])
async def test_a_command_that_is_no_program_is_not_found(world: DockerWorld, command: str) -> None:
    ended = await world.run(world.job(command))

    assert ended.not_found
    assert ended.code in (126, 127)


async def test_a_command_that_a_shell_does_not_find_is_the_jobs_own_end(world: DockerWorld) -> None:
    ended = await world.run(world.job("sh", "-c", "nope"))

    assert ended.code == 127
    assert not ended.not_found


async def test_an_image_without_a_command_needs_one(docker_bed: DockerBed, world: DockerWorld) -> None:
    image = await held(docker_bed, world, "no-command", "no-command")

    with pytest.raises(StartFailed) as failed:
        await world.run(world.job(image=image))

    assert failed.value.code == "NO_COMMAND"
    assert await world.runtime.kept() == ()


async def test_an_entry_point_stays_and_a_command_is_its_arguments(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    image = await held(docker_bed, world, "grasping", "entry")

    assert (await world.run(world.job("echo", "a b", image=image))).output == ("entry echo a b", "a b")


async def test_an_image_that_was_removed_meanwhile_is_gone(docker_bed: DockerBed, world: DockerWorld) -> None:
    image = await held(docker_bed, world, build_image(files={"/x": os.urandom(8)}), "gone")
    await world.client.call("DELETE", f"/images/{image}")

    with pytest.raises(StartFailed) as failed:
        await world.run(world.job("true", image=image))

    assert failed.value.code == "IMAGE_GONE"


async def test_a_user_that_the_image_lacks_is_said(docker_bed: DockerBed, world: DockerWorld) -> None:
    image = await held(docker_bed, world, build_image(config={"User": "anna"}), "user")

    with pytest.raises(StartFailed, match="names a user that it does not have"):
        await world.run(world.job("true", image=image))

    assert await world.runtime.kept() == ()
    assert (await world.run(world.job("id", "-u", image=image, is_boxed=True))).output == ("65534",)


async def test_an_image_that_says_too_much_of_itself_is_not_run(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    labels = {f"label-{number}": "x" * 1000 for number in range(300)}
    image = await held(docker_bed, world, build_image(config={"Labels": labels}), "labels")

    with pytest.raises(StartFailed, match="256 KiB"):
        await world.run(world.job("true", image=image))

    assert await world.runtime.kept() == ()


async def test_who_follows_what_is_not_started_after_all_is_let_go(world: DockerWorld) -> None:
    spec = attrs.evolve(world.job("true"), device_uuids=("GPU-1",))
    await world.runtime.prepare(spec)

    with trio.fail_after(60):
        async with world.runtime.follow("job-1") as chunks:
            with pytest.raises(StartFailed):
                await world.runtime.start(spec)
            assert [chunk async for chunk in chunks] == []


async def test_a_program_of_the_host_is_not_run(world: DockerWorld) -> None:
    assert isinstance(puppet().program, Executable)

    with pytest.raises(StartFailed, match="runs images"):
        await world.runtime.start(puppet())


async def test_a_card_without_the_toolkit_names_it_and_what_to_do(world: DockerWorld) -> None:
    spec = attrs.evolve(world.job("true"), device_uuids=("GPU-1",))

    with pytest.raises(StartFailed, match="NVIDIA container toolkit") as failed:
        await world.runtime.start(spec)

    assert failed.value.code == "DEVICE_UNAVAILABLE"
    assert "nvidia-ctk runtime configure --runtime=docker" in failed.value.fix
    assert await world.runtime.kept() == ()


async def test_memory_that_ran_out_is_told_by_the_engine(world: DockerWorld) -> None:
    async with world.runtime.events() as events:
        ended = await run_once_started(world, "python3", "-c", "x = bytearray(1 << 30)", memory=32 * MIB)

        told: list[EngineEvent] = []
        with trio.fail_after(30):
            # In either order: it may hear of the end before it hears of the reason.
            while {event.kind for event in told} != {"oom", "die"}:
                told.append(await anext(events))
    assert set(told) == {EngineEvent("job-1", "oom"), EngineEvent("job-1", "die", 137)}
    assert how(ended) == Exit(137, out_of_memory=True)


async def test_a_job_that_goes_on_without_a_child_lost_a_process(world: DockerWorld) -> None:
    script = "python3 -c 'x = bytearray(1 << 30)'; echo went on"

    ended = await run_once_started(world, "sh", "-c", script, memory=32 * MIB)

    assert ended.code == 0
    assert ended.lost_process
    assert not ended.out_of_memory


async def test_a_job_that_kills_itself_did_not_run_out_of_memory(world: DockerWorld) -> None:
    ended = await world.run(world.job("sh", "-c", "kill -9 $$"))

    assert how(ended) == Exit(137)


async def test_a_stop_signal_of_the_images_is_asked_by(docker_bed: DockerBed, world: DockerWorld) -> None:
    image = await held(docker_bed, world, build_image(config={"StopSignal": "SIGUSR1"}), "signal")
    script = "trap 'exit 6' USR1; echo up; while :; do sleep 0.1; done"
    await world.runtime.start(world.job("sh", "-c", script, image=image))
    await until_said(world.runtime, "job-1", "up")

    await world.runtime.stop("job-1", grace_seconds=30)

    assert (await world.runtime.wait("job-1")).code == 6


async def test_a_stop_signal_that_there_is_not_keeps_no_job_alive(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    image = await held(docker_bed, world, build_image(config={"StopSignal": "SIGNONSENSE"}), "nonsense")
    try:
        await world.runtime.start(world.job("sleep", "3600", image=image))
    except StartFailed:
        return  # Some engines refuse such an image themselves.

    with trio.fail_after(30):
        await world.runtime.stop("job-1", grace_seconds=3600)

    assert (await world.runtime.wait("job-1")).code == 137


async def test_the_secret_is_where_the_program_finds_it_and_nowhere_else(world: DockerWorld) -> None:
    await world.runtime.start(world.spec())
    found = await world.client.call("GET", f"/containers/bp-{world.instance}-dep-1/json")

    assert f"PUPPET_KEY={SECRET}" in found["Config"].pop("Env")
    assert SECRET not in json.dumps(found)


async def test_a_foreign_container_under_our_name_is_never_touched(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    name = f"bp-{world.instance}-job-1"
    async with async_engine_client(docker_bed) as engine:
        made = await engine.post(
            "/containers/create", params={"name": name}, json={"Image": world.image, "Cmd": ["sleep", "99"]}
        )
        foreign = made.raise_for_status().json()["Id"]
        await engine.post(f"/containers/{foreign}/start")
        try:
            assert await world.runtime.find("job-1") is None
            assert await world.runtime.kept() == ()
            await world.runtime.stop("job-1", grace_seconds=0)
            await world.runtime.discard("job-1")
            with pytest.raises(StartFailed, match="not this peer's") as failed:
                await world.runtime.start(world.job("true"))

            assert name in failed.value.fix
            state = (await engine.get(f"/containers/{foreign}/json")).raise_for_status().json()["State"]
            assert state["Running"]
        finally:
            await engine.delete(f"/containers/{foreign}", params={"force": 1})


async def test_labels_of_an_image_make_no_container_this_peers(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    label = "io.behavioralstate.best-peer"
    says = {f"{label}.instance": world.instance, f"{label}.workload": "dep-x", f"{label}.holder": "h-x"}
    image = await held(docker_bed, world, build_image(config={"Labels": says}), "impostor")
    async with async_engine_client(docker_bed) as engine:
        made = await engine.post("/containers/create", json={"Image": image, "Cmd": ["sleep", "99"]})
        foreign = made.raise_for_status().json()["Id"]
        try:
            assert len(containers_of(docker_bed, world.instance)) == 1
            assert await world.runtime.kept() == ()
            async with docker_runtime(world.client, world.instance):
                pass
            assert (await engine.get(f"/containers/{foreign}/json")).is_success
        finally:
            await engine.delete(f"/containers/{foreign}", params={"force": 1})
    await world.runtime.start(world.job("sleep", "99", image=image))
    handle = await world.runtime.find("job-1")
    assert handle is not None
    assert handle.holder == "h-1"


async def test_two_peers_on_one_engine_leave_each_other_alone(world: DockerWorld) -> None:
    async with docker_runtime(world.client, f"{world.instance}-b") as other:
        await world.runtime.start(world.job("sleep", "99"))
        await other.start(world.job("sleep", "99"))

        await other.stop("job-1", grace_seconds=0)
        await other.discard("job-1")

        assert await other.kept() == ()
        assert await world.runtime.running() == ("job-1",)


async def test_the_next_peer_removes_what_was_never_started(world: DockerWorld) -> None:
    await world.runtime.prepare(world.job("true"))
    await world.runtime.start(world.job("sleep", "99", workload="job-2"))

    await world.restart()

    assert await world.runtime.kept() == ("job-2",)


async def test_a_volume_of_an_image_goes_with_its_container(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    image = await held(docker_bed, world, "grasping", "volumes")
    await world.runtime.start(world.job("sleep", "99", image=image))
    found = await world.client.call("GET", f"/containers/bp-{world.instance}-job-1/json")
    volumes = [mount["Name"] for mount in found["Mounts"]]
    assert volumes

    await world.runtime.stop("job-1", grace_seconds=0)
    await world.runtime.discard("job-1")

    for volume in volumes:
        assert await world.client.call("GET", f"/volumes/{volume}", ok=(404,)) is None


async def test_twenty_at_once_all_end_and_are_told(world: DockerWorld) -> None:
    codes: dict[int, int | None] = {}

    async def run(number: int) -> None:
        spec = world.job(
            "sh", "-c", f"exit {number}", workload=f"job-{number}", is_boxed=True, memory=16 * MIB
        )
        codes[number] = (await world.run(spec)).code

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, number)

    assert codes == {number: number for number in range(20)}


async def test_what_still_runs_is_not_discarded(world: DockerWorld) -> None:
    await world.runtime.start(world.job("sleep", "99"))

    with pytest.raises(RuntimeFault, match="still runs"):
        await world.runtime.discard("job-1")


async def test_a_container_that_its_owner_removed_has_an_end_nobody_knows(world: DockerWorld) -> None:
    await world.runtime.start(world.job("sleep", "99"))
    ends: list[Exit] = []

    async def wait() -> None:
        ends.append(await world.runtime.wait("job-1"))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await world.client.call("DELETE", f"/containers/bp-{world.instance}-job-1", params={"force": 1})

    # The engine kills it first, which may be seen.
    assert ends[0].code in (None, 137)
    await remove_all(world.runtime)


async def test_an_image_is_read_as_this_engine_tells_it(docker_bed: DockerBed, world: DockerWorld) -> None:
    image = await held(docker_bed, world, "grasping", "config")

    config = ImageConfig.read(await world.client.call("GET", f"/images/{image}/json"))

    assert set(config.volumes) == {"/data", "/out"}
    assert {"PATH", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} <= set(config.variables)


def _command_lines() -> bytes:
    lines = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines += path.read_bytes()
        except OSError:
            continue
    return lines
