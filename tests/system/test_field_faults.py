"""Faults that others met, at the program itself. Those of one view stand with that view's tests."""

from __future__ import annotations

import re
import resource
import signal
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import trio

from adapters.clock.fake import FakeClock
from tests.support.agents import begin, envelope, poll
from tests.support.answers import flat
from tests.support.docker.own import open_own_engine
from tests.support.peers import MODEL_BYTES, PeerProcess, listen, open_door
from tests.support.runtimes import open_docker_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.docker.bed import DockerBed

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
        text = "word " * 3000
        for number in range(150):
            prompt = {"deployment": deployment, "messages": [{"role": "user", "content": text}]}
            sent = envelope(peer.endpoint, "Prompt", prompt, correlationid=f"prompt-{number}")
            assert client.post("/commands", json=sent).status_code == 201
    assert peer.stop() == 0  # bounded: it would never come
    stalled.close()


def test_a_thousand_idle_clients_do_not_hold_up_the_stop(peer: PeerProcess) -> None:
    """hyperium/hyper#2787, in numbers: and meanwhile the next one is served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(1000, hard // 2 - 100)
    assert count >= 500, f"this system gives a process {hard} descriptors, too few for the test"
    where = urlsplit(peer.endpoint)
    idle: list[socket.socket] = []
    try:
        for number in range(count):
            idle.append(socket.create_connection((where.hostname, where.port), timeout=20))
            if number % 4 == 0:  # the others say nothing at all
                idle[-1].sendall(b"GET /nowhere HTTP/1.1\r\nHost: door\r\n\r\n")
                assert b"404" in idle[-1].recv(65536)
        key = peer.sign_in()
        with peer.client(**{"x-api-key": key}) as client:
            assert client.get("/commands").status_code == 200
        assert peer.stop() == 0
        for connection in idle:
            assert connection.recv(65536) == b"", "told nothing, and closed"
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_second_signal_ends_a_stop_that_waits_for_a_client(peer: PeerProcess) -> None:
    """hyperium/hyper#2787, as its owner sees it who will not wait."""
    where = urlsplit(peer.endpoint)
    with socket.create_connection((where.hostname, where.port), timeout=20) as busy:
        head = b"POST /oauth/device HTTP/1.1\r\nHost: door\r\nContent-Length: 9\r\nExpect: 100-continue\r\n"
        busy.sendall(head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\n")
        assert busy.recv(65536).startswith(b"HTTP/1.1 100"), "its view waits for the body"
        peer.send(signal.SIGTERM)
        assert comes_true(lambda: "stopping on SIGTERM" in peer.log.read_text())
        peer.send(signal.SIGTERM)
        assert peer.wait() == 130
    peer.start()  # nothing of it is in the way
    assert peer.stop() == 0


def comes_true(holds: Callable[[], bool]) -> bool:
    """Look for something that another process does; whether it came within a bound."""
    end = time.monotonic() + 10
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


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


async def test_a_clock_that_jumps_ends_no_stream_and_no_sign_in(tmp_path: Path) -> None:
    """gpustack/gpustack#1577: a machine whose clock was wrong counted as lost."""
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        agent = await door.sign_in()
        begun = await begin(door.client())
        async with agent.stream() as stream:
            for hours in (3, -6, 3):
                clock.advance(hours * 3_600_000)
                told = flat(await poll(door.client(), begun["device_code"]))
                assert told in ("authorization_pending", "slow_down")
                deployment = await door.deploy(agent)
                assert (await stream.until("DeploymentReady"))[-1]["data"]["deployment"] == deployment
                correlation = await agent.command("UndeployModel", {"deployment": deployment})
                assert (await stream.until("Undeployed"))[-1]["correlationid"] == correlation
        assert (await door.approve(begun["user_code"])).status_code == 200


@pytest.mark.parametrize("how", ["by hand", "by itself"])
async def test_what_has_ended_does_not_come_back_with_its_engine(docker_bed: DockerBed, how: str) -> None:
    """docker/for-linux#15 (moby/moby#34028): it was stopped between two restarts, and ran again later.

    No engine restarts anything of the peer's, so that there is no such moment.
    """
    async with (
        open_own_engine(docker_bed) as engine,
        open_docker_world(docker_bed, socket=engine.socket) as world,
    ):
        script = "exit 3" if how == "by itself" else "sleep 999"
        await world.runtime.start(world.job("sh", "-c", script))
        path = f"/containers/bp-{world.instance}-job-1"
        with trio.fail_after(60):
            if how == "by hand":
                await world.client.call("POST", f"{path}/stop", params={"t": "0"})
            ended = await world.runtime.wait("job-1")
            for act in (engine.kill, engine.start):
                await trio.to_thread.run_sync(act)
            await world.restart()
            again = await world.runtime.wait("job-1")
        assert (again.code, again.ended_at) == (ended.code, ended.ended_at)
        found = await world.client.call("GET", f"{path}/json")
        assert (found["State"]["Running"], found["RestartCount"]) == (False, 0)
