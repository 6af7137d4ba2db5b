"""A file of lines keeps what it acknowledged and shows nothing else, whatever the disk does."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from actors.log.linefile import LineFile, NoRoom, lines_of
from tests.support.logs import FullDisk, Syncs, no_room, open_files


def test_lines_are_appended_and_found_by_their_offsets(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "it.jsonl")
    long = b"x" * 5000
    offsets = [file.append(line + b"\n") for line in (b"one", long, b"three")]
    assert [file.line_at(at) for at in offsets] == [b"one", long, b"three"]
    file.close()
    again = LineFile(file.path)
    assert again.append(b"four\n") == 3 + 1 + 5001 + 6
    again.close()
    assert list(lines_of(file.path)) == [b"one\n", long + b"\n", b"three\n", b"four\n"]


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    LineFile(tmp_path / "it.jsonl").close()
    assert stat.S_IMODE((tmp_path / "it.jsonl").stat().st_mode) == 0o600


def test_each_append_is_one_sync(tmp_path: Path, syncs: Syncs) -> None:
    file = LineFile(tmp_path / "it.jsonl")
    file.append(b"one\ntwo\n")
    file.append(b"three\n")
    file.close()
    assert syncs.count == 2


def test_a_new_files_name_is_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = list[bool](), os.fsync

    def fsync(fd: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(fd).st_mode))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    LineFile(tmp_path / "it.jsonl").close()
    LineFile(tmp_path / "it.jsonl").close()
    assert synced == [True]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, NoRoom), (errno.EIO, OSError)])
def test_a_name_that_could_not_be_made_durable_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def fsync(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(error):
        LineFile(tmp_path / "it.jsonl")
    assert not (tmp_path / "it.jsonl").exists()
    assert open_files() == set()


def test_what_did_not_fit_is_taken_back_whole(full_disk: FullDisk) -> None:
    file = LineFile(full_disk.path / "it.jsonl")
    file.append(b"kept\n")
    full_disk.fill()
    with pytest.raises(NoRoom, match="no room left on the file system of"):
        file.append(b"short\n" + b"x" * 20_000 + b"\n")
    assert file.path.read_bytes() == b"kept\n"
    full_disk.free()
    assert file.append(b"later\n") == 5
    file.close()
    assert file.path.read_bytes() == b"kept\nlater\n"


def test_room_that_is_missed_only_at_the_sync_is_missed_all_the_same(tmp_path: Path, syncs: Syncs) -> None:
    file = LineFile(tmp_path / "it.jsonl")
    file.append(b"kept\n")
    syncs.errors.append(errno.EDQUOT)
    with pytest.raises(NoRoom):
        file.append(b"lost\n")
    assert file.path.read_bytes() == b"kept\n"
    assert file.append(b"later\n") == 5
    file.close()


def test_what_a_failed_sync_left_is_shown_to_nobody(tmp_path: Path, syncs: Syncs) -> None:
    """The cache would show it for durable, and a power cut would take it back."""
    file = LineFile(tmp_path / "it.jsonl")
    file.append(b"kept\n")
    syncs.errors.append(errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.append(b"unknown\n")
    file.close()
    assert file.path.read_bytes() == b"kept\n"


def test_no_room_is_not_said_of_a_file_that_could_not_be_cut_back(
    tmp_path: Path, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next line would be glued to the rest of this one."""
    file = LineFile(tmp_path / "it.jsonl")

    def ftruncate(fd: int, size: int) -> None:
        raise no_room()

    monkeypatch.setattr(os, "ftruncate", ftruncate)
    syncs.errors.append(errno.ENOSPC)
    with pytest.raises(OSError, match="could not be cut off"):
        file.append(b"stuck\n")
    file.close()


def test_a_torn_tail_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    for number in (1, 2):
        path.write_bytes(b"whole\ntorn %d" % number)
        file = LineFile(path)
        assert file.set_aside_from(6) == tmp_path / f"it.jsonl.torn-{number}"
        assert file.append(b"next\n") == 6
        file.close()
        assert path.read_bytes() == b"whole\nnext\n"
    assert (tmp_path / "it.jsonl.torn-1").read_bytes() == b"torn 1"
    assert (tmp_path / "it.jsonl.torn-2").read_bytes() == b"torn 2"
    assert open_files() == set()


def test_nothing_is_kept_where_nothing_is_torn(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "it.jsonl")
    file.append(b"whole\n")
    assert file.set_aside_from(6) is None
    file.close()
    assert [p.name for p in tmp_path.iterdir()] == ["it.jsonl"]


def test_a_torn_line_does_not_keep_a_full_disk_from_being_opened(
    full_disk: FullDisk, caplog: pytest.LogCaptureFixture
) -> None:
    path = full_disk.path / "it.jsonl"
    path.write_bytes(b"whole\n" + b"x" * 9000)
    full_disk.fill()
    file = LineFile(path)
    if full_disk.path.joinpath("filler").exists():
        assert file.set_aside_from(6) is None
        assert "no room to keep them" in caplog.text
    else:
        # The limit on one file's size lets a copy as large as the largest through.
        assert file.set_aside_from(6) is not None
    file.close()
    assert path.read_bytes() == b"whole\n"


def test_whole_lines_are_not_dropped_for_want_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.jsonl"
    path.write_bytes(b"whole\ngarbage\nmore")
    file, real = LineFile(path), os.write

    def write(fd: int, data: bytes) -> int:
        if len(data) > 1:
            return real(fd, data[:1])
        raise no_room()

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(NoRoom):
        file.set_aside_from(6)
    file.close()
    assert path.read_bytes() == b"whole\ngarbage\nmore"
    assert [p.name for p in tmp_path.iterdir()] == ["it.jsonl"]
