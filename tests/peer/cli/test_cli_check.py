"""`best-peer check`: lines for a person, an exit code by the worst, JSON alone; changes and shows nothing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from adapters.files import make_private_folder
from peer.checks import looks
from peer.checks.line import Line, Look, ok, problem, warning
from tests.support.peers import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.peer.cli.conftest import Ran

ROOT = Path(__file__).parents[3]


class Terminal(io.StringIO):
    """What a person's terminal would get."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """What the looks find, for a test to fill; the program and its settings are told besides."""
    lines: list[Line] = []

    async def run() -> Sequence[Line]:
        return lines

    monkeypatch.setattr(looks, "looks_for", lambda *_: (Look("made up", run),))
    return lines


@pytest.mark.parametrize(
    ("line", "code", "summary"),
    [
        (ok("disk", "it is"), 0, "All 3 are ok."),
        (warning("disk", "it is full", "free some"), 0, "1 warning, 2 ok."),
        (problem("disk", "it is gone", "mend it"), 1, "1 problem, 2 ok."),
    ],
)
def test_the_worst_line_is_the_exit_code(
    cli: Callable[..., Ran], found: list[Line], line: Line, code: int, summary: str
) -> None:
    found.append(line)
    ran = cli("check")
    assert (ran.code, ran.err) == (code, "")
    assert ran.out.splitlines()[-1] == summary
    assert f"{line.state:<9}disk         {line.what}" in ran.out
    assert line.remedy is None or f"-> {line.remedy}" in ran.out


