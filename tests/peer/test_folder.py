"""The data folder: taken by one peer, private, and telling the command line where the door is (F14, F33)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.files import make_private_folder, write_private
from peer.folder import (
    DataFolder,
    DoorRecord,
    FolderError,
    FolderInUse,
    FolderNotOurs,
    FolderUnusable,
    NoDoor,
    is_held,
    read_admin_token,
)

RECORD = DoorRecord(
    endpoint="https://peer.example:7777",
    listen=("0.0.0.0:7777", "[::1]:7777"),
    certificate="/data/tls/cert.pem",
    pid=4711,
    version="0.1.0",
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def pretend_to_be_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 4711
    monkeypatch.setattr(os, "geteuid", lambda: other)


def test_the_record_of_a_peer_that_was_killed_goes_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the folder is held it says whom the command line sends the admin token."""
    RECORD.write(tmp_path / "door.json")
    stood: list[bool] = []

    def look(path: Path) -> bool:
        if is_held(tmp_path):
            stood.append((tmp_path / "door.json").exists())
        return make_private_folder(path)

    monkeypatch.setattr("peer.folder.make_private_folder", look)
    with DataFolder.open(tmp_path):
        assert stood
        assert not any(stood)


def test_a_first_start_makes_a_private_folder_with_id_and_token(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    with DataFolder.open(path) as folder:
        assert mode(path) == 0o700
        assert {mode(each) for each in (folder.events, folder.tls, folder.workloads, folder.models)} == {
            0o700
        }
        assert mode(folder.admin_token_file) == 0o600
        assert re.fullmatch(r"p-[a-z0-9]{16,}", folder.instance_id)
        assert re.fullmatch(r"bpa_[A-Za-z0-9_-]{43,}", folder.admin_token)
        assert (folder.accepted, folder.keys) == (path / "accepted.jsonl", path / "keys.jsonl")
        assert folder.warnings == ()
        assert folder.admin_token not in repr(folder)


def test_an_upgrade_in_place_keeps_id_and_token(tmp_path: Path) -> None:
    """Easily missed 30."""
    with DataFolder.open(tmp_path / "data") as first:
        kept = (first.instance_id, first.admin_token)
    with DataFolder.open(tmp_path / "data") as second:
        assert (second.instance_id, second.admin_token) == kept
    assert read_admin_token(tmp_path / "data") == kept[1]


def test_two_peers_have_different_ids_and_tokens(tmp_path: Path) -> None:
    with DataFolder.open(tmp_path / "a") as a, DataFolder.open(tmp_path / "b") as b:
        assert a.instance_id != b.instance_id
        assert a.admin_token != b.admin_token


def test_a_second_peer_is_refused_naming_the_first_until_it_ends(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from peer.folder import DataFolder\n"
        "folder = DataFolder.open(Path(sys.argv[1])); print('taken', flush=True); sys.stdin.read()\n"
    )
    path = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == b"taken\n"
            RECORD.write(path / "door.json")
            with pytest.raises(FolderInUse, match=f"pid {first.pid}.*stop it first.*BEST_PEER_DATA"):
                DataFolder.open(path)
            assert (path / "door.json").exists()
        finally:
            first.kill()
            first.wait(20)
    with DataFolder.open(path):
        assert not (path / "door.json").exists()


def test_the_lock_is_not_handed_to_child_processes(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path / "data")
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            folder.close()
            DataFolder.open(tmp_path / "data").close()
        finally:
            child.kill()


def test_a_folder_that_failed_to_open_is_let_go(tmp_path: Path) -> None:
    DataFolder.open(tmp_path / "data").close()
    whole = (tmp_path / "data" / "instance").read_bytes()
    (tmp_path / "data" / "instance").write_bytes(b"p-\n")
    with pytest.raises(FolderUnusable, match="instance is damaged: restore it"):
        DataFolder.open(tmp_path / "data")
    (tmp_path / "data" / "instance").write_bytes(whole)
    DataFolder.open(tmp_path / "data").close()


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(FolderUnusable, match="keeps no locks"):
        DataFolder.open(tmp_path / "data")


def test_another_users_folder_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o755)
    pretend_to_be_somebody_else(monkeypatch)
    with pytest.raises(FolderNotOurs, match=r"belongs to .*: run the peer as"):
        DataFolder.open(path)
    assert (mode(path), os.listdir(path)) == (0o755, [])


