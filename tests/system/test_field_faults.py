"""Faults that others met, at the program itself. Those of one view stand with that view's tests."""

from __future__ import annotations

import re
import signal
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.agents import envelope
from tests.support.peers import MODEL_BYTES, PeerProcess, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEPLOY = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[PeerProcess]:
    with PeerProcess(tmp_path) as peer:
        yield peer


def subscribe(peer: PeerProcess, key: str) -> socket.socket:
    """An event stream that is open, read by nobody yet."""
    where = urlsplit(peer.endpoint)
    connection = socket.create_connection((where.hostname, where.port), timeout=10)
    connection.sendall(
        f"GET /events/stream HTTP/1.1\r\nHost: {where.netloc}\r\nX-Api-Key: {key}\r\n\r\n".encode()
    )
    read_until(connection, b": open")
    return connection


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        data = connection.recv(65536)
        assert data, received[-200:]
        received += data
    return received


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


@pytest.mark.parametrize("wished", [signal.SIGTERM, signal.SIGINT])
def test_an_open_stream_does_not_hold_up_the_stop(peer: PeerProcess, wished: signal.Signals) -> None:
    """hyperium/hyper#2787: one open event stream held a graceful shutdown for ever."""
    key = peer.sign_in()
    streams = [subscribe(peer, key) for _ in range(3)]
    peer.send(wished)
    for stream in streams:
        last = read_to_the_end(stream)
        # A last comment, and the end of a chunked body: a client can tell it from a broken connection.
        assert last.endswith(b"0\r\n\r\n")
        assert b": closed\n\n" in last
        stream.close()
    assert peer.wait() == 0


def test_a_client_that_reads_nothing_does_not_hold_up_the_stop(peer: PeerProcess) -> None:
    """hyperium/hyper#2787, made worse: the stream's buffers are full and stay so."""
    key = peer.sign_in()
    where = urlsplit(peer.endpoint)
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stalled.connect((where.hostname, where.port))
    stalled.sendall(f"GET /events/stream HTTP/1.1\r\nHost: door\r\nX-Api-Key: {key}\r\n\r\n".encode())
    with peer.client(**{"x-api-key": key}) as client:
        sent = envelope(peer.endpoint, "DeployModel", DEPLOY)
        assert client.post("/commands", json=sent).status_code == 201
        deployment = listen(client, sent["id"], until="DeploymentReady")[-1]["data"]["deployment"]
        text = "word " * 6000
        for number in range(150):
            prompt = {"deployment": deployment, "messages": [{"role": "user", "content": text}]}
            sent = envelope(peer.endpoint, "Prompt", prompt, correlationid=f"prompt-{number}")
            assert client.post("/commands", json=sent).status_code == 201
    assert peer.stop() == 0  # bounded: it would never come
    stalled.close()


def test_a_client_that_leaves_in_the_middle_of_its_order_breaks_nothing(peer: PeerProcess) -> None:
    """pgjones/hypercorn#210, at the program: gone before the answer, and the next client is served."""
    key = peer.sign_in()
    where = urlsplit(peer.endpoint)
    sent = envelope(peer.endpoint, "DeployModel", DEPLOY)
    with peer.client(**{"x-api-key": key}) as client:
        request = client.build_request("POST", "/commands", json=sent)
        head = f"POST /commands HTTP/1.1\r\nHost: {where.netloc}\r\nX-Api-Key: {key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(request.content)}\r\n\r\n"
        for cut in (len(request.content) // 2, len(request.content)):
            with socket.create_connection((where.hostname, where.port)) as connection:
                connection.sendall(head.encode() + request.content[:cut])
        # Whether the second was taken before its sender left is open; sent again it is taken for certain.
        answer = client.post("/commands", json=sent)
        assert (answer.status_code, answer.json()["id"]) == (201, sent["id"])
        told = [e["type"] for e in listen(client, sent["id"], until="DeploymentReady")]
        assert told.count("DeploymentStarted") == 1
    assert peer.stop() == 0
    assert not re.search("ERROR|Traceback", peer.log.read_text())
