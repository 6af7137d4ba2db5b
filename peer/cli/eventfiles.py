"""The event log's files, read by another process than the peer: forward, backward, and as they grow (F4).

The peer may be writing meanwhile, or may have been killed while it did. So a last line without its newline is
not read yet, and a file that grew shorter, because the peer took back what the disk did not keep, is read on
from its new end. Memory is bounded by one line, whatever the files hold.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import attrs

from actors.log.days import LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of a line that is read; no fact is as long, and a longer one is passed over."""
BLOCK: Final = 64 * 1024

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.jsonl", re.ASCII)


@attrs.frozen(order=True)
class Place:
    """Between two lines of the log: a file's name and a byte of it. The older peer's file is named ``""``."""

    file: str = ""
    offset: int = 0


@attrs.define(eq=False)
class EventFiles:
    """The files of one log.

    Args:
        data: the data folder; neither it nor a log need be there.
    """

    data: Path
    passed_over: int = 0
    """Lines longer than `MAX_LINE`."""

    def end(self) -> Place:
        """Behind the last whole line there is now."""
        names = self._names()
        if not names:
            return Place()
        return Place(names[-1], _last_newline(self._path(names[-1])))

    def settled(self, place: Place) -> Place:
        """The place, or the file's end where the peer has taken back what was behind it."""
        try:
            size = self._path(place.file).stat().st_size
        except FileNotFoundError:
            return place  # not there yet, or its day was removed: later files are read all the same
        return place if place.offset <= size else Place(place.file, _last_newline(self._path(place.file)))

    def since_day(self, day: str) -> Place:
        """The beginning of the first file that may hold a fact of a day ``YYYY-MM-DD`` or later.

        A file holds facts of its own day and, where a clock ran back, of days before: never of a later one.
        """
        return Place("" if (self.data / LEGACY).exists() else f"{day}.jsonl")

    def forward(self, start: Place) -> Iterator[tuple[bytes, Place]]:
        """Every whole line behind a place, without its newline, each with the place behind it.

        Files that are there when it begins are read; call it again for later ones.
        """
        for name in self._names():
            if name < start.file:
                continue
            offset = start.offset if name == start.file else 0
            for line, behind in self._lines(self._path(name), offset):
                yield line, Place(name, behind)

    def backward(self, end: Place) -> Iterator[bytes]:
        """Every whole line before a place, the last one first."""
        for name in reversed(self._names()):
            if name < end.file:
                yield from self._lines_backward(self._path(name), _last_newline(self._path(name)))
            elif name == end.file:
                yield from self._lines_backward(self._path(name), end.offset)

    def _names(self) -> list[str]:
        try:
            days = sorted(name for name in os.listdir(self.data / "events") if _DAY.fullmatch(name))
        except (FileNotFoundError, NotADirectoryError):
            days = []
        return ["", *days] if (self.data / LEGACY).exists() else days

    def _path(self, name: str) -> Path:
        return self.data / "events" / name if name else self.data / LEGACY

    def _lines(self, path: Path, offset: int) -> Iterator[tuple[bytes, int]]:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return  # its day was removed meanwhile
        with file:
            offset = _line_start(file.fileno(), offset)
            file.seek(offset)
            while line := file.readline(MAX_LINE):
                offset += len(line)
                if line.endswith(b"\n"):
                    yield line[:-1], offset
                    continue
                if len(line) < MAX_LINE:
                    return  # the peer has not written it to its end, or never will
                while rest := file.readline(MAX_LINE):
                    offset += len(rest)
                    if rest.endswith(b"\n"):
                        break
                self.passed_over += 1

    def _lines_backward(self, path: Path, end: int) -> Iterator[bytes]:
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with file:
            at, rest, is_cut = end, b"", False
            while at > 0:
                size = min(BLOCK, at)
                at -= size
                pieces = (os.pread(file.fileno(), size, at) + rest).split(b"\n")
                if is_cut and len(pieces) > 1:
                    pieces.pop()
                    is_cut = False
                rest = pieces[0]
                yield from (line for line in reversed(pieces[1:]) if line)
                if len(rest) > MAX_LINE or is_cut:
                    self.passed_over += not is_cut
                    rest, is_cut = b"", True
            if rest and not is_cut:
                yield rest


def _line_start(fd: int, offset: int) -> int:
    """Where to read on: the place itself, or, where the file changed under it, the next line's beginning."""
    size = os.fstat(fd).st_size
    if offset > size:
        return _newline_before(fd, size)
    if offset == 0 or os.pread(fd, 1, offset - 1) == b"\n":
        return offset
    while block := os.pread(fd, BLOCK, offset):
        found = block.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(block)
    return offset


def _last_newline(path: Path) -> int:
    """Behind the last whole line of a file; 0 where there is none."""
    try:
        with path.open("rb", buffering=0) as file:
            return _newline_before(file.fileno(), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return 0


def _newline_before(fd: int, at: int) -> int:
    while at > 0:
        size = min(BLOCK, at)
        found = os.pread(fd, size, at - size).rfind(b"\n")
        if found >= 0:
            return at - size + found + 1
        at -= size
    return 0
