"""The way to the running peer: found by its record, pinned to its certificate, asked within bounds (F14)."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
import trustme

import peer.cli.door
from adapters.certificates import ensure_certificate
from peer.cli.door import Door, _pins, pinned
from peer.cli.outcome import Failed, Refused
from peer.folder import DataFolder, DoorRecord, FolderUnusable, NoDoor, is_held
from tests.peer.cli.conftest import FakeDoor, serve_door

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import Ran

STATUS = "GET /admin/status"


def ask(data: Path) -> object:
    return trio.run(Door.find(data).get, "/admin/status")


def context_of(certificate: Path) -> ssl.SSLContext:
    """What the command line trusts of a door that recorded a file alone."""
    record = DoorRecord(endpoint="", listen=(), certificate=str(certificate), pid=1, version="")
    return pinned(certificate, _pins(record, certificate))


def own_certificate(folder: Path, host: str = "127.0.0.1") -> Path:
    """A certificate as the peer makes it, with its key behind it in the same file."""
    made = ensure_certificate(folder, host, (), datetime.now(UTC))
    both = folder / "both.pem"
    both.write_bytes(made.cert_path.read_bytes() + made.key_path.read_bytes())
    return both


def chain(folder: Path, name: str, *authority: trustme.CA, **more: object) -> Path:
    """An operator's own: key, leaf and the authorities above it."""
    leaf = authority[0].issue_cert(name, **more)  # type: ignore[arg-type]
    path = folder / f"{name}.pem"
    blobs = [leaf.private_key_pem, *leaf.cert_chain_pems, *(each.cert_pem for each in authority)]
    path.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return path


def test_the_token_opens_the_door_and_the_answer_comes_back(data: Path, door: FakeDoor) -> None:
    door.answers[STATUS] = 200, {"streams": 3}
    assert ask(data) == {"streams": 3}
    assert door.only().headers["authorization"] == f"Bearer {door.folder.admin_token}"


def test_a_folder_without_a_peer_has_no_door(data: Path) -> None:
    with pytest.raises(NoDoor, match="start it with best-peer"):
        Door.find(data)


def test_a_peer_that_is_still_starting_is_told_apart(data: Path) -> None:
    with DataFolder.open(data), pytest.raises(NoDoor, match="has not opened its door yet"):
        Door.find(data)


def test_the_token_goes_to_nobody_who_listens_where_a_killed_peer_was(
    data: Path, cli: Callable[..., Ran]
) -> None:
    with serve_door(data) as door:
        lock, door.folder._lock = door.folder._lock, None
        assert lock
        assert is_held(data)
        os.close(lock)  # as the system does when a process is killed
        assert not is_held(data)
        ran = cli("status")
        assert (ran.code, ran.out) == (2, "")
        assert "ended without closing its door" in ran.line
        assert door.requests == []


def test_a_token_that_was_removed_under_a_running_peer_is_told(data: Path, door: FakeDoor) -> None:
    (data / "admin-token").unlink()
    with pytest.raises(NoDoor, match=r"admin-token is gone: start the peer again, which makes a new one"):
        ask(data)
    assert door.requests == []


def test_looking_whether_a_folder_is_held_needs_no_folder(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "none")
    (tmp_path / "lock").symlink_to("nowhere")
    with pytest.raises(FolderUnusable, match="cannot look into"):
        is_held(tmp_path)


def test_nobody_listening_is_told_with_what_to_do(data: Path, cli: Callable[..., Ran]) -> None:
    with socket.socket() as taken, DataFolder.open(data) as folder:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets it
        port = taken.getsockname()[1]
        DoorRecord(endpoint="", listen=(f"127.0.0.1:{port}",), certificate=None, pid=1, version="").write(
            folder.door
        )
        ran = cli("status")
    assert ran.code == 2
    assert f"nobody listens at 127.0.0.1:{port}" in ran.line
    assert "start it again" in ran.line


@pytest.mark.parametrize("listen", ["0.0.0.0", "[::ffff:0.0.0.0]"])
def test_a_door_on_every_interface_is_asked_over_loopback(data: Path, listen: str) -> None:
    with serve_door(data, listen=listen) as door:
        found = Door.find(data).addresses
        if listen == "0.0.0.0":
            door.answers[STATUS] = 200, {}
            assert ask(data) == {}
    assert str(found[0]) in (f"127.0.0.1:{door.port}", f"[::1]:{door.port}")


