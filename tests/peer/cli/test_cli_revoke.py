"""`best-peer revoke`: what was taken back, what still runs, and what the disk did not keep (F13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

REVOKE = "POST /admin/revoke"


def answer(**more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {
        "revoked": [{"name": "lab", "holder": "h-one"}],
        "closed_before": [],
        "kept": True,
        "still_running": [],
        "keep_running": False,
        **more,
    }


def test_it_names_what_was_taken_back(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    both = [{"name": "lab", "holder": "h-one"}, {"name": "lab", "holder": "h-two"}]
    door.answers[REVOKE] = answer(revoked=both)
    ran = cli("revoke", "lab")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "Taken back: lab (h-one). It opens nothing any more.",
        "Taken back: lab (h-two). It opens nothing any more.",
        "Nothing of it runs any more.",
    ]
    assert door.only().json == {"name": "lab", "keep_running": False}


def test_a_key_whose_time_had_run_out_was_closed_before(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    both = [
        {"name": "lab", "holder": "h-one", "ran_out": True},
        {"name": "lab", "holder": "h-two", "ran_out": False},
    ]
    door.answers[REVOKE] = answer(revoked=both)
    assert cli("revoke", "lab").out.splitlines()[:2] == [
        "Closed before: lab (h-one). Its time had run out, and it is taken back as well.",
        "Taken back: lab (h-two). It opens nothing any more.",
    ]


def test_what_still_runs_is_named(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[REVOKE] = answer(still_running=["dep-1", "dep-\x1b[2J"])
    ran = cli("revoke", "lab")
    assert ran.code == 0
    assert r"Still running: dep-1, dep-\x1b[2J. The peer goes on trying to end it; " in ran.out
    assert "best-peer status" in ran.out


def test_what_a_key_left_running_that_was_closed_before_is_ended(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    door.answers[REVOKE] = answer(revoked=[], closed_before=[{"name": "lab", "holder": "h-one"}])
    ran = cli("revoke", "lab")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "Closed before: lab (h-one). What it left running ends now.",
        "Nothing of it runs any more.",
    ]
    door.answers[REVOKE] = answer(
        revoked=[], closed_before=[{"name": "lab", "holder": "h-one"}], still_running=["dep-1"], kept=False
    )
    ran = cli("revoke", "lab")
    assert ran.code == 2
    assert "Still running: dep-1." in ran.out
    assert "what still runs is ended only until the peer starts again" in ran.line


def test_who_was_approved_and_had_not_come_gets_nothing(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    withdrawn = [{"name": "lab", "user_code": "BCDF-GHJK"}]
    door.answers[REVOKE] = answer(revoked=[], withdrawn=withdrawn)
    ran = cli("revoke", "lab")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "Withdrawn: BCDF-GHJK (lab). Its agent had not come for its key, and gets none.\n"
    door.answers[REVOKE] = answer(revoked=[], withdrawn=withdrawn, kept=False)
    ran = cli("revoke", "lab")
    assert ran.code == 2
    assert "once the peer starts again, the agent could still fetch its key" in ran.line
    door.answers[REVOKE] = answer(withdrawn=withdrawn)
    assert cli("revoke", "lab").out.splitlines()[-1] == "Nothing of it runs any more."


def test_its_work_may_be_left_running(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[REVOKE] = answer(keep_running=True)
    ran = cli("revoke", "h-one", "--keep-running")
    assert "left running" in ran.out
    assert door.only().json == {"name": "h-one", "keep_running": True}


def test_a_revoke_that_the_disk_did_not_keep_says_so(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[REVOKE] = answer(kept=False)
    ran = cli("revoke", "lab")
    assert ran.code == 2
    assert "closed only until the peer starts again" in ran.line
    assert "run the same revoke again" in ran.line
    assert "Taken back: lab" in ran.out


def test_for_a_program_it_is_json_alone(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[REVOKE] = answer(still_running=["dep-1"])
    ran = cli("revoke", "lab", "--json")
    assert (ran.code, ran.err, ran.json) == (0, "", door.answers[REVOKE][1])
    door.answers[REVOKE] = answer(kept=False)
    ran = cli("revoke", "lab", "--json")
    assert (ran.code, ran.json) == (2, door.answers[REVOKE][1])
    assert "the disk did not keep this" in ran.line


def test_an_unknown_key_is_refused_in_the_doors_words(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[REVOKE] = 404, {"error": {"code": "UNKNOWN_KEY", "message": "no key is called lab"}}
    ran = cli("revoke", "lab")
    assert (ran.code, ran.out) == (1, "")
    assert ran.line == "best-peer: no key is called lab (UNKNOWN_KEY)"


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_name_out_of_bounds_is_refused(door: FakeDoor, cli: Callable[..., Ran], name: str) -> None:
    ran = cli("revoke", name)
    assert ran.code == 1
    assert "best-peer keys lists them" in ran.line
    assert door.requests == []
