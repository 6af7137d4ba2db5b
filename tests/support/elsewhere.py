"""A peer and its clients in a network of their own, where there are other addresses than loopback's.

`answers` runs this module as a program inside such a network, with the requests as JSON on stdin and their
answers as JSON on stdout.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import attrs
import cattrs

from tests.support.peers import PeerProcess

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
"""A bound on a hang, no measure of speed."""


@attrs.frozen
class Asked:
    """A sign-in that is begun from an address."""

    source: str
    client_id: str
    headers: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Answered:
    """What came of it."""

    status: int
    retry_after: str | None
    body: dict[str, Any]


def answers(folder: Path, asked: list[Asked]) -> list[Answered]:
    """Begin sign-ins, each from its own address, at a peer that listens on every one.

    Raises:
        AssertionError: no network of its own can be made here.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    ran = subprocess.run(
        ["unshare", *user, "--net", "--kill-child", "--fork", sys.executable, "-m",
         "tests.support.elsewhere", str(folder)],
        cwd=ROOT,
        input=json.dumps(cattrs.unstructure(asked)),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, f"needs unshare and ip, and root or user namespaces: {ran.stderr}"
    return cattrs.structure(json.loads(ran.stdout), list[Answered])


def _main(folder: Path) -> None:
    asked = cattrs.structure(json.load(sys.stdin), list[Asked])
    _ip("link", "set", "lo", "up")
    for source in sorted({each.source for each in asked} - {"127.0.0.1", "::1"}):
        _ip("address", "add", f"{source}/{64 if ':' in source else 32}", "dev", "lo", "nodad")
    settings = {
        "BEST_PEER_LISTEN": "[::]:0",
        "BEST_PEER_ENDPOINT": "http://door.example:0",
        "BEST_PEER_CLEARTEXT": "vpn",
    }
    with PeerProcess(folder, settings) as peer:
        port = urlsplit(peer.endpoint).port
        assert port
        print(json.dumps(cattrs.unstructure([_begin(each, port) for each in asked])))


def _begin(asked: Asked, port: int) -> Answered:
    headers = {"content-type": "application/x-www-form-urlencoded", **asked.headers}
    connection = HTTPConnection(asked.source, port, timeout=20, source_address=(asked.source, 0))
    try:
        connection.request("POST", "/oauth/device", urlencode({"client_id": asked.client_id}), headers)
        answer = connection.getresponse()
        return Answered(answer.status, answer.getheader("retry-after"), json.load(answer))
    finally:
        connection.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    assert socket.has_ipv6
    _main(Path(sys.argv[1]))
