"""The program's request log: one line for each request, whatever becomes of it (F35)."""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.peers import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINE = re.compile(
    r"\S+Z INFO door request(?P<abandoned> abandoned)? client=(?P<client>\S+) method=(?P<method>\S+) "
    r"path=(?P<path>\S+) status=(?P<status>\S+) holder=(?P<holder>\S+) ms=(?P<ms>\d+)"
)
SECONDS = 20.0
"""A bound on a hang, no measure of speed."""


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PeerProcess]:
    with PeerProcess(tmp_path, https=request.param) as peer:
        yield peer


def told(peer: PeerProcess, path: str, count: int = 1) -> list[re.Match[str]]:
    """The lines of a path, once there are as many; never more."""
    end = time.monotonic() + SECONDS
    while True:
        lines = [line for line in peer.log.read_text().splitlines() if f" path={path} " in line]
        if len(lines) >= count:
            break
        assert time.monotonic() < end, peer.log.read_text()
        time.sleep(0.01)
    found = [LINE.fullmatch(line) for line in lines]
    assert len(found) == count
    matches = [match for match in found if match is not None]
    assert len(matches) == count, lines
    return matches


def test_each_request_is_one_line_with_its_holder(peer: PeerProcess) -> None:
    key = peer.sign_in()
    mine = {"x-api-key": key}
    with peer.client() as client:
        assert client.get("/workflows?limit=1#part", headers=mine).status_code == 200
        assert client.get("/queries/nowhere?a=b", headers=mine).status_code == 404
        assert client.post("/commands", content=b"{", headers=mine).status_code in (400, 415)
        assert client.get("/queries").status_code == 401
        assert client.get("/a%2Fb%C3%A9/").status_code == 404
        for path, method, status, known in (
            ("/workflows", "GET", "200", True),
            ("/queries/nowhere", "GET", "404", True),
            ("/commands", "POST", "4", True),
            ("/queries", "GET", "401", False),
            ("/a%2Fb%C3%A9/", "GET", "404", False),
        ):
            [line] = told(peer, path)
            assert line["abandoned"] is None
            assert line["method"] == method
            assert line["status"].startswith(status)
            assert re.fullmatch(r"127\.0\.0\.1:\d+", line["client"])
            assert (line["holder"].startswith("h-"), line["holder"] == "-") == (known, not known)


def test_a_streams_line_is_written_when_it_opens(peer: PeerProcess) -> None:
    key = peer.sign_in()
    with (
        peer.client(**{"x-api-key": key}) as client,
        client.stream("GET", "/events/stream", params={"type": "DeploymentReady"}) as stream,
    ):
        assert next(stream.iter_lines()) == ": open"
        [line] = told(peer, "/events/stream")
        assert (line["status"], line["holder"][:2]) == ("200", "h-")
    assert peer.stop() == 0
    told(peer, "/events/stream")  # and none when it ends


def test_a_request_that_its_client_gave_up_is_a_line_too(peer: PeerProcess) -> None:
    where = urlsplit(peer.endpoint)
    head = b"POST /oauth/token?a=b HTTP/1.1\r\nHost: door\r\nContent-Length: 100\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=20) as plain:
        connection = plain
        if peer.https:
            connection = peer.tls.wrap_socket(plain, server_hostname=where.hostname)
        connection.sendall(head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\ngrant_type=")
        connection.close()
    [line] = told(peer, "/oauth/token")
    assert line["abandoned"]
    assert (line["method"], line["status"], line["holder"]) == ("POST", "-", "-")