def test_loopback_is_asked_first_and_another_address_next(data: Path, door: FakeDoor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = taken.getsockname()[1]
        record = DoorRecord.read(door.folder.door)
        listen = ("192.0.2.1:9", f"127.0.0.1:{dead}", *record.listen, "no address")
        DoorRecord(endpoint="", listen=listen, certificate=None, pid=1, version="").write(door.folder.door)
        door.answers[STATUS] = 200, {}
        assert ask(data) == {}
    assert [str(each) for each in Door.find(data).addresses] == [
        f"127.0.0.1:{dead}",
        f"127.0.0.1:{door.port}",
        "192.0.2.1:9",
    ]


def test_the_peers_own_certificate_is_accepted(data: Path, tmp_path: Path) -> None:
    with serve_door(data, own_certificate(tmp_path / "tls")) as door:
        door.answers[STATUS] = 200, {"ok": True}
        assert ask(data) == {"ok": True}


def test_another_certificate_gets_no_token(data: Path, tmp_path: Path, cli: Callable[..., Ran]) -> None:
    with serve_door(data, own_certificate(tmp_path / "one")) as door:
        record = DoorRecord.read(door.folder.door)
        other = own_certificate(tmp_path / "other")
        DoorRecord(
            endpoint=record.endpoint, listen=record.listen, certificate=str(other), pid=1, version=""
        ).write(door.folder.door)
        ran = cli("status")
        assert ran.code == 2
        assert f"does not show the certificate in {other}" in ran.line
        assert door.requests == []


def test_an_operators_chain_is_pinned_at_its_leaf(data: Path, tmp_path: Path) -> None:
    root = trustme.CA()
    intermediate = root.create_child_ca()
    served = chain(tmp_path, "peer.example", intermediate, root)
    with serve_door(data, served) as door:
        door.answers[STATUS] = 200, {}
        assert ask(data) == {}, "the name it was issued for is not the address it listens on"
        door.requests.clear()
        sibling = chain(tmp_path, "stranger.example", intermediate, root)
        record = DoorRecord.read(door.folder.door)
        DoorRecord(endpoint="", listen=record.listen, certificate=str(sibling), pid=1, version="").write(
            door.folder.door
        )
        with pytest.raises(Failed, match="does not show the certificate"):
            ask(data)
        assert door.requests == []


def record_of(door: FakeDoor, certificate: Path, *pins: Path) -> None:
    """Have the door's record say what it shows."""
    before = DoorRecord.read(door.folder.door)
    pems = tuple(context_pem(path) for path in pins)
    DoorRecord(
        endpoint="", listen=before.listen, certificate=str(certificate), pid=1, version="", pins=pems
    ).write(door.folder.door)


def context_pem(path: Path) -> str:
    """The first certificate of a file."""
    record = DoorRecord(endpoint="", listen=(), certificate=str(path), pid=1, version="")
    (pem,) = _pins(record, path)
    return pem


@pytest.mark.parametrize("file", ["is gone", "is empty", "is already another's"])
def test_what_the_door_recorded_is_trusted_while_its_file_is_replaced(
    data: Path, tmp_path: Path, file: str
) -> None:
    served = own_certificate(tmp_path / "served")
    with serve_door(data, served) as door:
        path = tmp_path / "chain.pem"
        if file == "is empty":
            path.touch()
        elif file == "is already another's":
            path.write_bytes(own_certificate(tmp_path / "next").read_bytes())
        record_of(door, path, served)
        door.answers[STATUS] = 200, {}
        assert ask(data) == {}
        record_of(door, path, own_certificate(tmp_path / "stranger"))
        with pytest.raises(Failed, match="does not show the certificate"):
            ask(data)


def test_a_door_that_changes_its_certificate_may_show_either(data: Path, tmp_path: Path) -> None:
    old, new = own_certificate(tmp_path / "old"), own_certificate(tmp_path / "new")
    for served in (old, new):
        with serve_door(data, served) as door:
            record_of(door, new, new, old)
            door.answers[STATUS] = 200, {}
            assert ask(data) == {}


def test_a_certificate_past_its_end_is_still_the_peers(data: Path, tmp_path: Path) -> None:
    ended = datetime.now(UTC) - timedelta(days=1)
    with serve_door(data, chain(tmp_path, "peer.example", trustme.CA(), not_after=ended)) as door:
        door.answers[STATUS] = 200, {}
        assert ask(data) == {}


def test_a_door_without_tls_where_tls_was_recorded_is_told(data: Path, tmp_path: Path) -> None:
    with serve_door(data) as door:
        record = DoorRecord.read(door.folder.door)
        certificate = own_certificate(tmp_path / "tls")
        DoorRecord(endpoint="", listen=record.listen, certificate=str(certificate), pid=1, version="").write(
            door.folder.door
        )
        with pytest.raises(Failed, match="start the peer again"):
            ask(data)
        assert door.requests == []


def test_a_certificate_that_is_gone_or_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot read the peer's certificate"):
        context_of(tmp_path / "gone.pem")
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(Failed, match="holds no certificate"):
        context_of(tmp_path / "none.pem")
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(Failed, match="cannot read the peer's certificate"):
        context_of(tmp_path / "bad.pem")


def test_proxies_and_bundles_of_the_environment_have_no_say(
    data: Path, door: FakeDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    door.answers[STATUS] = 200, {}
    assert ask(data) == {}


def test_a_refusal_is_told_in_the_doors_words(data: Path, door: FakeDoor) -> None:
    door.answers[STATUS] = 404, {"error": {"code": "UNKNOWN_KEY", "message": "no such key", "details": {}}}
    with pytest.raises(Refused, match=r"^no such key \(UNKNOWN_KEY\)$"):
        ask(data)


def test_what_the_peer_cannot_do_now_is_the_systems(data: Path, door: FakeDoor) -> None:
    door.answers[STATUS] = 503, {"error": {"code": "NO_ROOM", "message": "the disk is full"}}
    with pytest.raises(Failed, match="the disk is full"):
        ask(data)


def test_a_token_that_is_not_the_peers_is_told(data: Path, door: FakeDoor) -> None:
    door.answers[STATUS] = 401, {"error": {"code": "UNAUTHORIZED", "message": "no"}}
    with pytest.raises(Refused, match="does not take the admin token") as refused:
        ask(data)
    assert door.folder.admin_token not in str(refused.value)
    assert door.folder.admin_token not in repr(Door.find(data))


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"error": 7}', b"\xff"])
@pytest.mark.parametrize("status", [200, 502])
def test_what_is_no_answer_of_a_door_is_told(data: Path, door: FakeDoor, status: int, answer: bytes) -> None:
    if status == 200 and answer.startswith(b"{"):
        answer = b"{"
    door.answers[STATUS] = status, answer
    with pytest.raises(Failed, match=f"answered {status} and no JSON"):
        ask(data)


def test_an_answer_without_end_is_given_up(
    data: Path, door: FakeDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer.cli.door, "MAX_ANSWER", 1000)
    door.answers[STATUS] = 200, {"long": "x" * 1000}
    with pytest.raises(Failed, match="not one of at most 1000 bytes"):
        ask(data)


def test_a_peer_that_does_not_answer_is_given_up(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer.cli.door, "ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, DataFolder.open(data) as folder:
        port = silent.getsockname()[1]
        DoorRecord(endpoint="", listen=(f"127.0.0.1:{port}",), certificate=None, pid=1, version="").write(
            folder.door
        )
        with pytest.raises(Failed, match=r"gave no answer within 0\.05 s"):
            ask(data)


@pytest.mark.parametrize(
    ("linger", "why"),
    [(b"", "Server disconnected"), (struct.pack("ii", 1, 0), "Connection reset")],
    ids=["closed", "reset"],
)
def test_a_peer_that_stops_before_it_answers_is_told_and_what_to_look_at(
    data: Path, linger: bytes, why: str
) -> None:
    def break_off(listener: socket.socket) -> None:
        taken, _ = listener.accept()
        with taken:
            taken.recv(1 << 16)
            if linger:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with socket.create_server(("127.0.0.1", 0)) as listener, DataFolder.open(data) as folder:
        port = listener.getsockname()[1]
        DoorRecord(endpoint="", listen=(f"127.0.0.1:{port}",), certificate=None, pid=1, version="").write(
            folder.door
        )
        peer_at_its_end = threading.Thread(target=break_off, args=(listener,))
        peer_at_its_end.start()
        with pytest.raises(Failed, match="look with best-peer status whether it did what was asked") as told:
            ask(data)
        assert "broke off before it had answered (" in str(told.value)
        assert why in str(told.value)
        peer_at_its_end.join(5)
