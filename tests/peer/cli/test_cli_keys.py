"""`best-peer keys`: who holds what, in words; who waits; JSON alone (F12, F13)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

KEYS = "GET /admin/keys"
NOW = 1_790_000_000_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
GIB = 1 << 30


def key(grant: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "name": "lab",
        "holder": "h-one",
        "state": "open",
        "grant": {
            "scopes": ["deploy", "prompt"],
            "memory_bytes": 40 * GIB,
            "deployments": 2,
            "jobs": None,
            "workspaces": 8,
            "expires_seconds": None,
            "open_jobs": False,
            "accelerators_only": False,
            **(grant or {}),
        },
        "agent_label": "Claude",
        "address": "192.0.2.7",
        "issued_ms": NOW - DAY,
        "expires_ms": None,
        "held_bytes": GIB,
        "deployments": 1,
        "jobs": 0,
        "streams": 0,
        "last_used_ms": NOW - 2 * MINUTE,
        "work": "running",
        "revoked_ms": None,
        "revoked_by": None,
        "work_ended_ms": None,
        "kept": True,
        **more,
    }


def answer(*keys: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {
        "keys": list(keys),
        "more_ended": 0,
        "waiting": [],
        "now_ms": NOW,
        "began_ms": NOW - 3 * HOUR,
        **more,
    }


def waiting(**more: Any) -> dict[str, Any]:
    return {
        "user_code": "BCDF-GHJK",
        "state": "pending",
        "name": "lab",
        "client_id": "best-mcp/2.6",
        "agent_label": "Claude",
        "address": "192.0.2.7",
        "lifetime": "session",
        "seconds_left": 540,
        **more,
    }


def told(door: FakeDoor, cli: Callable[..., Ran], *keys: dict[str, Any], **more: Any) -> list[str]:
    """The lines of a list."""
    door.answers[KEYS] = answer(*keys, **more)
    ran = cli("keys")
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def test_a_key_is_told_in_words(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    lines = told(door, cli, key())
    assert re.fullmatch(r"  agent  Claude, from 192\.0\.2\.7, let in \d{4}-\d\d-\d\d \d\d:\d\d", lines.pop(2))
    assert lines == [
        "lab  h-one",
        "  state  open until you revoke it",
        "  may    deploy, prompt",
        "  holds  1 GiB of 40 GiB; 1 of 2 deployments; 0 jobs",
        "  used   2 min ago",
    ]
    assert door.only().path == "/admin/keys"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"expires_ms": NOW + 6 * HOUR}, "open, ends in 6 h"),
        ({"expires_ms": NOW + 1}, "open, ends in 0 s"),
        ({"expires_ms": NOW + 30 * DAY}, "open, ends on 20"),
        (
            {"state": "expired", "expires_ms": NOW - 3 * HOUR, "work": "none"},
            "ran out 3 h ago; nothing of it runs",
        ),
        (
            {"state": "expired", "expires_ms": NOW - HOUR},
            "ran out 1 h ago; its work runs on, and best-peer revoke h-one ends it",
        ),
        (
            {"state": "revoked", "revoked_ms": NOW - MINUTE, "revoked_by": "owner", "work": "ending"},
            "taken back 1 min ago; its work is being ended",
        ),
        (
            {
                "state": "revoked",
                "revoked_ms": NOW - MINUTE,
                "revoked_by": "owner",
                "work": "none",
                "work_ended_ms": NOW - 50 * SECOND,
            },
            "taken back 1 min ago; its work had ended 50 s ago",
        ),
        (
            {"state": "revoked", "revoked_ms": NOW - 2 * DAY, "revoked_by": "agent"},
            "given back by its agent 2 d ago; its work runs on, and best-peer revoke h-one ends it",
        ),
        (
            {"state": "revoked", "revoked_ms": NOW - 20 * DAY, "revoked_by": "owner", "work": "none"},
            "taken back on 20",
        ),
        ({"state": "of another release"}, "of another release"),
    ],
)
def test_how_it_stands_and_what_becomes_of_its_work_is_said(
    door: FakeDoor, cli: Callable[..., Ran], more: dict[str, Any], words: str
) -> None:
    """Easily missed 20: the key's line says when its work has ended."""
    assert told(door, cli, key(**more))[1].startswith(f"  state  {words}")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"last_used_ms": NOW}, "just now"),
        ({"last_used_ms": NOW, "streams": 1}, "just now; 1 event stream open"),
        ({"last_used_ms": NOW - DAY, "streams": 3}, "1 d ago; 3 event streams open"),
        ({"last_used_ms": None}, "not since the peer was started 3 h ago"),
        ({"last_used_ms": None, "issued_ms": NOW - HOUR}, "not yet"),
    ],
)
def test_when_it_was_last_used_is_said(
    door: FakeDoor, cli: Callable[..., Ran], more: dict[str, Any], words: str
) -> None:
    assert f"  used   {words}" in told(door, cli, key(**more))


