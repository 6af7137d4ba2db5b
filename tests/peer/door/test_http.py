"""The door's app as a whole: paths, methods, and what becomes of a view that fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from adapters.gpu.host import HostGpu
from peer.door.public import REMEMBERED, PublicPace
from tests.support.answers import code, error
from tests.support.doorasgi import ask
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def test_a_door_below_a_path_answers_with_and_without_it(tmp_path: Path) -> None:
    """A proxy before it may take the path off or leave it on."""
    async with open_door(tmp_path, path="/machine") as door:
        app = door.peer.app
        for path in ("/.well-known/best", "/machine/.well-known/best", "/device", "/machine/device"):
            assert (await ask(app, "GET", path, "127.0.0.1")).status_code == 200
        for path in ("/commands", "/machine/commands", "/machine/events/stream"):
            assert code(await ask(app, "GET", path, "127.0.0.1"), 401) == "UNAUTHORIZED"
        for path in ("/machine", "/machinery/commands", "/other/commands", "/machine/machine/commands"):
            assert code(await ask(app, "GET", path, "127.0.0.1"), 404) == "NOT_FOUND"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/.well-known/best", {"GET", "HEAD"}),
        ("/commands", {"GET", "HEAD", "POST"}),
        ("/events", {"GET", "HEAD"}),
        ("/events/stream", {"GET"}),
        ("/oauth/token", {"POST"}),
        ("/admin/approve", {"POST"}),
    ],
)
async def test_a_method_that_is_not_served_is_told_which_are(
    door: OpenDoor, path: str, allowed: set[str]
) -> None:
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - allowed:
        answer = await door.client().request(method, path)
        found = error(answer, 405)
        assert found["code"] == "METHOD_NOT_ALLOWED"
        assert set(found["details"]["allowed"]) == allowed
        assert answer.headers["allow"] == ", ".join(found["details"]["allowed"])


async def test_head_answers_as_get_without_the_body(door: OpenDoor) -> None:
    agent = await door.sign_in()
    for path in ("/.well-known/best", "/commands", "/events", "/device"):
        got, head = await agent.get(path), await agent.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-type", "content-length"):
            assert head.headers[name] == got.headers[name]


async def test_a_view_that_fails_is_a_line_in_the_log_and_the_next_client_is_served(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await door.sign_in()

    async def fail(*_: Any) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr(HostGpu, "devices", fail)
    with caplog.at_level(logging.ERROR):
        answer = await agent.get("/queries/get-hardware-state")
    assert code(answer, 500) == "INTERNAL"
    assert "broken inside" in caplog.text
    assert agent.key not in caplog.text
    assert (await agent.get("/queries/get-workloads")).status_code == 200


def test_an_address_is_paced_and_comes_back() -> None:
    pace = PublicPace(per_minute=60)
    for at in range(60):
        assert pace.wait_seconds("203.0.113.7", at / 1000) == 0
    assert pace.wait_seconds("203.0.113.7", 0.1) == 1
    assert pace.wait_seconds("203.0.113.7", 2.0) == 0
    assert pace.wait_seconds(None, 2.0) == 0


def test_a_crowd_of_addresses_takes_no_more_than_its_room() -> None:
    pace = PublicPace(per_minute=1)
    for number in range(REMEMBERED + 10):
        assert pace.wait_seconds(f"2001:db8:{number:x}::1", 0.0) == 0
    assert len(pace._budgets) == REMEMBERED
    assert pace.wait_seconds(f"2001:db8:{REMEMBERED:x}::1", 0.0) == 60
