"""What only real processes can show: nothing leaks into them, nothing is left of them."""

import json
import os
import secrets
import shutil
import signal
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from adapters.runtime import process
from adapters.runtime.oom import OomKills
from adapters.runtime.output import MAX_FILE, SHORTEN_AT
from adapters.runtime.port import Executable, Exit, NotEnded, RuntimeFault, StartFailed, WorkloadSpec
from adapters.runtime.process import ProcessRuntime
from adapters.runtime.record import read_record, write_record
from adapters.runtime.watched import Watched
from tests.support.puppeteer import SECRET, lives, puppet, tell, until_gone


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    # Its instance is what a peer finds its processes by across the machine: no two tests share one.
    made = ProcessRuntime(tmp_path, secrets.token_hex(8), look_seconds=0.02)
    yield made
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
        for workload in await made.running():
            await made.stop(workload, grace_seconds=0)


def read(path: str) -> str:
    return Path(path).read_text()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(30):
        while not await condition():  # noqa: ASYNC110 - other processes set no event
            await trio.sleep(0.01)


def running(argv: tuple[str, ...], workload: str = "dep-1") -> WorkloadSpec:
    return WorkloadSpec(workload=workload, holder="h-1", program=Executable(argv=argv))


async def test_the_peers_own_environment_stays_with_the_peer(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BEST_PEER_ADMIN", "a-secret")
    spec = puppet()
    spec = attrs.evolve(spec, program=attrs.evolve(spec.program, environment={"KEYS": "{secret:api-key}"}))

    seen = await tell(await runtime.start(spec), "look")

    folder = tmp_path / "workloads" / "dep-1"
    assert seen["environment"] == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "KEYS": str(folder / "secret-api-key"),
        "BEST_PEER_INSTANCE": runtime.instance,
        "BEST_PEER_WORKLOAD": "dep-1",
    }


