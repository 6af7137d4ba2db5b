"""One append-only file of lines: durable appends, a torn tail set aside, room that may run out."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger("best_peer.log")

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_READ_SIZE = 1 << 20


class NoRoom(Exception):
    """Raised when the file system has no room for what was to be appended; nothing of it was kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no room left on the file system of {path}")
        self.path = path


class Damaged(OSError):
    """Raised when a file holds what nobody wrote and passing over it could undo what was kept."""


class LineFile:
    """Lines in a file. Every method may block: call those that write in a thread.

    `size` counts the bytes that are whole, durable lines; what a failed append left behind it is cut off.
    """

    def __init__(self, path: Path) -> None:
        """Open for appending, made with mode 0600 when missing.

        Raises:
            NoRoom: there is no room to make it.
            OSError: it cannot be opened or made.
        """
        self.path = path
        made = not path.exists()
        with _no_room_told(path):
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if made:
                    sync_folder(path.parent)
                self.size = os.fstat(self._fd).st_size
            except OSError:
                self.close()
                if made:
                    # Else the next to open it would take its name for durable.
                    path.unlink(missing_ok=True)
                raise

    def append(self, data: bytes) -> int:
        """Write whole lines and wait until they are durable; the offset they begin at.

        Raises:
            NoRoom: the file is as it was before.
            OSError: what was stored is unknown; open the file anew and look.
        """
        at = self.size
        with _no_room_told(self.path):
            try:
                _write_all(self._fd, data)
                os.fdatasync(self._fd)  # delayed allocation may find the disk full only now
            except OSError:
                self._take_back(at)
                raise
        self.size = at + len(data)
        return at

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
        """Cut off what stands behind `good` and keep it in a file of its own; None when nothing was kept.

        Raises:
            NoRoom: none to keep it, and it holds whole lines, which may have been acknowledged.
            OSError: it cannot be read or written.
        """
        torn = self.size - good
        if torn <= 0:
            return None
        aside = self._keep_aside(good)
        os.ftruncate(self._fd, good)
        os.fsync(self._fd)
        self.size = good
        kept = f"kept in {aside}" if aside is not None else "there was no room to keep them"
        logger.warning("%s: %d bytes of a torn last line were cut off; %s", self.path, torn, kept)
        return aside

    def close(self) -> None:
        """Close; appended lines stay durable."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_back(self, size: int) -> None:
        """Let nobody see again what was not acknowledged, not even a reader of this very file.

        After a failed sync the cache may show for durable what the disk never got, and a power cut must not
        bring back what a caller was told is not kept.
        """
        try:
            os.ftruncate(self._fd, size)
            os.fdatasync(self._fd)
        except OSError as error:
            if os.fstat(self._fd).st_size != size:
                raise OSError(errno.EIO, "a failed append could not be cut off", str(self.path)) from error

    def _keep_aside(self, good: int) -> Path | None:
        aside = _free_name(self.path)
        try:
            self._copy_from(good, aside)
        except NoRoom:
            # A peer whose disk filled up and that then crashed must start again. What has no newline was
            # never acknowledged to anybody, so that much may go.
            if self._has_newline_from(good):
                raise
            return None
        return aside

    def _copy_from(self, at: int, aside: Path) -> None:
        with _no_room_told(aside):
            kept = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                for chunk in self._chunks_from(at):
                    _write_all(kept, chunk)
                os.fsync(kept)
                sync_folder(aside.parent)
            except OSError:
                aside.unlink(missing_ok=True)
                raise
            finally:
                os.close(kept)

    def _has_newline_from(self, at: int) -> bool:
        return any(b"\n" in chunk for chunk in self._chunks_from(at))

    def _chunks_from(self, at: int) -> Iterator[bytes]:
        while chunk := os.pread(self._fd, _READ_SIZE, at):
            yield chunk
            at += len(chunk)


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


@contextmanager
def _no_room_told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise NoRoom(path) from error
        raise


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
