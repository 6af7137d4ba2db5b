"""Files that only their owner reads, replaced whole or not at all (F14, F34).

What is written here survives a power cut in one of two states: as it was, or as it is now. The callers are
start-up, stop and a rare change; all of it blocks, so inside Trio it goes to a thread.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
OTHERS: Final = 0o077
"""The permission bits that a private file or folder has none of."""

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.new")


class NotPrivate(Exception):
    """Raised when a file that must be its owner's alone is not, or is no plain file of a sane size."""

    def __init__(self, path: Path, what: Literal["owner", "mode", "kind", "size"], words: str) -> None:
        super().__init__(f"{path} {words}")
        self.path = path
        self.what = what


def write_private(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` with mode 0600, in place of what was there, durably and in one step.

    A link at ``path`` is replaced, never followed.

    Raises:
        OSError: it could not be written; what was there is still there.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(unfinished, flags, PRIVATE_FILE)
    try:
        with os.fdopen(fd, "wb") as file:
            # The umask may have taken the owner's own bits.
            os.fchmod(file.fileno(), PRIVATE_FILE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_private(path: Path, limit: int) -> bytes:
    """The content of a file that nobody else may read, at most ``limit`` bytes.

    Raises:
        NotPrivate: it is a link or no plain file, another user's, open to others, or larger than ``limit``.
        FileNotFoundError: it is not there.
        OSError: it could not be read.
    """
    try:
        # O_NONBLOCK: a pipe put in its place must not make the open wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPrivate(path, "kind", "is a link") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(path, "kind", "is not a plain file")
        # The superuser reads everybody's, as `sudo best-peer approve` does.
        if os.geteuid() not in (0, status.st_uid):
            raise NotPrivate(path, "owner", f"belongs to user {status.st_uid}")
        if status.st_mode & OTHERS:
            raise NotPrivate(path, "mode", f"may be read by others (mode {stat.S_IMODE(status.st_mode):04o})")
        # Not its size as it stands: the bound is on what is read.
        with open(fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise NotPrivate(path, "size", f"is larger than {limit} bytes")
    return data


def make_private_folder(path: Path) -> bool:
    """Make a folder of mode 0700, and those above it as they come; whether it was not there before.

    Raises:
        FileExistsError: something that is not a folder is there.
        OSError: it could not be made.
    """
    if path.is_dir():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_FOLDER)
    path.chmod(PRIVATE_FOLDER)
    sync_folder(path.parent)
    return True


def sweep_unfinished(folder: Path) -> None:
    """Remove what `write_private` left in ``folder`` when its process was killed in the middle."""
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make what was created, renamed or removed in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
