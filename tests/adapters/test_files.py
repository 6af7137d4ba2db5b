"""Private files: mode, atomicity, and what is refused when one is read (F14)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from adapters.files import NotPrivate, make_private_folder, read_private, sweep_unfinished, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_file_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o377)
    try:
        write_private(tmp_path / "secret", b"one")
    finally:
        os.umask(before)
    assert mode(tmp_path / "secret") == 0o600
    assert read_private(tmp_path / "secret", 3) == b"one"


def test_writing_again_replaces_the_whole_file_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"a longer text")
    path.chmod(0o644)
    write_private(path, b"two")
    assert (read_private(path, 64), mode(path)) == (b"two", 0o600)
    assert os.listdir(tmp_path) == ["secret"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPrivate, match="is a link"):
        read_private(tmp_path / "secret", 64)
    write_private(tmp_path / "secret", b"ours")
    assert (tmp_path / "elsewhere").read_bytes() == b"theirs"
    assert read_private(tmp_path / "secret", 64) == b"ours"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    write_private(tmp_path / "secret", b"old")
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_private(tmp_path / "secret", b"new")
    assert os.listdir(tmp_path) == ["secret"]
    assert read_private(tmp_path / "secret", 64) == b"old"


def test_what_a_killed_write_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".secret.0123456789abcdef.new").write_bytes(b"half")
    (tmp_path / ".secret.new").write_bytes(b"the owner's")
    sweep_unfinished(tmp_path)
    assert os.listdir(tmp_path) == [".secret.new"]


def test_a_file_open_to_others_is_not_read(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", b"x")
    (tmp_path / "secret").chmod(0o640)
    with pytest.raises(NotPrivate, match="mode 0640"):
        read_private(tmp_path / "secret", 64)


def test_another_users_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(tmp_path / "secret", b"x")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with pytest.raises(NotPrivate, match="belongs to user"):
        read_private(tmp_path / "secret", 64)


def test_a_file_too_large_a_folder_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", b"1234")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(NotPrivate, match="larger than 3 bytes"):
        read_private(tmp_path / "secret", 3)
    for name in ("pipe", "."):
        with pytest.raises(NotPrivate, match="not a plain file"):
            read_private(tmp_path / name, 64)
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "absent", 64)


def test_a_private_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    assert make_private_folder(path)
    assert not make_private_folder(path)
    assert mode(path) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private_folder(tmp_path / "file")
