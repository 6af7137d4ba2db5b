"""Processes of a container that its engine knows nothing of: ended, and nobody else's."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.pids import MACHINES
from adapters.runtime.docker.leftovers import end_leftovers

OURS, ANOTHERS = "1" * 64, "2" * 64


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of the machine, without processes."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(MACHINES)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text("1 (init) S")
    (tmp_path / "1/cgroup").write_text("0::/init.scope\n")
    return tmp_path


@pytest.fixture
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is really there."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def put(proc: Path, pid: int, container: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(f"4:memory:/docker/{container}\n0::/\n")


def test_what_runs_in_it_is_killed(proc: Path, running: subprocess.Popen[bytes]) -> None:
    put(proc, running.pid, OURS)

    assert end_leftovers(OURS, proc) == frozenset()
    assert running.wait(30) == -signal.SIGKILL


def test_what_runs_elsewhere_is_left(proc: Path, running: subprocess.Popen[bytes]) -> None:
    put(proc, running.pid, ANOTHERS)

    assert end_leftovers(OURS, proc) == frozenset()
    assert running.poll() is None


def test_a_number_that_went_to_another_process_is_left(
    proc: Path, running: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(proc, running.pid, OURS)
    open_handle = os.pidfd_open

    def open_the_next(pid: int) -> int:
        put(proc, pid, ANOTHERS)
        return open_handle(pid)

    monkeypatch.setattr(os, "pidfd_open", open_the_next)

    assert end_leftovers(OURS, proc) == frozenset()
    assert running.poll() is None


def test_what_has_ended_meanwhile_is_no_trouble(proc: Path, running: subprocess.Popen[bytes]) -> None:
    put(proc, running.pid, OURS)
    running.kill()
    running.wait()

    assert end_leftovers(OURS, proc) == frozenset()


def test_what_may_not_be_killed_is_told(
    proc: Path, running: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(proc, running.pid, OURS)

    def refuse(handle: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)

    assert end_leftovers(OURS, proc) == {running.pid}


def test_where_not_all_processes_are_shown_none_is_touched(
    proc: Path, running: subprocess.Popen[bytes]
) -> None:
    put(proc, running.pid, OURS)
    (proc / "1/stat").unlink()

    assert end_leftovers(OURS, proc) == frozenset()
    assert running.poll() is None
