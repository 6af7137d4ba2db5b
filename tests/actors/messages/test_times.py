"""Times on the wire: their text sorts as they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.messages.times import time_ms, time_text

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999."""


def test_it_is_utc_with_milliseconds() -> None:
    assert time_text(1_796_000_000_123) == "2026-11-30T00:53:20.123Z"
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(FIRST_MS) == "0001-01-01T00:00:00.000Z"
    assert time_text(LAST_MS) == "9999-12-31T23:59:59.999Z"


@given(st.integers(FIRST_MS, LAST_MS), st.integers(FIRST_MS, LAST_MS))
def test_its_text_sorts_as_it_does_and_reads_back(one: int, other: int) -> None:
    assert (time_text(one) < time_text(other)) == (one < other)
    assert time_ms(time_text(one)) == one


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-30T01:53:20+01:00", 1_796_000_000_000),
        ("2026-11-30T00:53:20Z", 1_796_000_000_000),
        ("2026-11-29T14:53:20.5-10:00", 1_796_000_000_500),
    ],
)
def test_any_offset_is_read(text: str, ms: int) -> None:
    assert time_ms(text) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-30T00:53:20", "2026-13-01T00:00:00Z", "12:00Z"])
def test_what_is_no_time_or_has_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        time_ms(text)
