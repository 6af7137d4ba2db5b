"""Every accepted command is kept and found, and its names stay with the credential that used them first."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from actors.log import accepted as module
from actors.log import keyrows
from actors.log.accepted import AcceptedLog, Record
from actors.log.journal import JournalUnavailable
from actors.log.linefile import LineFile, NoRoom
from tests.support.logs import FullDisk, Syncs, names, no_room, open_files


def command(identifier: str, holder: str = "h-1", correlation: str | None = None, size: int = 10) -> Record:
    return Record(
        id=identifier,
        holder=holder,
        correlationid=correlation or identifier,
        hash=f"hash of {identifier}",
        type="Prompt",
        at="2026-11-30T00:00:00.000Z",
        subject=f"dep-{identifier}",
        data=msgspec.Raw(b'{"text":"%b"}' % (b"x" * size)),
    )


class Desk:
    """What the log tells, and which commands have not completed."""

    def __init__(self) -> None:
        self.unfinished: set[str] = set()
        self.found: list[Record] = []
        self.kept: list[str] = []
        self.failed: list[str] = []

    def _find(self, record: Record) -> None:
        self.found.append(record)

    async def open(self, folder: Path) -> AcceptedLog:
        self.found.clear()
        return await AcceptedLog.open(
            folder / "accepted.jsonl",
            unfinished=lambda: self.unfinished,
            found=self._find,
            kept=lambda record: self.kept.append(record.id),
            failed=lambda record: self.failed.append(record.id),
        )

    @asynccontextmanager
    async def writing(self, folder: Path) -> AsyncIterator[AcceptedLog]:
        log = await self.open(folder)
        async with trio.open_nursery() as nursery:
            await nursery.start(log.run)
            yield log
            nursery.cancel_scope.cancel()


def is_whole(log: AcceptedLog, identifier: str) -> bool:
    found = log.find(identifier)
    assert found is not None
    return found[0].is_whole


async def put(log: AcceptedLog, *records: Record) -> None:
    for record in records:
        await log.put(record).wait()


async def test_a_command_is_found_from_the_moment_it_is_put(tmp_path: Path, syncs: Syncs) -> None:
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        assert log.find("a") is None
        syncs.hold()
        record = command("a", correlation="c-1")
        batch = log.put(record)
        assert log.find("a") == (record, batch)
        assert (log.owner("a"), log.owner("c-1"), log.owner("b")) == ("h-1", "h-1", None)
        assert desk.kept == []
        syncs.release()
        await batch.wait()
        assert desk.kept == ["a"]
        assert log.find("a") == (record, None)
        assert (log.owner("a"), log.owner("c-1"), log.owner("b")) == ("h-1", "h-1", None)
        assert len(log) == 1


async def test_what_a_caller_put_that_left_is_kept_and_told(tmp_path: Path, syncs: Syncs) -> None:
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        syncs.hold()
        with trio.CancelScope() as scope:
            scope.cancel()
            await log.put(command("a")).wait()
        syncs.release()
        await put(log, command("b"))
    assert desk.kept == ["a", "b"]


async def test_a_name_belongs_to_whoever_used_it_first_as_id_or_as_correlation(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        await put(log, command("a", "h-1", "chain"), command("b", "h-1", "chain"), command("c", "h-2"))
        owners = {name: log.owner(name) for name in ("a", "b", "c", "chain", "d")}
        assert owners == {"a": "h-1", "b": "h-1", "c": "h-2", "chain": "h-1", "d": None}
    async with desk.writing(tmp_path) as log:
        assert {name: log.owner(name) for name in owners} == owners


async def test_a_start_shows_everything_and_shortens_what_has_completed(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        await put(log, *(command(c, correlation=f"chain {c}", size=500) for c in "abc"))
    size = (tmp_path / "accepted.jsonl").stat().st_size
    desk.unfinished = {"b"}
    for _ in range(2):
        async with desk.writing(tmp_path) as log:
            assert [r.id for r in desk.found] == ["a", "b", "c"]
            assert [is_whole(log, c) for c in "abc"] == [False, True, False]
            for c in "abc":
                found = log.find(c)
                assert found is not None
                assert (found[0].holder, found[0].hash) == ("h-1", f"hash of {c}")
                assert log.owner(f"chain {c}") == "h-1"
        assert (tmp_path / "accepted.jsonl").stat().st_size < size / 2


async def test_the_file_is_shortened_while_it_grows_and_every_command_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 20_000)
    desk, largest = Desk(), 0
    async with desk.writing(tmp_path) as log:
        for number in range(300):
            desk.unfinished = {str(n) for n in range(max(0, number - 5), number + 1)}
            await put(log, command(str(number), f"h-{number % 7}", f"chain {number // 3}", size=400))
            largest = max(largest, (tmp_path / "accepted.jsonl").stat().st_size)
        for number in range(300):
            found = log.find(str(number))
            assert found is not None
            assert (found[0].id, found[0].holder) == (str(number), f"h-{number % 7}")
            assert log.owner(str(number)) == f"h-{number % 7}"
        assert all(is_whole(log, n) for n in desk.unfinished)
        assert not is_whole(log, "0")
    assert largest < 300 * 400
    assert open_files() == set()
    async with desk.writing(tmp_path) as log:
        assert [r.id for r in desk.found] == [str(n) for n in range(300)]
    assert names(tmp_path) == ["accepted.jsonl"]


async def test_a_reopened_file_that_is_short_already_is_not_copied_again_at_its_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 1000)
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        await put(log, *(command(str(n)) for n in range(100)))
    async with desk.writing(tmp_path):
        pass
    copies: list[int] = []
    monkeypatch.setattr(AcceptedLog, "_compact", lambda log, keep: copies.append(1))
    async with desk.writing(tmp_path) as log:
        assert log._store.file.size > 5000
        await put(log, command("next"))
    assert copies == []


async def test_shortening_for_which_there_is_no_room_changes_nothing_and_is_not_tried_at_each_batch(
    full_disk: FullDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_BYTES", 60_000)
    monkeypatch.setattr(module, "_COPY_BYTES", 1000)
    tried: list[int] = []
    real = AcceptedLog._copy_shortened

    def copy(log: AcceptedLog, file: LineFile, keep: frozenset[str]) -> object:
        tried.append(1)
        if len(tried) == 1:
            raise NoRoom(full_disk.path)
        return real(log, file, keep)

    monkeypatch.setattr(AcceptedLog, "_copy_shortened", copy)
    desk = Desk()
    async with desk.writing(full_disk.path) as log:
        for number in range(110):
            await put(log, command(str(number), size=600))
        assert len(tried) == 1
        assert [is_whole(log, str(n)) for n in (0, 109)] == [True, True]
        for number in range(110, 200):
            await put(log, command(str(number), size=600))
        assert len(tried) == 2
        assert not is_whole(log, "0")
    assert names(full_disk.path) == ["accepted.jsonl"]


async def test_a_start_on_a_full_disk_shortens_nothing_and_serves(full_disk: FullDisk) -> None:
    desk = Desk()
    async with desk.writing(full_disk.path) as log:
        await put(log, *(command(str(n), size=600) for n in range(60)))
    before = (full_disk.path / "accepted.jsonl").read_bytes()
    full_disk.fill()
    desk.unfinished = {str(n) for n in range(50)}
    async with desk.writing(full_disk.path) as log:
        if (full_disk.path / "filler").exists():
            assert (full_disk.path / "accepted.jsonl").read_bytes() == before
        assert log.owner("59") == "h-1"
        with pytest.raises(NoRoom):
            await put(log, command("large", size=20_000))
        full_disk.free()
        await put(log, command("small"))
    assert names(full_disk.path) == ["accepted.jsonl"]


async def test_a_command_for_which_there_is_no_room_is_not_accepted(full_disk: FullDisk) -> None:
    desk = Desk()
    async with desk.writing(full_disk.path) as log:
        await put(log, command("a"))
        full_disk.fill()
        with pytest.raises(NoRoom):
            await put(log, command("b", correlation="chain", size=20_000))
        assert (desk.kept, desk.failed) == (["a"], ["b"])
        assert (log.find("b"), log.owner("b"), log.owner("chain")) == (None, None, None)
        full_disk.free()
        await put(log, command("b", "h-2", "chain"))
        assert log.owner("chain") == "h-2"
    async with desk.writing(full_disk.path):
        assert [r.id for r in desk.found] == ["a", "b"]


async def test_a_name_stays_its_holders_while_a_later_command_of_that_name_still_waits(
    tmp_path: Path, syncs: Syncs
) -> None:
    """Else another credential could take the name in between, and both be durable."""
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        syncs.hold()
        refused = log.put(command("a", "h-1", "chain"))
        await wait_all_tasks_blocked()
        waits = log.put(command("b", "h-1", "chain"))
        syncs.errors.append(errno.ENOSPC)
        owners: list[str | None] = []
        desk_failed = desk.failed.append

        def look(record: Record) -> None:
            desk_failed(record.id)
            owners.append(log.owner("chain"))

        log._not_kept = look
        syncs.release()
        with pytest.raises(NoRoom):
            await refused.wait()
        await waits.wait()
        assert owners == ["h-1"]
        assert log.owner("chain") == "h-1"
        assert log._waiting_names == {}


async def test_after_a_failed_sync_the_waiting_are_given_back_and_the_reopened_file_tells(
    tmp_path: Path, syncs: Syncs
) -> None:
    desk = Desk()
    log = await desk.open(tmp_path)
    with pytest.RaisesGroup(OSError):
        async with trio.open_nursery() as nursery:
            await nursery.start(log.run)
            await put(log, command("a"))
            syncs.hold()
            syncs.errors.append(errno.EIO)
            first = log.put(command("b"))
            await wait_all_tasks_blocked()
            second = log.put(command("c"))
            syncs.release()
            with trio.CancelScope(shield=True):
                for batch in (first, second):
                    with pytest.raises(JournalUnavailable):
                        await batch.wait()
    assert (desk.kept, desk.failed) == (["a"], ["b", "c"])
    assert open_files() == set()
    async with desk.writing(tmp_path) as log:
        await put(log, command("d"))
    async with desk.writing(tmp_path):
        assert [r.id for r in desk.found] == ["a", "d"]


async def test_a_record_torn_at_any_byte_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    desk.unfinished = {"a", "b", "c"}
    async with desk.writing(tmp_path) as log:
        await put(log, command("a"), command("b"), command("c", "caf\u00e9"))
    text = (tmp_path / "accepted.jsonl").read_bytes()
    start = text.rindex(b"\n", 0, -1) + 1
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    for cut in range(start, len(text)):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "accepted.jsonl").write_bytes(text[:cut])
        async with desk.writing(folder) as log:
            assert log.find("c") is None
            await put(log, command("c", "h-2"))
        async with desk.writing(folder) as log:
            assert [(r.id, r.holder) for r in desk.found] == [("a", "h-1"), ("b", "h-1"), ("c", "h-2")]
        asides = [path.read_bytes() for path in folder.glob("*.torn-*")]
        assert asides == ([text[start:cut]] if cut > start else [])


@pytest.mark.parametrize("odd", [b"garbage", b"\0" * 300, b'{"id":"x"}', b"", b"two\nlines"])
async def test_what_is_no_command_among_commands_is_passed_over_and_said(
    tmp_path: Path, odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    desk.unfinished = {"a", "b"}
    async with desk.writing(tmp_path) as log:
        await put(log, command("a"), command("b"))
    path = tmp_path / "accepted.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + odd + b"\n" + second)
    async with desk.writing(tmp_path) as log:
        assert [r.id for r in desk.found] == ["a", "b"]
        assert [is_whole(log, c) for c in "ab"] == [True, True]
    assert "are no command and are passed over" in caplog.text


async def test_a_copy_that_a_crash_left_behind_is_no_trouble(tmp_path: Path) -> None:
    desk = Desk()
    (tmp_path / "accepted.jsonl.new").write_bytes(b"half a copy")
    async with desk.writing(tmp_path) as log:
        await put(log, command("a"))
    async with desk.writing(tmp_path) as log:
        assert not is_whole(log, "a")
    assert names(tmp_path) == ["accepted.jsonl"]


async def test_a_shortening_that_fails_leaves_the_file_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        await put(log, command("a"))
    before = (tmp_path / "accepted.jsonl").read_bytes()

    def replace(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", replace)
    log = await desk.open(tmp_path)
    with pytest.raises(OSError, match="Input/output"):
        await log.run()
    assert (tmp_path / "accepted.jsonl").read_bytes() == before
    assert names(tmp_path) == ["accepted.jsonl"]
    assert open_files() == set()


async def test_a_start_that_is_broken_off_leaves_no_file_open(tmp_path: Path) -> None:
    desk = Desk()
    async with desk.writing(tmp_path) as log:
        await put(log, command("a"))

    def found(record: Record) -> None:
        raise RuntimeError("a bug in the fold")

    with pytest.raises(RuntimeError):
        await AcceptedLog.open(
            tmp_path / "accepted.jsonl",
            unfinished=lambda: (),
            found=found,
            kept=lambda record: None,
            failed=lambda record: None,
        )
    assert open_files() == set()


async def test_a_file_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_open(*_: object) -> int:
        raise no_room()

    monkeypatch.setattr(os, "open", no_open)
    with pytest.raises(NoRoom):
        await Desk().open(tmp_path)


NAMES = st.sampled_from([f"n-{n}" for n in range(12)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, NAMES, st.sampled_from(["h-1", "h-2", "h-3"]), st.integers(1, 300)),
        st.tuples(st.just("complete"), NAMES),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("refuse"), NAMES, NAMES, st.sampled_from(["h-1", "h-2", "h-3"])),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_ids_and_owners_stay_what_a_plain_dict_says_through_shortening_and_reopening(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "COMPACT_BYTES", 2000)
        patch.setattr(module, "_COPY_BYTES", 300)
        patch.setattr(keyrows, "ROWS", 4)
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        trio.run(_live_through, tmp_path_factory.mktemp("accepted"), steps)


async def _live_through(folder: Path, steps: list[tuple[object, ...]]) -> None:
    desk = Desk()
    kept: dict[str, Record] = {}
    owners: dict[str, str] = {}
    remaining = list(steps)
    while True:
        async with desk.writing(folder) as log:
            assert [r.id for r in desk.found] == list(kept)
            while remaining:
                step = remaining.pop(0)
                match step:
                    case ("put", str(name), str(correlation), str(holder), int(size)):
                        # As the desk does: a name that is another's, or an id that was used, is refused.
                        taken = any(owners.get(n, holder) != holder for n in (name, correlation))
                        if name in kept or taken:
                            continue
                        record = command(name, holder, correlation, size)
                        desk.unfinished.add(name)
                        await put(log, record)
                        kept[name] = record
                        owners.setdefault(name, holder)
                        owners.setdefault(correlation, holder)
                    case ("refuse", str(name), str(correlation), str(holder)):
                        if name in kept or any(owners.get(n, holder) != holder for n in (name, correlation)):
                            continue
                        with pytest.MonkeyPatch.context() as patch:
                            patch.setattr(os, "fdatasync", _full)
                            with pytest.raises(NoRoom):
                                await put(log, command(name, holder, correlation))
                    case ("complete", str(name)):
                        desk.unfinished.discard(name)
                    case _:
                        break
                for n in range(12):
                    _check(log, f"n-{n}", kept, owners, desk.unfinished)
            else:
                return


def _full(fd: int) -> None:
    raise no_room()


def _check(
    log: AcceptedLog, name: str, kept: dict[str, Record], owners: dict[str, str], unfinished: set[str]
) -> None:
    assert log.owner(name) == owners.get(name)
    found = log.find(name)
    record = kept.get(name)
    if record is None:
        assert found is None
        return
    assert found is not None
    assert found[1] is None
    assert (found[0].holder, found[0].hash, found[0].correlationid) == (
        record.holder,
        record.hash,
        record.correlationid,
    )
    if name in unfinished:
        assert found[0] == record