def test_a_folder_open_to_others_is_closed_to_them_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(0o755)
    with DataFolder.open(path) as folder:
        assert mode(path) == 0o700
        assert len(folder.warnings) == 1
        assert "mode 0755" in folder.warnings[0]


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for name in ("file", "file/below", "nowhere"):
        with pytest.raises(FolderUnusable, match="BEST_PEER_DATA"):
            DataFolder.open(tmp_path / name)


def test_a_place_that_cannot_be_written_is_refused_with_the_reason() -> None:
    # /proc takes no files, whoever asks, the superuser too.
    with pytest.raises(FolderUnusable, match=r"cannot use /proc/best-peer \(.+: .+\).*BEST_PEER_DATA"):
        DataFolder.open(Path("/proc/best-peer"))


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "events").touch()
    with pytest.raises(FolderUnusable, match="data/events"):
        DataFolder.open(tmp_path / "data")


@pytest.mark.parametrize("harm", ["mode", "text", "link"])
def test_a_token_that_others_may_have_read_or_that_is_damaged_is_made_anew(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "data"
    with DataFolder.open(path) as folder:
        old = folder.admin_token
    if harm == "mode":
        (path / "admin-token").chmod(0o644)
    elif harm == "text":
        (path / "admin-token").write_bytes(b"\xff\x00short")
    else:
        (path / "admin-token").rename(path / "moved")
        (path / "admin-token").symlink_to(path / "moved")
    with pytest.raises(FolderUnusable, match="restart the peer"):
        read_admin_token(path)
    with DataFolder.open(path) as folder:
        assert folder.admin_token != old
        assert mode(folder.admin_token_file) == 0o600
        assert len(folder.warnings) == 1
        assert "new admin token" in folder.warnings[0]
        assert read_admin_token(path) == folder.admin_token


def test_the_command_line_is_told_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoDoor, match=r"no peer was started over .*: start it with best-peer"):
        read_admin_token(tmp_path / "absent")
    with DataFolder.open(tmp_path / "data") as folder:
        with pytest.raises(NoDoor, match=r"no peer serves .*: start it with best-peer"):
            DoorRecord.read(folder.door)
        pretend_to_be_somebody_else(monkeypatch)
        with pytest.raises(FolderNotOurs, match=r"belongs to .*: run this as"):
            read_admin_token(tmp_path / "data")


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (
            errno.EACCES,
            FolderNotOurs,
            r"only \S+ may look into .*: run this as \S+, or choose another folder",
        ),
        (errno.EIO, FolderUnusable, r"cannot look into .* \(Input/output error\): mend that, or choose"),
    ],
)
def test_a_folder_that_may_not_be_looked_into_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[FolderError], said: str
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=said):
        is_held(tmp_path)


def test_the_door_record_stands_while_the_peer_serves(tmp_path: Path) -> None:
    with DataFolder.open(tmp_path / "data") as folder:
        RECORD.write(folder.door)
        assert mode(folder.door) == 0o600
        assert DoorRecord.read(folder.door) == RECORD
    assert not folder.door.exists()
    folder.close()


def test_a_record_of_a_later_version_is_read_by_this_one(tmp_path: Path) -> None:
    RECORD.write(tmp_path / "door.json")
    later = json.loads((tmp_path / "door.json").read_bytes()) | {
        "workspaces": {"a": [1]},
        "certificate": None,
    }
    write_private(tmp_path / "door.json", json.dumps(later).encode())
    assert DoorRecord.read(tmp_path / "door.json").certificate is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"{}", b'{"endpoint": 1}', b" " * 70_000])
def test_what_is_no_door_record_is_told_as_that(tmp_path: Path, text: bytes) -> None:
    write_private(tmp_path / "door.json", text)
    with pytest.raises(FolderUnusable, match="restart the peer"):
        DoorRecord.read(tmp_path / "door.json")
