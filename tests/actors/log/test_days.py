"""A file a UTC day, in name order the log in its order, whatever the clock does and whoever removes a day."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actors.log.days import DayFiles, Segment
from adapters.clock.fake import FakeClock
from tests.support.logs import (
    EVERYTHING,
    Memory,
    answered,
    contents,
    day_files,
    ids,
    open_files,
    open_log,
    told,
    whole_page,
    writing,
)

DAY_MS = 86_400_000
NOON_MS = 1_796_040_000_000
"""2026-11-30T12:00:00Z."""


async def test_a_fact_goes_to_the_file_of_its_day(tmp_path: Path) -> None:
    clock = FakeClock(NOON_MS)
    async with writing(await open_log(tmp_path, clock=clock)) as log:
        await log.tell(answered("one"))
        clock.advance(DAY_MS // 2 - 1)
        await log.tell(answered("last of its day"))
        clock.advance(1)
        await log.tell(answered("first of the next"))
        clock.advance(3 * DAY_MS)
        await log.tell(answered("after a pause"))
        assert contents(await whole_page(log)) == [
            "one",
            "last of its day",
            "first of the next",
            "after a pause",
        ]
    assert {name: contents(text.splitlines()) for name, text in day_files(tmp_path).items()} == {
        "2026-11-30.jsonl": ["one", "last of its day"],
        "2026-12-01.jsonl": ["first of the next"],
        "2026-12-04.jsonl": ["after a pause"],
    }
    assert open_files() == set()


async def test_a_clock_that_jumps_back_over_midnight_reopens_no_older_day(tmp_path: Path) -> None:
    clock = FakeClock(NOON_MS)
    async with writing(await open_log(tmp_path, clock=clock)) as log:
        await log.tell(answered("one"))
        clock.advance(DAY_MS)
        await log.tell(answered("two"))
        clock.advance(-2 * DAY_MS)
        await log.tell(answered("three"))
        clock.advance(DAY_MS)
        await log.tell(answered("four"))
    assert [contents(t.splitlines()) for t in day_files(tmp_path).values()] == [
        ["one"],
        ["two", "three", "four"],
    ]
    fold = Memory()
    async with writing(await open_log(tmp_path, fold, clock)) as log:
        await log.tell(answered("five"))
        lines = await whole_page(log)
    assert contents(lines) == ["one", "two", "three", "four", "five"]
    assert ids(lines) == [f"evt-{n}" for n in range(5)]
    assert fold.times == [
        "2026-11-30T12:00:00.000Z",
        "2026-12-01T12:00:00.000Z",
        "2026-11-29T12:00:00.000Z",
        "2026-11-30T12:00:00.000Z",
        "2026-11-30T12:00:00.000Z",
    ]
    assert len(day_files(tmp_path)) == 2


async def test_an_older_peers_file_comes_first_and_is_never_written(tmp_path: Path) -> None:
    await told(tmp_path, answered("old 0"), answered("old 1"))
    (day,) = (tmp_path / "events").iterdir()
    legacy = tmp_path / "events.jsonl"
    day.rename(legacy)
    before = legacy.read_bytes()
    for text in ("new 2", "new 3"):
        await told(tmp_path, answered(text))
    async with writing(await open_log(tmp_path)) as log:
        lines = await whole_page(log)
    assert contents(lines) == ["old 0", "old 1", "new 2", "new 3"]
    assert ids(lines) == ["evt-0", "evt-1", "evt-2", "evt-3"]
    assert legacy.read_bytes() == before
    assert open_files() == set()


@pytest.mark.parametrize("tail", [b'{"specversion":"1.0","id":"evt-2","sou', b"\0" * 700, b"garbage\n"])
async def test_the_torn_end_of_an_older_peers_file_is_passed_over_and_left_as_it_is(
    tmp_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await told(tmp_path, answered("old 0"), answered("old 1"))
    (day,) = (tmp_path / "events").iterdir()
    legacy = tmp_path / "events.jsonl"
    legacy.write_bytes(day.read_bytes() + tail)
    day.unlink()
    before = legacy.read_bytes()
    await told(tmp_path, answered("new 2"))
    async with writing(await open_log(tmp_path)) as log:
        assert contents(await whole_page(log)) == ["old 0", "old 1", "new 2"]
    assert legacy.read_bytes() == before
    assert "are no fact and are passed over" in caplog.text


async def test_an_older_peers_last_line_counts_without_its_newline_too(tmp_path: Path) -> None:
    await told(tmp_path, answered("old 0"), answered("old 1"))
    (day,) = (tmp_path / "events").iterdir()
    (tmp_path / "events.jsonl").write_bytes(day.read_bytes().rstrip(b"\n"))
    day.unlink()
    for expected in (["old 0", "old 1"], ["old 0", "old 1", "new"]):
        async with writing(await open_log(tmp_path)) as log:
            assert contents(await whole_page(log)) == expected
        if expected[-1] != "new":
            await told(tmp_path, answered("new"))


async def three_days(data: Path) -> list[Path]:
    clock = FakeClock(NOON_MS)
    async with writing(await open_log(data, clock=clock)) as log:
        for number in range(9):
            await log.tell(answered(str(number)))
            if number % 3 == 2:
                clock.advance(DAY_MS)
    return sorted((data / "events").iterdir())


@pytest.mark.parametrize("removed", [0, 1])
async def test_numbers_survive_a_day_that_was_removed(tmp_path: Path, removed: int) -> None:
    days = await three_days(tmp_path)
    days[removed].unlink()
    left = [n for n in range(9) if n // 3 != removed]
    async with writing(await open_log(tmp_path)) as log:
        assert log.end == 9
        await log.tell(answered("9"))
        lines = await whole_page(log, limit=2)
        assert ids(lines) == [f"evt-{n}" for n in [*left, 9]]
        assert contents(lines) == [str(n) for n in [*left, 9]]
        # From every number on, those that are gone too, a cursor and a page go on with the next there is.
        for number in range(10):
            after = [n for n in [*left, 9] if n > number]
            assert log.position_after(f"evt-{number}") == number + 1
            read = await log.read(EVERYTHING, number + 1, 100)
            assert [seq for seq, _ in read.facts] == after
            assert read.position == 10
            assert ids((await log.page(EVERYTHING, number, 100)).lines) == [f"evt-{n}" for n in after]
            if after:
                one = await log.read(EVERYTHING, number + 1, 1)
                assert (one.facts[0][0], one.position) == (after[0], after[0] + 1)


async def test_a_day_removed_while_the_peer_runs_is_passed_over(tmp_path: Path) -> None:
    days = await three_days(tmp_path)
    async with writing(await open_log(tmp_path)) as log:
        days[1].unlink()
        assert contents(await whole_page(log)) == ["0", "1", "2", "6", "7", "8"]
        assert contents(await whole_page(log, limit=1)) == ["0", "1", "2", "6", "7", "8"]
        read = await log.read(EVERYTHING, 0, 5)
        assert [seq for seq, _ in read.facts] == [0, 1, 2]
        assert read.position == 5


async def test_a_file_cut_short_by_somebody_else_ends_no_page(tmp_path: Path) -> None:
    days = await three_days(tmp_path)
    async with writing(await open_log(tmp_path)) as log:
        os.truncate(days[1], 10)
        lines = await whole_page(log)
    assert lines[3:-3] == [b'{"specvers']
    assert contents(lines[:3] + lines[-3:]) == ["0", "1", "2", "6", "7", "8"]


async def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    await told(tmp_path, answered("one"))
    for name in ("2026-11-30.jsonl.torn-1", "notes.txt", "2026-11-30.jsonl.gz", "x2026-11-30.jsonl"):
        (tmp_path / "events" / name).write_bytes(b"something else\n")
    async with writing(await open_log(tmp_path)) as log:
        assert contents(await whole_page(log)) == ["one"]


async def test_an_empty_day_file_is_no_trouble(tmp_path: Path) -> None:
    await told(tmp_path, answered("one"))
    (tmp_path / "events" / "2026-12-01.jsonl").touch()
    (tmp_path / "events" / "2026-12-02.jsonl").touch()
    await told(tmp_path, answered("two"))
    async with writing(await open_log(tmp_path)) as log:
        assert contents(await whole_page(log)) == ["one", "two"]
    assert [name for name, text in day_files(tmp_path).items() if text] == [
        "2026-11-30.jsonl",
        "2026-12-02.jsonl",
    ]


def test_offsets_past_four_gibibytes_are_kept(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "x", 0)
    for offset in (0, (1 << 32) - 1, 1 << 32, 1 << 33):
        segment.add(offset, 1)
    assert list(segment.offsets) == [0, (1 << 32) - 1, 1 << 32, 1 << 33]
    assert [segment.end_of(n) for n in range(4)] == [(1 << 32) - 1, 1 << 32, 1 << 33, (1 << 33) + 1]
    together = Segment(tmp_path / "x", 0)
    together.add_many(0, [(1 << 32) - 1, 1, 1 << 32])
    together.add_many(1 << 33, [1])
    assert (list(together.offsets), together.size) == (list(segment.offsets), segment.size)


@pytest.mark.parametrize("most", [1, 7, 8, 9, 15, 16, 17, 40, 1000])
def test_reading_keeps_to_its_bytes_but_gives_one_line_at_least(tmp_path: Path, most: int) -> None:
    files = DayFiles(tmp_path)
    files.found()
    texts = [b"aaa", b"bbb", b"x" * 20, b"ccc", b"ddd", b"eee"]
    for row, text in enumerate(texts):
        path, offset = files.write(f"2026-12-0{1 + row // 3}", [text])
        files.note(path, offset, len(text) + 1, row)
    files.close()
    for rows in ([0, 1, 2, 3, 4, 5], [1, 3, 5], [2, 4], [5], [0, 5]):
        lines = files.read(rows, most)
        wanted = [texts[row] for row in rows]
        assert lines == wanted[: len(lines)]
        assert len(lines) >= 1
        assert len(lines) == 1 or sum(len(line) for line in lines if line) <= most
        if sum(len(text) + 1 for text in wanted) <= most:
            assert len(lines) == len(rows)
