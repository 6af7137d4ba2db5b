"""A process of this machine, watched to its end: by its number and when it began (F29).

A number alone would go on to mean whatever has it next. Linux alone says when a process began.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import attrs

LOOK_SECONDS: Final = 1.0
"""Between two looks whether it runs."""

MOST_PID: Final = 2**22
"""The largest number that Linux gives."""

_PROC: Final = Path("/proc")
_STATE: Final = 0
_STARTED: Final = 19
"""Where they stand behind the name in `stat`, which proc(5) counts as fields 3 and 22."""


class NoProcess(Exception):
    """Raised when no process of that number runs, or it is not to be known; the text says which."""


@attrs.frozen
class Process:
    """One process: its number, when it began in the kernel's ticks, and its name as anybody may set it."""

    pid: int
    started: int
    name: str

    def runs(self) -> bool:
        """Whether it runs still, and not another under its number."""
        try:
            return find_process(self.pid).started == self.started
        except NoProcess:
            return False


def find_process(pid: int) -> Process:
    """The process that has a number now.

    Raises:
        NoProcess: none runs, or this is no Linux.
    """
    if not sys.platform.startswith("linux"):
        raise NoProcess("only Linux says when a process began")
    try:
        text = (_PROC / str(pid) / "stat").read_bytes().decode("utf-8", "replace")
        # The name may hold spaces and parentheses of its own: it ends at the last one.
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        state, started = fields[_STATE], int(fields[_STARTED])
    except (OSError, ValueError, IndexError):
        raise NoProcess(f"no process {pid} runs on this machine") from None
    if state in ("Z", "X"):
        raise NoProcess(f"process {pid} has ended")
    return Process(pid, started, name)
