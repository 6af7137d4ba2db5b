"""What is said of the program, memory, open files and the unit."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from peer.checks.machine import judge_files, memory, open_files, program, service
from peer.checks.users import user_name


def test_the_program_says_which_it_is() -> None:
    (line,) = program("1.2.3")
    assert line.what.startswith("best-peer 1.2.3 on Python 3.")


@pytest.mark.parametrize(
    ("hard", "state"),
    [(resource.RLIM_INFINITY, "ok"), (524288, "ok"), (1024, "warning"), (64, "problem")],
)
def test_open_files_are_judged_by_the_hard_limit(hard: int, state: str) -> None:
    assert judge_files(hard)[0].state == state


def test_the_limit_is_this_process_own() -> None:
    assert open_files()[0].subject == "files"


@pytest.mark.parametrize(
    ("text", "state", "said"),
    [
        ("MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n", "ok", "4 GiB of 8 GiB"),
        ("MemTotal:       8388608 kB\nMemAvailable:   102400 kB\n", "warning", "100 MiB of 8 GiB"),
        ("MemTotal:       8388608 kB\n", "ok", "unknown"),
    ],
)
def test_memory_is_what_the_kernel_says_is_available(
    tmp_path: Path, text: str, state: str, said: str
) -> None:
    (tmp_path / "meminfo").write_text(text)
    (line,) = memory(tmp_path / "meminfo")
    assert line.state == state
    assert said in line.what


def test_a_unit_that_ends_with_its_session_is_a_warning(tmp_path: Path) -> None:
    lingering = tmp_path / "linger"
    lingering.mkdir()
    assert service(tmp_path, lingering, os.getuid()) == ()
    unit = tmp_path / ".config/systemd/user/best-peer.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    (line,) = service(tmp_path, lingering, os.getuid())
    assert line.state == "warning"
    assert line.remedy == "systemctl --user enable --now best-peer.service"
    (unit.parent / "default.target.wants").mkdir()
    (unit.parent / "default.target.wants" / unit.name).symlink_to(unit)
    (line,) = service(tmp_path, lingering, os.getuid())
    assert line.state == "warning"
    assert f"loginctl enable-linger {user_name(os.getuid())}" in (line.remedy or "")
    (lingering / user_name(os.getuid())).touch()
    assert service(tmp_path, lingering, os.getuid())[0].state == "ok"
    assert user_name(4_294_000) == "4294000"
