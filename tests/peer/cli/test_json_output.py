"""`--json` on every command that has it: JSON alone on standard output, and nothing at all where it failed.

openclaw/openclaw#88627: progress marks stood in front of the JSON that another program was to read.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.messages.envelope import EnvelopeEncoder, Fact
from actors.messages.events import Undeployed
from peer.cli.app import make_app
from tests.peer.cli.conftest import SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cyclopts import App

    from tests.peer.cli.conftest import FakeDoor, Ran

ROOT = Path(__file__).parents[3]
CODE = "BCDF-GHJK"
HOLD = {"device": "gpu-0", "until": None, "reason": None, "now": False}
ANSWERS = {
    "GET /admin/status": {"endpoint": "http://peer.example", "keys": [], "devices": []},
    "GET /admin/keys": {"keys": [], "waiting": []},
    "GET /admin/holds": {"devices": [], "holds": [], "work": []},
    "GET /admin/pending": {"user_code": CODE, "state": "pending", "name": "lab"},
    "POST /admin/approve": {"user_code": CODE, "name": "lab", "grant": {"scopes": ["all"]}},
    "POST /admin/revoke": {"revoked": [{"name": "lab", "holder": "h-1"}], "still_running": []},
    "POST /admin/deny": {"user_code": CODE, "name": "lab"},
    "POST /admin/hold": {"hold": "hold-0", "held": [HOLD], "work": []},
    "POST /admin/release": {"released": [HOLD], "holds": []},
}
ASKING = {
    ("status",): "GET /admin/status",
    ("keys",): "GET /admin/keys",
    ("approve", CODE, "--yes"): "POST /admin/approve",
    ("deny", CODE): "POST /admin/deny",
    ("revoke", "lab"): "POST /admin/revoke",
    ("hold",): "POST /admin/hold",
    ("release",): "POST /admin/release",
}
"""Commands that ask the door, and what of it."""
BY_ITSELF = (("models",), ("check",))
LINES = ("events",)
"""What prints an object a line."""
DECORATED = {"TERM": "xterm-256color", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "40"}
"""What would have a program paint although nobody looks."""


def with_json(app: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that takes --json."""
    if chain and app.default_command is not None:
        names = {name for each in app.assemble_argument_collection() for name in each.names}
        if "--json" in names:
            yield chain
    for name in app:
        if not name.startswith("-"):
            yield from with_json(app[name], (*chain, name))


@pytest.fixture
def answering(door: FakeDoor) -> FakeDoor:
    """A door that answers all of them."""
    door.answers.update({route: (200, answer) for route, answer in ANSWERS.items()})
    return door


def tell(data: Path) -> None:
    """Two facts in the log."""
    encoder = EnvelopeEncoder("urn:best-peer:p-test", {})
    log = data / "events" / "2026-10-19.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        fact = Fact(Undeployed(f"dep-{number}"), "h-1", "c-1", "cmd-1")
        with log.open("ab") as file:
            file.write(encoder.line(fact, number, 1_792_000_000_000) + b"\n")


def program(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """The program itself, its output a pipe that is filled as any is: in blocks, unless it says otherwise."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-m", "peer", *arguments],
        cwd=ROOT,
        env={**environ, **DECORATED},
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input is closed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_every_command_that_takes_json_is_looked_at_here() -> None:
    looked_at = {(first,) for first, *_ in (*ASKING, *BY_ITSELF, LINES)}
    assert set(with_json(make_app())) == looked_at


@pytest.mark.parametrize("arguments", [*ASKING, *BY_ITSELF, LINES], ids=lambda words: words[0])
def test_a_pipe_is_given_json_alone(data: Path, answering: FakeDoor, arguments: tuple[str, ...]) -> None:
    """openclaw/openclaw#88627, where it is likeliest: a person sits beside, at a terminal with colours."""
    tell(data)
    ours, theirs = pty.openpty()
    try:
        with program(*arguments, "--json", stdin=theirs, stderr=theirs) as process:
            out, _ = process.communicate(timeout=SECONDS)
    finally:
        os.close(theirs)
        os.close(ours)
    found = [json.loads(line) for line in out.splitlines()]
    assert all(isinstance(each, dict) for each in found)
    assert out.endswith("}\n")
    assert len(found) == (2 if arguments == LINES else 1)
    if arguments in ASKING:
        assert found == [ANSWERS[ASKING[arguments]]]
    if arguments != ("check",):  # that one's exit code is what it found
        assert process.returncode == 0


def test_who_waits_for_a_hold_is_given_it_while_it_lasts(
    answering: FakeDoor, child: subprocess.Popen[bytes]
) -> None:
    """The object comes as soon as it is held, and what is said to a person goes elsewhere."""
    answering.answers["GET /admin/holds"] = 503, {"error": {"code": "LOG_UNAVAILABLE", "message": "not now"}}
    command = ("hold", "--while", str(child.pid), "--json")
    with program(*command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert json.loads(first) == ANSWERS["POST /admin/hold"]
        assert process.poll() is None
        process.terminate()
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, "")
    said = err.splitlines()
    assert said[0].startswith(f"That is while process {child.pid}")
    assert said[-1] == "Released: gpu-0."


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["words", "json"])
def test_a_hold_whose_reader_has_left_is_not_left_with_nobody_watching(
    answering: FakeDoor, child: subprocess.Popen[bytes], options: tuple[str, ...]
) -> None:
    """The command ends there as any does in front of `head`; it would be held for twelve hours."""
    command = ("hold", "--while", str(child.pid), *options)
    with program(*command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 0
    (asked,) = [each.json for each in answering.requests if each.path == "/admin/hold"]
    (given,) = [each.json for each in answering.requests if each.path == "/admin/release"]
    assert given == {"hold": asked["hold"]}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        *((each, 2) for each in ASKING),
        (("models",), 1),
        (("check", "--environment", "nowhere"), 1),
        (("events", "--type", "Nothing"), 1),
        (LINES, 0),
    ],
)
def test_where_there_is_nothing_to_read_the_output_is_empty(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int
) -> None:
    """No peer runs here, nothing was told, and the models' folder is not there."""
    monkeypatch.setenv("BEST_PEER_MODELS", "/nowhere")
    ran = cli(*arguments, "--json")
    assert (ran.code, ran.out) == (code, "")
    assert ran.line


@pytest.mark.parametrize("arguments", ASKING, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (422, {"error": {"code": "UNKNOWN_DEVICE", "message": "there is no such thing"}}, 1),
        (503, {"error": {"code": "LOG_UNAVAILABLE", "message": "not now"}}, 2),
        (200, b'{"half": ', 2),
        (200, b"<html>", 2),
        (200, [1], 2),
    ],
)
def test_what_the_door_refuses_or_garbles_leaves_the_output_empty(
    answering: FakeDoor,
    cli: Callable[..., Ran],
    arguments: tuple[str, ...],
    status: int,
    answer: Any,
    code: int,
) -> None:
    answering.answers[ASKING[arguments]] = status, answer
    ran = cli(*arguments, "--json")
    assert (ran.code, ran.out) == (code, "")
    assert ran.line.startswith("best-peer: ")


@pytest.mark.parametrize("command", [*ASKING, *BY_ITSELF, LINES], ids=lambda words: words[0])
def test_a_wrong_command_line_leaves_the_output_empty(
    cli: Callable[..., Ran], command: tuple[str, ...]
) -> None:
    for wrong in (["--json", "--nonsense"], ["--json=maybe"], ["--json", "one", "too", "many"]):
        ran = cli(*command, *wrong)
        assert (ran.code, ran.out) == (1, "")
        assert ran.line
