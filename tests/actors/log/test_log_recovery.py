"""What a crash or a bad disk leaves: nothing acknowledged is lost, nothing is glued to the rest of a line."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import orjson
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.log.eventlog import EventLog
from actors.log.journal import JournalUnavailable
from adapters.clock.fake import FakeClock
from tests.support.logs import (
    EVERYTHING,
    Memory,
    Syncs,
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

DAY = "2026-11-30.jsonl"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No real syncs, for tests that open hundreds of logs and cut no power."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


async def see(data: Path) -> list[str]:
    """The contents that a log shows after a start, the same to page, cursor and fold."""
    fold = Memory()
    async with writing(await open_log(data, fold)) as log:
        lines = await whole_page(log)
        assert contents(lines) == fold.contents
        assert contents(await whole_page(log, limit=1)) == fold.contents
        read = await log.read(EVERYTHING, 0, 1000)
        assert [frame for _, frame in read.facts] == [
            b"id: %b\ndata: %b\n\n" % (orjson.loads(line)["id"].encode(), line) for line in lines
        ]
    return fold.contents


@pytest.mark.usefixtures("quick")
async def test_a_last_record_torn_at_any_byte_loses_nothing_else(tmp_path: Path) -> None:
    """elizaOS/eliza#30879: half a line was left, and the next record was glued to it and lost."""
    await told(tmp_path / "whole", answered("one"), answered("two"), answered("caf\u00e9 \U0001f600"))
    text = day_files(tmp_path / "whole")[DAY]
    start = text.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(text)):
        data = tmp_path / str(cut)
        (data / "events").mkdir(parents=True)
        (data / "events" / DAY).write_bytes(text[:cut])
        async with writing(await open_log(data)) as log:
            await log.tell(answered("next"))
            lines = await whole_page(log)
            assert contents(lines) == ["one", "two", "next"]
            assert ids(lines) == ["evt-0", "evt-1", "evt-2"]
        assert await see(data) == ["one", "two", "next"]
        asides = [path.read_bytes() for path in (data / "events").glob("*.torn-*")]
        assert asides == ([text[start:cut]] if cut > start else [])
    assert open_files() == set()


@pytest.mark.usefixtures("quick")
async def test_a_batch_torn_at_any_byte_keeps_the_lines_that_are_whole(tmp_path: Path) -> None:
    """Kept though nobody was told so: told once, or not at all, never in half."""
    async with writing(await open_log(tmp_path / "whole")) as log:
        await log.tell(*(answered(c) for c in "abc"))
    text = day_files(tmp_path / "whole")[DAY]
    for cut in range(0, len(text), 7):
        data = tmp_path / str(cut)
        (data / "events").mkdir(parents=True)
        (data / "events" / DAY).write_bytes(text[:cut])
        assert await see(data) == list("abc")[: text[:cut].count(b"\n")]


