"""What the program runs on: its own version, memory, open files, and whether it starts with the machine."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from typing import TYPE_CHECKING, Final

from peer.checks.line import ok, problem, warning
from peer.checks.users import user_name
from peer.units import KIB, MIB, describe_size

if TYPE_CHECKING:
    from pathlib import Path

    from peer.checks.line import Line

PROGRAM: Final = "program"
FILES: Final = "files"
MEMORY: Final = "memory"
SERVICE: Final = "service"
FILES_NEEDED: Final = 256
FILES_WANTED: Final = 4096
"""A thousand event streams, as many connections without one, and what engines and the log need beside."""
MEMORY_WANTED: Final = 512 * MIB
"""For the peer alone: models and jobs are counted by what they are promised."""
UNIT: Final = "best-peer.service"
WANTED: Final = "default.target.wants"
"""Where systemd keeps a link to each unit that is enabled, by the unit's WantedBy=."""

_AVAILABLE = re.compile(r"^MemAvailable:\s+([0-9]+) kB$", re.MULTILINE)
_TOTAL = re.compile(r"^MemTotal:\s+([0-9]+) kB$", re.MULTILINE)


def program(version: str) -> tuple[Line, ...]:
    """What is run here, for whoever is shown this list."""
    return (
        ok(
            PROGRAM,
            f"best-peer {version} on Python {platform.python_version()} ({sys.prefix}), "
            f"{platform.system()} {platform.release()}, {platform.machine()}",
        ),
    )


def open_files() -> tuple[Line, ...]:
    """How many files and connections the peer may have open; it takes the hard limit for itself at start."""
    return judge_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def judge_files(hard: int) -> tuple[Line, ...]:
    """The line for a hard limit on open files."""
    if hard == resource.RLIM_INFINITY:
        return (ok(FILES, "any number may be open at once"),)
    what = f"{hard} files and connections may be open at once"
    fix = "raise the limit: ulimit -Hn, LimitNOFILE= in the unit, or nofile in /etc/security/limits.conf"
    if hard < FILES_NEEDED:
        return (problem(FILES, what, fix),)
    if hard < FILES_WANTED:
        return (warning(FILES, f"{what}, and a busy door wants {FILES_WANTED}", fix),)
    return (ok(FILES, what),)


def memory(meminfo: Path) -> tuple[Line, ...]:
    """The host memory that is free for the peer itself.

    Args:
        meminfo: the kernel's own figures, ``/proc/meminfo``.
    """
    text = meminfo.read_text(encoding="ascii", errors="replace")
    available, total = _AVAILABLE.search(text), _TOTAL.search(text)
    if available is None or total is None:
        return (ok(MEMORY, "how much is free is unknown: the kernel does not say"),)
    free = int(available[1]) * KIB
    what = f"{describe_size(free)} of {describe_size(int(total[1]) * KIB)} are free"
    if free < MEMORY_WANTED:
        return (warning(MEMORY, what, "end something: the kernel ends programs when it runs out"),)
    return (ok(MEMORY, what),)


def service(home: Path, lingering: Path, uid: int) -> tuple[Line, ...]:
    """Whether a user unit that is installed outlives a session; nothing where there is none.

    Args:
        home: the user's home folder.
        lingering: where systemd keeps who lingers, ``/var/lib/systemd/linger``.
        uid: the user.
    """
    unit = home / ".config/systemd/user" / UNIT
    if not unit.exists():
        return ()
    if not os.path.lexists(unit.parent / WANTED / UNIT):
        return (
            warning(
                SERVICE,
                f"{unit} is there and is not enabled: it runs only when somebody starts it",
                f"systemctl --user enable --now {UNIT}",
            ),
        )
    user = user_name(uid)
    if not (lingering / user).exists():
        return (
            warning(
                SERVICE,
                f"{unit} is there, and it ends when {user} logs out and starts only when {user} logs in",
                f"sudo loginctl enable-linger {user}",
            ),
        )
    return (ok(SERVICE, f"{unit} is there, and starts with the machine"),)
