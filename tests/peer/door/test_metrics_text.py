"""The texts of the metrics: what stands in them, judged by Prometheus's own parsers, and which is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.metrics import SERIES, Series
from peer.door.metrics_text import MOST_LABEL, Writer, wants_openmetrics
from tests.support.scrapes import read_page

if TYPE_CHECKING:
    from actors.metrics import Samples

CLOCK = Series("best_peer_clock_info", "info", ("zone",), "What the clock is")
TICKS = Series("best_peer_ticks_total", "counter", ("hand",), "How often a hand moved")
SWING = Series("best_peer_swing_joules_total", "counter", (), "What the pendulum used", "joules")
DIAL = Series("best_peer_dial_bytes", "gauge", ("dial", "hand"), "How large a dial is", "bytes")
EVERY = (CLOCK, TICKS, SWING, DIAL)
SAMPLES: list[Samples] = [
    (CLOCK, [(("utc",), 1)]),
    (TICKS, [(("long",), 3), (("short",), 0)]),
    (SWING, [((), 2.5)]),
    (DIAL, [(("front", "long"), 1 << 60)]),
]


def page_of(samples: list[Samples], *, openmetrics: bool = False) -> str:
    return Writer(EVERY).page(samples, openmetrics=openmetrics).decode()


def test_prometheus_text_is_written_as_0_0_4_wants_it() -> None:
    assert page_of(SAMPLES) == (
        "# HELP best_peer_clock_info What the clock is\n"
        "# TYPE best_peer_clock_info gauge\n"
        'best_peer_clock_info{zone="utc"} 1\n'
        "# HELP best_peer_ticks_total How often a hand moved\n"
        "# TYPE best_peer_ticks_total counter\n"
        'best_peer_ticks_total{hand="long"} 3\n'
        'best_peer_ticks_total{hand="short"} 0\n'
        "# HELP best_peer_swing_joules_total What the pendulum used\n"
        "# TYPE best_peer_swing_joules_total counter\n"
        "best_peer_swing_joules_total 2.5\n"
        "# HELP best_peer_dial_bytes How large a dial is\n"
        "# TYPE best_peer_dial_bytes gauge\n"
        'best_peer_dial_bytes{dial="front",hand="long"} 1152921504606846976\n'
    )


def test_openmetrics_names_families_units_and_its_end() -> None:
    assert page_of(SAMPLES, openmetrics=True) == (
        "# TYPE best_peer_clock info\n"
        "# HELP best_peer_clock What the clock is\n"
        'best_peer_clock_info{zone="utc"} 1\n'
        "# TYPE best_peer_ticks counter\n"
        "# HELP best_peer_ticks How often a hand moved\n"
        'best_peer_ticks_total{hand="long"} 3\n'
        'best_peer_ticks_total{hand="short"} 0\n'
        "# TYPE best_peer_swing_joules counter\n"
        "# UNIT best_peer_swing_joules joules\n"
        "# HELP best_peer_swing_joules What the pendulum used\n"
        "best_peer_swing_joules_total 2.5\n"
        "# TYPE best_peer_dial_bytes gauge\n"
        "# UNIT best_peer_dial_bytes bytes\n"
        "# HELP best_peer_dial_bytes How large a dial is\n"
        'best_peer_dial_bytes{dial="front",hand="long"} 1152921504606846976\n'
        "# EOF\n"
    )
    assert page_of([], openmetrics=True) == "# EOF\n"
    assert page_of([]) == ""


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('a "quoted" \\ name\nof two lines', 'a "quoted" \\ name\nof two lines'),
        ("tab\tnul\0return\rnext\x85line\u2028", "tab\ufffdnul\ufffdreturn\ufffdnext\ufffdline\ufffd"),
        ("\\n", "\\n"),
        ('größer 模型 {x="y"}', 'größer 模型 {x="y"}'),
        ("\ud800", "?"),
        ("x" * 300, "x" * MOST_LABEL),
        (f"models/bp_{'k' * 43}", "models/[key removed]"),
        ("x" * 250 + "bp_" + "k" * 43, "x" * 250 + "[key r"),
        ("x" * 255 + "\\\\", "x" * 255 + "\\"),
        ("", ""),
    ],
)
def test_a_label_is_read_as_it_was_meant_whatever_is_in_it(value: str, shown: str, openmetrics: bool) -> None:
    page = read_page(page_of([(CLOCK, [((value,), 1)])], openmetrics=openmetrics), openmetrics=openmetrics)
    assert page.labels("best_peer_clock_info", "zone") == [shown]


@given(st.lists(st.tuples(st.text(), st.integers(0) | st.floats(0, allow_infinity=False)), max_size=5))
def test_both_texts_can_be_read_whatever_is_told(told: list[tuple[str, float]]) -> None:
    samples: list[Samples] = [
        (TICKS, [((str(at) + name,), figure) for at, (name, figure) in enumerate(told)])
    ]
    for openmetrics in (False, True):
        page = read_page(page_of(samples, openmetrics=openmetrics), openmetrics=openmetrics)
        assert list(page.series["best_peer_ticks_total"].values() if told else ()) == [
            pytest.approx(float(figure)) for _, figure in told
        ]


def test_every_series_fits_both_texts() -> None:
    every: list[Samples] = [(s, [(tuple(s.labels), 1)]) for s in SERIES]
    writer = Writer(SERIES)
    for openmetrics in (False, True):
        page = read_page(writer.page(every, openmetrics=openmetrics).decode(), openmetrics=openmetrics)
        assert list(page.series) == [s.name for s in SERIES]


OM = "application/openmetrics-text"
TEXTS_OF_3 = "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        (OM, True),
        (f"{OM.upper()} ; VERSION=1.0.0", True),
        (f'{OM};version="1.0.0"; charset=utf-8', True),
        (f"{OM};version=0.0.1", False),
        (f"{OM};version=2.0.0,text/plain;q=0.1", False),
        (f"{OM};q=0", False),
        (f"{OM};q=0.0,*/*;q=0", False),
        (f"{OM};q=0.4,text/plain;q=0.5", False),
        (f"{OM};q=0.5,text/plain;q=0.4", True),
        (f"text/plain,{OM}", True),
        (f"{OM};q=0.5,*/*", False),
        (f"{OM};q=0.5,text/*;q=0.6,*/*;q=0.1", False),
        (f"{OM};q=0.5,text/plain;q=0.1,*/*;q=0.9", True),
        (f"{OM};q=0.5,text/plain;version=1.0.0;q=0.9", True),
        (f"{OM};q=abc", False),
        (f"{OM};q=2", False),
        (f"{OM};q=0.001", True),
        ("application/*", False),
        (",;=,;;q=,", False),
        # What Prometheus 2.42 and 3 send.
        (f"{OM};version=1.0.0,{OM};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        (f"{OM};version=1.0.0;escaping=allow-utf-8;q=0.6,{OM};version=0.0.1;q=0.5,{TEXTS_OF_3}", True),
        # And where they are told to take the other (scrape_protocols).
        (f"text/plain;version=0.0.4;q=0.6,{OM};version=1.0.0;q=0.5,*/*;q=0.2", False),
    ],
)
def test_openmetrics_is_for_those_who_name_it_and_nothing_higher(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
