"""`best-peer deny`: an agent that waits is turned away, and told so (R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

CODE = "BCDF-GHJK"
DENY = "POST /admin/deny"
WHOM = {
    "user_code": CODE,
    "name": "lab",
    "client_id": "best-mcp/2.6",
    "agent_label": "Claude",
    "address": "192.0.2.7",
}


def test_it_says_whom_it_turned_away(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[DENY] = 200, WHOM
    ran = cli("deny", "bcdf ghjk")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "BCDF-GHJK is denied: Claude, as lab. The agent's next poll is told so.\n"
    assert door.only().json == {"user_code": CODE}
    door.answers[DENY] = 200, {**WHOM, "agent_label": None}
    assert "is denied: lab. " in cli("deny", CODE).out


def test_for_a_program_it_is_json_alone(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[DENY] = 200, WHOM
    ran = cli("deny", CODE, "--json")
    assert (ran.code, ran.err, ran.json) == (0, "", WHOM)


def test_what_an_agent_calls_itself_cannot_act_on_the_terminal(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    door.answers[DENY] = 200, {**WHOM, "name": "\x1b[2J", "agent_label": "\x1b]0;owned\x07"}
    assert cli("deny", CODE).out.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("status", "code"), [(404, "UNKNOWN_CODE"), (409, "CODE_USED"), (410, "CODE_EXPIRED")]
)
def test_a_code_that_does_not_wait_is_refused_in_the_doors_words(
    door: FakeDoor, cli: Callable[..., Ran], status: int, code: str
) -> None:
    door.answers[DENY] = status, {"error": {"code": code, "message": "it does not wait"}}
    ran = cli("deny", CODE)
    assert (ran.code, ran.out) == (1, "")
    assert ran.line == f"best-peer: it does not wait ({code})"


def test_what_is_no_code_is_refused(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    ran = cli("deny", "BCDF")
    assert ran.code == 1
    assert "is no code: expected eight letters" in ran.line
    assert door.requests == []
