"""What a hostile image and a hostile job can do on the real engine (F30, F31).

One job reports on all that needs no container of its own: see `tests/support/docker/attack.py`.
"""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from adapters.runtime.port import WorkloadSpec
from tests.support.docker.attack import ATTEMPTS
from tests.support.docker.bed import DockerBed
from tests.support.docker.gated import run_once_started
from tests.support.docker.hostile import WANTED, hostile
from tests.support.docker.use import push_as
from tests.support.runtimes import PORT, DockerWorld, open_docker_world, pulled

# Some get to the bed by a name that they choose as they run.
pytestmark = pytest.mark.docker

MIB = 1 << 20
GIB = 1 << 30
MEMORY = 256 * MIB
TASKS = 64
CONTAINERS = ("engine", "job", "another peer's engine")
"""Who listens in a container of its own. The host reaches them all, before the attack and after it."""


@attrs.frozen
class Report:
    """What the hostile program told of its container, and what the engine told of the same.

    Args:
        told: what it printed.
        reached: what came of its calls to listeners outside.
        inspected: its container.
        cores: the engine's.
        volumes: those that the engine keeps for its container.
    """

    told: dict[str, Any]
    reached: dict[str, str]
    inspected: dict[str, Any]
    cores: int
    volumes: set[str]


@pytest.fixture(scope="module")
def boxed(docker_bed: DockerBed) -> Report:
    """Of a tenant's job."""
    return trio.run(_attack, docker_bed, True)


@pytest.fixture(scope="module")
def opened(docker_bed: DockerBed) -> Report:
    """Of an owner's job, or one whose approver opened the box."""
    return trio.run(_attack, docker_bed, False)


async def _attack(bed: DockerBed, is_boxed: bool) -> Report:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_docker_world(bed))
        image = await pulled(bed, world.client, push_as(bed, hostile(), f"{world.instance}/hostile"))
        serve = ("python3", "-m", "http.server", str(PORT))
        neighbour = await world.runtime.start(world.job(*serve, image=image, workload="dep-1", port=PORT))
        network = await network_of(world, "dep-1")
        await world.runtime.start(world.job(*serve, image=image, workload="job-2"))
        stranger = await stack.enter_async_context(open_docker_world(bed))
        await stranger.runtime.start(stranger.job(*serve, image=image, workload="dep-1", port=PORT))
        with (
            closing(socket.create_server(("0.0.0.0", 0))) as listener,
            closing(socket.socket(socket.AF_UNIX)) as abstract,
        ):
            abstract.bind(f"\0{world.instance}")
            abstract.listen()
            port = listener.getsockname()[1]
            addresses = {
                "loopback": f"127.0.0.1:{port}",
                "bridge": f"{network['Gateway']}:{port}",
                "published port": f"{network['Gateway']}:{neighbour.base_url.rpartition(':')[2]}",
                "engine": f"{network['IPAddress']}:{PORT}",
                "job": f"{(await network_of(world, 'job-2'))['IPAddress']}:{PORT}",
                "another peer's engine": f"{(await network_of(stranger, 'dep-1'))['IPAddress']}:{PORT}",
                "abstract socket": f"@{world.instance}",
            }
            there = [neighbour.base_url.removeprefix("http://"), *(addresses[name] for name in CONTAINERS)]
            for address in there:
                await until_reached(address)
            addresses["engine by name"] = f"bp-{world.instance}-dep-1:{PORT}"
            command = ("python3", "/attack.py", *addresses.values())
            spec = world.job(
                *command, image=image, memory=MEMORY, environment=WANTED, tasks=TASKS, is_boxed=is_boxed
            )
            told = json.loads(await written_by(world, spec))
            for address in there:
                await until_reached(address)
        inspected = await inspect(world, "job-1")
        return Report(
            told=told,
            reached={name: told["reached"][address] for name, address in addresses.items()},
            inspected=inspected,
            cores=world.runtime.engine.cores,
            volumes={mount["Name"] for mount in inspected["Mounts"] if mount["Type"] == "volume"},
        )


