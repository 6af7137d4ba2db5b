"""The unit that `best-peer service` prints, under a real systemd: ready, refused, killed, stopped."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peer.cli.service import USER_UNIT, unit_text
from peer.folder import DoorRecord
from tests.support.peers import environment
from tests.support.systemd import SECONDS, Systemd, open_systemd

if TYPE_CHECKING:
    from collections.abc import Iterator

# As for tests with containers, it wants root and namespaces, and is left out where those are.
pytestmark = pytest.mark.docker

# Where its settings are read from, and no wait before it is started again.
_DROP_IN = """
[Unit]
DefaultDependencies=no
[Service]
Slice=-.slice
EnvironmentFile=
EnvironmentFile={file}
RestartSec=100ms
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "env"
    file.write_text("".join(f"{name}={value}\n" for name, value in environment(tmp_path).items()))
    return file


@pytest.fixture
def manager(tmp_path: Path, settings: Path) -> Iterator[Systemd]:
    units = tmp_path / "units"
    (units / f"{USER_UNIT}.d").mkdir(parents=True)
    (units / USER_UNIT).write_text(unit_text(Path(sys.executable).with_name("best-peer")))
    (units / f"{USER_UNIT}.d" / "test.conf").write_text(_DROP_IN.format(file=settings))
    with open_systemd(units, tmp_path / "systemd.log") as made:
        yield made


def record(tmp_path: Path) -> DoorRecord:
    return DoorRecord.read(tmp_path / "peer" / "door.json")


def test_a_peer_counts_as_started_once_its_door_is_open_and_what_it_serves_outlives_it(
    manager: Systemd, tmp_path: Path
) -> None:
    manager.ctl("start", USER_UNIT)
    served = record(tmp_path)
    shown = manager.show(USER_UNIT, "StatusText", "MainPID", "ControlGroup")
    assert served.endpoint in shown["StatusText"]

    # What the peer started stands in the unit's group, and is not ended with it.
    group = f"/sys/fs/cgroup{shown['ControlGroup']}/cgroup.procs"
    script = f"setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $! >{group}; echo $!"
    model = manager.run("sh", "-c", script).stdout.strip()
    manager.ctl("stop", USER_UNIT)
    assert manager.show(USER_UNIT, "Result", "ExecMainStatus") == {"Result": "success", "ExecMainStatus": "0"}
    assert not (tmp_path / "peer" / "door.json").exists()
    assert manager.run("kill", "-0", model).returncode == 0

    manager.ctl("start", USER_UNIT)
    assert record(tmp_path).endpoint
    assert manager.run("kill", "-0", model).returncode == 0


def test_a_peer_that_is_killed_is_started_again(manager: Systemd, tmp_path: Path) -> None:
    manager.ctl("start", USER_UNIT)
    manager.ctl("kill", "--signal=KILL", USER_UNIT)
    end = time.monotonic() + SECONDS
    while manager.show(USER_UNIT, "NRestarts", "ActiveState") != {"NRestarts": "1", "ActiveState": "active"}:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert record(tmp_path).endpoint


def test_a_start_that_is_refused_fails_and_is_not_tried_again(manager: Systemd, settings: Path) -> None:
    with settings.open("a") as file:
        file.write("BEST_PEER_PULL=never\n")
    manager.ctl("start", USER_UNIT, ok=False)
    shown = manager.show(USER_UNIT, "ActiveState", "Result", "ExecMainStatus", "NRestarts")
    assert shown == {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "1", "NRestarts": "0"}
