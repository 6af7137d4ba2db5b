"""What is said of the data folder and of the disk below it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import attrs
import pytest

from peer.checks.storage import Disk, disk_of, judge, kind_of, look
from peer.units import GIB, MIB

FINE = Disk("ext4", 100 * GIB, 1_000_000, is_read_only=False)
PLACE = Path("/data")


def states(disk: Disk) -> list[str]:
    return [line.state for line in judge(PLACE, disk)]


def filled(path: Path) -> Path:
    path.mkdir(mode=0o700)
    (path / "tls").mkdir()
    for name in ("admin-token", "keys.jsonl", "tls/key.pem"):
        (path / name).touch(mode=0o600)
    return path


def test_a_folder_that_is_not_there_yet_is_made_by_the_first_start(tmp_path: Path) -> None:
    line = look(tmp_path / "a" / "b")[0]
    assert line.state == "ok"
    assert not (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert look(tmp_path / "file" / "data")[0].state == "problem"
    assert look(tmp_path / "file")[0].state == "problem"


def test_a_folder_of_this_user_alone_is_ok(tmp_path: Path) -> None:
    line = look(filled(tmp_path / "data"))[0]
    assert line.state == "ok"
    assert "closed to others" in line.what


@pytest.mark.parametrize("name", ["", "admin-token", "keys.jsonl", "tls/key.pem"])
def test_what_others_may_read_is_a_warning_and_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    data = filled(tmp_path / "data")
    place = data / name
    place.chmod(0o755 if place.is_dir() else 0o644)
    before = stat.S_IMODE(place.stat().st_mode)
    line = look(data)[0]
    assert line.state == "warning"
    assert str(place) in line.what
    assert line.remedy is not None
    assert line.remedy.startswith(f"chmod {'700' if place.is_dir() else '600'} ")
    assert stat.S_IMODE(place.stat().st_mode) == before


def test_a_link_in_the_place_of_a_secret_is_a_problem(tmp_path: Path) -> None:
    data = filled(tmp_path / "data")
    (data / "admin-token").unlink()
    (data / "admin-token").symlink_to("/etc/passwd")
    assert look(data)[0].state == "problem"


def test_a_folder_of_another_user_is_a_problem_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = filled(tmp_path / "data")
    monkeypatch.setattr("os.geteuid", lambda: data.stat().st_uid + 4321)
    line = look(data)[0]
    assert line.state == "problem"
    assert "belongs to" in line.what
    assert "sudo -u" in (line.remedy or "")


def test_room_is_judged_by_what_a_peer_needs() -> None:
    assert states(FINE) == ["ok"]
    assert states(attrs.evolve(FINE, free_bytes=500 * MIB)) == ["warning"]
    assert states(attrs.evolve(FINE, free_bytes=MIB)) == ["problem"]
    assert states(attrs.evolve(FINE, free_files=10)) == ["warning"]
    assert states(attrs.evolve(FINE, free_files=0)) == ["problem"]
    assert states(attrs.evolve(FINE, free_files=None)) == ["ok"]
    assert states(attrs.evolve(FINE, is_read_only=True)) == ["problem"]


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4", "cifs", "overlay", "exfat"])
def test_a_file_system_that_keeps_no_log_is_a_warning(kind: str) -> None:
    assert states(attrs.evolve(FINE, kind=kind)) == ["ok", "warning"]


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", None])
def test_any_other_is_ok(kind: str | None) -> None:
    assert states(attrs.evolve(FINE, kind=kind)) == ["ok"]


def test_the_mount_that_is_nearest_to_the_path_says_its_kind(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:26 / /home rw shared:2 master:1 - btrfs /dev/sdb rw\n"
        "31 22 0:27 / /home/ann\\040b rw - nfs4 far:/x rw\n"
        "32 22 0:28 / /mnt rw - ext4 /dev/sdc rw\n"
        "33 32 0:29 / /mnt rw - tmpfs tmpfs rw\n"
        "nonsense\n"
    )
    assert kind_of("/etc", mounts) == "ext4"
    assert kind_of("/home/annx", mounts) == "btrfs"
    assert kind_of("/home/ann b/data", mounts) == "nfs4"
    assert kind_of("/mnt/data", mounts) == "tmpfs"
    assert kind_of("/", tmp_path / "none") is None


def test_this_machines_own_disk_is_read(tmp_path: Path) -> None:
    disk = disk_of(tmp_path, Path("/proc/self/mountinfo"))
    assert disk.kind
    assert disk.free_bytes == pytest.approx(
        os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize, rel=0.2
    )
