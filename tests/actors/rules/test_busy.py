"""Whether others use a card, by its programs and with hysteresis (F28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.rules.busy import MOST_STEP_PERIODS, Load, Thresholds, Use, load_of, use_after
from adapters.gpu.port import DeviceProcess

if TYPE_CHECKING:
    from adapters.gpu.port import ProcessKind

GIB = 1 << 30
THRESHOLDS = Thresholds(2 * GIB, 0.3, busy_after_seconds=30, free_after_seconds=300)
OVER, UNDER, UNKNOWN = Load(True, "memory"), Load(False), Load(None)


def program(
    gib: float | None = 0.1, used: float | None = 0.0, kind: ProcessKind = "compute", pid: int = 7
) -> DeviceProcess:
    return DeviceProcess(pid, None if gib is None else int(gib * GIB), kind, used)


def read(
    loads: list[tuple[float, Load]], use: Use | None = None, thresholds: Thresholds = THRESHOLDS
) -> list[bool]:
    """Whether the card is busy after each reading."""
    use, busy = use or Use(), []
    for now, load in loads:
        use = use_after(use, load, now, thresholds)
        busy.append(use.is_busy)
    return busy


def every(seconds: float, count: int, load: Load, begin: float = 0.0) -> list[tuple[float, Load]]:
    return [(begin + n * seconds, load) for n in range(count)]


@pytest.mark.parametrize(
    ("programs", "load"),
    [
        ([], UNDER),
        ([program(2.0)], UNDER),
        ([program(2.001)], OVER),
        ([program(1.5), program(0.6, pid=8)], OVER),
        ([program(0.1, 0.3)], UNDER),
        ([program(0.1, 0.1), program(0.1, 0.2, pid=8)], UNDER),
        ([program(0.1, 0.31)], Load(True, "utilisation")),
        ([program(0.1, 0.2), program(0.1, 0.2, "both", pid=8)], Load(True, "utilisation")),
    ],
)
def test_programs_together_are_over_by_what_they_hold_or_use(
    programs: list[DeviceProcess], load: Load
) -> None:
    """More than the threshold, never at it; the reason is named."""
    assert load_of(programs, THRESHOLDS) == load


def test_a_desktop_alone_is_under_however_much_of_the_card_it_uses() -> None:
    """Three screens and nobody at the machine: pop-os/cosmic-comp#2153."""
    desktop = [program(0.4, 0.4, "graphics"), program(0.3, 0.2, "graphics", pid=8)]
    assert load_of(desktop, THRESHOLDS) == UNDER
    light_game = program(1.2, 0.9, "graphics", pid=9)
    assert load_of([*desktop, light_game], THRESHOLDS) == Load(True, "utilisation")
    lightest = program(1.0, 0.9, "graphics", pid=9)
    assert load_of([*desktop, lightest], THRESHOLDS) == Load(True, "utilisation"), "half the threshold"


def test_where_no_programs_utilisation_is_told_memory_alone_decides() -> None:
    """A MIG instance: dask/distributed#8739."""
    assert load_of([program(1.0, None)], THRESHOLDS) == UNDER
    assert load_of([program(3.0, None)], THRESHOLDS) == OVER


def test_a_program_whose_memory_is_not_told_may_hold_any() -> None:
    assert load_of([program(None, 0.1)], THRESHOLDS) == UNKNOWN
    assert load_of([program(None, 0.1), program(3.0, pid=8)], THRESHOLDS) == OVER
    assert load_of([program(None, 0.9)], THRESHOLDS) == Load(True, "utilisation")
    assert load_of([program(None, 0.9, "graphics")], THRESHOLDS) == UNKNOWN
    assert load_of(None, THRESHOLDS) == UNKNOWN


def test_a_program_whose_utilisation_could_not_be_read_may_use_any() -> None:
    """One reading that fails neither begins the time anew nor frees a card that is in use."""
    failed = attrs.evolve(program(1.0, None), utilisation_failed=True)
    assert load_of([failed], THRESHOLDS) == UNKNOWN
    assert load_of([failed, program(1.5, pid=8)], THRESHOLDS) == OVER
    desktop = attrs.evolve(program(0.4, None, "graphics"), utilisation_failed=True)
    assert load_of([desktop], THRESHOLDS) == UNDER


def test_busy_after_its_time_and_free_after_its_own() -> None:
    assert read(every(5, 8, OVER)) == [False] * 6 + [True] * 2
    assert read(every(5, 62, UNDER), Use(True)) == [True] * 60 + [False] * 2


