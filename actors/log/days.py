"""The event log's files: one a UTC day, an older peer's single file before them (F4)."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import attrs

from actors.log.linefile import LineFile, NoRoom

LEGACY = "events.jsonl"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl")
_FOUR_GIB = 1 << 32


@attrs.define
class Segment:
    """One file: where its lines begin, by row of the whole log."""

    path: Path
    first_row: int
    offsets: array[int] = attrs.field(factory=lambda: array("I"))
    size: int = 0

    def add(self, offset: int, length: int) -> None:
        """Note a line of `length` bytes with its newline; offsets stay four bytes while they fit."""
        if offset >= _FOUR_GIB and self.offsets.typecode == "I":
            self.offsets = array("Q", self.offsets)
        self.offsets.append(offset)
        self.size = offset + length

    def span(self, at: int, count: int = 1) -> tuple[int, int]:
        """Offset and length of `count` lines from the segment's own line `at` on, newlines included."""
        start = self.offsets[at]
        after = at + count
        end = self.offsets[after] if after < len(self.offsets) else self.size
        return start, end - start


class DayFiles:
    """Segments in the log's order; appends go to the last, or to a newer day's.

    Files in name order are the log in its order, so a fact whose day is behind the file being written
    goes to that file.
    """

    def __init__(self, data: Path) -> None:
        self._legacy = data / LEGACY
        self.folder = data / "events"
        self.segments: list[Segment] = []
        self._writing: LineFile | None = None

    def found(self) -> list[Path]:
        """The files there are, in the log's order; the folder is made when missing."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        days = sorted(p for p in self.folder.iterdir() if _DAY.fullmatch(p.name))
        return [self._legacy, *days] if self._legacy.exists() else days

    def begin(self, path: Path, first_row: int) -> Segment:
        """Add the next segment in order."""
        segment = Segment(path, first_row)
        self.segments.append(segment)
        return segment

    def adopt_for_writing(self, file: LineFile) -> None:
        """Go on writing the last segment's file, already opened."""
        self._writing = file

    def write(self, lines: Sequence[tuple[str, bytes]]) -> list[tuple[Path, int, int]]:
        """Append lines, each with its day `YYYY-MM-DD`; runs in the log's thread. Durable on return.

        Returns:
            For each line its file, offset and length with the newline.

        Raises:
            NoRoom: none of the lines was kept.
            OSError: the files are in an unknown state.
        """
        placed: list[tuple[Path, int, int]] = []
        written: list[tuple[LineFile, int]] = []
        before = self._writing
        at = 0
        try:
            while at < len(lines):
                file = self._file_for(lines[at][0])
                until = at + 1
                while until < len(lines) and not self._is_newer(lines[until][0]):
                    until += 1
                texts = [line for _, line in lines[at:until]]
                offset = file.append(b"\n".join(texts) + b"\n")
                written.append((file, offset))
                for text in texts:
                    placed.append((file.path, offset, len(text) + 1))
                    offset += len(text) + 1
                at = until
        except NoRoom:
            # A batch over midnight may have filled the old day's file before the new one had no room.
            for file, offset in written:
                file.cut(offset)
            raise
        finally:
            if before is not None and before is not self._writing:
                before.close()
        return placed

    def note(self, path: Path, offset: int, length: int, row: int) -> None:
        """Note a line that `write` placed; called on the loop, in order."""
        if not self.segments or self.segments[-1].path != path:
            self.begin(path, row)
        self.segments[-1].add(offset, length)

    def read(self, rows: Sequence[int]) -> list[bytes | None]:
        """The lines of ascending rows, without newlines; None for one whose file was removed. Blocks."""
        lines: list[bytes | None] = []
        firsts = [segment.first_row for segment in self.segments]
        at = 0
        while at < len(rows):
            index = bisect_right(firsts, rows[at]) - 1
            segment = self.segments[index]
            end_row = firsts[index + 1] if index + 1 < len(firsts) else 1 << 62
            until = at
            while until < len(rows) and rows[until] < end_row:
                until += 1
            lines += _read_segment(segment, rows[at:until])
            at = until
        return lines

    def close(self) -> None:
        """Close the file being written."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def _is_newer(self, day: str) -> bool:
        return self._writing is None or f"{day}.jsonl" > self._writing.path.name

    def _file_for(self, day: str) -> LineFile:
        if self._writing is None or self._is_newer(day):
            self._writing = LineFile(self.folder / f"{day}.jsonl")
        return self._writing


def _read_segment(segment: Segment, rows: Sequence[int]) -> list[bytes | None]:
    try:
        file = open(segment.path, "rb", buffering=0)  # noqa: SIM115 - closed below, opening may fail alone
    except FileNotFoundError:
        return [None] * len(rows)
    lines: list[bytes | None] = []
    with file:
        at = 0
        while at < len(rows):
            until = at + 1
            while until < len(rows) and rows[until] == rows[until - 1] + 1:
                until += 1
            count = until - at
            offset, length = segment.span(rows[at] - segment.first_row, count)
            lines += os.pread(file.fileno(), length, offset).split(b"\n")[:count]
            at = until
    return lines
