"""Which container a process of the machine is in, by the control groups the kernel names."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from adapters.pids import are_the_machines

PROC: Final = Path("/proc")

MAX_FILE: Final = 64 * 1024
"""Bytes read of one process's groups; a line for each hierarchy where there are several."""

_CONTAINER: Final = re.compile(rb"[0-9a-f]{64}")
"""A container's id, somewhere in the path of its group: `docker-ID.scope`, `/docker/ID`, by what made it."""


def by_container(among: Iterable[int] | None, proc: Path = PROC) -> dict[str, set[int]] | None:
    """The processes in each container, by its id; None where the kernel does not tell of all. Blocks.

    A process in a container that runs in another one is in both. It costs tens of microseconds a process,
    however many containers there are.

    Args:
        among: the processes to look at; None is every one.
        proc: where the kernel tells of them.
    """
    if not are_the_machines(proc):
        return None
    found: dict[str, set[int]] = {}
    pids = among if among is not None else [int(name) for name in os.listdir(proc) if name.isdecimal()]
    for pid in pids:
        try:
            with (proc / str(pid) / "cgroup").open("rb") as file:
                text = file.read(MAX_FILE)
        except OSError:
            # It has ended.
            continue
        for container in _CONTAINER.findall(text):
            found.setdefault(container.decode("ascii"), set()).add(pid)
    return found
