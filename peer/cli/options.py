"""How options and arguments are read, so that a wrong one is refused with what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from cyclopts import Parameter, Token

from actors.messages.times import time_text
from peer.cli.processes import MOST_PID
from peer.units import UnitError, parse_duration, parse_size

MOST_COUNT: Final = 1_000_000

MOMENT_EXPECTED: Final = "a time such as 2026-10-20T22:00:00Z (this machine's zone where none is said)"
SINCE_EXPECTED: Final = (
    "a time such as 2026-10-19T14:00 (this machine's zone where none is said), or how long ago: 2h, 30m"
)


def _size(_: type, tokens: Sequence[Token]) -> int:
    return parse_size(tokens[0].value)


def _duration(_: type, tokens: Sequence[Token]) -> int:
    return parse_duration(tokens[0].value, minimum=1)


def _count(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    if not (
        text.isascii() and text.isdigit() and len(text) <= len(str(MOST_COUNT)) and int(text) <= MOST_COUNT
    ):
        raise ValueError(f"expected a whole number from 0 to {MOST_COUNT}")
    return int(text)


def _pid(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    if not (
        text.isascii() and text.isdigit() and len(text) <= len(str(MOST_PID)) and 0 < int(text) <= MOST_PID
    ):
        raise ValueError("expected the number of a process")
    return int(text)


def _words(_: type, tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(word.strip() for token in tokens for word in token.value.split(",") if word.strip())


Size = Annotated[int, Parameter(converter=_size, metavar="SIZE")]
"""``40G``, in bytes."""
Duration = Annotated[int, Parameter(converter=_duration, metavar="DURATION")]
"""``8h``, in seconds, one at least."""
Count = Annotated[int, Parameter(converter=_count, metavar="N")]
"""A whole number from 0."""
Words = Annotated[
    tuple[str, ...], Parameter(converter=_words, metavar="A,B", n_tokens=1, negative=(), show_default=False)
]
"""Words between commas; the option may also be given again."""
Name = Annotated[str, Parameter(metavar="NAME")]
"""One word, as it is."""
Identifier = Annotated[str, Parameter(metavar="ID")]
"""An id, as it is."""
Since = Annotated[str, Parameter(metavar="TIME|DURATION")]
"""Read by `since_text`."""
Moment = Annotated[str, Parameter(metavar="TIME")]
"""Read by `moment_text`."""
DeviceName = Annotated[str, Parameter(metavar="ID")]
"""A device's id or UUID, as it is."""
ProcessId = Annotated[int, Parameter(converter=_pid, metavar="PID")]
"""The number of a process."""
Line = Annotated[str, Parameter(metavar="TEXT")]
"""A line of words, which the door bounds."""
Digest = Annotated[str, Parameter(metavar="HEX")]
"""A SHA-256, 64 hex digits."""
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""A switch that has no opposite."""


def moment_text(text: str) -> str:
    """The moment that a time means, as the log writes times; one without a zone is this machine's.

    Raises:
        ValueError: it is none; the text says what was expected.
    """
    try:
        moment = datetime.fromisoformat(text.strip()).astimezone(UTC)
        return time_text(round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ValueError(f"expected {MOMENT_EXPECTED}") from None


def since_text(text: str, now: datetime) -> str:
    """The moment that ``--since`` means, as the log writes times.

    Args:
        text: a duration before now, or a time; one without a zone is this machine's.
        now: aware.

    Raises:
        ValueError: it is neither; the text says what was expected.
    """
    try:
        seconds = parse_duration(text)
    except UnitError:
        try:
            return moment_text(text)
        except ValueError:
            raise ValueError(f"expected {SINCE_EXPECTED}") from None
    return time_text(max(0, round(now.timestamp() * 1000) - seconds * 1000))
