"""A small file of records that are all kept, and that is not passed over where it cannot be read."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest
import trio

from actors.log import linefile
from actors.log.journal import JournalUnavailable
from actors.log.linefile import Damaged, NoRoom
from actors.log.records import RecordLog
from tests.support.logs import FullDisk, Syncs, open_files


class Given(msgspec.Struct, tag="given"):
    name: str


class Taken(msgspec.Struct, tag="taken"):
    name: str


Kind = Given | Taken


class Names:
    """A fold: who holds something now."""

    def __init__(self) -> None:
        self.story: list[str] = []

    def apply(self, record: Kind) -> None:
        self.story.append(f"{type(record).__name__.lower()} {record.name}")


async def opened(path: Path) -> tuple[Names, RecordLog[Kind]]:
    names = Names()
    return names, await RecordLog.open(path, Kind, names.apply)


async def append(path: Path, *records: Kind) -> list[str]:
    """Open, append, close; what the fold says."""
    names, log = await opened(path)
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        for record in records:
            await log.append(record)
        nursery.cancel_scope.cancel()
    return names.story


async def test_records_are_folded_when_durable_and_again_at_the_next_start(
    tmp_path: Path, syncs: Syncs
) -> None:
    path = tmp_path / "keys.jsonl"
    assert await append(path, Given("a"), Taken("a")) == ["given a", "taken a"]
    assert syncs.count == 2
    assert await append(path, Given("b")) == ["given a", "taken a", "given b"]
    assert open_files() == set()


async def test_a_record_torn_at_any_byte_is_cut_off_and_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    await append(path, Given("a"), Given("caf\u00e9"))
    text = path.read_bytes()
    start = text.index(b"\n") + 1
    for cut in range(start, len(text)):
        other = tmp_path / str(cut) / "keys.jsonl"
        other.parent.mkdir()
        other.write_bytes(text[:cut])
        assert await append(other, Given("next")) == ["given a", "given next"]
        assert await append(other) == ["given a", "given next"]
        assert [p.read_bytes() for p in other.parent.glob("*.torn-*")] == (
            [text[start:cut]] if cut > start else []
        )


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\0\0\n", b"half of it\n", b"\n"])
async def test_what_no_record_follows_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "keys.jsonl"
    await append(path, Given("a"))
    path.write_bytes(path.read_bytes() + tail)
    assert await append(path, Given("b")) == ["given a", "given b"]
    assert await append(path) == ["given a", "given b"]


@pytest.mark.parametrize("damage", [b"\0\0\0\n", b"half of\n", b'{"type":"tak\n'])
async def test_damage_that_records_follow_is_refused_since_a_revocation_may_have_stood_there(
    tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "keys.jsonl"
    await append(path, Given("a"), Given("b"))
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + second)
    before = path.read_bytes()
    with pytest.raises(
        Damaged, match=rf"bytes {len(first)} to {len(first + damage)} are no record.*keys.jsonl"
    ):
        await opened(path)
    assert path.read_bytes() == before
    assert open_files() == set()


@pytest.mark.parametrize("line", [b'{"type":"lent","name":"a"}\n', b'{"type":"given"}\n', b"[]\n"])
async def test_a_record_that_this_version_does_not_know_is_refused_even_at_the_end(
    tmp_path: Path, line: bytes
) -> None:
    path = tmp_path / "keys.jsonl"
    await append(path, Given("a"))
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(Damaged, match=r"is of no kind known here.*start the version that wrote it"):
        await opened(path)
    assert open_files() == set()


async def test_damage_is_an_error_of_the_operating_systems_kind_so_that_a_start_says_it_in_one_line() -> None:
    error = linefile.Damaged(errno.EILSEQ, "what is wrong; what to do", "keys.jsonl")
    assert isinstance(error, OSError)
    assert str(error) == f"[Errno {errno.EILSEQ}] what is wrong; what to do: 'keys.jsonl'"


async def test_no_room_is_told_and_a_later_record_is_kept(full_disk: FullDisk) -> None:
    names, log = await opened(full_disk.path / "keys.jsonl")
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        await log.append(Given("a"))
        full_disk.fill()
        with pytest.raises(NoRoom):
            await log.append(Given("x" * 20_000))
        assert names.story == ["given a"]
        full_disk.free()
        await log.append(Given("b"))
        nursery.cancel_scope.cancel()
    assert await append(full_disk.path / "keys.jsonl") == ["given a", "given b"]


async def test_after_a_failed_sync_nothing_is_taken_until_it_is_opened_again(
    tmp_path: Path, syncs: Syncs
) -> None:
    names, log = await opened(tmp_path / "keys.jsonl")
    with pytest.RaisesGroup(OSError):
        async with trio.open_nursery() as nursery:
            await nursery.start(log.run)
            syncs.errors.append(errno.EIO)
            with trio.CancelScope(shield=True), pytest.raises(JournalUnavailable):
                await log.append(Given("a"))
    assert names.story == []
    with pytest.raises(JournalUnavailable):
        log.put(Given("b"))
    assert await append(tmp_path / "keys.jsonl", Given("c")) == ["given c"]
