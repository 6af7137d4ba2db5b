"""How commands end: the code, and one line that says why; never a broken pipe's complaint (F33)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peer.cli.outcome import Failed, Refused, carry_out
from peer.folder import FolderInUse, FolderNotOurs, NoDoor
from peer.setting import SettingsError
from peer.settings import Settings
from tests.peer.cli.conftest import SECONDS

if TYPE_CHECKING:
    from typing import NoReturn

FOLDER = Path("/data")


def ends_with(error: BaseException) -> int:
    def work() -> NoReturn:
        raise error

    return carry_out(work)


def bad_settings() -> SettingsError:
    with pytest.raises(SettingsError) as refused:
        Settings.read({"HOME": "/root", "BEST_PEER_LISTEN": "x", "BEST_PEER_LOG": "loud"})
    return refused.value


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Refused("no such thing"), 1, "best-peer: no such thing\n"),
        (Failed("no such peer"), 2, "best-peer: no such peer\n"),
        (FolderInUse(FOLDER, "in use"), 2, "best-peer: in use\n"),
        (FolderNotOurs(FOLDER, "another's"), 2, "best-peer: another's\n"),
        (NoDoor(FOLDER, "no door"), 2, "best-peer: no door\n"),
        (KeyboardInterrupt(), 130, ""),
        (BaseExceptionGroup("trio's", [KeyboardInterrupt()]), 130, ""),
        (Refused("\x1b[2J\nbpa_" + "x" * 43), 1, "best-peer: \\x1b[2J\\n[key removed]\n"),
    ],
)
def test_each_end_has_its_code_and_its_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends_with(error) == code
    assert capsys.readouterr().err == said


def test_every_wrong_setting_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(bad_settings()) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        "best-peer: BEST_PEER_LISTEN",
        "best-peer: BEST_PEER_LOG",
    ]


def test_a_fault_of_our_own_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_with(ExceptionGroup("trio's", [ZeroDivisionError("oh")])) == 2
    told = capsys.readouterr().err
    assert "ZeroDivisionError: oh" in told
    assert told.splitlines()[-1].startswith("best-peer: this is a fault of best-peer (ExceptionGroup)")


def test_work_says_its_own_code() -> None:
    assert carry_out(lambda: None) == 0
    assert carry_out(lambda: 2) == 2


def shell(command: str, data: Path) -> subprocess.CompletedProcess[str]:
    """A command line with `best-peer` in it, as a shell with `pipefail` sees it."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(data.parent),
        "BEST_PEER_DATA": str(data),
        "BP": f"{sys.executable} -m peer",
    }
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=SECONDS * 3,
        check=False,
    )


def test_a_reader_that_has_had_enough_is_no_failure(data: Path) -> None:
    events = data / "events"
    events.mkdir(parents=True)
    fact = (
        '{"id":"evt-0","type":"Undeployed","time":"2026-10-19T12:00:00.000Z","data":{"deployment":"dep-1"}}\n'
    )
    (events / "2026-10-19.jsonl").write_text(fact * 20_000)
    ran = shell("$BP events | head -n 1", data)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) == 1
    followed = shell("$BP events --follow | head -n 2", data)
    assert (followed.returncode, followed.stderr) == (0, "")


def test_output_that_finds_no_room_is_the_systems(data: Path) -> None:
    ran = shell("$BP models --json > /dev/full", data)
    assert ran.returncode == 2
    assert ran.stderr == "best-peer: No space left on device; mend that and try again\n"


def test_closed_streams_are_no_failure(data: Path) -> None:
    assert shell("$BP models >&-", data).returncode == 0
    assert shell("$BP status 2>&-", data).returncode == 2


def test_what_a_terminal_cannot_show_is_escaped(data: Path) -> None:
    ran = shell("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 $BP models", data.parent / "dä")
    assert ran.returncode == 0
    assert "Models in" in ran.stdout
