"""Starts one program so that no crash of the peer leaves one that no record names (F21, F37).

All of it is one blocking call for a thread: a start is then never broken off half way by a cancellation.
"""

import errno
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from adapters.runtime.family import labels
from adapters.runtime.identity import Identity, identify
from adapters.runtime.launch import ORDERS, REPORT
from adapters.runtime.output import MAX_FILE, open_output
from adapters.runtime.port import API_KEY, Executable, StartFailed, WorkloadSpec
from adapters.runtime.record import Record, write_record

LAUNCHER: Final = Path(__file__).with_name("launch.py")
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where a program named without a folder is looked for, and what it is given as its own PATH."""
EXEC_SECONDS: Final = 60.0
"""How long the launcher may take to become the program: it is a small file on a busy machine."""

_ABOVE: Final = 10
"""Descriptors for the launcher are first moved past the numbers it expects them under."""


def prepare_folder(folder: Path) -> None:
    """An empty folder for a new start: what an earlier one left is removed."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700)


def secret_path(folder: Path, name: str) -> Path:
    """Where a secret file of a workload lies."""
    return folder / f"secret-{name}"


def spawn(spec: WorkloadSpec, folder: Path, instance: str) -> Record:
    """Run a workload's program; its record is on disk before its first instruction runs.

    Raises:
        StartFailed: nothing is left, neither a process nor the folder.
    """
    try:
        prepare_folder(folder)
        return _spawn(spec, folder, instance)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise StartFailed(
            f"the program of {spec.workload} could not be started: {error.strerror or error}",
            fix=f"see that the peer may write to {folder.parent} and start processes, and send it again",
        ) from error
    except StartFailed:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _spawn(spec: WorkloadSpec, folder: Path, instance: str) -> Record:
    program = spec.program
    if not isinstance(program, Executable):
        raise StartFailed("processes of the host run no image", fix="run it on a peer that has containers")
    file = _find(program.argv[0])
    for name, content in program.secret_files.items():
        _write_secret(secret_path(folder, name), content)
    port = free_port()
    argv = [_fill(part, program, folder, port) for part in program.argv]
    filled = {name: _fill(value, program, folder, port) for name, value in program.environment.items()}
    environment = {
        "PATH": PATH,
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        **filled,
        **labels(instance, spec.workload),
    }
    orders = {
        "argv": argv,
        "file": file,
        "folder": str(program.folder or folder),
        "data_bytes": spec.memory_bytes,
        "file_bytes": MAX_FILE,
    }
    pid, send, report = _start_launcher(spec.workload, folder, environment)
    try:
        record = Record(
            workload=spec.workload,
            holder=spec.holder,
            instance=instance,
            identity=_identify(pid),
            port=port,
            program=file,
            secret=API_KEY if API_KEY in program.secret_files else None,
            detail=dict(spec.detail),
        )
        write_record(folder, record)
        _send(send, orders)
        send = -1
        _await_exec(report, file)
    except (OSError, StartFailed):
        _end(pid)
        raise
    finally:
        for handle in (send, report):
            if handle >= 0:
                os.close(handle)
    return record


def _start_launcher(workload: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, int, int]:
    """Start the launcher in a session of its own; its pid, and this side's ends of its two pipes."""
    opened: list[int] = []
    try:
        orders, send = os.pipe()
        opened += [orders, send]
        report, reported = os.pipe()
        opened += [report, reported]
        output = open_output(folder)
        opened.append(output)
        given = {}
        for source, number in ((output, 1), (orders, ORDERS), (reported, REPORT)):
            given[number] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
            opened.append(given[number])
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(LAUNCHER), workload],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, given[1], 1),
                (os.POSIX_SPAWN_DUP2, given[1], 2),
                (os.POSIX_SPAWN_DUP2, given[ORDERS], ORDERS),
                (os.POSIX_SPAWN_DUP2, given[REPORT], REPORT),
            ],
            setsid=True,
            setsigmask=(),
        )
        opened.remove(send)
        opened.remove(report)
        return pid, send, report
    finally:
        for handle in opened:
            os.close(handle)


def _identify(pid: int) -> Identity:
    identity = identify(pid)
    if identity is None:
        raise StartFailed(
            f"the launcher of process {pid} ended at once",
            fix=f"run {sys.executable} by hand to see why it does not start",
        )
    return identity


def _send(handle: int, orders: Mapping[str, Any]) -> None:
    line = json.dumps(orders).encode() + b"\n"
    with os.fdopen(handle, "wb") as pipe:
        pipe.write(line)


def _await_exec(report: int, file: str) -> None:
    """Wait until the launcher became the program.

    Raises:
        StartFailed: the system refused to execute it.
    """
    if not select.select([report], [], [], EXEC_SECONDS)[0]:
        raise StartFailed(
            f"{file} was not executed within {EXEC_SECONDS:.0f} s",
            fix="the machine is too busy to start programs: try again when it is not",
        )
    number = os.read(report, 16)
    if number:
        raise refused(int(number), file)


def refused(number: int, file: str) -> StartFailed:
    """What an errno of `exec` means to a person."""
    reason, fix = {
        errno.ENOENT: ("is not there, or what it needs to run is not", "install it again"),
        errno.EACCES: ("may not be executed", f"chmod +x {file}, on a file system that allows programs"),
        errno.EPERM: ("may not be executed", f"chmod +x {file}, on a file system that allows programs"),
        errno.ENOEXEC: (
            "is no program that this machine can run",
            "install the build for this machine's processor and system",
        ),
        errno.ETXTBSY: ("is being written just now", "try again when its installation has ended"),
        errno.ENOMEM: ("got no memory to start", "free memory, or raise the workload's memory ceiling"),
    }.get(number, (f"was refused by the system: {os.strerror(number)}", "mend that and send it again"))
    return StartFailed(f"{file} {reason}", fix=fix)


def _find(name: str) -> str:
    """The file to execute.

    Raises:
        StartFailed: there is none.
    """
    if os.sep in name:
        return name
    found = shutil.which(name, path=PATH)
    if found is None:
        raise StartFailed(f"there is no program {name} in {PATH}", fix=f"install {name}, or name its path")
    return found


def _fill(text: str, program: Executable, folder: Path, port: int) -> str:
    text = text.replace("{port}", str(port))
    for name in program.secret_files:
        text = text.replace(f"{{secret:{name}}}", str(secret_path(folder, name)))
    return text


def _write_secret(path: Path, content: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)


def free_port() -> int:
    """A loopback port that was free just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _end(pid: int) -> None:
    """Kill and reap a process that is this one's own child."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return
