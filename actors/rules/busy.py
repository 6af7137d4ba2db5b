"""Whether others than the peer use a card: judged from their programs, with hysteresis (F28).

A card's own utilisation is never looked at: an idle desktop with three screens shows 40 % of it. What counts
is what each program that is not the peer's holds and uses.
"""

from collections.abc import Sequence
from typing import Final, Literal

import attrs

from adapters.gpu.port import DeviceProcess

Why = Literal["memory", "utilisation"]

GRAPHICS_SHARE: Final = 0.5
"""A program that only draws and holds less than this share of the memory threshold is a desktop's: however
much of the card it uses, that does not count (pop-os/cosmic-comp#2153). A game holds more."""

MOST_STEP_PERIODS: Final = 3
"""What one reading may add to how long it has been so: a machine that stood still was not read meanwhile."""


@attrs.frozen
class Thresholds:
    """What makes a card busy, and for how long it must; a ratio is 0 to 1.

    `period_seconds` is what lies between the beginnings of two readings.
    """

    memory_bytes: int
    utilisation_ratio: float
    busy_after_seconds: float
    free_after_seconds: float
    period_seconds: float = 5.0


@attrs.frozen
class Load:
    """One reading of a card: over a threshold and which, under both (False), or not to be known (None)."""

    is_over: bool | None
    why: Why | None = None


UNKNOWN: Final = Load(None)


@attrs.frozen
class Use:
    """What follows from a card's readings so far; free before the first.

    Args:
        is_busy: it takes no new work.
        why: which threshold was passed, while it is busy.
        counted_seconds: for how long readings have spoken against `is_busy`, without a break.
        counted_at: when the latest of them was, on a monotonic clock; None when the latest spoke for it, or
            nothing was to be known.
    """

    is_busy: bool = False
    why: Why | None = None
    counted_seconds: float = 0.0
    counted_at: float | None = None


def load_of(others: Sequence[DeviceProcess] | None, thresholds: Thresholds) -> Load:
    """What programs that are not the peer's make of a card.

    Where the driver gives no program's utilisation, as on a MIG instance, memory alone decides. A program
    whose memory it does not give may hold any, and one whose utilisation could not be read may use any: the
    card is then over by what is known, or not to be known.

    Args:
        others: those programs; None is unknown.
        thresholds: of this peer.
    """
    if others is None:
        return UNKNOWN
    if sum(p.memory_bytes or 0 for p in others) > thresholds.memory_bytes:
        return Load(True, "memory")
    used = sum(p.utilisation_ratio or 0.0 for p in others if _counts(p, thresholds))
    # Drivers tell whole percents: a sum of such is no more than the threshold by a rounding error alone.
    if round(used, 6) > thresholds.utilisation_ratio:
        return Load(True, "utilisation")
    return UNKNOWN if any(_may_be_more(p, thresholds) for p in others) else Load(False)


def use_after(use: Use, load: Load, now: float, thresholds: Thresholds) -> Use:
    """A card's use after one more reading.

    What is not to be known changes nothing however long it lasts, and adds nothing to what was counted.

    Args:
        use: after the one before.
        load: what was read.
        now: seconds on a monotonic clock, which stands still while the machine sleeps.
        thresholds: of this peer.
    """
    if load.is_over is None:
        return attrs.evolve(use, counted_at=None)
    if load.is_over is use.is_busy:
        return Use(use.is_busy, load.why)
    most = MOST_STEP_PERIODS * thresholds.period_seconds
    step = 0.0 if use.counted_at is None else min(max(0.0, now - use.counted_at), most)
    counted = use.counted_seconds + step
    needed = thresholds.busy_after_seconds if load.is_over else thresholds.free_after_seconds
    if counted >= needed:
        return Use(load.is_over, load.why)
    return attrs.evolve(use, counted_seconds=counted, counted_at=now)


def _may_be_more(process: DeviceProcess, thresholds: Thresholds) -> bool:
    """Whether a program holds or uses what this reading does not show."""
    return process.memory_bytes is None or (process.utilisation_failed and _counts(process, thresholds))


def _counts(process: DeviceProcess, thresholds: Thresholds) -> bool:
    """Whether a program's use of the card's compute says that somebody uses it."""
    least = thresholds.memory_bytes * GRAPHICS_SHARE
    return process.kind != "graphics" or (process.memory_bytes or 0) >= least
