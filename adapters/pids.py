"""Whether this program sees the machine's processes, by the numbers that its drivers know them by."""

import os
from pathlib import Path
from typing import Final

MACHINES: Final = "pid:[4026531836]"
"""The name of the pid namespace in which a machine's drivers number processes (PROC_PID_INIT_INO)."""


def are_the_machines(proc: Path) -> bool:
    """Whether /proc tells of every process of the machine. Blocks for microseconds.

    In a container it numbers that one's alone, and mounted with `hidepid` it hides those of other users: then
    that a process is not there says nothing.
    """
    try:
        with (proc / "1/stat").open("rb") as first:
            return os.readlink(proc / "self/ns/pid") == MACHINES and first.read(1) != b""
    except OSError:
        return False
