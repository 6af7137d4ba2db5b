"""The units that `best-peer service` prints, as systemd itself reads them."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peer.cli.outcome import REFUSED
from peer.cli.service import unit_text
from peer.lifecycle import STOP_SECONDS
from tests.support.programs import program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import Ran


def parsed(text: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    return unit


@pytest.mark.parametrize("system", [False, True])
def test_systemd_finds_nothing_to_say_of_a_unit(tmp_path: Path, system: bool) -> None:
    folder = tmp_path / "50%h of it"
    folder.mkdir()
    start = folder / "best-peer"
    start.write_text("#!/bin/sh\n")
    start.chmod(0o755)
    unit = tmp_path / "best-peer.service"
    unit.write_text(unit_text(start, system=system))
    manager = [] if system else ["--user"]
    ran = subprocess.run(
        [program("systemd-analyze", "systemd"), *manager, "verify", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("system", [False, True])
def test_a_unit_keeps_what_a_peer_promises(system: bool) -> None:
    unit = parsed(unit_text(Path("/opt/best-peer"), system=system))["Service"]
    assert unit["ExecStart"] == "/opt/best-peer"
    # What is served runs on, and a model that runs out of memory does not end the peer.
    assert (unit["KillMode"], unit["OOMPolicy"]) == ("process", "continue")
    assert float(unit["TimeoutStopSec"]) > STOP_SECONDS
    assert unit["Restart"] == "on-failure"
    assert int(unit["RestartPreventExitStatus"]) == REFUSED
    assert unit["Type"] == "notify"
    assert unit["UMask"] == "0077"
    # The card, its processes, and code that is made while it runs.
    for closed in ("PrivateDevices", "DevicePolicy", "ProtectProc", "MemoryDenyWriteExecute", "ProtectClock"):
        assert closed not in unit


def test_every_limit_in_a_unit_says_why(cli: Callable[..., Ran]) -> None:
    for text in (cli("service").out, cli("service", "--system").out):
        assert text.startswith("# Written by best-peer service")
        assert len(re.findall(r"^# ", text, re.MULTILINE)) >= 15
        assert max(map(len, text.splitlines())) <= 120


def test_the_program_that_is_asked_is_the_one_it_starts(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = tmp_path / "best-peer"
    link.symlink_to("/elsewhere/1.0/bin/best-peer")
    ran = cli("service")
    beside = Path(sys.executable).with_name("best-peer")
    assert ran.code == 0
    assert f"ExecStart={tmp_path}" not in ran.out
    from peer.cli import service

    monkeypatch.setattr(service.sys, "argv", [str(link), "service"])  # type: ignore[attr-defined]
    # The link, which an upgrade turns, and not what it leads to.
    assert service._this_program() == link
    monkeypatch.setattr(service.sys, "argv", ["/x/peer/__main__.py"])  # type: ignore[attr-defined]
    assert service._this_program() == (
        beside if beside.exists() else Path(shutil.which("best-peer") or beside)
    )


def test_a_program_that_is_not_there_is_printed_with_a_warning(
    cli: Callable[..., Ran], tmp_path: Path
) -> None:
    for nowhere in (tmp_path / "nowhere", tmp_path):
        ran = cli("service", "--program", str(nowhere))
        assert ran.code == 0
        assert f"ExecStart={nowhere}" in ran.out
        assert f"--program {nowhere} is no program" in ran.line
    assert cli("service", "--program", sys.executable).err == ""


def test_a_program_that_is_no_path_is_refused(cli: Callable[..., Ran]) -> None:
    for given in ("best-peer", "/a\nExecStartPre=/b", "/a 'b'/best-peer", "/$HOME/best-peer"):
        ran = cli("service", "--program", given)
        assert (ran.code, ran.out) == (1, "")
        assert "--program" in ran.line
