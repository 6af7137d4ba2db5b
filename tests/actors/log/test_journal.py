"""The pen writes all that wait at once, folds in order, and tells everyone what became of their entries."""

from __future__ import annotations

import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.log import journal as module
from actors.log.journal import Journal, JournalUnavailable
from actors.log.linefile import NoRoom


@attrs.define
class Desk:
    """A journal over a list, with a write that is held and made to fail as the test says."""

    story: list[str] = attrs.field(factory=list)
    written: list[str] = attrs.field(factory=list)
    given_back: list[str] = attrs.field(factory=list)
    errors: list[BaseException] = attrs.field(factory=list)
    fold_errors: list[Exception] = attrs.field(factory=list)
    may_write: threading.Event = attrs.field(factory=threading.Event)
    journal: Journal[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.may_write.set()
        self.journal = Journal(
            prepare=",".join, write=self._write, committed=self._fold, failed=self.given_back.extend
        )

    def _write(self, data: str) -> None:
        assert self.may_write.wait(20)
        if self.errors:
            raise self.errors.pop(0)
        self.written.append(data)

    def _fold(self, entries: list[str], data: str) -> None:
        if self.fold_errors:
            raise self.fold_errors.pop()
        self.story += [f"fold {entry}" for entry in entries]

    async def append(self, entry: str) -> None:
        """Append, and write down how it went."""
        try:
            await self.journal.append(entry)
        except (NoRoom, JournalUnavailable) as error:
            self.story.append(f"{type(error).__name__} {entry}")
        else:
            self.story.append(f"wake {entry}")


@asynccontextmanager
async def running(desk: Desk) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.journal.run)
        yield nursery
        nursery.cancel_scope.cancel()


async def test_one_write_serves_all_that_wait() -> None:
    desk = Desk()
    async with running(desk), trio.open_nursery() as writers:
        desk.may_write.clear()
        writers.start_soon(desk.append, "first")
        await wait_all_tasks_blocked()
        for number in range(100):
            writers.start_soon(desk.append, str(number))
        await wait_all_tasks_blocked()
        assert desk.journal.statistics().pending == 100
        desk.may_write.set()
    assert len(desk.written) == 2
    assert sorted(desk.written[1].split(",")) == sorted(str(n) for n in range(100))
    figures = desk.journal.statistics()
    assert (figures.pending, figures.peak, figures.entries, figures.batches) == (0, 100, 101, 2)


async def test_all_of_a_batch_is_folded_in_order_before_anyone_wakes() -> None:
    desk = Desk()
    async with running(desk), trio.open_nursery() as writers:
        desk.may_write.clear()
        writers.start_soon(desk.append, "first")
        await wait_all_tasks_blocked()
        for entry in "abc":
            writers.start_soon(desk.append, entry)
            await wait_all_tasks_blocked()
        desk.may_write.set()
    assert desk.story[:2] == ["fold first", "wake first"]
    assert desk.story[2:5] == ["fold a", "fold b", "fold c"]
    assert sorted(desk.story[5:]) == ["wake a", "wake b", "wake c"]
    assert desk.written == ["first", "a,b,c"]


async def test_what_a_writer_put_that_left_is_written_all_the_same() -> None:
    desk = Desk()
    async with running(desk):
        async with trio.open_nursery() as leaving:
            desk.may_write.clear()
            leaving.start_soon(desk.append, "written already")
            await wait_all_tasks_blocked()
            leaving.start_soon(desk.append, "waits")
            await wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        desk.may_write.set()
        await desk.journal.append("last")
    assert desk.written[0] == "written already"
    assert ",".join(desk.written[1:]) == "waits,last"
    assert desk.given_back == []


