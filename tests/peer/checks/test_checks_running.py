"""What is said of the peer that runs over the data folder."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from peer.checks.running import differing, find, look
from peer.folder import DataFolder, DoorRecord
from tests.support.peers import open_door


def test_the_settings_of_a_running_peer_are_those_it_was_started_with(tmp_path: Path) -> None:
    assert find(tmp_path / "none") is None
    processes = tmp_path / "proc"
    with DataFolder.open(tmp_path / "data") as folder:
        assert find(folder.path) is not None
        starting = find(folder.path)
        assert starting is not None
        assert (starting.record, starting.environ) == (None, None)
        folder.door.write_text(
            f'{{"endpoint":"http://127.0.0.1:1","listen":[],"certificate":null,"pid":{os.getpid()},"version":"1"}}'
        )
        folder.door.chmod(0o600)
        (processes / str(os.getpid())).mkdir(parents=True)
        environ = b"BEST_PEER_RUNTIME=fake\0AWS_SECRET=x\0HOME=/h\0DOCKER_HOST=unix:///d\0\0nonsense\0"
        (processes / str(os.getpid()) / "environ").write_bytes(environ)
        running = find(folder.path, processes)
        assert running is not None
        assert running.environ == {"BEST_PEER_RUNTIME": "fake", "HOME": "/h", "DOCKER_HOST": "unix:///d"}
        unreadable = find(folder.path, tmp_path)
        assert unreadable is not None
        assert unreadable.environ is None
    assert find(tmp_path / "data") is None


@pytest.mark.parametrize(
    ("here", "named"),
    [
        ({"HOME": "/other", "PATH": "/x"}, None),
        ({"BEST_PEER_PULL": "missing"}, None),
        ({"BEST_PEER_PULL": "always"}, "BEST_PEER_PULL"),
        ({"BEST_PEER_LISTEN": "0.0.0.0:1"}, "BEST_PEER_LISTEN"),
    ],
)
def test_what_a_shell_sets_otherwise_is_named_without_its_value(
    here: dict[str, str], named: str | None
) -> None:
    lines = differing({"BEST_PEER_PULL": "missing", "HOME": "/h"}, here)
    if named is None:
        assert lines == ()
    else:
        assert lines[0].state == "warning"
        assert lines[0].what.endswith(named)


async def test_a_folder_that_no_peer_holds_is_fine(tmp_path: Path) -> None:
    assert [line.state for line in await look(tmp_path / "data", "1")] == ["ok"]


async def test_a_peer_that_starts_or_hangs_is_a_problem(tmp_path: Path) -> None:
    with DataFolder.open(tmp_path / "data"):
        (line,) = await look(tmp_path / "data", "1")
    assert line.state == "problem"
    assert "has not opened its door yet" in line.what


async def test_a_peer_that_answers_is_ok_and_one_of_another_version_a_warning(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        data = door.peer.folder
        DoorRecord(
            endpoint=door.endpoint,
            listen=(door.endpoint.removeprefix("http://"),),
            certificate=None,
            pid=os.getpid(),
            version=version("best-peer"),
        ).write(data.door)
        (line,) = await look(data.path, version("best-peer"))
        assert (line.state, line.what) == ("ok", f"one runs over {data.path} and answers, of this version")
        (line,) = await look(data.path, "9.9")
        assert line.state == "warning"
        assert version("best-peer") in line.what
