"""The data folder: whose it is, who may read it, and the disk below it (F14, F33)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from adapters.files import OTHERS
from peer.checks.line import ok, problem, warning
from peer.checks.users import user_name
from peer.units import GIB, MIB, describe_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peer.checks.line import Line

DATA: Final = "data"
DISK: Final = "disk"
ROOM_NEEDED: Final = 100 * MIB
ROOM_WANTED: Final = GIB
FILES_WANTED: Final = 1000
"""Files that the disk has still to take: one a day, and some for each workload."""
MAX_MOUNTS: Final = 4 * 1024 * 1024
PRIVATE: Final = ("admin-token", "keys.jsonl", "tls/key.pem")
"""What only its owner may read, whatever the folder above it lets through."""
CHOOSE: Final = "choose another folder with BEST_PEER_DATA"

# What a file system does to a log that has to survive a power cut, and what to do; ext4, xfs, btrfs and zfs
# are fine, and of one that is not named here nothing is known to be wrong.
_VOLATILE: Final = "its files are gone after a restart of the machine, the keys and the log with them"
_REMOTE: Final = "its locks and its syncs rest on another machine"
_NO_MODES: Final = "it keeps no owners and modes, so nothing in it is private"
_LAYERED: Final = "it is a container's own layer, and goes with the container"
_UNFIT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("tmpfs", "ramfs"), _VOLATILE),
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "glusterfs"), _REMOTE),
    **dict.fromkeys(("vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk"), _NO_MODES),
    "overlay": _LAYERED,
}


@attrs.frozen
class Disk:
    """A file system as it is now; sizes in bytes, None where it does not say."""

    kind: str | None
    free_bytes: int
    free_files: int | None
    is_read_only: bool


def look(path: Path) -> tuple[Line, ...]:
    """What is found at the data folder, without touching it.

    Args:
        path: the data folder; it need not be there.
    """
    place = _there(path)
    lines = [*_owned(path)] if place == path else [_not_there(path, place)]
    return (*lines, *judge(place, disk_of(place, Path("/proc/self/mountinfo"))))


def _there(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), Path("/"))


def _not_there(path: Path, place: Path) -> Line:
    if not place.is_dir():
        return problem(DATA, f"{path} cannot be made: {place} is no folder", CHOOSE)
    if not os.access(place, os.W_OK | os.X_OK):
        return problem(DATA, f"{path} cannot be made: this user may not write in {place}", CHOOSE)
    return ok(DATA, f"{path} is not there yet; the first start makes it")


def _owned(path: Path) -> Iterator[Line]:
    if not path.is_dir():
        yield problem(DATA, f"{path} is no folder", CHOOSE)
        return
    status = path.stat()
    owner, me = user_name(status.st_uid), user_name(os.geteuid())
    if status.st_uid != os.geteuid():
        yield problem(
            DATA,
            f"{path} belongs to {owner}, and this is run as {me}",
            f"run this, and the peer, as {owner} (sudo -u {owner} best-peer check), or {CHOOSE}",
        )
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield problem(DATA, f"{me} may not write in {path}", f"chmod 700 {path}, or {CHOOSE}")
        return
    found = list(_open_to_others(path))
    if not found:
        yield ok(DATA, f"{path} belongs to {me} and is closed to others")
    yield from found


def _open_to_others(path: Path) -> Iterator[Line]:
    for place in (path, *(path / name for name in PRIVATE)):
        try:
            status = place.lstat()
        except OSError:
            continue  # it is made when it is needed
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            yield problem(DATA, f"{place} is a link", "put the file itself there")
        elif mode & OTHERS:
            closed = "700" if stat.S_ISDIR(status.st_mode) else "600"
            yield warning(
                DATA,
                f"{place} is open to others (mode {mode:04o})",
                f"chmod {closed} {place}; the peer closes it too when it starts",
            )


def disk_of(place: Path, mounts: Path) -> Disk:
    """The file system that a path lies on.

    Args:
        place: a path that is there.
        mounts: the kernel's own list, ``/proc/self/mountinfo``.

    Raises:
        OSError: it cannot be looked at.
    """
    found = os.statvfs(place)
    return Disk(
        kind=kind_of(os.path.realpath(place), mounts),
        free_bytes=found.f_bavail * found.f_frsize,
        # Zero in all is how a file system that has no such bound says so.
        free_files=found.f_favail if found.f_files else None,
        is_read_only=bool(found.f_flag & os.ST_RDONLY),
    )


def kind_of(path: str, mounts: Path) -> str | None:
    """The type of the file system that a path lies on: that of the longest mount point before it."""
    try:
        with mounts.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_MOUNTS).splitlines()
    except OSError:
        return None
    best: tuple[int, str | None] = (-1, None)
    for line in lines:
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        # A later mount on the same point hides the one before it.
        if (path == point or path.startswith(f"{point}/")) and len(point) >= best[0]:
            best = (len(point), right.split(" ", 1)[0])
    return best[1]


def judge(place: Path, disk: Disk) -> Iterator[Line]:
    """The lines for the file system of the data folder."""
    free = describe_size(disk.free_bytes)
    kind = disk.kind or "of unknown type"
    if disk.is_read_only:
        yield problem(DISK, f"the file system of {place} ({kind}) is read-only", f"mend it, or {CHOOSE}")
        return
    if disk.free_bytes < ROOM_NEEDED or disk.free_files == 0:
        what = f"{free} are free" if disk.free_files != 0 else "no more files can be made"
        yield problem(
            DISK,
            f"{what} on the file system of {place} ({kind})",
            "free some room there: without it the peer takes no commands (503 NO_ROOM)",
        )
    elif disk.free_bytes < ROOM_WANTED or (disk.free_files is not None and disk.free_files < FILES_WANTED):
        files = "" if disk.free_files is None else f" and room for {disk.free_files} files"
        yield warning(
            DISK, f"{free}{files} are left on the file system of {place} ({kind})", "free some room there"
        )
    else:
        yield ok(DISK, f"{free} are free on the file system of {place} ({kind})")
    if unfit := _UNFIT.get(disk.kind or ""):
        yield warning(
            DISK,
            f"{place} lies on {disk.kind}: {unfit}",
            f"{CHOOSE}, on a disk of this machine",
        )
