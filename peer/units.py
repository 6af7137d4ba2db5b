"""Sizes and durations as people write them, both ways (F12, F33).

An option or a setting takes ``40G`` and ``8h``; inside the peer a size is a whole number of bytes and a
duration a whole number of seconds. ``format_*`` gives the exact text that ``parse_*`` reads back;
``describe_*`` gives the rounded one for a sentence or a table.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TIB: Final = 2**40

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

MAX_SIZE: Final = 2**63 - 1
"""The largest size read, in bytes: what a signed 64-bit counter holds, as drivers and file systems use."""

MAX_DURATION: Final = 36_525 * DAY
"""The longest duration read, in seconds: a hundred years, far inside what a date can be moved by."""

NONE: Final = "none"
"""The word for "no limit" where a setting allows one."""

SIZE_EXPECTED: Final = "bytes, or a number with K, M, G or T (40G is 40 x 2^30 bytes)"
DURATION_EXPECTED: Final = "seconds, or a number with s, m, h or d (8h, 30m, 2d)"

# Nineteen digits hold both maxima in their smallest unit, and bound what a hostile text costs.
_SIZE = re.compile(r"([0-9]{1,19})([KMGT]?)", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,19})([smhd]?)", re.ASCII | re.IGNORECASE)
_SIZE_UNITS: Final = (("T", TIB), ("G", GIB), ("M", MIB), ("K", KIB))
_DURATION_UNITS: Final = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", 1))
_DURATION_WORDS: Final = MappingProxyType({"d": "d", "h": "h", "m": "min", "s": "s"})


class UnitError(ValueError):
    """Raised when a text is not a size or a duration, or is outside its bounds; the text says what is."""


def parse_size(text: str, *, minimum: int = 0) -> int:
    """Read a size: ``40G``, ``512M``, ``2T``, ``64K`` or plain bytes, in powers of 2^10.

    Args:
        text: as the person wrote it; the unit in either case.
        minimum: the smallest size allowed, in bytes.

    Raises:
        UnitError: the text is no size, or it is under ``minimum`` or over `MAX_SIZE`.
    """
    return _parse(text, _SIZE, {"": 1, **dict(_SIZE_UNITS)}, SIZE_EXPECTED, minimum, MAX_SIZE, format_size)


def parse_size_or_none(text: str, *, minimum: int = 0) -> int | None:
    """Read a size, or ``none`` for no limit. Raises `UnitError` as `parse_size` does."""
    if text.strip().lower() == NONE:
        return None
    try:
        return parse_size(text, minimum=minimum)
    except UnitError as error:
        raise UnitError(f"{error}, or none") from None


def parse_duration(text: str, *, minimum: int = 0, maximum: int = MAX_DURATION) -> int:
    """Read a duration in seconds: ``8h``, ``30m``, ``2d``, ``5s`` or plain seconds.

    Args:
        text: as the person wrote it; the unit in either case.
        minimum: the shortest duration allowed, in seconds.
        maximum: the longest one allowed, in seconds.

    Raises:
        UnitError: the text is no duration, or it is outside its bounds.
    """
    units = {"": 1, **{unit.upper(): seconds for unit, seconds in _DURATION_UNITS}}
    return _parse(text, _DURATION, units, DURATION_EXPECTED, minimum, maximum, format_duration)


def format_size(size: int) -> str:
    """Write a size exactly, in the largest unit that divides it: ``40G``, ``1536M``, ``12345``."""
    return _format(size, _SIZE_UNITS)


def format_duration(seconds: int) -> str:
    """Write a duration exactly, in the largest unit that divides it: ``8h``, ``90m``, ``5s``."""
    return _format(seconds, _DURATION_UNITS)


def describe_size(size: int) -> str:
    """Write a size for people, rounded to a tenth: ``13.4 GiB``, ``900 bytes``. Not read back."""
    for unit, factor in _SIZE_UNITS:
        if size >= factor:
            tenths = (size * 10 + factor // 2) // factor
            return f"{tenths // 10}.{tenths % 10} {unit}iB" if tenths % 10 else f"{tenths // 10} {unit}iB"
    return f"{size} bytes"


def describe_duration(seconds: int) -> str:
    """Write a duration for people by its two largest parts: ``1 h 30 min``, ``45 s``. Not read back."""
    for index, (unit, factor) in enumerate(_DURATION_UNITS):
        if seconds >= factor:
            text = f"{seconds // factor} {_DURATION_WORDS[unit]}"
            # Only the neighbouring unit follows: "2 d 5 s" would read as more exact than it is meant.
            for smaller, size in _DURATION_UNITS[index + 1 : index + 2]:
                if rest := seconds % factor // size:
                    text += f" {rest} {_DURATION_WORDS[smaller]}"
            return text
    return "0 s"


def _format(value: int, units: tuple[tuple[str, int], ...]) -> str:
    for unit, factor in units:
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


def _parse(
    text: str,
    shape: re.Pattern[str],
    units: Mapping[str, int],
    expected: str,
    minimum: int,
    maximum: int,
    write: Callable[[int], str],
) -> int:
    match = shape.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"expected {expected}")
    value = int(match[1]) * units[match[2].upper()]
    if value < minimum:
        raise UnitError(f"expected at least {write(minimum)}")
    if value > maximum:
        raise UnitError(f"expected at most {write(maximum)}")
    return value
