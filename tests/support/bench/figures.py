"""What was measured and what was wanted: figures in pairs, their ratio with its spread, and goals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal, TypeVar

import attrs

T = TypeVar("T")


class NotMeasured(Exception):
    """Raised when a measurement could not be made; the text says why."""


@attrs.frozen
class Spread:
    """A median, and the quartiles that half of the rounds lie between."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one value a round; of two or one, all of them."""
        ordered = sorted(values)
        last = len(ordered) - 1
        return cls(median(ordered), ordered[round(last * 0.25)], ordered[round(last * 0.75)])

    def text(self, digits: int = 2) -> str:
        """`0.93 (0.91 to 0.95)`."""
        return f"{self.middle:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


@attrs.frozen
class Pairs:
    """One figure of ours and one of the baseline a round, measured right after each other."""

    ours: tuple[float, ...]
    baseline: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        """Ours against the baseline, round by round, so that what slows both cancels out."""
        return Spread.of([a / b for a, b in zip(self.ours, self.baseline, strict=True)])

    @property
    def difference(self) -> Spread:
        """Ours less the baseline, round by round."""
        return Spread.of([a - b for a, b in zip(self.ours, self.baseline, strict=True)])


@attrs.frozen
class Goal:
    """What a figure has to reach."""

    how: Literal["at least", "at most", "under"]
    value: float
    unit: str = "x"

    def is_met(self, figure: float) -> bool:
        """Whether the figure reaches it."""
        if self.how == "at least":
            return figure >= self.value
        return figure <= self.value if self.how == "at most" else figure < self.value

    def text(self) -> str:
        """`at least 0.85x`."""
        space = "" if self.unit in ("x", "%") else " "
        return f"{self.how} {self.value:g}{space}{self.unit}"


@attrs.frozen
class Line:
    """One line of the table.

    Args:
        what: what was measured.
        ours, baseline: the medians with their units, as people read them.
        figure: what the goal is held against.
        shown: the same with its spread.
        goal: None for a line that only explains another.
        cause: why a miss is one, as far as it is known; told only then.
    """

    what: str
    ours: str
    baseline: str
    figure: float
    shown: str
    goal: Goal | None = None
    cause: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the goal was met; None where there is none."""
        return None if self.goal is None else self.goal.is_met(self.figure)


def ratio_line(
    what: str,
    pairs: Pairs,
    unit: Callable[[float], str],
    goal: Goal | None,
    *,
    cause: str = "",
) -> Line:
    """A line whose figure is the ratio of ours to the baseline."""
    ratio = pairs.ratio
    ours, baseline = unit(median(pairs.ours)), unit(median(pairs.baseline))
    return Line(what, ours, baseline, ratio.middle, ratio.text(), goal, cause)


def alternate(rounds: int, *measures: Callable[[], T]) -> list[list[T]]:
    """Run each measure once a round, in turn and in turn reversed; what each gave, round by round.

    The order changes so that none always runs after the same other.
    """
    given: list[list[T]] = [[] for _ in measures]
    for number in range(rounds):
        order = list(range(len(measures)))
        for at in order if number % 2 == 0 else reversed(order):
            given[at].append(measures[at]())
    return given


def per_second(value: float) -> str:
    """A rate."""
    return f"{value:,.0f}/s"


def microseconds(value: float) -> str:
    """A time given in seconds."""
    return f"{value * 1e6:,.1f} µs"


def milliseconds(value: float) -> str:
    """A time given in seconds."""
    return f"{value * 1e3:,.2f} ms"


def seconds(value: float) -> str:
    """A time given in seconds."""
    return f"{value:,.2f} s"


def kibibytes(value: float) -> str:
    """A size given in bytes."""
    return f"{value / 1024:,.1f} KiB"
