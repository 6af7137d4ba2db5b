"""The page of a code, as text: what it says in each state, and that it lets nothing in (F10, R04, R22)."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from actors.registrar import Waiting
from peer.door.page import approval_page
from tests.support.peers import open_door

if TYPE_CHECKING:
    from pathlib import Path

TYPE = "text/html; charset=utf-8"
ENDPOINT = "https://peer.example:7777"
PENDING = Waiting(
    user_code="BCDF-GHJK",
    state="pending",
    name="lab",
    client_id="best-mcp",
    agent_label="A helper",
    address="203.0.113.7",
    seconds_left=540,
)


class Outline(HTMLParser):
    """Which tags and attributes a page has, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_waiting_code_shows_whom_it_lets_in_and_what_to_do() -> None:
    page = Outline(approval_page(PENDING, ENDPOINT))
    for words in ("BCDF-GHJK", "lab", "A helper", "best-mcp", "203.0.113.7", "9 min", ENDPOINT):
        assert words in page.text
    assert "best-peer approve BCDF-GHJK" in page.text
    assert "--expires" in page.text
    assert "best-peer deny BCDF-GHJK" in page.text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("approved", "Approved"),
        ("used", "Signed in"),
        ("denied", "Turned away"),
        ("expired", "run out"),
        ("unknown", "No sign-in waits"),
    ],
)
def test_each_state_says_what_it_is(state: str, words: str) -> None:
    page = Outline(approval_page(Waiting("BCDF-GHJK", state), ENDPOINT))
    assert words in page.text
    assert ("input" in page.tags) is (state in {"denied", "expired", "unknown"})


@pytest.mark.parametrize(
    "hostile", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "$host ${body}"]
)
def test_what_an_agent_says_of_itself_is_text_and_nothing_else(hostile: str) -> None:
    calm = Outline(approval_page(PENDING, ENDPOINT))
    told = Waiting(
        user_code="BCDF-GHJK",
        state="pending",
        name=hostile,
        client_id=hostile,
        agent_label=hostile,
        address=hostile,
    )
    page = Outline(approval_page(told, ENDPOINT))
    assert page.tags == calm.tags
    assert page.text.count(hostile) == 4


def test_there_is_no_script_and_nothing_is_fetched() -> None:
    for waiting in (
        None,
        PENDING,
        *(Waiting("BCDF-GHJK", s) for s in ("approved", "used", "expired", "unknown")),
    ):
        page = Outline(approval_page(waiting, ENDPOINT))
        assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
        assert not any(name.startswith("on") for name, _ in page.attributes)
        assert not [value for name, value in page.attributes if name in {"src", "href"} and value != "data:,"]
        assert len(re.findall("<h1", approval_page(waiting, ENDPOINT))) == 1


async def test_it_is_served_so_that_no_other_site_can_use_it(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        answer = await door.client().get("/device", params={"user_code": "x" * 5000})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == TYPE
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "xxxxx" not in answer.text