@pytest.mark.parametrize(
    ("grant", "lines"),
    [
        (
            {"scopes": ["all"], "memory_bytes": None, "deployments": None},
            ["  holds  1 GiB; 1 deployment; 0 jobs"],
        ),
        ({"jobs": 1}, ["  holds  1 GiB of 40 GiB; 1 of 2 deployments; 0 of 1 job"]),
        (
            {"open_jobs": True, "accelerators_only": True},
            ["  may    deploy, prompt; never this host's CPU; its jobs run outside the closed box"],
        ),
    ],
)
def test_what_it_may_and_what_it_holds_of_that_is_said(
    door: FakeDoor, cli: Callable[..., Ran], grant: dict[str, Any], lines: list[str]
) -> None:
    found = told(door, cli, key(grant))
    assert [line for line in found if line in lines] == lines


def test_a_collectors_key_holds_nothing(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    lines = told(door, cli, key({"scopes": ["metrics"], "memory_bytes": None}))
    assert "  may    metrics" in lines
    assert not any("holds" in line for line in lines)


def test_what_the_disk_has_not_kept_is_said(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    lines = told(door, cli, key(state="revoked", revoked_ms=NOW, kept=False))
    assert "the disk has not kept that yet" in lines[2]


def test_who_waits_comes_first_with_what_to_do(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    lines = told(door, cli, waiting=[waiting(), waiting(user_code="LMNP-QRST", state="approved")])
    assert lines == [
        "BCDF-GHJK  waits for you",
        "  connection  lab",
        "  agent       Claude",
        "  software    best-mcp/2.6",
        "  address     192.0.2.7",
        "  asks for    a key for a session, 8 h at most",
        "  code        good for 9 min more",
        "  best-peer approve BCDF-GHJK lets it in, best-peer deny BCDF-GHJK turns it away.",
        "",
        "LMNP-QRST  approved, and its agent has not come for its key",
        *lines[10:16],
        "  best-peer revoke lab takes that back.",
        "",
        "Nobody is let in.",
    ]
    assert lines[10:16] == lines[1:7]


def test_nobody_says_what_to_do_and_how_many_have_ended(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    assert told(door, cli) == [
        "Nobody is let in. An agent that signs in shows a code: best-peer approve CODE."
    ]
    assert told(door, cli, more_ended=1)[1:] == [
        "1 more key has ended, and nothing of it runs: best-peer keys --all."
    ]
    assert "2 more keys have ended, and nothing of them runs" in told(door, cli, key(), more_ended=2)[-1]


@pytest.mark.parametrize(
    ("options", "query"),
    [((), ""), (("--all",), "?all=1"), (("lab",), "?name=lab"), (("h-one", "--all"), "?all=1&name=h-one")],
)
def test_what_is_asked_for_is_what_is_sent(
    door: FakeDoor, cli: Callable[..., Ran], options: tuple[str, ...], query: str
) -> None:
    door.answers[KEYS] = answer(key())
    assert cli("keys", *options).code == 0
    assert door.only().path == f"/admin/keys{query}"


def test_json_is_the_doors_answer_and_nothing_else(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[KEYS] = answer(key(name="\x1b[2J"), waiting=[waiting()])
    ran = cli("keys", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == door.answers[KEYS][1]
    assert ran.out.isascii()
    assert "\x1b" not in ran.out


def test_a_name_that_no_key_has_is_refused(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[KEYS] = 404, {"error": {"code": "UNKNOWN_KEY", "message": "no key is called that"}}
    ran = cli("keys", "nobody")
    assert (ran.code, ran.out) == (1, "")
    assert ran.line == "best-peer: no key is called that (UNKNOWN_KEY)"
    for name in ("", "x" * 257):
        assert "expected a connection's name" in cli("keys", name).line


def test_nothing_an_agent_chose_acts_on_the_terminal(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\r\nnobody\u202e\x9b1m[bold]" + "x" * 1000
    lines = told(
        door,
        cli,
        key({"scopes": [evil]}, name=evil, holder=evil, agent_label=evil, address=evil, state=evil),
        waiting=[waiting(user_code=evil, name=evil, agent_label=evil, address=evil, client_id=evil)],
    )
    assert all(c.isprintable() for line in lines for c in line)
    assert max(map(len, lines)) < 700


def test_an_answer_of_another_release_is_shown_as_far_as_it_goes(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    answers: list[dict[str, Any]] = [
        {},
        {"keys": [{}], "waiting": [{}], "more_ended": None},
        {"keys": 5, "waiting": None},
    ]
    for found in answers:
        door.answers[KEYS] = 200, found
        assert cli("keys").code == 0
