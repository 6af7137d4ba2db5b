"""A full disk: nothing is half told, what must be told waits, and all goes on by itself when room is back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.log import eventlog as module
from actors.log.eventlog import EventLog
from actors.log.linefile import NoRoom
from adapters.clock.fake import FakeClock
from tests.support.logs import (
    FullDisk,
    Memory,
    answered,
    contents,
    day_files,
    ids,
    no_room,
    open_log,
    whole_page,
    writing,
)

LARGE = "x" * 20_000
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROOM_RETRY_SECONDS", 0.005)


class Tries:
    """Counts how often facts were turned away."""

    def __init__(self, log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self._note = log._note_full
        self._turned_away = trio.Event()
        monkeypatch.setattr(log, "_note_full", self._count)

    def _count(self, full: NoRoom) -> None:
        self._note(full)
        self._turned_away.set()

    async def next(self) -> None:
        """Wait until facts are turned away once more."""
        self._turned_away = trio.Event()
        with trio.fail_after(20):
            await self._turned_away.wait()


async def test_facts_wait_for_room_and_are_then_told_once_and_in_order(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fold = Memory()
    async with writing(await open_log(full_disk.path, fold)) as log:
        await log.tell(answered("before"))
        tries = Tries(log, monkeypatch)
        full_disk.fill()
        done = trio.Event()

        async def tell() -> None:
            # The first of them would fit: not even that may be told without the other.
            await log.tell(answered("small"), answered(LARGE))
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            for _ in range(4):
                await tries.next()
                assert fold.contents == ["before"]
                assert log.end == 1
            assert not done.is_set()
            full_disk.free()
        await log.tell(answered("after"))
        lines = await whole_page(log)
    assert contents(lines) == fold.contents == ["before", "small", LARGE, "after"]
    assert ids(lines) == ["evt-0", "evt-1", "evt-2", "evt-3"]
    (text,) = day_files(full_disk.path).values()
    assert text == b"".join(line + b"\n" for line in lines)
    said = [r.getMessage() for r in caplog.records if "room" in r.getMessage()]
    assert len(said) == 2, "said once when it fills up, and once when there is room again"


async def test_what_fits_is_told_while_other_facts_wait(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(await open_log(full_disk.path)) as log:
        await log.tell(answered("before"))
        tries = Tries(log, monkeypatch)
        full_disk.fill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.tell, answered(LARGE))
            await tries.next()
            full_disk.free()
            await log.tell(answered("small"))
        assert sorted(contents(await whole_page(log))) == ["before", "small", LARGE]


async def test_a_teller_that_gives_up_waiting_for_room_has_told_nothing(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(await open_log(full_disk.path)) as log:
        await log.tell(answered("before"))
        tries = Tries(log, monkeypatch)
        full_disk.fill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.tell, answered(LARGE))
            await tries.next()
            await tries.next()
            nursery.cancel_scope.cancel()
        full_disk.free()
        await log.tell(answered("after"))
        assert contents(await whole_page(log)) == ["before", "after"]


async def test_a_stop_while_facts_wait_for_room_is_obeyed_and_the_file_is_whole(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trio.open_nursery() as tellers, writing(await open_log(full_disk.path)) as log:
        await log.tell(answered("before"))
        tries = Tries(log, monkeypatch)
        full_disk.fill()
        tellers.start_soon(log.tell, answered(LARGE))
        await tries.next()
        tellers.cancel_scope.cancel()
    full_disk.free()
    async with writing(await open_log(full_disk.path)) as log:
        assert contents(await whole_page(log)) == ["before"]


async def test_a_new_day_for_which_there_is_no_room_leaves_the_old_one_as_it_was(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, fold = FakeClock(), Memory()
    async with writing(await open_log(full_disk.path, fold, clock)) as log:
        await log.tell(answered("before"), answered("y" * 15_000))
        tries = Tries(log, monkeypatch)
        full_disk.fill()
        before = day_files(full_disk.path)["2026-11-30.jsonl"]
        async with trio.open_nursery() as nursery:
            clock.advance(DAY_MS)
            nursery.start_soon(log.tell, answered(LARGE + "1"))
            await tries.next()
            # Another over the next midnight, and the clock is set back before there is room.
            clock.advance(DAY_MS)
            nursery.start_soon(log.tell, answered(LARGE + "2"))
            await tries.next()
            await tries.next()
            assert day_files(full_disk.path)["2026-11-30.jsonl"] == before
            assert len(fold.contents) == 2
            clock.advance(-2 * DAY_MS)
            full_disk.free()
        await log.tell(answered("after"))
        lines = await whole_page(log)
        assert contents(lines) == fold.contents
        assert sorted(c[-1] for c in fold.contents[2:4]) == ["1", "2"]
        assert ids(lines) == [f"evt-{n}" for n in range(5)]
    again = Memory()
    async with writing(await open_log(full_disk.path, again, clock)) as log:
        assert again.contents == fold.contents
    assert day_files(full_disk.path)["2026-11-30.jsonl"] == before


async def test_a_new_days_file_that_cannot_be_made_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    real = os.open

    def open_none(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            raise no_room()
        return real(path, flags, mode)

    async with writing(await open_log(tmp_path, clock=clock)) as log:
        await log.tell(answered("before"))
        tries = Tries(log, monkeypatch)
        clock.advance(DAY_MS)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", open_none)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.tell, answered("next day"))
                await tries.next()
                assert list(day_files(tmp_path)) == ["2026-11-30.jsonl"]
                patch.setattr(os, "open", real)
        assert contents(await whole_page(log)) == ["before", "next day"]
    assert list(day_files(tmp_path)) == ["2026-11-30.jsonl", "2026-12-01.jsonl"]


async def test_a_log_that_was_torn_on_a_full_disk_opens_there_and_goes_on_when_room_is_back(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with writing(await open_log(full_disk.path)) as log:
        await log.tell(answered("before"))
    (path,) = (full_disk.path / "events").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"specversion":"1.0","id":"evt-1","data":"' + b"x" * 9000)
    full_disk.fill()
    async with writing(await open_log(full_disk.path)) as log:
        assert path.read_bytes() == whole
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.tell, answered(LARGE))
            await wait_all_tasks_blocked()
            full_disk.free()
        assert contents(await whole_page(log)) == ["before", LARGE]
