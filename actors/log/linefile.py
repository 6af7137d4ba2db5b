"""One append-only file of lines: durable appends, a torn tail set aside, room that may run out."""

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger("best_peer.log")

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_SIZE = 1 << 20


class NoRoom(Exception):
    """Raised when the file system has no room for what was to be appended; nothing of it was kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no room left on the file system of {path}")
        self.path = path


class LineFile:
    """Lines in a file. Every method may block: call those that write in a thread.

    `size` counts the bytes that are whole, durable lines; what a failed append left behind it is cut off.
    """

    def __init__(self, path: Path) -> None:
        """Open for appending, made with mode 0600 when missing.

        Raises:
            OSError: it cannot be opened or made.
        """
        self.path = path
        made = not path.exists()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if made:
                sync_folder(path.parent)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise NoRoom(path) from error
            raise
        self.size = os.fstat(self._fd).st_size

    def append(self, data: bytes) -> int:
        """Write whole lines and wait until they are durable; the offset they begin at.

        Raises:
            NoRoom: the file is as it was before.
            OSError: what was stored is unknown; open the file anew and look.
        """
        at = self.size
        try:
            _write_all(self._fd, data)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            os.ftruncate(self._fd, at)
            raise NoRoom(self.path) from error
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # Delayed allocation may find the disk full only now. After any failed sync the kernel may have
            # dropped the pages, so nothing that was not acknowledged is kept.
            os.ftruncate(self._fd, at)
            if error.errno in _NO_ROOM:
                raise NoRoom(self.path) from error
            raise
        self.size = at + len(data)
        return at

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that were appended before."""
        return os.pread(self._fd, length, offset)

    def line_at(self, offset: int) -> bytes:
        """The line that begins at `offset`, without its newline."""
        size = 4096
        while True:
            chunk = os.pread(self._fd, size, offset)
            end = chunk.find(b"\n")
            if end >= 0:
                return chunk[:end]
            if len(chunk) < size:
                return chunk
            size *= 8

    def set_aside_from(self, good: int) -> Path | None:
        """Cut off what stands behind `good` and keep it in a file of its own; None when there is nothing."""
        torn = self.size - good
        if torn <= 0:
            return None
        whole = self.size
        aside = _free_name(self.path)
        kept = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            at = good
            while at < whole:
                chunk = os.pread(self._fd, _READ_SIZE, at)
                if not chunk:
                    break
                _write_all(kept, chunk)
                at += len(chunk)
            os.fsync(kept)
        finally:
            os.close(kept)
        os.ftruncate(self._fd, good)
        os.fsync(self._fd)
        self.size = good
        logger.warning("%s: %d bytes of a torn last line were cut off and kept in %s", self.path, torn, aside)
        return aside

    def cut(self, size: int) -> None:
        """Take back what was appended behind `size`, durably."""
        os.ftruncate(self._fd, size)
        os.fdatasync(self._fd)
        self.size = size

    def close(self) -> None:
        """Close; appended lines stay durable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lines_of(path: Path) -> Iterator[bytes]:
    """Every line of a file from its start, newline included; the last may lack it."""
    with open(path, "rb", buffering=_READ_SIZE) as file:
        yield from file


def sync_folder(folder: Path) -> None:
    """Make names that were made or replaced in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.torn-{number}")
        if not aside.exists():
            return aside
        number += 1
