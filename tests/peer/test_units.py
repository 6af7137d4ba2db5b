"""Sizes and durations: what is read, what is refused, and that what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.units import (
    DAY,
    GIB,
    HOUR,
    MAX_DURATION,
    MAX_SIZE,
    MIB,
    TIB,
    UnitError,
    describe_duration,
    describe_size,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    parse_size_or_none,
)


def whole_units(count: int) -> st.SearchStrategy[int]:
    return st.sampled_from([count * MIB, count * GIB, count * TIB])


@pytest.mark.parametrize(
    ("text", "size"),
    [("40G", 40 * GIB), ("512M", 512 * MIB), ("2T", 2 * TIB), ("64k", 65536), ("0", 0), (" 12345 ", 12345)],
)
def test_sizes_are_read_in_powers_of_two(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "G", "40GB", "40 G", "-1", "1.5G", "1e9", "1_000", "٤٠G", "40G\n1", "9" * 99]
)
def test_what_is_no_size_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UnitError, match="40G is 40 x 2"):
        parse_size(text)


def test_sizes_outside_their_bounds_are_refused_with_the_bound() -> None:
    assert parse_size("6M", minimum=6 * MIB) == 6 * MIB
    with pytest.raises(UnitError, match="at least 6M"):
        parse_size("6291455", minimum=6 * MIB)
    with pytest.raises(UnitError, match="at most"):
        parse_size("9999999T")


def test_none_is_no_limit_only_where_it_is_allowed() -> None:
    assert parse_size_or_none("none") is None
    assert parse_size_or_none("4G") == 4 * GIB
    with pytest.raises(UnitError, match="or none"):
        parse_size_or_none("nothing")
    with pytest.raises(UnitError):
        parse_size("none")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("8h", 8 * HOUR), ("30m", 1800), ("2d", 2 * DAY), ("5s", 5), ("900", 900), ("0", 0), ("1H", HOUR)],
)
def test_durations_are_read_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1h30m", "-5s", "1.5h", "forever", "5 m", "１h"])
def test_what_is_no_duration_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UnitError, match="8h, 30m, 2d"):
        parse_duration(text)


def test_durations_outside_their_bounds_are_refused_with_the_bound() -> None:
    with pytest.raises(UnitError, match="at least 1s"):
        parse_duration("0", minimum=1)
    with pytest.raises(UnitError, match="at most 366d"):
        parse_duration("367d", maximum=366 * DAY)
    with pytest.raises(UnitError, match="at most 36525d"):
        parse_duration("99999d")


@settings(deadline=None)
@given(st.integers(0, MAX_SIZE) | st.integers(0, 2**20).flatmap(whole_units))
def test_a_written_size_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@settings(deadline=None)
@given(st.integers(0, MAX_DURATION) | st.integers(0, 36_525).map(lambda days: days * DAY))
def test_a_written_duration_is_read_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_and_never_breaks_the_reader(text: str) -> None:
    for parse in (parse_size, parse_duration, parse_size_or_none):
        try:
            value = parse(text)
        except UnitError:
            continue
        assert value is None or value >= 0


def test_exact_forms_use_the_largest_unit_that_divides() -> None:
    assert [format_size(n) for n in (40 * GIB, 1536 * MIB, 12345, 0)] == ["40G", "1536M", "12345", "0"]
    assert [format_duration(n) for n in (8 * HOUR, 5400, 61, 0)] == ["8h", "90m", "61s", "0"]


def test_forms_for_people_are_rounded_and_short() -> None:
    sizes = (0, 900, 1536, 13 * GIB + 410 * MIB, 40 * GIB)
    assert [describe_size(n) for n in sizes] == ["0 bytes", "900 bytes", "1.5 KiB", "13.4 GiB", "40 GiB"]
    durations = (0, 45, 90, 5400, 2 * DAY + 5, 2 * DAY + 3 * HOUR)
    words = ["0 s", "45 s", "1 min 30 s", "1 h 30 min", "2 d", "2 d 3 h"]
    assert [describe_duration(n) for n in durations] == words