async def test_a_program_has_its_own_session_and_no_file_of_the_peers(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    with (tmp_path / "open").open("wb") as file:
        os.set_inheritable(file.fileno(), True)
        seen = await tell(await runtime.start(puppet()), "look")

    assert seen["session"] == seen["pid"]
    assert seen["stdin"] == "/dev/null"
    # 3 is the puppet's listener, 4 its connection, 5 the listing itself.
    assert seen["files"] == [0, 1, 2, 3, 4, 5]
    assert seen["folder"] == str(tmp_path / "workloads" / "dep-1")


async def test_a_program_may_run_in_a_folder_of_its_choice(runtime: ProcessRuntime, tmp_path: Path) -> None:
    spec = puppet()
    assert isinstance(spec.program, Executable)

    handle = await runtime.start(attrs.evolve(spec, program=attrs.evolve(spec.program, folder=tmp_path)))

    assert (await tell(handle, "look"))["folder"] == str(tmp_path)


async def test_no_secret_is_in_argv_and_files_are_the_owners_alone(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    handle = await runtime.start(puppet())
    seen = await tell(handle, "look")

    folder = tmp_path / "workloads" / "dep-1"
    assert SECRET not in read(f"/proc/{seen['pid']}/cmdline")
    assert read(seen["argv"][2]) == SECRET
    assert SECRET not in (folder / "record.json").read_text()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "record.json": 0o600,
        "output": 0o600,
        "secret-api-key": 0o600,
    }


@pytest.mark.parametrize("session", ["same", "session"])
async def test_what_a_killed_program_left_ends_with_it(runtime: ProcessRuntime, session: str) -> None:
    handle = await runtime.start(puppet())
    leader = (await tell(handle, "look"))["pid"]
    child = await tell(handle, "spawn", session)

    os.kill(leader, signal.SIGKILL)

    assert (await runtime.wait("dep-1")).code == 137
    assert not lives(child)


async def test_what_a_stopped_program_left_ends_with_it(runtime: ProcessRuntime) -> None:
    handle = await runtime.start(puppet())
    child = await tell(handle, "spawn", "session")

    await runtime.stop("dep-1", grace_seconds=30)

    assert not lives(child)


async def test_a_dead_program_that_nobody_waited_for_is_not_running(runtime: ProcessRuntime) -> None:
    handle = await runtime.start(puppet())
    leader = (await tell(handle, "look"))["pid"]
    os.kill(leader, signal.SIGKILL)
    await until_gone(leader)

    assert await runtime.find("dep-1") is None
    assert await runtime.running() == ()
    second = await runtime.start(puppet())
    assert second.base_url != handle.base_url


FIRST_THREAD_ENDS = """
import ctypes, os, platform, sys, threading

def end_when_told():
    open(sys.argv[1]).close()
    os._exit(7)

threading.Thread(target=end_when_told).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


async def test_a_program_has_ended_when_its_last_thread_has(runtime: ProcessRuntime, tmp_path: Path) -> None:
    """The first thread of a program that is killed is often gone before the others: its code was unknown."""
    fifo = tmp_path / "end"
    os.mkfifo(fifo)
    runtime.look_seconds = 60  # so that who waits does nothing else
    await runtime.start(running((sys.executable, "-c", FIRST_THREAD_ENDS, str(fifo))))
    record = read_record(tmp_path / "workloads" / "dep-1")
    assert record is not None
    await until_gone(record.identity.pid)
    ends: list[Exit] = []

    async def wait() -> None:
        ends.append(await runtime.wait("dep-1"))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked(0.1)
            await trio.to_thread.run_sync(fifo.write_text, "")

    assert [end.code for end in ends] == [7]


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGTERM, signal.SIGKILL])
async def test_a_signal_is_told_as_128_and_its_number(runtime: ProcessRuntime, number: int) -> None:
    handle = await runtime.start(puppet())

    await tell(handle, "signal", number)

    ended = await runtime.wait("dep-1")
    assert ended.code == 128 + number
    assert not ended.out_of_memory


class Group:
    """A control group's count, which a test raises; it says how often it was read."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.reads = 0
        self.count = 0
        self.rise(0)

    def rise(self, by: int = 1) -> None:
        self.count += by
        self.file.write_text(f"oom {self.count}\noom_kill {self.count}\n")

    def __call__(self, pid: int) -> OomKills:
        assert lives(pid)
        self.reads += 1
        return OomKills(self.file, self.count)

    async def read_again(self, times: int) -> None:
        before = self.reads

        async def read() -> bool:
            return self.reads >= before + times

        await until(read)


@pytest.fixture
def group(tmp_path: Path, runtime: ProcessRuntime) -> Group:
    made = Group(tmp_path / "memory.events.local")
    runtime.kills = made
    return made


async def test_a_killed_program_of_a_group_that_the_kernel_took_memory_from_ran_out_of_it(
    runtime: ProcessRuntime, group: Group
) -> None:
    handle = await runtime.start(puppet())
    group.rise()
    await tell(handle, "signal", signal.SIGKILL)
    assert (await runtime.wait("dep-1")).out_of_memory
    ended = await ProcessRuntime(runtime.data, runtime.instance).wait("dep-1")
    assert ended.out_of_memory, "it is written down"


async def test_a_killed_program_did_not_run_out_of_memory_where_nobody_recorded_it(
    runtime: ProcessRuntime, group: Group
) -> None:
    """The machine's own count rises with any program on it: `kill -9` was told as OutOfMemory."""
    handle = await runtime.start(puppet())
    await tell(handle, "signal", signal.SIGKILL)
    ended = await runtime.wait("dep-1")
    assert (ended.code, ended.out_of_memory) == (137, False)
    assert group.reads == 1


async def test_what_was_counted_while_a_program_lived_was_not_of_it(
    runtime: ProcessRuntime, group: Group
) -> None:
    handle = await runtime.start(puppet())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.wait, "dep-1")
        group.rise()
        await group.read_again(4)
        await tell(handle, "signal", signal.SIGKILL)
    assert not (await runtime.wait("dep-1")).out_of_memory


async def test_a_program_that_its_owner_had_killed_did_not_run_out_of_memory(
    runtime: ProcessRuntime, group: Group
) -> None:
    await tell(await runtime.start(puppet()), "ignore-term")
    group.rise()
    await runtime.stop("dep-1", grace_seconds=0)
    ended = await runtime.wait("dep-1")
    assert (ended.code, ended.out_of_memory) == (137, False)


async def test_an_end_that_was_seen_is_known_after_a_restart(runtime: ProcessRuntime) -> None:
    handle = await runtime.start(puppet())
    await tell(handle, "write", "last words\n")
    await tell(handle, "exit", 9)
    await runtime.wait("dep-1")

    assert await ProcessRuntime(runtime.data, runtime.instance).wait("dep-1") == Exit(9, ("last words",))