def test_json_alone_is_printed_with_everything_in_it(cli: Callable[..., Ran], found: list[Line]) -> None:
    found.append(problem("disk", "it is gone", "mend it"))
    ran = cli("check", "--json")
    assert ran.code == 1
    assert ran.json["worst"] == "problem"
    assert ran.json["lines"][-1] == {
        "state": "problem",
        "subject": "disk",
        "what": "it is gone",
        "remedy": "mend it",
    }


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_a_terminal_and_the_word_is_there_without_it(
    cli: Callable[..., Ran],
    found: list[Line],
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
    coloured: bool,
) -> None:
    found.append(problem("disk", "it is gone " * 20, "mend it " * 20))
    assert "\x1b" not in cli("check").out
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environ, "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    cli("check")
    text = terminal.getvalue()
    assert ("\x1b[31mproblem\x1b[0m" in text) is coloured
    assert "problem" in text
    plain = (
        text.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[33m", "").replace("\x1b[0m", "")
    )
    assert max(map(len, plain.splitlines())) <= 80


def test_a_narrow_terminal_gets_no_columns(
    cli: Callable[..., Ran], found: list[Line], monkeypatch: pytest.MonkeyPatch
) -> None:
    found.append(problem("disk", "it is gone " * 9, "mend it " * 9))
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    cli("check")
    text = terminal.getvalue()
    assert "problem disk: it is gone it" in text
    # The program's own line has a path in it, which stays whole.
    assert max(len(line) for line in text.splitlines() if "/" not in line) <= 40


def test_nothing_of_what_others_say_acts_on_a_terminal(cli: Callable[..., Ran], found: list[Line]) -> None:
    found.append(problem("driver", "\x1b[2J bpa_" + "x" * 43, "\x07"))
    out = cli("check").out
    assert "\x1b" not in out
    assert "x" * 43 not in out


def test_the_machine_that_this_runs_on_is_looked_at_whole_and_left_as_it_is(
    cli: Callable[..., Ran], data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BEST_PEER_GPU", "none")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    ran = cli("check", "--json")
    subjects = [line["subject"] for line in ran.json["lines"]]
    assert list(dict.fromkeys(subjects)) == [
        *("program", "settings", "peer", "driver", "docker", "data", "disk"),
        *("port", "endpoint", "clock", "files", "memory"),
    ]
    docker = [line for line in ran.json["lines"] if line["subject"] == "docker"]
    assert [line["state"] for line in docker] == ["problem"]
    assert ran.code == 1
    assert not data.exists()


def test_every_runtime_and_https_have_looks_of_their_own(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEST_PEER_GPU", "none")
    monkeypatch.setenv("BEST_PEER_LISTEN", "0.0.0.0:0")
    monkeypatch.setenv("BEST_PEER_ENDPOINT", "https://127.0.0.1:7777")
    for runtime, wanted in (("process", {"engine", "models"}), ("fake", {"engine"}), ("native", {"engine"})):
        monkeypatch.setenv("BEST_PEER_RUNTIME", runtime)
        subjects = {line["subject"] for line in cli("check", "--json").json["lines"]}
        assert wanted | {"certificate", "firewall"} <= subjects
        assert not {"docker", "toolkit"} & subjects


def test_settings_may_come_from_the_units_own_file(
    cli: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "env"
    file.write_text("BEST_PEER_RUNTIME=fake\nBEST_PEER_GPU=none\nBEST_PEER_PULL=never\nno setting\n")
    lines = cli("check", "--environment", str(file), "--json").json["lines"]
    assert any("BEST_PEER_PULL=never is refused" in line["what"] for line in lines)
    assert any("BEST_PEER_RUNTIME=fake" in line["what"] for line in lines)
    assert any(line["what"] == f"line 4 of {file} is no NAME=value" for line in lines)
    ran = cli("check", "--environment", str(tmp_path / "none"))
    assert (ran.code, ran.out) == (1, "")
    assert "--environment" in ran.line


def test_a_disk_that_hangs_under_the_settings_is_told_and_not_waited_for(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(environ: object) -> None:
        answers.wait(60)

    from peer.cli import check

    monkeypatch.setattr(check, "SETTINGS_SECONDS", 0.1)
    monkeypatch.setattr(check, "_settings", hang)
    try:
        ran = cli("check")
    finally:
        answers.set()
    assert ran.code == 1
    assert "could not be read within 0.1 seconds" in ran.out


def names_and_sizes(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def test_a_peer_that_runs_is_found_asked_and_left_alone_and_nothing_secret_is_shown(tmp_path: Path) -> None:
    peer = PeerProcess(tmp_path, {"BEST_PEER_OLLAMA_IMAGE": "registry.example/hidden-away"}, https=True)
    with peer:
        peer.sign_in()
        before = names_and_sizes(peer.data)
        token = (peer.data / "admin-token").read_text().strip()
        environ = {
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "BEST_PEER_DATA": str(peer.data),
            "BEST_PEER_PULL": "missing",
        }
        ran = subprocess.run(
            [sys.executable, "-m", "peer", "check", "--json"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert names_and_sizes(peer.data) == before
        endpoint = peer.endpoint
    lines = {(line["subject"], line["state"]): line["what"] for line in json.loads(ran.stdout)["lines"]}
    assert "answers, of this version" in lines["peer", "ok"]
    # Its own settings count, not those of the shell, which are told to differ.
    assert "BEST_PEER_PULL" in lines["peer", "warning"]
    assert "BEST_PEER_RUNTIME=fake" in lines["engine", "warning"]
    assert "own peer listens" in lines["port", "ok"]
    assert lines["endpoint", "ok"] == f"{endpoint}/.well-known/best answers"
    assert "is good for" in lines["certificate", "ok"]
    assert "closed to others" in lines["data", "ok"]
    for secret in (token, "hidden-away", (peer.data / "tls" / "key.pem").read_text()[40:80]):
        assert secret not in ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stdout


def test_it_needs_no_folder_that_it_may_read(
    cli: Callable[..., Ran], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_private_folder(data)
    (data / "lock").mkdir()  # what no lock can be looked at
    monkeypatch.setenv("BEST_PEER_GPU", "none")
    monkeypatch.setenv("BEST_PEER_RUNTIME", "fake")
    lines = cli("check", "--json").json["lines"]
    assert [line["state"] for line in lines if line["subject"] == "data"] == ["ok"]
