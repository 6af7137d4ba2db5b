"""Outside the bed's namespaces: `python -m tests.support.docker.outside COMMAND...` runs a command in a bed.

Whatever ends this process, `kill -9` included, ends everything in the bed; a process beside it then removes
the two things that outlive namespaces: the bed's folder and its empty control groups.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from tests.support.docker.kernel import remove_cgroup

PREFIX: Final = "best-peer-bed."
_SWEEP_SECONDS: Final = 30.0
_MAKING_SECONDS: Final = 60.0
# A socket's path has 107 bytes; the longest below a bed is that of an own engine's containerd.
_LONGEST_PLACE: Final = 32


def main() -> int:
    """Run the command and end as it does; 128 + N when a signal N ended us."""
    command = sys.argv[1:]
    if command[:1] == ["--sweep"]:
        sweep_when_ended(Path(command[1]), int(command[2]))
        return 0
    for stale in _beds():
        _sweep_stale(stale)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place()))
    lock = _lock(folder)
    assert lock is not None, "a new folder is nobody else's"
    # Ctrl-C is for the command, which comes to its own end; ignored, it would be ignored there too.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, _ended_by)
    signal.signal(signal.SIGHUP, _ended_by)
    # Its standard input ends when we do; the lock stays held by it until it has swept.
    sweeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.docker.outside", "--sweep", str(folder), str(lock)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, pass_fds=[lock],
    )  # fmt: skip
    os.close(lock)
    try:
        return _run_in_namespaces(folder, command)
    finally:
        assert sweeper.stdin
        sweeper.stdin.close()
        sweeper.wait()


def _run_in_namespaces(folder: Path, command: list[str]) -> int:
    running = subprocess.Popen(
        [
            "setpriv", "--pdeathsig", "KILL",
            "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            sys.executable, "-m", "tests.support.docker.inside", str(folder), *command,
        ],
    )  # fmt: skip
    try:
        return running.wait()
    finally:
        running.kill()
        running.wait()


def _ended_by(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def sweep_when_ended(folder: Path, lock: int) -> None:
    """Wait for the end of standard input, then remove what a bed leaves behind."""
    sys.stdin.read()
    sweep(folder)
    os.close(lock)


def sweep(folder: Path) -> None:
    """Remove the control groups and the folder of a bed whose namespaces are ending or have ended."""
    deadline = time.monotonic() + _SWEEP_SECONDS
    while not remove_cgroup(folder.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def _place() -> Path:
    """Where beds are made: on a disk, which /tmp often is not."""
    place = Path(os.environ.get("TMPDIR") or "/var/tmp")
    if len(str(place)) > _LONGEST_PLACE:
        sys.exit(f"error: sockets below TMPDIR={place} would have too long a name: set a shorter one")
    return place


def _beds() -> list[Path]:
    """Beds that are there for a while: one that is being made may not be locked yet."""
    made_before = time.time() - _MAKING_SECONDS
    found = []
    for path in _place().glob(f"{PREFIX}*"):
        with suppress(FileNotFoundError):
            if path.is_dir() and path.stat().st_mtime < made_before:
                found.append(path)
    return found


def _sweep_stale(folder: Path) -> None:
    lock = _lock(folder)
    if lock is not None:
        sweep(folder)
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """A hold on the bed's folder, which ends with who holds it; None when another does."""
    with suppress(FileNotFoundError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock
    return None


if __name__ == "__main__":
    sys.exit(main())
