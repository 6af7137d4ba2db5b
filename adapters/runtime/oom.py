"""How many processes the kernel has ended for want of memory, by the control group they ran in (F21).

The machine's own count (`oom_kill` in /proc/vmstat) rises with any program that ends so anywhere on it, and
is no evidence of one: it is never read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

PROC: Final = Path("/proc")
MAX_FILE: Final = 1024 * 1024
"""Bytes read of any of the kernel's files: a machine with thousands of mounts has longer lists."""
# Where one file counts for a group alone and another for those below it too, the first is the better.
_FILES_V2: Final[tuple[str, ...]] = ("memory.events.local", "memory.events")
_FILES_V1: Final[tuple[str, ...]] = ("memory.oom_control",)


@attrs.frozen
class OomKills:
    """A control group's count when it was read, and the file it stands in."""

    file: Path
    count: int

    def have_risen(self) -> bool:
        """Whether it has risen since; False where the kernel does not say it any more."""
        now = _count(self.file)
        return now is not None and now > self.count


def oom_kills(pid: int, proc: Path = PROC) -> OomKills | None:
    """The count of the group that a process runs in; None where the kernel does not say it. Blocks briefly.

    Args:
        pid: of a process that lives or was not reaped.
        proc: where the proc file system is.
    """
    for file in _files(pid, proc):
        count = _count(file)
        if count is not None:
            return OomKills(file, count)
    return None


def _files(pid: int, proc: Path) -> Iterator[Path]:
    """Where the count may stand, the likeliest first."""
    groups = _read(proc / str(pid) / "cgroup").splitlines()
    mounts = [_Mount.read(line) for line in _read(proc / "self" / "mountinfo").splitlines()]
    for group in groups:
        _, _, rest = group.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            kind, option, names = "cgroup", "memory", _FILES_V1
        elif not controllers:
            kind, option, names = "cgroup2", None, _FILES_V2
        else:
            continue
        for mount in mounts:
            if mount is not None and mount.kind == kind and (option is None or option in mount.options):
                folder = mount.folder_of(path)
                if folder is not None:
                    yield from (folder / name for name in names)


@attrs.frozen
class _Mount:
    """One line of mountinfo: what of a file system is seen where."""

    root: str
    point: str
    kind: str
    options: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> "_Mount | None":
        of_mount, _, of_system = line.partition(" - ")
        fields, system = of_mount.split(" "), of_system.split(" ")
        if len(fields) < 5 or len(system) < 3:
            return None
        return cls(fields[3], fields[4], system[0], tuple(system[2].split(",")))

    def folder_of(self, path: str) -> Path | None:
        """A group's folder below this mount; None where the mount does not show it, as in a container."""
        root = self.root.rstrip("/")
        if path != root and not path.startswith(f"{root}/"):
            return None
        below = path[len(root) :].strip("/")
        return None if ".." in below.split("/") else Path(self.point, below)


def _count(file: Path) -> int | None:
    for line in _read(file).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.isdecimal():
            return int(number)
    return None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""
