"""The processes that belong to a workload, found by session and by the label in their environment.

A program may leave others behind that outlive it: a worker of a dead server keeps its memory, on a card too.
Its session finds them while the number is certain; the label finds them after a restart, and those that
made a session of their own. Another peer's processes bear another instance id and are never touched.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from adapters.runtime.identity import HAS_PROC, read_stat

INSTANCE: Final = "BEST_PEER_INSTANCE"
WORKLOAD: Final = "BEST_PEER_WORKLOAD"
POLL_SECONDS: Final = 0.01


def labels(instance: str, workload: str) -> dict[str, str]:
    """What a workload's program bears in its environment, and all it starts with it."""
    return {INSTANCE: instance, WORKLOAD: workload}


def labelled(instance: str) -> dict[str, list[int]]:
    """Every living process of this peer's workloads, by workload. Empty where there is no /proc."""
    found: dict[str, list[int]] = {}
    for pid in _pids():
        workload = _workload_of(pid, instance)
        if workload is not None and read_stat(pid) is not None:
            found.setdefault(workload, []).append(pid)
    return found


def members(instance: str, workload: str, session: int | None) -> list[int]:
    """A workload's living processes.

    Args:
        instance: the peer's own id.
        workload: the workload's id.
        session: the session its program leads, given only while that number is surely its own: while the
            program lives, or lies unreaped as this process's own child.
    """
    found = []
    for pid in _pids():
        stat = read_stat(pid)
        if stat is None:
            continue
        if stat.session == session or _workload_of(pid, instance) == workload:
            found.append(pid)
    return found


def all_members(
    instance: str, sessions: Mapping[int, str], among: Iterable[int] | None = None
) -> dict[str, list[int]]:
    """Every living process of this peer's workloads, by workload, in one sweep.

    Args:
        instance: the peer's own id.
        sessions: whose each session is that a program leads, of those whose number is surely its own.
        among: the processes to look at; None is every one.
    """
    found: dict[str, list[int]] = {}
    for pid in _pids() if among is None else among:
        stat = read_stat(pid)
        if stat is None:
            continue
        workload = sessions.get(stat.session) or _workload_of(pid, instance)
        if workload is not None:
            found.setdefault(workload, []).append(pid)
    return found


def signal_family(instance: str, workload: str, session: int | None, number: signal.Signals) -> int:
    """Send a signal to each of a workload's processes; how many there were."""
    if not HAS_PROC:
        return _signal_group(session, number)
    count = 0
    for pid in members(instance, workload, session):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Looked at again through the descriptor: the number may have gone to another process since.
            stat = read_stat(pid)
            if stat is not None and (stat.session == session or _workload_of(pid, instance) == workload):
                signal.pidfd_send_signal(handle, number)
                count += 1
        except OSError:
            continue
        finally:
            os.close(handle)
    return count


def end_family(instance: str, workload: str, session: int | None, *, seconds: float) -> bool:
    """Kill all of a workload's processes, also those made meanwhile; whether none was left in time."""
    until = time.monotonic() + seconds
    while signal_family(instance, workload, session, signal.SIGKILL):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _signal_group(session: int | None, number: signal.Signals) -> int:
    if session is None:
        return 0
    try:
        os.killpg(session, number)
    except (ProcessLookupError, PermissionError):
        return 0
    return 1


def _pids() -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    own = os.getpid()
    for name in names:
        if name.isdecimal() and int(name) != own:
            yield int(name)


def _workload_of(pid: int, instance: str) -> str | None:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    variables = raw.split(b"\0")
    if f"{INSTANCE}={instance}".encode() not in variables:
        return None
    prefix = f"{WORKLOAD}=".encode()
    for variable in variables:
        if variable.startswith(prefix):
            return variable[len(prefix) :].decode("utf-8", "replace")
    return None
