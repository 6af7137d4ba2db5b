"""What a program wrote: kept in a bounded file, shown as a few safe lines (F19, F25)."""

import os
import re
from pathlib import Path
from typing import Final

OUTPUT: Final = "output"
MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes the kernel lets a program write to one file, its output among them: what binds while no peer lives.

Programs started here serve models and write no large file of their own; one that does needs another runtime.
"""
SHORTEN_AT: Final = 1024 * 1024
"""Bytes of output past which a living peer shortens it."""
KEPT: Final = 64 * 1024
"""Bytes of newest output that stay when it is shortened."""
MAX_LINES: Final = 20
MAX_CHARACTERS: Final = 2000
"""The most of a program's output that becomes a fact."""
MAX_BEFORE: Final = 400
"""Lines before those that are looked through for why an engine failed."""

_FIRST: Final = 128
"""Bytes in which an output says that it was shortened before."""
_READ: Final = 16 * 1024
"""Bytes read for a tail: 2,000 characters of four bytes, and room for what is cut away."""
_CONTROL: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
"""Terminal sequences: colours, cursor, titles."""
_DROPPED: Final = re.compile(rb"\.\.\. ([0-9]{1,18}) bytes of older output were dropped \.\.\.\n")


def open_output(folder: Path) -> int:
    """A fresh output file, every write to which goes to its end, whoever shortens it meanwhile."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    return os.open(folder / OUTPUT, flags, 0o600)


def shorten(folder: Path) -> bool:
    """Drop all but the newest part of an output that has grown too long; whether it did.

    Its first line then says how many bytes were dropped in all. The program may write between the cut and
    what is put back: its line then stands before older ones.
    """
    path = folder / OUTPUT
    try:
        if path.stat().st_size <= SHORTEN_AT:
            return False
        with path.open("r+b") as file:
            earlier = _DROPPED.match(file.read(_FIRST))
            dropped = file.seek(-KEPT, os.SEEK_END)
            kept = file.read(KEPT)
            os.truncate(path, 0)
        cut = kept.find(b"\n") + 1
        dropped += cut if earlier is None else cut + int(earlier[1]) - len(earlier[0])
        with path.open("ab") as file:
            file.write(b"... %d bytes of older output were dropped ...\n" % dropped + kept[cut:])
    except OSError:
        return False
    return True


def read_tail(folder: Path) -> tuple[str, ...]:
    """The last lines in a folder's output file; none when there is no such file."""
    try:
        with (folder / OUTPUT).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _READ))
            raw = file.read(_READ)
    except OSError:
        return ()
    if size > _READ and (newline := raw.find(b"\n")) != -1:
        raw = raw[newline + 1 :]
    return last_lines(raw)


def last_lines(raw: bytes) -> tuple[str, ...]:
    """Twenty lines at most, 2,000 characters at most with their line ends, the newest kept, oldest first."""
    return split_lines(raw)[1]


def split_lines(raw: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The last lines as `last_lines` has them, and before them those that stood before, 400 at most."""
    text = _CONTROL.sub("", raw.decode("utf-8", "replace"))
    lines = [_printable(line) for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    kept: list[str] = []
    left = MAX_CHARACTERS
    for line in reversed(lines[-MAX_LINES:]):
        if len(line) > left:
            if left > 0 and not kept:
                kept.append(line[-left:])
            break
        kept.append(line)
        left -= len(line) + 1
    before = lines[: len(lines) - len(kept)]
    return tuple(before[-MAX_BEFORE:]), tuple(reversed(kept))


def _printable(line: str) -> str:
    # A progress bar writes over itself: what stood there last is the line.
    shown = line.rstrip("\r").rsplit("\r", 1)[-1]
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in shown).rstrip()