async def test_folders_that_a_killed_peer_left_are_named_and_another_peers_are_not(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await runtime.start(puppet())
    await runtime.stop("dep-1", grace_seconds=30)
    cut_off = tmp_path / "workloads" / "dep-2"
    cut_off.mkdir()
    (tmp_path / "workloads" / "no workload's id").mkdir()

    assert await ProcessRuntime(tmp_path, runtime.instance).kept() == ("dep-1", "dep-2")
    assert await ProcessRuntime(tmp_path, "another-peer").kept() == ("dep-2",)

    for workload in await runtime.kept():
        await runtime.discard(workload)
    assert await runtime.kept() == ()
    assert not cut_off.exists()


async def test_a_number_that_went_to_another_process_is_not_adopted(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    stranger = ProcessRuntime(tmp_path / "other", f"{runtime.instance}-other")
    handle = await stranger.start(puppet())
    pid = (await tell(handle, "look"))["pid"]
    record = read_record(tmp_path / "other" / "workloads" / "dep-1")
    assert record is not None
    folder = tmp_path / "workloads" / "dep-1"
    folder.mkdir(parents=True)
    write_record(
        folder,
        attrs.evolve(record, instance=runtime.instance, identity=attrs.evolve(record.identity, started="1")),
    )

    assert await runtime.find("dep-1") is None
    assert await runtime.running() == ()
    await runtime.stop("dep-1", grace_seconds=0)
    assert await runtime.wait("dep-1") == Exit(None)

    assert lives(pid)
    await stranger.stop("dep-1", grace_seconds=0)


async def test_another_peers_programs_are_left_alone(runtime: ProcessRuntime) -> None:
    stranger = ProcessRuntime(runtime.data, f"{runtime.instance}-other")
    pid = (await tell(await stranger.start(puppet()), "look"))["pid"]

    assert await runtime.find("dep-1") is None
    assert await runtime.running() == ()
    await runtime.stop("dep-1", grace_seconds=0)

    assert lives(pid)
    await stranger.stop("dep-1", grace_seconds=0)


async def test_output_past_the_limit_is_lost_and_the_program_runs_on(runtime: ProcessRuntime) -> None:
    handle = await runtime.start(puppet())

    taken = await tell(handle, "flood", MAX_FILE + SHORTEN_AT)

    assert taken <= MAX_FILE
    assert await runtime.find("dep-1") == handle


async def test_output_is_shortened_while_a_program_is_waited_for(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    handle = await runtime.start(puppet())
    output = tmp_path / "workloads" / "dep-1" / "output"

    async def shortened() -> bool:
        return output.stat().st_size <= SHORTEN_AT

    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.wait, "dep-1")
        await tell(handle, "flood", 2 * SHORTEN_AT)
        await until(shortened)
        await tell(handle, "write", "after\n")
        assert (await runtime.tail("dep-1"))[-1] == "after"
        nursery.cancel_scope.cancel()


async def test_memory_past_the_ceiling_is_refused_by_the_kernel(runtime: ProcessRuntime) -> None:
    held = await runtime.start(puppet("dep-1", memory_bytes=64 * 1024 * 1024))
    free = await runtime.start(puppet("dep-2"))

    assert not await tell(held, "allocate", 100 * 1024 * 1024)
    assert await tell(held, "allocate", 10 * 1024 * 1024)
    assert await tell(free, "allocate", 100 * 1024 * 1024)


async def test_the_kernel_would_end_a_workload_before_the_peer(runtime: ProcessRuntime) -> None:
    pid = (await tell(await runtime.start(puppet()), "look"))["pid"]

    assert read(f"/proc/{pid}/oom_score_adj").strip() == "500"


def unusable(folder: Path, kind: str) -> str:
    path = folder / kind
    if kind == "no-interpreter":
        path.write_text("#!/no/such/interpreter\n")
        path.chmod(0o700)
    elif kind == "not-executable":
        path.write_text("#!/bin/sh\n")
        path.chmod(0o600)
    elif kind == "no-program":
        path.write_bytes(b"\x00 of another machine")
        path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("kind", "reason", "fix"),
    [
        ("missing", "is not there", "install it again"),
        ("no-interpreter", "what it needs to run is not", "install it again"),
        ("not-executable", "may not be executed", "chmod"),
        ("no-program", "no program that this machine can run", "this machine's processor"),
    ],
)
async def test_what_cannot_be_executed_is_said_and_leaves_nothing(
    runtime: ProcessRuntime, tmp_path: Path, kind: str, reason: str, fix: str
) -> None:
    with pytest.raises(StartFailed, match=reason) as caught:
        await runtime.start(running((unusable(tmp_path, kind),)))

    assert fix in caught.value.fix
    assert await runtime.running() == ()
    assert not (tmp_path / "workloads" / "dep-1").exists()


async def test_a_program_that_is_not_installed_is_named(runtime: ProcessRuntime) -> None:
    with pytest.raises(StartFailed, match="no program no-such-program in /usr/local/bin"):
        await runtime.start(running(("no-such-program",)))


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "workloads").write_text("a file in its place")

    with pytest.raises(StartFailed, match="could not be started"):
        await ProcessRuntime(tmp_path, "peer-1").start(puppet())