async def test_what_was_put_before_the_stop_is_written_and_nothing_after() -> None:
    desk = Desk()
    async with trio.open_nursery() as outer:
        pen = await outer.start(in_a_scope, desk)
        desk.may_write.clear()
        for entry in ("under way", "waits"):
            outer.start_soon(desk.append, entry)
            await wait_all_tasks_blocked()
        pen.cancel()
        await wait_all_tasks_blocked()
        desk.may_write.set()
    assert desk.written == ["under way", "waits"]
    assert {"wake under way", "wake waits"} < set(desk.story)
    with pytest.raises(JournalUnavailable):
        desk.journal.put("late")


async def in_a_scope(desk: Desk, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        async with running(desk):
            task_status.started(scope)
            await trio.sleep_forever()


async def test_it_takes_nothing_before_it_runs() -> None:
    with pytest.raises(JournalUnavailable):
        Desk().journal.put("early")


async def test_writers_that_never_pause_do_not_keep_a_stop_out() -> None:
    desk = Desk()

    async def write_for_ever() -> None:
        while True:
            try:
                await desk.journal.append("more")
            except JournalUnavailable:
                return

    async with trio.open_nursery() as writers, running(desk):
        for _ in range(3):
            writers.start_soon(write_for_ever)
        await desk.journal.append("mine")


async def test_no_room_is_told_to_that_batch_alone() -> None:
    desk = Desk()
    async with running(desk), trio.open_nursery() as writers:
        desk.errors.append(NoRoom(Path("/full")))
        await desk.append("lost")
        writers.start_soon(desk.append, "kept")
    assert desk.story == ["NoRoom lost", "fold kept", "wake kept"]
    assert desk.written == ["kept"]
    assert desk.given_back == ["lost"]


async def test_after_a_failure_all_are_told_and_nothing_more_is_written() -> None:
    """The file is in an unknown state: a line added to it now could be glued to half of another."""
    desk = Desk()
    with pytest.RaisesGroup(OSError):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.journal.run)
            desk.may_write.clear()
            desk.errors.append(OSError("the disk is gone"))
            async with trio.open_nursery() as writers:
                for entry in ("under way", "waits"):
                    writers.start_soon(desk.append, entry)
                    await wait_all_tasks_blocked()
                # Shielded, since the failure ends this block too.
                writers.cancel_scope.shield = True
                desk.may_write.set()
    assert sorted(desk.story) == ["JournalUnavailable under way", "JournalUnavailable waits"]
    assert desk.written == []
    assert desk.given_back == ["under way", "waits"]
    with pytest.raises(JournalUnavailable):
        desk.journal.put("late")


async def test_a_fold_that_fails_leaves_nobody_waiting() -> None:
    desk = Desk()
    desk.fold_errors.append(KeyError("a bug"))
    with pytest.RaisesGroup(KeyError):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.journal.run)
            with trio.CancelScope(shield=True):
                await desk.append("it")
    assert desk.story == ["JournalUnavailable it"]


async def test_an_entry_that_cannot_be_prepared_leaves_nobody_waiting() -> None:
    desk = Desk()
    with pytest.RaisesGroup(TypeError):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.journal.run)
            with trio.CancelScope(shield=True):
                await desk.append(7)  # type: ignore[arg-type]
    assert desk.story == ["JournalUnavailable 7"]


async def test_past_its_bound_it_takes_all_of_a_put_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 3)
    desk = Desk()
    async with running(desk):
        desk.journal.put("a", "b")
        with pytest.raises(JournalUnavailable):
            desk.journal.put("c", "d")
        batch = desk.journal.put("e")
        await batch.wait()
    assert desk.written == ["a,b,e"]


async def test_an_error_shared_by_many_does_not_grow_with_them() -> None:
    desk = Desk()
    depths: list[int] = []

    async def fail() -> None:
        try:
            await desk.journal.append("it")
        except NoRoom as error:
            depths.append(len(traceback.extract_tb(error.__traceback__)))

    async with running(desk), trio.open_nursery() as writers:
        desk.errors.append(NoRoom(Path("/full")))
        for _ in range(50):
            writers.start_soon(fail)
    assert len(depths) == 50
    assert max(depths) < 10
