"""The kernel's count of what it ended for want of memory, by control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.runtime.oom import OomKills, oom_kills

PID = 42
HYBRID = """\
32 31 0:29 / {at}/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / {at}/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / {at}/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 23 0:26 / {at} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def machine(tmp_path: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """A proc file system and what is mounted; the folder of the former."""
    proc, at = tmp_path / "proc", tmp_path / "cgroup"
    for path, text in (
        (proc / str(PID) / "cgroup", groups),
        (proc / "self" / "mountinfo", mounts.format(at=at)),
        # The machine's own count says of everything on it, and is not to be believed.
        (proc / "vmstat", "oom_kill 7\n"),
        *((at / name, text) for name, text in files.items()),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "found"),
    [
        (
            "0::/user.slice/session-1.scope\n",
            V2,
            {
                "user.slice/session-1.scope/memory.events.local": "low 0\noom 3\noom_kill 2\n",
                "user.slice/session-1.scope/memory.events": "oom_kill 5\n",
            },
            2,
        ),
        ("0::/a\n", V2, {"a/memory.events": "oom_kill 5\n"}, 5),
        (
            "9:name=systemd:/\n4:memory:/a/b\n1:cpu:/\n0::/\n",
            HYBRID,
            {"memory/a/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"},
            1,
        ),
        (
            "4:memory,hugetlb:/docker/c0ffee\n",
            "35 31 0:32 /docker/c0ffee {at}/memory ro - cgroup cgroup rw,memory\n",
            {"memory/memory.oom_control": "oom_kill 4\n"},
            4,
        ),
    ],
    ids=["v2", "v2 without local counts", "v1 beside v2", "v1 in a container"],
)
def test_the_count_is_that_of_the_group_the_process_runs_in(
    tmp_path: Path, groups: str, mounts: str, files: dict[str, str], found: int
) -> None:
    kills = oom_kills(PID, machine(tmp_path, groups, mounts, files))
    assert kills is not None
    assert kills.count == found


@pytest.mark.parametrize(
    ("groups", "mounts", "files"),
    [
        ("0::/\n", V2, {}),
        ("0::/\n", "", {}),
        ("", V2, {"memory.events": "oom_kill 1\n"}),
        ("4:memory:/a\n", HYBRID, {"memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}),
        ("4:memory:/a\n", "35 31 0:32 /b {at}/memory rw - cgroup cgroup rw,memory\n", {}),
        ("0::/../other\n", V2, {"memory.events": "oom_kill 1\n"}),
        ("nonsense\n::\n", "nonsense\n - \n", {}),
    ],
    ids=["the root", "no mount", "no process", "an old kernel", "another's mount", "outside", "nonsense"],
)
def test_where_no_group_counts_nothing_is_known(
    tmp_path: Path, groups: str, mounts: str, files: dict[str, str]
) -> None:
    assert oom_kills(PID, machine(tmp_path, groups, mounts, files)) is None


def test_a_count_has_risen_only_where_it_says_so(tmp_path: Path) -> None:
    file = tmp_path / "memory.events.local"
    before = OomKills(file, 2)
    assert not before.have_risen()
    for count, risen in (("2", False), ("3", True), ("1", False), ("max", False)):
        file.write_text(f"oom 9\noom_kill {count}\n")
        assert before.have_risen() is risen


def test_this_machines_own_files_can_be_read() -> None:
    kills = oom_kills(1)
    assert kills is None or kills.count >= 0
