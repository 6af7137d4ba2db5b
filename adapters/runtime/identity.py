"""Who a process is: its number is used again, its number with its start time is not (F21, F37)."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs

PS_SECONDS: Final = 5.0
"""How long `ps` may take where there is no /proc."""

HAS_PROC: Final = sys.platform.startswith("linux")
"""Whether /proc tells of processes; asked in a way that both ways stay type-checked."""

_STATE: Final = 0
_SESSION: Final = 3
_START: Final = 19
"""Fields of /proc/PID/stat counted from the one after the name (proc_pid_stat(5): 3, 6 and 22)."""


@attrs.frozen
class Identity:
    """One process for good.

    `started` is text that is only compared: ticks since boot on Linux, a date elsewhere. `boot` tells
    ticks of one boot from those of another; it is empty where `started` is a date.
    """

    pid: int
    started: str
    boot: str


@attrs.frozen
class Stat:
    """What the kernel says of a process that lives."""

    started: str
    session: int


def read_stat(pid: int) -> Stat | None:
    """State and session from /proc; None when the process ended, is a zombie, or there is no /proc."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in brackets and may hold brackets and spaces itself: the last one closes it.
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) <= _START or fields[_STATE] in (b"Z", b"X", b"x"):
        return None
    return Stat(started=fields[_START].decode("ascii"), session=int(fields[_SESSION]))


def identify(pid: int) -> Identity | None:
    """The process that has this number now; None when none lives under it. Blocks for milliseconds."""
    if not HAS_PROC:
        return _identify_by_ps(pid)
    stat = read_stat(pid)
    return None if stat is None else Identity(pid, stat.started, boot_id())


def is_running(identity: Identity) -> bool:
    """Whether this very process lives; a zombie does not."""
    return identify(identity.pid) == identity


def boot_id() -> str:
    """The kernel's random name of this boot; empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _identify_by_ps(pid: int) -> Identity | None:
    try:
        answer = subprocess.run(
            ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
            env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath},
            capture_output=True,
            check=False,
            timeout=PS_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, started = answer.stdout.decode("ascii", "replace").strip().partition(" ")
    if not started or state.startswith("Z"):
        return None
    return Identity(pid, started.strip(), "")
