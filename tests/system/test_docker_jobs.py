"""Jobs of the whole peer on a real container engine: every end they can have, and every kill (F25, F31, F37).

What confines them is tried by the attacker's suite beside the adapter; here it is what is told.
"""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from tests.support.docker.own import open_own_engine
from tests.support.docker.proxy import Hold, open_proxy
from tests.support.docker.use import containers_of, push_as
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.docker.bed import DockerBed
    from tests.support.docker.own import OwnEngine

HANG = 240.0
"""A bound on a hang, no measure of speed."""

MIB = 1 << 20
CEILING = 32 * MIB
ENDS = ("JobFinished", "JobFailed", "JobStopped", "CommandFailed")


def named() -> str:
    """A repository that no other test uses."""
    return f"jobs/{uuid.uuid4().hex[:12]}"


@attrs.frozen
class Running:
    """A peer with Docker, the owner's own agent, and a tenant's."""

    bed: DockerBed
    door: OpenDoor
    agent: Agent
    tenant: Agent

    async def run(self, image: str, *command: str, who: Agent | None = None) -> str:
        """A run-job's correlation."""
        data: dict[str, Any] = {"image": image, **({"command": list(command)} if command else {})}
        if who is self.tenant:
            data["memory_bytes"] = MIB
        return await (who or self.agent).command("RunJob", data)

    async def told(self, correlation: str, *kinds: str, who: Agent | None = None) -> list[dict[str, Any]]:
        """Every fact under a correlation up to the first of these types, or to its end."""
        with trio.fail_after(HANG):
            reader = who or self.agent
            async with reader.stream("from the beginning", correlationId=correlation) as listener:
                return list(await listener.until(*(kinds or ENDS)))

    async def end(self, image: str, *command: str, who: Agent | None = None) -> dict[str, Any]:
        """Run a job to its end; its last fact."""
        return (await self.told(await self.run(image, *command, who=who), who=who))[-1]

    async def nothing_is_left(self) -> None:
        """Wait until it has no container."""
        with trio.fail_after(HANG):
            instance = self.door.peer.folder.instance_id
            while await trio.to_thread.run_sync(containers_of, self.bed, instance):  # noqa: ASYNC110
                await trio.sleep(0.05)


@asynccontextmanager
async def running(bed: DockerBed, folder: Path, docker_host: str) -> AsyncIterator[Running]:
    settings = {
        "BEST_PEER_GPU": "none",
        "BEST_PEER_RUNTIME": "docker",
        "DOCKER_HOST": docker_host,
        "BEST_PEER_JOB_MEMORY": str(CEILING),
    }
    async with open_door(folder, settings=settings) as door:
        yield Running(bed, door, await door.sign_in(), await door.sign_in("tenant", memory_bytes=64 * MIB))


@pytest.fixture
async def peer(docker_bed: DockerBed, tmp_path: Path) -> AsyncIterator[Running]:
    async with running(docker_bed, tmp_path, docker_bed.docker_host) as made:
        yield made
        await made.nothing_is_left()


@pytest.fixture
def shell(docker_bed: DockerBed) -> str:
    return push_as(docker_bed, "shell", named())


@pytest.mark.parametrize(
    ("script", "code", "output"),
    [
        ("exit 3", 3, []),
        ("printf 'a\\377b\\n'", 0, ["a\N{REPLACEMENT CHARACTER}b"]),
        ("for n in $(seq 1 100); do echo $n; done", 0, [str(n) for n in range(81, 101)]),
        ("echo out; echo err >&2; kill -9 $$", 137, ["out", "err"]),
        ("sleep 1000 & echo gone", 0, ["gone"]),
        ("no-such-program", 127, ["sh: no-such-program: not found"]),
    ],
    ids=["code", "no UTF-8", "many lines", "killed", "a child outlives it", "not found by a shell"],
)
async def test_a_program_that_ends_has_finished(
    peer: Running, shell: str, script: str, code: int, output: list[str]
) -> None:
    fact = await peer.end(shell, "sh", "-c", script)
    assert fact["type"] == "JobFinished"
    assert (fact["data"]["exit_code"], sorted(fact["data"]["output"])) == (code, sorted(output))


