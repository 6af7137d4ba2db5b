"""`best-peer approve`: whom it lets in and what it grants, said before it is done (F12)."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import peer.cli.approve
import peer.cli.show
from actors.state.keys import SCOPES, Grant
from peer.cli.grants import grant_words
from peer.door.problems import STATUS
from tests.peer.cli.conftest import refuse_to_be_asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

CODE = "BCDF-GHJK"
PENDING, APPROVE = "GET /admin/pending", "POST /admin/approve"
TENANT = ["deploy", "jobs", "prompt", "workspaces"]
EVERYTHING = {
    "user_code": CODE,
    "scopes": ["all"],
    "memory_bytes": None,
    "deployments": None,
    "jobs": None,
    "workspaces": 8,
    "expires_seconds": None,
    "open_jobs": False,
    "accelerators_only": False,
}


def waiting(**more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {
        "user_code": CODE,
        "state": "pending",
        "name": "lab",
        "client_id": "best-mcp/2.6",
        "agent_label": "Claude",
        "address": "192.0.2.7",
        "lifetime": "durable",
        "seconds_left": 540,
        **more,
    }


@pytest.fixture
def door(door: FakeDoor) -> FakeDoor:
    """One sign-in waits."""
    door.answers = {PENDING: waiting(), APPROVE: (200, {})}
    return door


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A person who types `answer`."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    monkeypatch.setattr(peer.cli.show, "is_terminal", lambda _: True)


def test_it_shows_whom_and_what_and_goes_on_where_nobody_can_be_asked(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    ran = cli("approve", "bcdf ghjk")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "Under BCDF-GHJK waits",
        "  connection  lab",
        "  agent       Claude",
        "  software    best-mcp/2.6",
        "  address     192.0.2.7",
        "  asks for    a lasting key",
        "  code        good for 9 min more",
        "Approved, its key",
        "  may do everything, and see and end everybody's workloads",
        "  may hold as much device memory as there is: it has no share",
        "  runs its jobs in the open, with network and as the image says: the closed box comes with a share",
        "  is good until you revoke it",
        "BCDF-GHJK is approved: the agent's next poll gets its key, as lab.",
        "To take it back: best-peer revoke lab",
    ]
    looked, approved = door.requests
    assert looked.path == f"/admin/pending?user_code={CODE}"
    assert approved.json == EVERYTHING


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ((), {}),
        (("--memory", "40G"), {"scopes": TENANT, "memory_bytes": 40 << 30}),
        (("--memory", "40G", "--may", "all"), {"memory_bytes": 40 << 30}),
        (("--may", "deploy, prompt,deploy"), {"scopes": ["deploy", "prompt"]}),
        (("--may=deploy", "--may=jobs"), {"scopes": ["deploy", "jobs"]}),
        (("--may", "metrics"), {"scopes": ["metrics"]}),
        (("--deployments", "2", "--jobs", "0"), {"deployments": 2, "jobs": 0}),
        (("--workspaces", "1"), {"workspaces": 1}),
        (("--expires", "8h"), {"expires_seconds": 8 * 3600}),
        (("--expires", "366d"), {"expires_seconds": 366 * 86_400}),
        (("--open-jobs", "--accelerators-only", "--yes"), {"open_jobs": True, "accelerators_only": True}),
    ],
)
def test_what_is_asked_for_is_what_is_sent(
    door: FakeDoor, cli: Callable[..., Ran], options: tuple[str, ...], sent: dict[str, Any]
) -> None:
    assert cli("approve", CODE, *options).code == 0
    assert door.requests[-1].json == {**EVERYTHING, **sent}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--may", "deploy,promt"), "not promt"),
        (("--may", ","), "not nothing"),
        (("--may", "metrics,deploy"), "metrics stands alone"),
        (("--may", "metrics", "--memory", "4G"), "--memory would mean nothing"),
        (("--may", "prompt", "--jobs", "3"), "--jobs would mean nothing to a key for prompt; leave that out"),
        (("--expires", "400d"), "--expires takes 1s to 366d, not 400d"),
        (("--memory", "40X"), "--memory 40X is refused: expected bytes, or a number with K, M, G or T"),
        (("--memory", "-1"), "--memory"),
        (("--memory", "9999T"), "--memory takes 1M to 1024T"),
        (("--memory", "9"), "not 9 bytes; write a share with its unit, --memory 40G"),
        (("--memory", "0"), "--memory takes 1M to 1024T, not 0 bytes"),
        (("--expires", "soon"), "--expires soon is refused: expected seconds, or a number with s, m, h or d"),
        (("--expires", "0"), "--expires 0 is refused: expected at least 1"),
        (("--expires", "367d"), "--expires takes 1s to 366d"),
        (("--jobs", "two"), "--jobs two is refused: expected a whole number"),
        (("--deployments", "-2"), "--deployments"),
        (("--memory",), "--memory needs a value"),
    ],
)
def test_what_makes_no_grant_is_refused_before_anybody_is_asked(
    door: FakeDoor, cli: Callable[..., Ran], options: tuple[str, ...], said: str
) -> None:
    ran = cli("approve", CODE, *options)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.line
    assert door.requests == []


@pytest.mark.parametrize("code", ["BCDF", "BCDF-GHJKL", "", "bcdf-ghj\x1b"])
def test_what_is_no_code_is_refused(door: FakeDoor, cli: Callable[..., Ran], code: str) -> None:
    ran = cli("approve", code)
    assert ran.code == 1
    assert "is no code: expected eight letters" in ran.line
    assert "\x1b" not in ran.err
    assert door.requests == []


@pytest.mark.parametrize(
    ("state", "said", "error"),
    [
        ("used", "was used already", "CODE_USED"),
        ("denied", "was denied", "CODE_DENIED"),
        (
            "approved",
            "is approved already: its agent fetches its key; to take it back: best-peer revoke lab",
            "CODE_APPROVED",
        ),
        ("expired", "has run out", "CODE_EXPIRED"),
        ("unknown", "waits for nobody", "UNKNOWN_CODE"),
        ("of another release", "waits for nobody", "UNKNOWN_CODE"),
    ],
)
def test_a_code_that_waits_no_more_says_which_it_is(
    door: FakeDoor, cli: Callable[..., Ran], state: str, said: str, error: str
) -> None:
    is_known = state == "approved"
    door.answers[PENDING] = waiting(state=state, name="lab" if is_known else None, client_id=None)
    ran = cli("approve", CODE)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.line
    assert ran.line.endswith(f" ({error})"), "the door's code, as deny says it"
    assert error in STATUS
    door.only()


@pytest.mark.parametrize("options", [("--may", "metrics,deploy"), ("--memory", "9"), ("--expires", "400d")])
def test_what_the_rules_refuse_bears_the_doors_code(
    door: FakeDoor, cli: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    assert cli("approve", CODE, *options).line.endswith(" (INVALID_GRANT)")
    assert door.requests == []


@pytest.mark.parametrize("lifetime", ["durable", "session"])
def test_what_was_granted_is_told_where_it_is_less_than_was_asked(
    door: FakeDoor, cli: Callable[..., Ran], lifetime: str
) -> None:
    """Whoever decides behind the door may narrow it (F15)."""
    is_session = lifetime == "session"
    door.answers[PENDING] = waiting(lifetime=lifetime)
    grant = {name: value for name, value in EVERYTHING.items() if name != "user_code"}
    grant["expires_seconds"] = 8 * 3600 if is_session else None
    door.answers[APPROVE] = 200, {"grant": grant}
    assert "granted less" not in cli("approve", CODE).out
    door.answers[APPROVE] = 200, {"grant": {**grant, "scopes": ["prompt"], "memory_bytes": 1 << 30}}
    lines = cli("approve", CODE).out.splitlines()
    assert lines[lines.index("It was granted less than that. Its key") + 1 : -2] == [
        "  may prompt its models",
        (
            "  can prompt nothing: a key prompts what it deployed itself, and it may not deploy; "
            "--may deploy,prompt lets it do both"
        ),
        "  may hold 1 GiB of device memory at most, in all its workloads",
        "  sees, prompts and ends its own workloads alone",
        "  ends 8 h after its agent fetched it" if is_session else "  is good until you revoke it",
    ]


def test_a_session_may_not_last_longer_than_eight_hours(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[PENDING] = waiting(lifetime="session")
    ran = cli("approve", CODE, "--expires", "9h")
    assert ran.code == 1
    assert "8h, since the agent asked for a session" in ran.line
    door.only()
    assert "ends 8 h after its agent fetched it" in cli("approve", CODE).out


def test_what_an_agent_says_of_itself_cannot_act_on_the_terminal(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\r\nApproved\u202e\x9b1m[bold]" + "x" * 1000
    door.answers[PENDING] = waiting(name=evil, agent_label=evil, client_id=evil, address=evil)
    ran = cli("approve", CODE)
    assert ran.code == 0
    assert all(c.isprintable() or c == "\n" for c in ran.out)
    assert max(map(len, ran.out.splitlines())) < 600
    assert "[bold]" in ran.out


def test_a_key_that_nothing_can_come_of_is_said_to_be_before_anybody_is_asked(
    door: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, "n\n")
    lines = cli("approve", CODE, "--may", "prompt").out.splitlines()
    assert lines[lines.index("  may prompt its models") + 1].startswith("  can prompt nothing: ")
    door.only()


@pytest.mark.parametrize(
    ("same_name", "said"),
    [
        ({"keys": ["h-1"], "codes": []}, ["1 key is open as lab already: h-1"]),
        (
            {"keys": [f"h-{n}" for n in range(5)]},
            ["5 keys are open as lab already: h-0, h-1, h-2 and 2 more"],
        ),
        ({"keys": [], "codes": ["LMNP-QRST"]}, ["Approved as lab already, and not fetched yet: LMNP-QRST"]),
        (
            {"keys": ["h-\x1b[2J"], "codes": ["LMNP-QRST"]},
            [
                r"1 key is open as lab already: h-\x1b[2J",
                "Approved as lab already, and not fetched yet: LMNP-QRST",
            ],
        ),
    ],
)
def test_that_the_name_is_anothers_too_is_said_before_and_how_to_take_one_back_after(
    door: FakeDoor, cli: Callable[..., Ran], same_name: dict[str, list[str]], said: list[str]
) -> None:
    door.answers[PENDING] = waiting(same_name=same_name)
    lines = cli("approve", CODE).out.splitlines()
    at = lines.index("Approved, its key")
    assert lines[at - len(said) : at] == said
    assert lines[-2:] == [
        "To take it back: best-peer revoke lab, which takes back every key of that name",
        (
            "To take it back alone: best-peer revoke HOLDER, the holder id that best-peer keys lab "
            "shows once its agent has fetched the key"
        ),
    ]


@pytest.mark.parametrize("same_name", [None, {}, {"keys": [], "codes": []}, {"keys": 5}, "lab"])
def test_a_name_that_is_its_own_takes_one_line(
    door: FakeDoor, cli: Callable[..., Ran], same_name: Any
) -> None:
    door.answers[PENDING] = waiting(same_name=same_name)
    ran = cli("approve", CODE)
    assert "already" not in ran.out
    assert ran.out.splitlines()[-1] == "To take it back: best-peer revoke lab"


def test_what_is_not_known_is_said_to_be_unknown(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[PENDING] = waiting(agent_label=None, address=None)
    out = cli("approve", CODE).out
    assert "agent       does not say" in out
    assert "address     unknown" in out
    door.answers[PENDING] = waiting(address="127.0.0.1")
    assert "address     127.0.0.1 (this machine)" in cli("approve", CODE).out


@pytest.mark.parametrize("answer", ["y\n", "YES\n", " yes \n"])
def test_on_a_terminal_the_owner_is_asked(
    door: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    on_a_terminal(monkeypatch, answer)
    ran = cli("approve", CODE)
    assert ran.code == 0
    assert ran.err == "Let it in? [y/N] "
    assert len(door.requests) == 2


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yep\n", "y" * 100 + "\n"])
def test_anything_but_yes_lets_nobody_in(
    door: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    on_a_terminal(monkeypatch, answer)
    ran = cli("approve", CODE)
    assert ran.code == 1
    assert "was not approved and still waits" in ran.err
    assert f"best-peer deny {CODE}" in ran.err
    door.only()


def test_yes_skips_the_question(
    door: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer.cli.approve, "confirm", refuse_to_be_asked)
    assert cli("approve", CODE, "--yes").code == 0


GRANTED = {
    "user_code": CODE,
    "name": "lab",
    "client_id": "best-mcp/2.6",
    "agent_label": "Claude",
    "address": "192.0.2.7",
    "grant": {"scopes": ["all"]},
    "notes": [],
    "same_name": {"keys": [], "codes": []},
}
"""What the door answers to an approval."""


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_for_a_program_it_is_json_alone(
    door: FakeDoor, cli: Callable[..., Ran], options: tuple[str, ...]
) -> None:
    door.answers[APPROVE] = 200, GRANTED
    ran = cli("approve", CODE, "--json", *options)
    assert (ran.code, ran.err, ran.json) == (0, "", GRANTED)


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 1)])
def test_whoever_is_asked_beside_the_json_reads_what_they_decide_on(
    door: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    on_a_terminal(monkeypatch, said)
    door.answers[APPROVE] = 200, GRANTED
    ran = cli("approve", CODE, "--json")
    assert ran.code == code
    assert (ran.json if code == 0 else ran.out) == (GRANTED if code == 0 else "")
    shown = ran.err.splitlines()
    assert shown[:2] == [f"Under {CODE} waits", "  connection  lab"]
    assert "  may do everything, and see and end everybody's workloads" in shown
    assert "Let it in? [y/N] " in ran.err


def test_whoever_is_not_asked_beside_the_json_reads_nothing(
    door: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, "n\n")
    ran = cli("approve", CODE, "--json", "--yes")
    assert (ran.code, ran.err) == (0, "")


def test_a_refusal_of_the_door_is_the_last_word(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[APPROVE] = 409, {"error": {"code": "CODE_APPROVED", "message": "somebody was faster"}}
    ran = cli("approve", CODE)
    assert ran.code == 1
    assert ran.line == "best-peer: somebody was faster (CODE_APPROVED)"
    assert "is approved" not in ran.out
    door.answers[APPROVE] = 503, {"error": {"code": "NO_ROOM", "message": "the disk is full"}}
    assert cli("approve", CODE).code == 2


def test_the_token_is_never_shown(data: Path, door: FakeDoor, cli: Callable[..., Ran]) -> None:
    for ran in (cli("approve", CODE), cli("approve", "none"), cli("approve", CODE, "--memory", "x")):
        assert door.folder.admin_token not in ran.out + ran.err


@pytest.mark.parametrize("scope", SCOPES)
def test_every_scope_has_words(scope: Any) -> None:
    first, *_ = grant_words(Grant(scopes=(scope,)), is_session=False)
    assert first.startswith("may ")


@pytest.mark.parametrize(
    ("grant", "said", "unsaid"),
    [
        (Grant(memory_bytes=1 << 30), "closed box", "its own workloads alone"),
        (Grant(("jobs",), memory_bytes=1 << 30, open_jobs=True), "runs its jobs in the open", "closed box"),
        (Grant(("prompt",), memory_bytes=1 << 30), "its own workloads alone", "jobs"),
        (Grant(("deploy",)), "it has no share", "workspace"),
        (Grant(("metrics",)), "nothing else", "device memory"),
        (Grant(("workspaces",), workspaces=1), "may own 1 workspace at most", "everything"),
        (Grant(deployments=1, jobs=2), "may have 2 jobs at once at most", "its own"),
        (Grant(), "may do everything", "workspaces"),
        (Grant(workspaces=2), "may own 2 workspaces at most, once this peer has them", "its own"),
        (Grant(scopes=("workspaces",)), "create workspaces, once this peer has them", "may own"),
        (Grant(scopes=("metrics",)), "everybody's workloads in them, and nothing else", "own"),
        (Grant(accelerators_only=True), "never sees or uses this host's CPU", "its own"),
        (Grant(expires_seconds=1800), "ends 30 min after", "until you revoke"),
    ],
)
def test_a_grant_in_words(grant: Grant, said: str, unsaid: str) -> None:
    text = "\n".join(grant_words(grant, is_session=False))
    assert said in text
    assert unsaid not in text
