"""This machine's clock: credentials, certificates and facts rest on its time (F4, F13, F34)."""

from __future__ import annotations

import ctypes
import struct
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from actors.messages.envelope import Head
from peer.checks.line import ok, problem, warning
from peer.cli.eventfiles import EventFiles
from peer.units import describe_duration

if TYPE_CHECKING:
    from pathlib import Path

    from peer.checks.line import Line

CLOCK: Final = "clock"
RELEASED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right shows an earlier time: this program was not there."""
FAR: Final = datetime(2100, 1, 1, tzinfo=UTC)
TOLERATED_SECONDS: Final = 5.0
"""How far the newest fact may be ahead: a fact is told before the clock is looked at here."""

Kept = Literal["yes", "no", "unknown"]
"""Whether something keeps the clock in step with others."""

_TIME_ERROR: Final = 5
"""What adjtimex(2) returns for a clock that nothing keeps in step."""
# struct timex of adjtimex(2) on Linux: the modes, then far more room than any architecture needs.
_TIMEX_BYTES: Final = 512


def look(data: Path) -> tuple[Line, ...]:
    """What the clock shows, and whether the log is ahead of it."""
    return judge(time.time(), kept_in_step(), newest_fact(data))


def judge(now: float, kept: Kept, newest: float | None) -> tuple[Line, ...]:
    """The lines for a clock.

    Args:
        now: seconds since the epoch, as it shows them.
        kept: whether it is kept in step.
        newest: when the log's newest fact was told; None where there is none.
    """
    shown = datetime.fromtimestamp(now, UTC)
    if not RELEASED <= shown < FAR:
        return (
            problem(
                CLOCK,
                f"it shows {shown:%Y-%m-%d}, which cannot be",
                "set it (sudo timedatectl set-ntp true): keys and certificates would end at the wrong time",
            ),
        )
    lines = []
    if newest is not None and newest - now > TOLERATED_SECONDS:
        ahead = describe_duration(int(newest - now))
        lines.append(
            warning(
                CLOCK,
                f"the log's newest fact is {ahead} ahead of it: it was set back, or was wrong before",
                "set it right; the peer goes on, and the times of facts wait until it has caught up",
            )
        )
    text = f"it shows {shown:%Y-%m-%d %H:%M:%S} UTC"
    if kept == "no":
        lines.append(
            warning(
                CLOCK,
                f"{text}, and nothing keeps it in step",
                "sudo timedatectl set-ntp true, or install systemd-timesyncd or chrony",
            )
        )
    else:
        told = "is kept in step" if kept == "yes" else "whether it is kept in step cannot be told here"
        lines.append(ok(CLOCK, f"{text}; {told}"))
    return tuple(lines)


def kept_in_step() -> Kept:
    """What the kernel says, without changing anything: as any user, though a container may forbid to ask."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return "unknown"
    # Its first field, 0, sets nothing.
    asked = ctypes.create_string_buffer(struct.pack("I", 0), _TIMEX_BYTES)
    state = adjtimex(asked)
    if state < 0:
        return "unknown"
    return "no" if state == _TIME_ERROR else "yes"


def newest_fact(data: Path) -> float | None:
    """When the log's newest fact was told, in seconds since the epoch; None where there is none to read."""
    files = EventFiles(data)
    try:
        line = next(iter(files.backward(files.end())), None)
        if line is None:
            return None
        return datetime.fromisoformat(msgspec.json.decode(line, type=Head).time).timestamp()
    except (OSError, ValueError):  # msgspec's own errors are ValueErrors
        return None
