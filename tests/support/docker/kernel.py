"""What engines leave in the kernel: disks, mounts, control groups, and how all of it is removed."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def do(*argv: str) -> None:
    """Run a command and wait for it.

    Raises:
        CalledProcessError: it failed; `stderr` says why.
    """
    nowhere = subprocess.DEVNULL
    subprocess.run(argv, check=True, stdin=nowhere, stdout=nowhere, stderr=subprocess.PIPE)


def make_disk(at: Path, size: int) -> None:
    """A disk of `size` bytes in a file without a name, free once its mount has gone, however it goes."""
    at.mkdir(parents=True)
    file = at.with_name(f"{at.name}.ext4")
    with file.open("wb") as made:
        made.truncate(size)
    do("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(file))
    # Nobody reads it after a power cut, and barriers cost a test its seconds.
    do("mount", "-o", "loop,nobarrier,discard", str(file), str(at))
    file.unlink()


def unmount_below(*folders: Path) -> None:
    """Take away every mount at or below these folders, the last one first."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    tops = tuple(str(folder) for folder in folders)
    for place in reversed(places):
        if place in tops or place.startswith(tuple(f"{top}/" for top in tops)):
            # Lazily: what still uses it was ended and is not gone yet.
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def cgroup_processes(cgroup: str) -> set[int]:
    """The processes in a control group and those below it, in every hierarchy."""
    found: set[int] = set()
    for top in _hierarchies(cgroup):
        # Groups go while this looks at them, which os.walk does not mind.
        for path, _, _ in os.walk(top):
            with suppress(OSError):
                found.update(int(line) for line in Path(path, "cgroup.procs").read_text().split())
    return found


def remove_cgroup(cgroup: str) -> bool:
    """Remove a control group with all below it; whether none is left, since one with processes stays."""
    for top in _hierarchies(cgroup):
        for path, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                os.rmdir(path)
    return not _hierarchies(cgroup)


def _hierarchies(cgroup: str) -> list[Path]:
    name = cgroup.strip("/")
    tops = [_CGROUPS / name, *(hierarchy / name for hierarchy in _CGROUPS.glob("*/"))]
    return [top for top in tops if top.is_dir()]
