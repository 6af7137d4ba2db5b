"""A peer that stops leaves nobody at its place to be taken for it (F14)."""

from __future__ import annotations

import signal
import socket
import time
from typing import TYPE_CHECKING

from tests.support.peers import STOP_SECONDS, PeerProcess

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