@pytest.mark.parametrize(
    ("ready", "command", "code"),
    [
        ("shell", ["/no/such"], "COMMAND_NOT_FOUND"),
        ("shell", ["/etc/passwd"], "COMMAND_NOT_FOUND"),
        ("no-command", [], "NO_COMMAND"),
        ("foreign", ["sh"], "IMAGE_UNUSABLE"),
        ("foreign-alone", ["sh"], "IMAGE_UNUSABLE"),
    ],
)
async def test_what_cannot_be_run_fails_and_says_why(
    peer: Running, ready: str, command: list[str], code: str
) -> None:
    fact = await peer.end(push_as(peer.bed, ready, named()), *command)
    assert (fact["type"], fact["data"]["code"]) == ("JobFailed", code)
    assert fact["data"]["fix"]


async def test_an_image_that_is_missing_or_not_shown_fails_and_says_why(peer: Running) -> None:
    missing = await peer.end(f"{peer.bed.registry.address}/{named()}:1", "true")
    assert missing["data"]["code"] == "IMAGE_NOT_FOUND"
    push_as(peer.bed, "shell", repository := named())
    hidden = await peer.end(f"{peer.bed.guarded.address}/{repository}", "true")
    assert hidden["data"]["code"] in ("IMAGE_DENIED", "IMAGE_NOT_FOUND")


async def test_a_tenants_job_that_takes_too_much_memory_is_told_its_ceiling(
    peer: Running, shell: str
) -> None:
    eat = "head -c 200000000 /dev/zero | tail -c 200000000"
    correlation = await peer.run(shell, "sh", "-c", f"exec {eat}", who=peer.tenant)
    told = await peer.told(correlation, who=peer.tenant)
    started = next(f["data"] for f in told if f["type"] == "JobStarted")
    assert (started["boxed"], started["host_memory_bytes"]) == (True, CEILING)
    last = told[-1]
    # A shell whose child was ended goes on and ends by itself: that is told as it is, with a note.
    words = last["data"].get("reason") or last["data"]["note"]
    assert str(CEILING) in words
    # Not at once: an engine begins to look at its memory as it starts it, and may miss what ends before.
    takes = "import time; time.sleep(1); x = bytearray(1 << 28)"
    alone = await peer.end(push_as(peer.bed, "python", named()), "python3", "-c", takes, who=peer.tenant)
    assert (alone["type"], alone["data"]["code"]) == ("JobFailed", "OUT_OF_MEMORY")
    assert str(CEILING) in alone["data"]["reason"]


async def test_a_tenants_job_is_told_from_inside_its_box(peer: Running, shell: str) -> None:
    script = "id -u; echo $HOME; touch /tmp/here && echo wrote; touch /not/here 2>/dev/null || echo no"
    fact = await peer.end(shell, "sh", "-c", script, who=peer.tenant)
    assert fact["data"]["output"] == ["65534", "/tmp", "wrote", "no"]


@pytest.mark.parametrize(
    "script",
    ["yes", "trap '' TERM; while :; do sleep 1; done", "sleep 1000 & sleep 1000"],
    ids=["prints without end", "ignores SIGTERM", "has a child"],
)
async def test_a_job_is_stopped_whatever_it_does(peer: Running, shell: str, script: str) -> None:
    correlation = await peer.run(shell, "sh", "-c", f"echo set; {script}")
    job = (await peer.told(correlation, "JobStarted"))[-1]["data"]["job"]
    stop = await peer.agent.command("StopJob", {"job": job})
    by_stop, own = (await peer.told(stop))[-1], (await peer.told(correlation))[-1]
    assert by_stop["type"] == own["type"] == "JobStopped"
    lines = own["data"]["output"]
    assert len(lines) <= 20
    assert sum(len(line) for line in lines) <= 2000


async def test_twenty_jobs_at_once_each_end_once(peer: Running, shell: str) -> None:
    correlations: list[str] = []

    async def run(number: int) -> None:
        correlations.append(await peer.run(shell, "sh", "-c", f"exit {number}"))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, number)
    codes = []
    for correlation in correlations:
        told = [f for f in await peer.told(correlation) if f["type"] != "ImagePulling"]
        assert [f["type"] for f in told] == ["ImagePulled", "JobStarted", "JobFinished"]
        codes.append(told[-1]["data"]["exit_code"])
    assert sorted(codes) == list(range(20))


async def test_a_stop_in_the_midst_of_a_pull_leaves_nothing(peer: Running, docker_bed: DockerBed) -> None:
    image = push_as(docker_bed, "layered", named())
    async with open_proxy(docker_bed.registry.address) as proxy:
        held = proxy.fault("GET .*/blobs/", Hold(after=1000))
        correlation = await peer.run(proxy.reference(image), "true")
        with trio.fail_after(HANG):
            await held.reached.wait()
        job = (await peer.told(correlation, "ImagePulling"))[-1]["data"]["job"]
        stop = await peer.agent.command("StopJob", {"job": job})
        assert (await peer.told(stop))[-1]["type"] == "JobStopped"
        assert (await peer.told(correlation))[-1]["data"]["reason"] == "it was stopped before it started"
        proxy.heal()
        held.release()


