"""What systemd is told."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from peer.notify import notify
from tests.support.peers import PeerProcess

SECONDS = 60.0


@pytest.fixture
def told(tmp_path: Path) -> tuple[str, socket.socket]:
    path = str(tmp_path / "notify")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(path)
    sock.settimeout(SECONDS)
    return path, sock


def test_fields_are_one_datagram(told: tuple[str, socket.socket]) -> None:
    path, sock = told
    with sock:
        notify({"NOTIFY_SOCKET": path}, READY="1", STATUS="open", BAD="1\nREADY=1")
        assert sock.recv(4096) == b"READY=1\nSTATUS=open\n"


def test_a_name_that_is_no_file_is_found_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("")  # the system chooses a name in its own name space
        sock.settimeout(SECONDS)
        notify({"NOTIFY_SOCKET": "@" + sock.getsockname()[1:].decode()}, READY="1")
        assert sock.recv(4096) == b"READY=1\n"


@pytest.mark.parametrize("address", ["", "nonsense", "/no/such/socket", "@", "vsock:2:1"])
def test_nobody_to_tell_is_no_trouble(address: str) -> None:
    notify({"NOTIFY_SOCKET": address} if address else {}, READY="1")


def test_a_peer_tells_once_its_door_is_open(tmp_path: Path, told: tuple[str, socket.socket]) -> None:
    path, sock = told
    with sock, PeerProcess(tmp_path, {"NOTIFY_SOCKET": path}) as peer:
        ready, status = sock.recv(4096).decode().splitlines()
        assert ready == "READY=1"
        assert status.startswith(f"STATUS=best-peer is serving its door: {peer.endpoint}")
