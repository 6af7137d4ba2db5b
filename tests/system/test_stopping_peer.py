"""A peer that stops leaves nobody at its place to be taken for it (F14)."""

from __future__ import annotations

import signal
import socket
import time
from typing import TYPE_CHECKING

from tests.support.agents import envelope
from tests.support.peers import MODEL_BYTES, STOP_SECONDS, PeerProcess, listen

if TYPE_CHECKING:
    from pathlib import Path


def is_taken(port: int) -> bool:
    """Whether a port is listened on, as somebody learns who waits for it to be free."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


def test_the_record_of_the_door_is_gone_before_somebody_else_may_listen_there(tmp_path: Path) -> None:
    """The command line would send whoever does the admin token, while the peer still holds its folder."""
    with PeerProcess(tmp_path) as peer:
        assert peer.door is not None
        port = int(peer.door.listen[0].rpartition(":")[2])
        # A request in flight, which the stop waits for.
        with socket.create_connection(("127.0.0.1", port)) as asking:
            asking.sendall(b"POST /oauth/token HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n")
            peer.send(signal.SIGTERM)
            until = time.monotonic() + STOP_SECONDS
            while is_taken(port):
                assert time.monotonic() < until
                time.sleep(0.001)
            assert not (peer.data / "door.json").exists()
        assert peer.wait() == 0


def told(peer: PeerProcess, words: str) -> str:
    """The line of the log that holds these words, once it is there."""
    until = time.monotonic() + STOP_SECONDS
    while True:
        lines = [line for line in peer.log.read_text().splitlines() if words in line]
        if lines:
            return lines[-1]
        assert time.monotonic() < until, peer.log.read_text()
        time.sleep(0.005)


def test_the_log_says_what_runs_on_and_the_next_start_what_it_found_again(tmp_path: Path) -> None:
    deploy = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
    with PeerProcess(tmp_path) as peer:
        key = peer.sign_in()
        with peer.client(**{"x-api-key": key}) as client:
            answer = client.post("/commands", json=envelope(peer.endpoint, "DeployModel", deploy))
            assert answer.status_code == 201, answer.text
            listen(client, answer.json()["correlationId"], until="DeploymentReady")
        assert peer.stop() == 0
        stopped = told(peer, "stopping on SIGTERM")
        assert stopped.endswith("; 1 deployment runs on, and the next start finds it again")
        peer.start()
        assert told(peer, "found again").endswith("found again from before this start: 1 deployment")
        peer.kill()
        peer.start()
        assert peer.stop() == 0
        assert told(peer, "stopping on").endswith(stopped.partition("; ")[2])