@attrs.frozen
class Killable:
    """A peer over an engine that may be killed."""

    engine: OwnEngine
    peer: Running

    async def kill_and_start(self) -> None:
        """End the engine as a crash would, and start it again."""
        await trio.to_thread.run_sync(self.engine.kill)
        await trio.to_thread.run_sync(self.engine.start)

    def wait_for_output(self, container: str, words: bytes) -> None:
        """Wait until a container has written this. Blocks."""
        with self.engine.client() as client:
            parameters = {"follow": "1", "stdout": "1"}
            with client.stream("GET", f"/containers/{container}/logs", params=parameters) as answer:
                for piece in answer.iter_raw():
                    if words in piece:
                        return
        raise AssertionError(f"it ended and did not write {words!r}")

    def signal(self, container: str, name: str) -> None:
        """Send a container's program a signal. Blocks."""
        with self.engine.client() as client:
            answer = client.post(f"/containers/{container}/kill", params={"signal": name})
            answer.raise_for_status()

    async def nothing_is_left(self) -> None:
        with trio.fail_after(HANG):
            while await trio.to_thread.run_sync(self.engine.containers):  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.05)


@asynccontextmanager
async def killable(bed: DockerBed, folder: Path, *flags: str) -> AsyncIterator[Killable]:
    async with open_own_engine(bed, *flags) as engine, running(bed, folder, engine.docker_host) as peer:
        yield Killable(engine, peer)


async def test_an_engine_killed_under_a_job_interrupts_it(
    docker_bed: DockerBed, tmp_path: Path, shell: str
) -> None:
    """Without live-restore; and the next job runs."""
    async with killable(docker_bed, tmp_path) as made:
        correlation = await made.peer.run(shell, "sh", "-c", "echo set; exec sleep 1000")
        await made.peer.told(correlation, "JobStarted")
        (running,) = await trio.to_thread.run_sync(made.engine.containers)
        await trio.to_thread.run_sync(made.wait_for_output, running["Id"], b"set")
        await made.kill_and_start()
        fact = (await made.peer.told(correlation))[-1]
        assert (fact["type"], fact["data"]["code"]) == ("JobFailed", "INTERRUPTED")
        assert fact["data"]["output"] == ["set"]
        assert (await made.peer.end(shell, "true"))["data"]["exit_code"] == 0
        await made.nothing_is_left()


async def test_with_live_restore_a_job_goes_on_and_ends_by_itself(
    docker_bed: DockerBed, tmp_path: Path, shell: str
) -> None:
    async with killable(docker_bed, tmp_path, "--live-restore") as made:
        waits = "trap 'exit 5' USR1; echo set; while :; do sleep 300 & wait $!; done"
        correlation = await made.peer.run(shell, "sh", "-c", waits)
        await made.peer.told(correlation, "JobStarted")
        (before,) = await trio.to_thread.run_sync(made.engine.containers)
        await trio.to_thread.run_sync(made.wait_for_output, before["Id"], b"set")
        await made.kill_and_start()
        (after,) = await trio.to_thread.run_sync(made.engine.containers)
        assert (after["Id"], after["State"]) == (before["Id"], "running")
        await trio.to_thread.run_sync(made.signal, before["Id"], "USR1")
        fact = (await made.peer.told(correlation))[-1]
        assert (fact["type"], fact["data"]["exit_code"]) == ("JobFinished", 5)
        await made.nothing_is_left()


async def test_a_job_whose_engine_is_killed_in_its_pull_runs_once_it_is_back(
    docker_bed: DockerBed, tmp_path: Path
) -> None:
    image = push_as(docker_bed, "layered", named())
    async with (
        open_proxy(docker_bed.registry.address) as proxy,
        killable(docker_bed, tmp_path) as made,
    ):
        held = proxy.fault("GET .*/blobs/", Hold(after=1000))
        correlation = await made.peer.run(proxy.reference(image), "true")
        with trio.fail_after(HANG):
            await held.reached.wait()
        await trio.to_thread.run_sync(made.engine.kill)
        proxy.heal()
        held.release()
        await trio.to_thread.run_sync(made.engine.start)
        told = [f["type"] for f in await made.peer.told(correlation)]
        assert (told.count("ImagePulled"), told.count("JobStarted"), told[-1]) == (1, 1, "JobFinished")
        await made.nothing_is_left()
