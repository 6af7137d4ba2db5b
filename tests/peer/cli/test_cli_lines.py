"""What the commands print is lines and nothing else: no blanks at an end, no blank line too many."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from peer.cli.tables import Column, table
from tests.peer.cli.test_cli_approve import APPROVE, CODE, PENDING, waiting
from tests.peer.cli.test_cli_cards import card, device, program
from tests.peer.cli.test_cli_keys import KEYS, NOW
from tests.peer.cli.test_cli_keys import key as listed_key
from tests.peer.cli.test_cli_keys import waiting as listed_waiting
from tests.peer.cli.test_cli_status import DEPLOYMENT, HOLDER, STATUS, Terminal, answer, key
from tests.peer.cli.test_cli_status import terminal as terminal  # a fixture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.peer.cli.conftest import FakeDoor, Ran

ENDED = key(name="gone", state="revoked", deployments=0)
HELD = {"hold": "hold-1", "device": "gpu-0", "until": None, "reason": None, "now": True}
AFFECTED = {"workload": DEPLOYMENT, "what": "small", "device": "gpu-0", "holder": HOLDER, "ends": True}
FULL: dict[str, Any] = {
    "devices": [device(0), device(1, condition="lost", condition_reason="it fell off the bus")],
    "cards": [card(0, own=[program(7, workload=DEPLOYMENT)])],
    "busy": {"GPU-0": "memory"},
    "holds": [HELD],
    "affected": [AFFECTED],
    "keys": [key(), ENDED],
}

APART = (
    "Not to be used",
    "Programs on the cards",
    "gpu-0 takes no new work",
    "Held by you",
    "Of what runs on them",
    "1 more key has ended",
)


def tidy(out: str) -> None:
    """Fail on a line that ends in blanks, and on a blank line that parts nothing from nothing."""
    assert out.endswith("\n")
    lines = out.removesuffix("\n").split("\n")
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[0]
    assert lines[-1]
    assert "\n\n\n" not in out


@pytest.mark.parametrize(
    "more",
    [
        {},
        FULL,
        {**FULL, "affected": [], "keys": [key()], "busy": {}, "cards": []},
        {"devices": [], "workloads": {}, "keys": [], "engines": []},
        {"workloads": {}, "keys": [ENDED]},
    ],
    ids=["few", "full", "held", "empty", "ended"],
)
def test_status(
    door: FakeDoor,
    cli: Callable[..., Ran],
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
) -> None:
    """Elsewhere and on a terminal of eighty columns alike."""
    door.answers[STATUS] = 200, answer(**more)
    out = cli("status").out
    tidy(out)
    for begins in ("Devices", "Deployments", "Jobs", "Keys", *(APART if more is FULL else ())):
        assert re.search(rf"\n\n{begins}", out), begins
    monkeypatch.setattr(sys, "stdout", terminal)
    assert cli("status").code == 0
    tidy(re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()))


def test_keys(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    for waits in ([], [listed_waiting()], [listed_waiting(), listed_waiting(state="approved")]):
        for held in ([], [listed_key()], [listed_key(), listed_key(name="other")]):
            for ended in (0, 2):
                found = {"keys": held, "waiting": waits, "more_ended": ended, "now_ms": NOW, "began_ms": NOW}
                door.answers[KEYS] = 200, found
                out = cli("keys").out
                tidy(out)
                last = (ended > 0 or not held) and bool(held or waits)
                assert out.count("\n\n") == max(0, len(waits) + len(held) - 1) + last


def test_models(data: Path, cli: Callable[..., Ran]) -> None:
    folder = data / "models"
    folder.mkdir(parents=True)
    tidy(cli("models").out)
    (folder / "broken.gguf").write_bytes(b"GGUF and no more")
    out = cli("models").out
    tidy(out)
    assert "\n\nbroken cannot be deployed: " in out


def test_approve(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers = {PENDING: waiting(agent_label="Claude  "), APPROVE: (200, {})}
    tidy(cli("approve", CODE, "--memory", "4G").out)


def test_a_table_ends_its_lines_where_their_words_end(capsys: pytest.CaptureFixture[str]) -> None:
    table("Things", [Column("One"), Column("Two")], [["a", "long words"], ["long", ""], ["", ""]], "none")
    assert capsys.readouterr().out == "Things\nOne   Two\na     long words\nlong\n\n"