ODD_LINES = {
    "text": b"not json at all",
    "zeros": b"\0" * 5000,
    "half a fact": b'{"specversion":"1.0","id":"evt-1","sour',
    "another shape": b'{"hello":"world"}',
    "a list": b"[1,2,3]",
    "wrong types": b'{"id":1,"type":"X","time":"2026-11-30T00:00:00.000Z","data":{}}',
    "no text": b'{"id":"evt-1","type":"X","time":"2026-11-30T00:00:00.000Z","data":{"content":"\xff"}}',
    "several lines": b"one\ntwo\n\n\nthree",
    "empty line": b"",
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("odd", ODD_LINES.values(), ids=ODD_LINES.keys())
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_what_is_no_fact_among_facts_is_passed_over_and_said(
    tmp_path: Path, odd: bytes, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    await told(tmp_path, *(answered(c) for c in "abc"))
    path = tmp_path / "events" / DAY
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(place, odd + b"\n")
    path.write_bytes(b"".join(lines))
    assert await see(tmp_path) == ["a", "b", "c"]
    at = sum(map(len, lines[:place]))
    assert f"bytes {at} to {at + len(odd) + 1} are no fact and are passed over" in caplog.text
    await told(tmp_path, answered("d"))
    assert await see(tmp_path) == ["a", "b", "c", "d"]
    assert odd in path.read_bytes()


@pytest.mark.parametrize(
    "tail", [b"\0" * 4096, b"\0" * 100 + b"\n" + b"\0" * 100, b"\n\n", b"garbage\nmore garbage\n", b"{}\n"]
)
async def test_what_is_no_fact_at_the_end_is_cut_off_and_kept_aside(tmp_path: Path, tail: bytes) -> None:
    await told(tmp_path, answered("a"))
    path = tmp_path / "events" / DAY
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    await told(tmp_path, answered("b"))
    assert await see(tmp_path) == ["a", "b"]
    assert path.read_bytes().startswith(whole + b'{"specversion"')
    assert (tmp_path / "events" / f"{DAY}.torn-1").read_bytes() == tail


async def test_a_damaged_end_of_an_older_day_is_passed_over_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    await told(tmp_path, answered("a"))
    clock.advance(86_400_000)
    await told(tmp_path, answered("b"), clock=clock)
    path = tmp_path / "events" / DAY
    path.write_bytes(path.read_bytes() + b"\0" * 50)
    before = path.read_bytes()
    assert await see(tmp_path) == ["a", "b"]
    assert path.read_bytes() == before
    assert "are no fact and are passed over" in caplog.text


@pytest.mark.parametrize(
    ("strange", "numbers"),
    [
        ("evt-0", [0, 1, 2]),  # a repeat
        ("evt--5", [0, 1, 2]),
        ("evt-99999999999999999999", [0, 1, 2]),
        ("3f2b-7", [0, 1, 2]),
        ("evt-7", [0, 7, 8]),  # a gap, as a removed day leaves
    ],
)
async def test_ids_nobody_here_gave_do_not_confuse_the_numbers(
    tmp_path: Path, strange: str, numbers: list[int]
) -> None:
    await told(tmp_path, answered("a"), answered("b"))
    path = tmp_path / "events" / DAY
    path.write_bytes(path.read_bytes().replace(b'"evt-1"', b'"%b"' % strange.encode()))
    async with writing(await open_log(tmp_path)) as log:
        await log.tell(answered("c"))
        read = await log.read(EVERYTHING, 0, 10)
        assert [seq for seq, _ in read.facts] == numbers
        assert contents(await whole_page(log, limit=1)) == ["a", "b", "c"]
        assert ids(await whole_page(log))[-1] == f"evt-{numbers[-1]}"


async def crash(log: EventLog, syncs: Syncs, number: int) -> list[str]:
    """Run the log into a failed sync while two more wait; what became of the three."""
    fates: list[str] = []

    async def tell(text: str) -> None:
        try:
            await log.tell(answered(text))
        except JournalUnavailable:
            fates.append(f"{text} unknown")
        else:
            fates.append(f"{text} told")

    with pytest.RaisesGroup(OSError):
        async with trio.open_nursery() as nursery:
            await nursery.start(log.run)
            await log.tell(answered("kept"))
            syncs.hold()
            syncs.errors.append(number)
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as tellers:
                    for text in ("first", "second", "third"):
                        tellers.start_soon(tell, text)
                        await wait_all_tasks_blocked()
                    syncs.release()
    return sorted(fates)


async def test_a_failed_sync_ends_the_log_and_the_reopened_one_says_what_was_kept(
    tmp_path: Path, syncs: Syncs
) -> None:
    fold = Memory()
    log = await open_log(tmp_path, fold)
    fates = await crash(log, syncs, errno.EIO)
    assert fates == ["first unknown", "second unknown", "third unknown"]
    assert fold.contents == ["kept"]
    with pytest.raises(JournalUnavailable):
        await log.tell(answered("after"))
    assert open_files() == set()
    await told(tmp_path, answered("next"))
    assert await see(tmp_path) == ["kept", "next"]


async def test_a_failed_write_in_the_middle_of_a_line_leaves_nothing_to_be_glued_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(tmp_path)
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if len(data) > 50:
            return real(fd, data[:50])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.RaisesGroup(OSError):
        async with trio.open_nursery() as nursery:
            await nursery.start(log.run)
            await log.tell(answered("kept"))
            monkeypatch.setattr(os, "write", write)
            with trio.CancelScope(shield=True), pytest.raises(JournalUnavailable):
                await log.tell(answered("torn"))
    monkeypatch.undo()
    await told(tmp_path, answered("next"))
    assert await see(tmp_path) == ["kept", "next"]
    assert [path.name for path in (tmp_path / "events").iterdir()] == [DAY]


async def test_a_start_that_is_broken_off_leaves_no_file_open(tmp_path: Path) -> None:
    await told(tmp_path, *(answered(str(n)) for n in range(3)))

    class Broken(Memory):
        def replay(self, head: object) -> None:
            raise RuntimeError("a bug in the fold")

    with pytest.raises(RuntimeError):
        await open_log(tmp_path, Broken())
    assert open_files() == set()


async def test_an_unreadable_file_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "events" / DAY).mkdir(parents=True)
    with pytest.raises(OSError, match=DAY):
        await open_log(tmp_path)