@pytest.fixture
async def world(docker_bed: DockerBed) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed) as made:
        image = push_as(docker_bed, hostile(), f"{made.instance}/hostile")
        yield attrs.evolve(made, image=await pulled(docker_bed, made.client, image))


@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_boxed_job_does_not_get_to(boxed: Report, what: str) -> None:
    assert boxed.told["attempts"][what] != "done"


OPEN = {
    "become uid 0",
    "change the mode of /bin",
    "write /",
    "write /dev",
    "write /etc",
    "write /etc/hosts",
    "write /usr/bin",
}
"""What root may do in files that are its own and its container's alone."""


@pytest.mark.parametrize("what", sorted(ATTEMPTS.keys() - OPEN))
def test_a_job_whose_box_was_opened_does_not_get_to(opened: Report, what: str) -> None:
    assert opened.told["attempts"][what] != "done"


def test_a_job_whose_box_was_opened_has_what_the_seed_says_and_no_more(opened: Report) -> None:
    done = {what for what, outcome in opened.told["attempts"].items() if outcome == "done"}

    assert done == OPEN
    assert opened.told["status"]["Uid"].split() == ["0"] * 4
    assert opened.told["environment"]["HOME"] == "/root"


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_no_container_has_a_capability_or_may_gain_one(kind: str, request: pytest.FixtureRequest) -> None:
    report: Report = request.getfixturevalue(kind)
    status = report.told["status"]

    sets = {name: int(value, 16) for name, value in status.items() if name.startswith("Cap")}
    assert sets == dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0)
    assert status["NoNewPrivs"] == "1"
    assert int(report.told["capable program"], 16) == 0


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_system_calls_are_filtered_seen_from_inside(kind: str, request: pytest.FixtureRequest) -> None:
    told = request.getfixturevalue(kind).told

    assert told["status"]["Seccomp"] == "2"
    calls = {what: outcome for what, outcome in told["attempts"].items() if what.startswith("call ")}
    assert set(calls.values()) <= {"EPERM", "ENOSYS"}


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_no_container_dumps_a_core(kind: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(kind).told["core limit"] == [0, 0]


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_a_container_sees_no_process_but_its_own(kind: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(kind).told["processes"] == ["docker-init", "python3"]


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_a_container_has_the_tasks_that_it_was_given(kind: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(kind).told["tasks"] == str(TASKS)


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_a_ceiling_on_memory_counts_swap(kind: str, request: pytest.FixtureRequest) -> None:
    told = request.getfixturevalue(kind).told

    assert told["memory"] == str(MEMORY)
    assert told["memory and swap"] == str(MEMORY) or told["swap"] == "0"


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_a_container_has_no_device_but_those_that_every_one_has(
    kind: str, request: pytest.FixtureRequest
) -> None:
    names = ("full", "null", "pts/ptmx", "random", "tty", "urandom", "zero")

    assert set(request.getfixturevalue(kind).told["devices"]) <= {f"/dev/{name}" for name in names}


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_neither_image_nor_job_says_which_cards_it_sees(kind: str, request: pytest.FixtureRequest) -> None:
    """bottlerocket-os/bottlerocket#3718, seen from inside."""
    found = request.getfixturevalue(kind).told["environment"]

    assert {name: value for name, value in found.items() if "NVIDIA" in name or "DEVICES" in name} == {
        "NVIDIA_VISIBLE_DEVICES": "void"
    }


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_an_images_health_check_never_runs(kind: str, request: pytest.FixtureRequest) -> None:
    assert "Health" not in request.getfixturevalue(kind).inspected["State"]


@pytest.mark.parametrize("kind", ["boxed", "opened"])
def test_no_container_reaches_a_published_port_or_what_listens_on_loopback(
    kind: str, request: pytest.FixtureRequest
) -> None:
    reached = request.getfixturevalue(kind).reached

    assert {name: reached[name] for name in ("loopback", "published port", "abstract socket")} == {
        "loopback": "ECONNREFUSED",
        "published port": reached["published port"],
        "abstract socket": "ECONNREFUSED",
    }
    assert reached["published port"] != "done"


def test_a_boxed_job_reaches_nothing_at_all(boxed: Report, opened: Report) -> None:
    assert boxed.told["interfaces"] == ["lo"]
    assert "done" not in boxed.reached.values()
    # What it does not reach is there.
    assert opened.reached["bridge"] == "done"


@pytest.mark.parametrize("name", [*CONTAINERS, "engine by name"])
def test_a_job_whose_box_was_opened_reaches_no_other_container(opened: Report, name: str) -> None:
    assert opened.reached[name] == "timed out"


def test_a_job_whose_box_was_opened_has_no_address_beside_those_that_rules_are_for(opened: Report) -> None:
    assert opened.told["interfaces"] == ["eth0", "lo"]
    assert set(opened.told["interfaces with IPv6"]) <= {"lo"}


def test_a_boxed_job_is_nobody_whatever_its_image_says(boxed: Report) -> None:
    status = boxed.told["status"]

    assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
    assert status["Groups"].split() in ([], ["65534"])
    assert boxed.told["setuid program"] == "65534"


def test_a_boxed_job_writes_to_its_private_folders_and_nowhere_else(boxed: Report) -> None:
    private = {"/tmp", "/dev/shm", "/dev/mqueue", "/data", "/var/lib/kept"}

    assert set(boxed.told["writable"]) <= private
    assert {"/tmp", "/data", "/var/lib/kept"} <= set(boxed.told["writable"])
    assert boxed.told["/tmp bytes"] == GIB
    assert boxed.told["/dev/shm bytes"] == GIB
    assert boxed.told["program in /tmp"] == "ran"
    assert boxed.told["environment"]["HOME"] == "/tmp"


def test_a_volume_of_its_image_is_no_folder_of_the_host(boxed: Report, opened: Report) -> None:
    files = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/sbin/docker-init"}

    assert set(boxed.told["disks"]) == files
    assert boxed.volumes == set()
    # Opened, they are, and go with the container.
    assert set(opened.told["disks"]) == files | {"/data", "/var/lib/kept"}
    assert len(opened.volumes) == 2


def test_a_boxed_job_has_half_the_cores(boxed: Report, opened: Report) -> None:
    quota, _, period = boxed.told["processor"].partition(" ")

    assert int(quota) / int(period or 100_000) == boxed.cores / 2
    assert opened.told["processor"] in ("-1", "max 100000")


async def test_a_job_that_forks_without_end_stops_at_its_ceiling(world: DockerWorld) -> None:
    script = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        made += 1
except BlockingIOError:
    print(made)
"""
    ended = await world.run(world.job("python3", "-c", script, tasks=40, is_boxed=True, memory=MEMORY))

    # Init and the program itself count as well.
    assert ended.output == ("38",)
    assert await world.runtime.processes("job-1") == frozenset()


async def test_a_job_that_eats_memory_ends_and_is_told_why(world: DockerWorld) -> None:
    command = ("python3", "-c", "x = bytearray(1 << 31)")

    ended = await run_once_started(world, *command, is_boxed=True, memory=32 * MIB)

    assert ended.out_of_memory
    assert ended.code == 137


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/data"])
async def test_what_a_boxed_job_writes_counts_in_its_memory(world: DockerWorld, folder: str) -> None:
    command = ("dd", "if=/dev/zero", f"of={folder}/much", "bs=1M", "count=200")

    ended = await run_once_started(world, *command, is_boxed=True, memory=32 * MIB)

    assert ended.out_of_memory


async def test_a_boxed_job_fills_its_tmp_and_no_more(world: DockerWorld) -> None:
    script = """
import os
with open("/tmp/much", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 1 << 30)
    print("full")
    try:
        os.posix_fallocate(file.fileno(), 0, (1 << 30) + 4096)
    except OSError as error:
        print(error.strerror)
"""
    ended = await world.run(world.job("python3", "-c", script, is_boxed=True, memory=2 * GIB))

    assert ended.output == ("full", "No space left on device")


async def test_a_boxed_job_opens_no_more_files_than_it_is_given(world: DockerWorld) -> None:
    script = """
import os
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(error.strerror, len(files) + 3)
"""
    engine = world.runtime.engine
    most = engine.open_files
    # This machine's engine may have less to give than a box is worth: then its own limit holds.
    world.runtime._engine = attrs.evolve(engine, open_files=1000)
    few = await world.run(world.job("python3", "-c", script, is_boxed=True, memory=MEMORY))
    world.runtime._engine = engine
    many = await world.run(world.job("python3", "-c", script, is_boxed=True, memory=MEMORY))

    assert few.output == ("Too many open files 1000",)
    assert 3 < int(many.output[0].rpartition(" ")[2]) <= (most or 65536)


async def test_a_job_that_crashes_leaves_no_core(world: DockerWorld) -> None:
    script = "cd /tmp; ulimit -c unlimited; python3 -c 'import os; os.abort()'; ls -A; exit 5"

    ended = await world.run(world.job("sh", "-c", script, is_boxed=True, memory=MEMORY))

    assert ended.code == 5
    assert not any("core" in line.split() or line.startswith("core.") for line in ended.output)


async def test_a_job_that_prints_without_end_fills_two_files_of_its_log(world: DockerWorld) -> None:
    """docker/for-linux#985: one talkative container filled the disk with its log."""
    command = "yes 0123456789012345678901234567890123456789 | head -c 60000000"

    ended = await world.run(world.job("sh", "-c", command, is_boxed=True, memory=MEMORY))

    log = Path((await inspect(world, "job-1"))["LogPath"])
    kept = [path.stat().st_size for path in log.parent.glob(f"{log.name}*")]
    assert ended.code == 0
    assert len(ended.output) == 20
    assert len(kept) == 2
    assert sum(kept) < 21_000_000


@pytest.mark.parametrize("is_boxed", [True, False])
async def test_a_container_cannot_reach_into_another(world: DockerWorld, is_boxed: bool) -> None:
    spec = world.job("sh", "-c", "echo secret >/tmp/secret; sleep 99", workload="job-2", is_boxed=True)
    await world.runtime.start(spec)
    (victim, *_) = sorted(await world.runtime.processes("job-2"))
    script = f"""
import os
for what in (lambda: os.kill({victim}, 9), lambda: open("/proc/{victim}/root/tmp/secret"),
             lambda: open("/tmp/secret"), lambda: open("/dev/shm/secret")):
    try:
        what()
    except OSError as error:
        print(type(error).__name__)
"""
    ended = await world.run(world.job("python3", "-c", script, is_boxed=is_boxed, memory=MEMORY))

    assert ended.output == ("ProcessLookupError", *["FileNotFoundError"] * 3)
    assert "job-2" in await world.runtime.running()


async def written_by(world: DockerWorld, spec: WorkloadSpec) -> bytes:
    """All that a workload writes to its output."""
    await world.runtime.prepare(spec)
    with trio.fail_after(120):
        async with world.runtime.follow(spec.workload) as chunks:
            await world.runtime.start(spec)
            written = [chunk async for chunk in chunks]
    errors = b"".join(chunk.data for chunk in written if chunk.stream == "err")
    assert errors == b"", errors.decode()
    return b"".join(chunk.data for chunk in written)


async def inspect(world: DockerWorld, workload: str) -> dict[str, Any]:
    found: dict[str, Any] = await world.client.call("GET", f"/containers/bp-{world.instance}-{workload}/json")
    return found


async def network_of(world: DockerWorld, workload: str) -> dict[str, Any]:
    """What a container is on."""
    found = await inspect(world, workload)
    (network,) = found["NetworkSettings"]["Networks"].values()
    return dict(network)


async def until_reached(address: str) -> None:
    """Wait until something listens there."""
    host, _, port = address.rpartition(":")
    with trio.fail_after(60):
        while True:
            try:
                await (await trio.open_tcp_stream(host, int(port))).aclose()
            except OSError:
                await trio.sleep(0.05)
            else:
                return