def test_one_reading_that_says_otherwise_begins_the_time_anew() -> None:
    readings = [*every(5, 6, OVER), (30.0, UNDER), *every(5, 7, OVER, 35)]
    assert read(readings) == [False] * 13 + [True]
    readings = [*every(5, 60, UNDER), (300.0, OVER), *every(5, 61, UNDER, 305)]
    assert read(readings, Use(True)) == [True] * 121 + [False]


def test_what_is_not_known_neither_counts_nor_takes_back() -> None:
    readings = [*every(5, 4, OVER), *every(5, 100, UNKNOWN, 20), *every(5, 4, OVER, 520)]
    assert read(readings) == [False] * 107 + [True]
    assert not any(read(every(5, 10_000, UNKNOWN)))
    assert all(read(every(5, 10_000, UNKNOWN), Use(True)))


def test_with_no_time_to_wait_the_first_reading_decides() -> None:
    at_once = Thresholds(2 * GIB, 0.3, busy_after_seconds=0, free_after_seconds=0)
    assert read([(0, OVER), (5, UNDER), (10, OVER), (15, UNKNOWN)], thresholds=at_once) == [
        True,
        False,
        True,
        True,
    ]


def test_a_machine_that_stood_still_was_not_read_meanwhile() -> None:
    """However long the gap: two readings an hour apart are no thirty seconds of use."""
    assert read([(0, OVER), (3600, OVER), (3605, OVER)]) == [False, False, False]
    assert read([(0, UNDER), (86_400, UNDER)], Use(True)) == [True, True]


def test_what_a_reading_adds_at_most_goes_by_how_often_it_is_read() -> None:
    seldom = Thresholds(2 * GIB, 0.3, busy_after_seconds=30, free_after_seconds=300, period_seconds=20)
    assert read(every(20, 3, OVER), thresholds=seldom) == [False, False, True]
    assert read(every(20, 3, OVER)) == [False, False, True], "fifteen of twenty seconds, twice"
    assert read(every(25, 2, OVER), thresholds=seldom) == [False, False]
    assert read(every(3600, 2, OVER), thresholds=seldom) == [False, True], "sixty at most"


def test_a_clock_that_jumped_back_takes_nothing_away() -> None:
    assert read([*every(5, 4, OVER, 1000), *every(5, 4, OVER, 0)]) == [False] * 7 + [True]


def test_why_it_is_busy_is_the_latest_reason() -> None:
    use = use_after(Use(), OVER, 0, Thresholds(1, 0.3, 0, 60))
    assert use.why == "memory"
    assert use_after(use, Load(True, "utilisation"), 5, THRESHOLDS).why == "utilisation"
    assert use_after(use, UNKNOWN, 5, THRESHOLDS).why == "memory"


loads = st.sampled_from([OVER, Load(True, "utilisation"), UNDER, UNKNOWN])
steps = st.lists(st.tuples(st.integers(0, 40), loads), max_size=80)


@given(steps, st.integers(0, 60), st.integers(0, 120), st.booleans())
def test_it_changes_only_by_an_unbroken_run_of_readings_that_lasted(
    readings: list[tuple[int, Load]], after: int, until: int, begins: bool
) -> None:
    """Against a model that keeps the whole history: seconds that two known readings of one kind span."""
    thresholds = Thresholds(2 * GIB, 0.3, after, until)
    use, now, is_busy = Use(begins), 0, begins
    run: float | None = None
    last_known = False
    for step, load in readings:
        now += step
        use = use_after(use, load, now, thresholds)
        if load.is_over is None:
            last_known = False
        elif load.is_over == is_busy:
            run, last_known = None, False
        else:
            run = (run or 0.0) + (min(step, MOST_STEP_PERIODS * 5) if last_known else 0.0)
            last_known = True
            if run >= (after if load.is_over else until):
                is_busy, run, last_known = bool(load.is_over), None, False
        assert use.is_busy is is_busy


@given(st.lists(st.builds(program, st.none() | st.floats(0, 4), st.none() | st.floats(0, 1)), max_size=5))
def test_one_program_more_never_makes_a_card_that_was_over_be_under(programs: list[DeviceProcess]) -> None:
    before = load_of(programs[1:], THRESHOLDS).is_over
    if before is not False:
        assert load_of(programs, THRESHOLDS).is_over is not False
