"""Which container a process is in, by the control groups that a made-up kernel names."""

from pathlib import Path

import pytest

from adapters.pids import MACHINES
from adapters.runtime.docker.groups import by_container

ONE, TWO = "1" * 64, "2" * 64


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of the machine."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(MACHINES)
    process(tmp_path, 1, "0::/init.scope\n")
    return tmp_path


def process(proc: Path, pid: int, group: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(group)
    (proc / str(pid) / "stat").write_text(f"{pid} (x) S")


@pytest.mark.parametrize(
    "group",
    [
        f"0::/system.slice/docker-{ONE}.scope\n",
        f"0::/docker/{ONE}\n",
        f"0::/../../docker-{ONE}.scope/init\n",
        f"12:memory:/docker/{ONE}\n11:cpu:/docker/{ONE}\n0::/\n",
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ONE}.scope\n",
    ],
)
def test_a_process_is_in_the_container_that_its_group_names_however_it_is_named(
    proc: Path, group: str
) -> None:
    process(proc, 7, group)
    assert by_container(None, proc) == {ONE: {7}}


def test_processes_are_sorted_by_container_and_those_of_none_left_out(proc: Path) -> None:
    process(proc, 7, f"0::/docker/{ONE}\n")
    process(proc, 8, f"0::/docker/{ONE}\n")
    process(proc, 9, f"0::/docker/{TWO}\n")
    process(proc, 10, "0::/user.slice\n")
    assert by_container(None, proc) == {ONE: {7, 8}, TWO: {9}}
    assert by_container(frozenset({8, 10, 99}), proc) == {ONE: {8}}


def test_a_container_in_a_container_is_in_both(proc: Path) -> None:
    process(proc, 7, f"0::/docker/{ONE}/docker/{TWO}\n")
    assert by_container(None, proc) == {ONE: {7}, TWO: {7}}


def test_a_kernel_that_does_not_show_every_process_tells_nothing(proc: Path, tmp_path: Path) -> None:
    process(proc, 7, f"0::/docker/{ONE}\n")
    (proc / "1/stat").unlink()
    assert by_container(None, proc) is None, "hidden from this user"
    (proc / "1/stat").write_text("1 (init) S")
    (proc / "self/ns/pid").unlink()
    (proc / "self/ns/pid").symlink_to("pid:[4026532900]")
    assert by_container(None, proc) is None, "a container's own numbers"
    assert by_container(None, tmp_path / "none") is None
