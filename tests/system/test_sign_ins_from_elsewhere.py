"""How many sign-ins may wait, counted by addresses that clients really have (F11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.elsewhere import Answered, Asked, answers

if TYPE_CHECKING:
    from pathlib import Path

HOME, NEXT = "203.0.113.7", "203.0.113.8"
SIX, SAME, OTHER = "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"
"""Two of one /64, and one beside it."""


def test_codes_are_counted_by_client_by_address_and_in_all(tmp_path: Path) -> None:
    asked: list[Asked] = []
    expected: list[int] = []

    def ask(status: int, source: str, client_id: str = "one", **headers: str) -> None:
        asked.append(Asked(source, client_id, headers))
        expected.append(status)

    for _ in range(5):
        ask(200, HOME)
    ask(503, HOME)
    # What a proxy would say of its clients, and any client may say of itself, changes nothing.
    ask(503, HOME, **{"X-Forwarded-For": "198.51.100.1", "Forwarded": "for=198.51.100.1", "X-Real-IP": "::1"})
    for number in range(11):
        ask(200, HOME, f"client-{number}")
    ask(503, HOME, "a seventeenth")
    ask(200, NEXT)
    for number in range(5):
        ask(200, (SIX, SAME)[number % 2])
    for source in (SIX, SAME):
        ask(503, source)
    ask(200, OTHER)
    ask(200, SIX, "two")
    waiting = 16 + 1 + 5 + 1 + 1
    for _ in range(9):  # this machine's own are counted under none of these
        ask(200, "127.0.0.1")
        ask(200, "::1")
    for number in range(64 - waiting):
        ask(200, f"203.0.113.{100 + number}")
    ask(503, "203.0.113.99")
    ask(503, OTHER, "another")
    ask(200, "127.0.0.1")
    came = answers(tmp_path, asked)
    assert [each.status for each in came] == expected
    for each in came:
        if each.status == 503:
            assert_says_how_long(each)


def assert_says_how_long(answer: Answered) -> None:
    """A refusal says when the oldest code in its way runs out."""
    assert answer.retry_after is not None
    assert 0 < int(answer.retry_after) <= 600
    assert answer.body["error"] == "temporarily_unavailable"
    assert f"{answer.retry_after} s" in answer.body["error_description"]
