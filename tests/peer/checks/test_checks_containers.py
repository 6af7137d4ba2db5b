"""What is said of Docker and of NVIDIA's toolkit with it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from adapters.runtime.docker.endpoint import Endpoint, unix_endpoint
from peer.checks import containers
from peer.checks.containers import Engine, judge, look, toolkit
from peer.units import GIB

if TYPE_CHECKING:
    from tests.support.docker.bed import DockerBed

INFO: dict[str, Any] = {
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "CpuCfsQuota": True,
    "DockerRootDir": "/var/lib/docker",
    "LiveRestoreEnabled": True,
    "MemoryLimit": True,
    "NCPU": 8,
    "OSType": "linux",
    "OperatingSystem": "Debian GNU/Linux 12",
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=builtin"],
    "SwapLimit": True,
}
VERSION: dict[str, Any] = {"Version": "28.3.2", "ApiVersion": "1.51"}
HERE = unix_endpoint()
ELSEWHERE = Endpoint("https://docker.example:2376")


def engine(endpoint: Endpoint = HERE, **info: Any) -> Engine:
    return Engine({**INFO, **info}, VERSION, endpoint)


def plenty(path: str) -> int | None:
    return 100 * GIB


def test_an_engine_that_keeps_the_promises_is_ok_with_what_it_is() -> None:
    first, room = judge(engine(), plenty)
    assert (first.state, room.state) == ("ok", "ok")
    assert "28.3.2 at unix:///var/run/docker.sock, cgroup v2 by systemd, isolation container" in first.what
    assert "65536 open files, only a start tries" in first.what
    assert "100 GiB are free under Docker's storage (/var/lib/docker)" in room.what


def test_what_the_owner_may_want_to_mend_of_it_is_a_warning_with_the_remedy() -> None:
    remarks = judge(engine(LiveRestoreEnabled=False, SwapLimit=False), plenty)[1:3]
    assert [line.state for line in remarks] == ["warning", "warning"]
    assert remarks[0].remedy is not None
    assert '"live-restore": true' in remarks[0].remedy
    assert remarks[1].remedy is not None
    assert "swapaccount=1" in remarks[1].remedy


def test_an_engine_that_cannot_keep_the_promises_is_a_problem() -> None:
    (line,) = judge(engine(MemoryLimit=False), plenty)
    assert line.state == "problem"
    assert "memory" in line.what
    assert line.remedy is not None
    assert "BEST_PEER_RUNTIME=process" in line.remedy


def test_little_room_under_its_storage_is_a_warning() -> None:
    assert judge(engine(), lambda path: 9 * GIB)[-1].state == "warning"


@pytest.mark.parametrize(("endpoint", "room"), [(HERE, None), (ELSEWHERE, 1)])
def test_storage_that_cannot_be_seen_from_here_is_not_judged(endpoint: Endpoint, room: int | None) -> None:
    (line,) = judge(engine(endpoint), lambda path: room)
    assert line.state == "ok"


@pytest.mark.parametrize(
    ("given", "has_hook", "state", "said"),
    [
        (engine(Runtimes={"nvidia": {}}), False, "ok", "knows the NVIDIA container toolkit"),
        (engine(DiscoveredDevices=[{"ID": "nvidia.com/gpu=0"}]), False, "ok", "knows"),
        (engine(), True, "ok", "not registered"),
        (engine(), False, "problem", "knows no NVIDIA container toolkit"),
        (engine(ELSEWHERE), True, "warning", "on another machine"),
    ],
)
def test_the_toolkit_is_looked_for_where_docker_would(
    given: Engine, has_hook: bool, state: str, said: str
) -> None:
    (line,) = toolkit(given, has_hook=has_hook)
    assert line.state == state
    assert said in line.what
    assert state == "ok" or "nvidia-ctk runtime configure" in (line.remedy or "")


async def test_a_docker_that_is_not_there_is_a_problem_that_says_what_serves_without(tmp_path: Path) -> None:
    (line,) = await look({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}, wants_cards=False)
    assert line.state == "problem"
    assert "none.sock does not answer" in line.what
    assert line.remedy is not None
    assert "start it" in line.remedy
    assert "BEST_PEER_RUNTIME=process" in line.remedy


async def test_a_docker_that_this_user_may_not_ask_is_told_by_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(docker: object) -> Engine:
        from adapters.runtime.docker.faults import EngineForbidden

        raise EngineForbidden("Permission denied", fix="put it in the group docker", may_have_acted=False)

    monkeypatch.setattr(containers, "ask", forbidden)
    (line,) = await look({}, wants_cards=True)
    assert (line.state, line.what, line.remedy) == (
        "problem",
        "Permission denied",
        "put it in the group docker",
    )


async def test_an_address_that_is_none_is_told_without_its_password() -> None:
    (line,) = await look({"DOCKER_HOST": "ssh://ann:hunter2@far.example"}, wants_cards=False)
    assert line.state == "problem"
    assert "hunter2" not in f"{line.what}{line.remedy}"


async def test_a_docker_that_hangs_is_told_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "ENGINE_SECONDS", 0.2)
    path = tmp_path / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        (line,) = await look({"DOCKER_HOST": f"unix://{path}"}, wants_cards=False)
    assert line.state == "problem"
    assert "did not answer within" in line.what


async def test_what_listens_there_and_is_no_docker_is_told(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")

        thread = threading.Thread(target=answer)
        thread.start()
        (line,) = await look({"DOCKER_HOST": f"unix://{path}"}, wants_cards=False)
        thread.join(20)
    assert line.state == "problem"


async def test_a_real_docker_is_described(docker_bed: DockerBed) -> None:
    lines = await look({"DOCKER_HOST": f"unix://{docker_bed.socket}"}, wants_cards=True)
    assert lines[0].state == "ok"
    assert "Docker Engine" in lines[0].what
    assert lines[-1].subject == "toolkit"
    assert lines[-1].state == "problem"


def test_free_room_is_that_of_the_path() -> None:
    assert containers.free_bytes("/proc/nowhere") is None
    found = os.statvfs("/")
    assert containers.free_bytes("/") == pytest.approx(found.f_bavail * found.f_frsize, rel=0.1)
    assert attrs.evolve(engine(), version={}).version == {}
