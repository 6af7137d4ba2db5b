"""The event log's files: one a UTC day, an older peer's single file before them (F4)."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import attrs

from actors.log.linefile import LineFile, sync_folder

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

    def add_many(self, offset: int, lengths: list[int]) -> None:
        """Note lines that stand side by side from `offset` on, each length with its newline."""
        ends = list(accumulate(lengths, initial=offset))
        if ends[-1] >= _FOUR_GIB and self.offsets.typecode == "I":
            self.offsets = array("Q", self.offsets)
        self.size = ends.pop()
        self.offsets.extend(ends)

    def end_of(self, at: int) -> int:
        """Where the segment's own line `at` ends: where the next begins, or the file's known end."""
        return self.offsets[at + 1] if at + 1 < len(self.offsets) else self.size


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
        if not self.folder.exists():
            self.folder.mkdir(mode=0o700, parents=True)
            sync_folder(self.folder.parent)
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

    def write(self, day: str, lines: Sequence[bytes]) -> tuple[Path, int]:
        """Append lines without newlines, of the day `YYYY-MM-DD`; in the log's thread. Durable on return.

        Returns:
            The file they went to, and the offset they begin at.

        Raises:
            NoRoom: none of the lines was kept.
            OSError: the file is in an unknown state.
        """
        file = self._file_for(day)
        return file.path, file.append(b"\n".join(lines) + b"\n")

    def note(self, path: Path, offset: int, length: int, row: int) -> None:
        """Note a line that `write` placed; called on the loop, in order."""
        if not self.segments or self.segments[-1].path != path:
            self.begin(path, row)
        self.segments[-1].add(offset, length)

    def read(self, rows: Sequence[int], most_bytes: int) -> list[bytes | None]:
        """The lines of ascending rows, without newlines; None for one whose file was removed. Blocks.

        It ends early before the lines exceed `most_bytes` together, but gives one at least.
        """
        lines: list[bytes | None] = []
        segments = tuple(self.segments)
        firsts = [segment.first_row for segment in segments]
        left = most_bytes
        while len(lines) < len(rows):
            at = len(lines)
            index = bisect_right(firsts, rows[at]) - 1
            end_row = firsts[index + 1] if index + 1 < len(firsts) else 1 << 62
            until = bisect_left(rows, end_row, at)
            found = _read_segment(segments[index], rows[at:until], left, first=not lines)
            lines += found
            if len(found) < until - at:
                break
            left -= sum(len(line) for line in found if line is not None)
        return lines

    def close(self) -> None:
        """Close the file being written."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def _file_for(self, day: str) -> LineFile:
        before = self._writing
        if before is None or f"{day}.jsonl" > before.path.name:
            self._writing = LineFile(self.folder / f"{day}.jsonl")
            if before is not None:
                before.close()
        assert self._writing is not None
        return self._writing


def _read_segment(segment: Segment, rows: Sequence[int], most: int, *, first: bool) -> list[bytes | None]:
    """Lines of ascending rows of one segment, as many as fit `most` bytes; one at least where `first`."""
    try:
        file = open(segment.path, "rb", buffering=0)  # noqa: SIM115 - closed below, opening may fail alone
    except FileNotFoundError:
        return [None] * len(rows)
    lines: list[bytes | None] = []
    with file:
        at = 0
        while at < len(rows):
            # Neighbours are read at once: rows of one page mostly stand side by side.
            own = rows[at] - segment.first_row
            start, end = segment.offsets[own], segment.end_of(own)
            if end - start > most and not (first and at == 0):
                break
            offsets = [start]
            at += 1
            while at < len(rows) and rows[at] == rows[at - 1] + 1 and segment.end_of(own + 1) - start <= most:
                own += 1
                offsets.append(segment.offsets[own])
                end = segment.end_of(own)
                at += 1
            most -= end - start
            data = os.pread(file.fileno(), end - start, start)
            # By offsets, since what is no fact may stand between two that are.
            lines += [_line(data, offset - start) for offset in offsets]
    return lines


def _line(data: bytes, at: int) -> bytes | None:
    """The line at an offset; None when the file was cut off before it by somebody else."""
    if at >= len(data):
        return None
    end = data.find(b"\n", at)
    return data[at:] if end < 0 else data[at:end]
