"""A run of tests and its bed, from outside: made in the bed of this run, one namespace deeper."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.docker.bed import VARIABLE
from tests.support.docker.kernel import cgroup_processes
from tests.support.docker.outside import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.docker.bed import DockerBed

ROOT = Path(__file__).parents[3]
CGROUPS = Path("/sys/fs/cgroup")

# Runs a container of the inner bed, says that it runs, and waits.
BUSY = """
docker() { command docker -H unix://$BEST_PEER_TEST_BED/engine/docker.sock "$@"; }
docker run -d 127.0.0.1:5000/bed/shell sleep 600 >&2 && echo "$BEST_PEER_TEST_BED"
exec sleep 600
"""


@pytest.fixture
def place(docker_bed: DockerBed) -> Iterator[Path]:
    """Where inner beds are made; a short name, since sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="bp", dir="/var/tmp") as place:
        yield Path(place)
        left = [str(path) for path in Path(place).rglob("*")]
        assert left == []


def _begin(place: Path, *command: str, path: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(place), "PATH": f"{path}{os.environ['PATH']}"}
    del environment[VARIABLE]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.docker.outside", *command],
        cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _traces(name: str) -> list[str]:
    """What there is of a bed of this name: processes, control groups, disks."""
    left = [str(pid) for pid in cgroup_processes(name)]
    left += [str(path) for path in (*CGROUPS.glob(name), *CGROUPS.glob(f"*/{name}"))]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if name.encode() in (process / "cmdline").read_bytes():
                left.append(str(process))
        except OSError:
            continue
    loops = subprocess.run(["losetup", "-a"], check=True, capture_output=True, text=True).stdout
    return left + [line for line in loops.splitlines() if name in line]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_run_that_is_ended_leaves_nothing(place: Path, number: int, code: int) -> None:
    run = _begin(place, "bash", "-c", BUSY)
    assert run.stdout
    assert run.stderr
    folder = run.stdout.readline().strip()
    assert folder, run.stderr.read()
    name = Path(folder).name
    assert len(_traces(name)) > 5
    run.send_signal(number)
    assert run.wait(60) == code
    run.stdout.close()
    run.stderr.close()
    # After a kill -9 the process beside it sweeps, itself the last trace.
    deadline = time.monotonic() + 30
    while left := _traces(name):
        assert time.monotonic() < deadline, left
    assert not Path(folder).exists()


def test_an_interrupted_command_has_its_say_and_its_code_is_the_runs(place: Path) -> None:
    script = "trap 'echo told; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    run = _begin(place, "sh", "-c", script)
    assert run.stdout
    assert run.stdout.readline() == "ready\n"
    os.killpg(run.pid, signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (3, "told\n")


def test_an_engine_that_does_not_start_says_why_and_earlier_runs_are_swept(
    place: Path, tmp_path: Path
) -> None:
    stale = place / f"{PREFIX}stale"
    stale.mkdir()
    os.utime(stale, (0, 0))
    group = next(group for group in (CGROUPS / "memory", CGROUPS) if group.exists()) / stale.name
    group.mkdir()
    failing = tmp_path / "dockerd"
    failing.write_text("#!/bin/sh\necho 'failed to start daemon: no bridge' >&2\nexit 1\n")
    failing.chmod(0o755)
    run = _begin(place, "true", path=f"{tmp_path}:")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "failed to start daemon: no bridge" in err
    assert not group.exists()