async def test_a_start_that_was_cancelled_is_found_again(runtime: ProcessRuntime) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.start, puppet())
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    handle = await runtime.start(puppet())

    assert (await tell(handle, "look"))["environment"]["BEST_PEER_WORKLOAD"] == "dep-1"


async def test_a_workloads_id_cannot_leave_the_folder(runtime: ProcessRuntime) -> None:
    with pytest.raises(ValueError, match="no workload's id"):
        await runtime.start(puppet("../dep-1"))


async def crash(runtime: ProcessRuntime, moment: str) -> None:
    script = Path(__file__).parents[2] / "support" / "crashing_peer.py"
    ended = await trio.run_process(
        [sys.executable, script, runtime.data, runtime.instance, moment], check=False
    )
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["before the process", "before the record", "before the order"])
async def test_a_peer_killed_before_it_wrote_the_program_down_leaves_none(
    runtime: ProcessRuntime, tmp_path: Path, moment: str
) -> None:
    await crash(runtime, moment)

    async def none_runs() -> bool:
        return await runtime.running() == ()

    await until(none_runs)
    assert await runtime.find("dep-1") is None
    output = tmp_path / "workloads" / "dep-1" / "output"
    assert not output.exists() or output.read_bytes() == b""


@pytest.mark.parametrize("moment", ["after the order", "while it runs"])
async def test_a_peer_killed_later_leaves_a_program_that_is_adopted(
    runtime: ProcessRuntime, tmp_path: Path, moment: str
) -> None:
    await crash(runtime, moment)

    handle = await runtime.find("dep-1")

    assert handle is not None
    assert handle.adopted
    assert handle.secret == SECRET
    seen = await tell(handle, "look")
    assert (
        seen["pid"] == json.loads((tmp_path / "workloads/dep-1/record.json").read_text())["identity"]["pid"]
    )
    child = await tell(handle, "spawn", "session")
    await runtime.stop("dep-1", grace_seconds=30)
    assert not lives(child)
    assert not lives(seen["pid"])


async def test_what_a_program_left_while_no_peer_lived_is_ended_before_the_next_start(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await crash(runtime, "while it runs")
    handle = await runtime.find("dep-1")
    assert handle is not None
    leader = (await tell(handle, "look"))["pid"]
    child = await tell(handle, "spawn", "same")
    await tell(handle, "exit", 0)
    await until_gone(leader)

    await ProcessRuntime(tmp_path, runtime.instance).start(puppet())

    assert not lives(child)


async def test_a_program_that_does_not_die_is_not_called_stopped(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runtime.start(puppet())
    with monkeypatch.context() as patch:
        # As one that the kernel holds in a system call: killed, and still there.
        patch.setattr(process, "KILL_SECONDS", 0.05)
        patch.setattr(Watched, "end_rest", lambda self, seconds: False)
        with pytest.raises(NotEnded, match="dep-1 was killed"):
            await runtime.stop("dep-1", grace_seconds=0)

    await runtime.stop("dep-1", grace_seconds=0)

    assert (await runtime.wait("dep-1")).code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)


async def test_a_folder_that_cannot_be_removed_is_said(
    runtime: ProcessRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runtime.start(puppet())
    await runtime.stop("dep-1", grace_seconds=30)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(RuntimeFault, match="could not be removed: Permission denied"):
            await runtime.discard("dep-1")

    await runtime.discard("dep-1")
    assert await runtime.tail("dep-1") == ()


async def test_a_programs_processes_are_it_and_what_it_started(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    handle = await runtime.start(puppet())
    await tell(handle, "spawn")
    seen = await tell(handle, "look")

    found = await runtime.processes(handle.workload)

    assert seen["pid"] in found
    assert len(found) == 2
    again = ProcessRuntime(tmp_path, runtime.instance)
    assert await again.processes(handle.workload) == found, "after a restart too"
    other = await runtime.start(puppet("dep-2"))
    for one in (runtime, again):
        everybody = await one.all_processes()
        assert everybody[handle.workload] == found
        assert everybody["dep-2"] == await one.processes("dep-2")
        assert await one.all_processes(frozenset({seen["pid"], 1})) == {
            handle.workload: {seen["pid"]},
            "dep-2": frozenset(),
        }
    await runtime.stop(other.workload, grace_seconds=0)
    assert await runtime.processes("dep-9") == frozenset()
    await runtime.stop(handle.workload, grace_seconds=0)
    assert await runtime.processes(handle.workload) == frozenset()
