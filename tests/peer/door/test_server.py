"""The door's server on real sockets: connections, how they end, certificates, and the stop."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing

from peer.door.http1 import Http1
from peer.door.limits import Limits, RequestRecord
from peer.door.server import Server, bind
from peer.door.tls import Tls, server_context
from tests.support.doorapps import Flood, Waiting, ok, reply, ticking
from tests.support.rawhttp import GET, HANG, HOST, QUICK, Door, Pki, post, serving, within

if TYPE_CHECKING:
    from peer.door.http1 import AsgiApp
    from tests.support.doorapps import Receive, Scope, Send


# Guard A: no client, and no fault met through one, ends the server


async def test_a_fault_in_a_connections_own_code_ends_that_connection_alone(
    pki: Pki | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    healthy = Http1._handle_events

    async def faulty(self: Http1) -> None:
        if b"/fault" in bytes(self.connection.trailing_data[0]):
            raise RuntimeError("a bug\nof ours")
        await healthy(self)

    monkeypatch.setattr(Http1, "_handle_events", faulty)
    with caplog.at_level(logging.WARNING):
        async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as bystander:
            async with door.dial() as wire:
                await wire.send(GET.replace(b"/ ", b"/fault ", 1))
                assert await wire.until_closed() == b""
            await bystander.send(GET)
            assert (await bystander.answer()).status == 200
            assert (await door.get()).status == 200
            assert door.server.statistics().crashed_connections == 1
    [line] = caplog.records
    assert line.levelno == logging.WARNING
    assert line.exc_info is None
    assert "RuntimeError: a bug of ours" in line.getMessage()
    assert "\n" not in line.getMessage()


async def test_the_traceback_of_such_a_fault_is_there_for_who_debugs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def faulty(self: Http1) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(Http1, "_handle_events", faulty)
    with caplog.at_level(logging.DEBUG, "best_peer.door"):
        async with serving(ok, limits=QUICK) as door, door.dial() as wire:
            await wire.send(GET)
            await wire.until_closed()
    assert [bool(line.exc_info) for line in caplog.records if line.name == "best_peer.door"] == [False, True]


async def test_a_hook_that_raises_costs_nothing_but_a_line(caplog: pytest.LogCaptureFixture) -> None:
    def hook(record: RequestRecord) -> None:
        raise RuntimeError("full")

    server = Server(ok, bind("127.0.0.1", 0), tls=None, limits=QUICK, on_request_done=hook)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        async with Door(server, [], None).dial() as wire:
            for _ in range(2):
                await wire.send(GET)
                assert (await wire.answer()).status == 200
        server.stop()
    assert len(caplog.records) == 2
    assert server.statistics().crashed_connections == 0


# Guard C: a client that does not read


async def test_a_client_that_stops_reading_is_dropped(pki: Pki | None) -> None:
    flood = Flood()
    limits = attrs.evolve(QUICK, write_seconds=0.3)
    async with serving(flood, pki=pki, limits=limits) as door, door.dial(receive_buffer=4096) as wire:
        await wire.send(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
        await within(flood.cancelled)
        await door.settled()
        assert door.server.statistics().dropped_slow_readers == 1
        assert (await door.get()).status == 200


async def test_a_client_that_reads_slowly_gets_everything(pki: Pki | None) -> None:
    size = 8 * 1024 * 1024

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, bytes(size))

    limits = attrs.evolve(QUICK, write_seconds=1.0)
    async with serving(app, pki=pki, limits=limits) as door, door.dial(receive_buffer=65536) as wire:
        await wire.send(GET)
        received, breaths = 0, 0
        while received < size:
            data = await wire.receive()
            assert data
            received += len(data)
            if received > breaths * size // 30:
                breaths += 1
                await trio.sleep(0.05)  # longer than write_seconds in all
        assert door.server.statistics().dropped_slow_readers == 0


async def test_what_is_being_sent_is_sent_whole_though_the_handler_gives_up(pki: Pki | None) -> None:
    size = 8 * 1024 * 1024
    given_up = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reply, send, bytes(size))
            await given_up.wait()
            nursery.cancel_scope.cancel()

    async with serving(app, pki=pki, limits=QUICK) as door, door.dial(receive_buffer=4096) as wire:
        await wire.send(GET)
        await door.settled(lambda: bool(door.records))
        await trio.testing.wait_all_tasks_blocked()  # the sending one by the client, which has not read
        given_up.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len((await wire.answer()).body) == size


async def test_a_client_that_does_not_read_cannot_hold_up_the_end(pki: Pki | None) -> None:
    limits = attrs.evolve(QUICK, write_seconds=600.0)
    flood = Flood()
    async with serving(flood, pki=pki, limits=limits) as door, door.dial(receive_buffer=4096) as wire:
        await wire.send(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
        await wire.until(b"\r\n\r\n")
        door.server.stop()
        await door.settled()
    assert flood.cancelled.is_set()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
async def test_accepted_sockets_watch_for_clients_that_vanish(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=attrs.evolve(QUICK, write_seconds=7.0)) as door, door.dial():
        await door.settled(lambda: door.server.statistics().open == 1)
        [connection] = door.server._connections
        sock = connection._transport.socket
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10500


# Guard E: a client that leaves


@pytest.mark.parametrize("way", ["close", "reset", "half-close"])
async def test_a_client_that_leaves_cancels_the_handler(pki: Pki | None, way: str) -> None:
    app = Waiting()
    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"POST /p%20q?x=1 HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\nsome")
        await within(app.began)
        if way == "close":
            wire.close()
        elif way == "reset":
            wire.reset()
        else:
            await wire.half_close()
        await within(app.cancelled)
        await door.settled()
        [record] = door.records
        assert (record.method, record.path, record.status) == ("POST", "/p%20q", None)


async def test_what_a_handler_raises_when_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    began = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            began.set()
            await trio.sleep_forever()
        finally:
            raise ValueError("while leaving")

    async with serving(app, limits=QUICK) as door, door.dial() as wire:
        await wire.send(GET)
        await within(began)
        wire.close()
        await door.settled()
        assert door.server.statistics().crashed_connections == 0
    assert "the app failed" in caplog.records[0].getMessage()


async def test_an_app_that_only_sends_stops_when_its_client_has_left(pki: Pki | None) -> None:
    flood = Flood()
    async with serving(flood, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
        await wire.until(b"\r\n\r\n")
        wire.close()
        await within(flood.cancelled)
        await door.settled()


# How many connections


async def test_an_address_may_have_only_so_many_connections(pki: Pki | None) -> None:
    limits = attrs.evolve(QUICK, connections_per_address=2, count_loopback=True)
    async with serving(ok, pki=pki, limits=limits) as door:
        async with door.dial(), door.dial() as inside:
            await door.settled(lambda: door.server.statistics().open == 2)
            answer = await door.get()
            assert (answer.status, answer.code) == (503, "TOO_MANY_CONNECTIONS")
            assert answer.details == {"limit": 2}
            assert b"retry-after" in answer.headers
            await inside.send(GET)
            assert (await inside.answer()).status == 200
            assert door.server.statistics().refused == 1
        await door.settled()
        assert (await door.get()).status == 200


async def test_this_machine_is_not_counted_by_address_but_in_all(pki: Pki | None) -> None:
    limits = attrs.evolve(QUICK, connections_per_address=1, connections_total=3)
    async with serving(ok, pki=pki, limits=limits) as door, door.dial(), door.dial(), door.dial() as wire:
        await wire.send(GET)
        assert (await wire.answer()).status == 200
        assert (await door.get()).code == "TOO_MANY_CONNECTIONS"


async def test_those_who_are_refused_are_bounded_too() -> None:
    limits = attrs.evolve(QUICK, connections_total=1, linger_seconds=5.0)
    async with serving(ok, limits=limits) as door, door.dial() as inside:
        await door.settled(lambda: door.server.statistics().open == 1)
        socks = [socket.create_connection(door.server.address) for _ in range(80)]
        await door.settled(lambda: door.server.statistics().accepted == 81)
        statistics = door.server.statistics()
        assert statistics.refused == 80
        assert statistics.open == 1 + 64
        await inside.send(GET)
        assert (await inside.answer()).status == 200
        for sock in socks:
            sock.close()


# Certificates


async def test_a_new_certificate_is_for_new_connections(some_pki: Pki, tmp_path: Path) -> None:
    other = Pki.make(tmp_path / "other")
    async with serving(ok, pki=some_pki, limits=QUICK) as door, door.dial() as old:
        door.server.show(server_context(other.tls))
        async with door.dial(client=other.client) as new:
            for wire in (old, new):
                await wire.send(GET)
                assert (await wire.answer()).status == 200
        with pytest.raises(trio.BrokenResourceError):
            async with door.dial():
                pass


def test_a_certificate_without_its_own_key_does_not_load(some_pki: Pki, tmp_path: Path) -> None:
    other = Pki.make(tmp_path / "other")
    with pytest.raises(OSError, match=r"(?i)mismatch"):
        server_context(Tls(other.tls.certificate, some_pki.tls.key))
    with pytest.raises(FileNotFoundError):
        server_context(Tls(tmp_path / "none.pem", tmp_path / "none.pem"))


async def test_a_plain_server_has_no_certificate_to_change(some_pki: Pki) -> None:
    async with serving(ok, limits=QUICK) as door:
        with pytest.raises(ValueError, match="without TLS"):
            door.server.show(server_context(some_pki.tls))


@pytest.mark.filterwarnings("ignore:.*TLSv1_1.*:DeprecationWarning")
async def test_tls_before_1_2_is_refused(some_pki: Pki) -> None:
    client = ssl.create_default_context(cadata=None)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.minimum_version = ssl.TLSVersion.TLSv1_1
    client.maximum_version = ssl.TLSVersion.TLSv1_1
    client.set_ciphers("ALL:@SECLEVEL=0")
    async with serving(ok, pki=some_pki, limits=QUICK) as door:
        with pytest.raises(trio.BrokenResourceError):
            async with door.dial(client=client):
                pass
        await door.settled()
        assert door.server.statistics().failed_handshakes == 1


@pytest.mark.parametrize(
    "request_bytes", [GET, b"G", post(b"/commands", b"x" * 100_000)], ids=["whole", "begun", "long"]
)
async def test_a_request_in_the_clear_is_told_that_this_is_https(some_pki: Pki, request_bytes: bytes) -> None:
    asked = False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal asked
        asked = True
        await reply(send)

    async with serving(app, pki=some_pki, limits=QUICK) as door:
        async with door.dial(plain=True) as wire:
            await wire.send(request_bytes)
            answer = await wire.answer()
            assert (answer.status, answer.code) == (400, "BAD_REQUEST")
            assert b"https://" in answer.body
            assert answer.headers[b"connection"] == b"close"
            assert await wire.until_closed() == b""
        assert not asked
        await door.settled()
        assert door.server.statistics().failed_handshakes == 1
        assert [(record.method, record.path, record.status) for record in door.records] == [("-", "-", 400)]
        assert (await door.get()).status == 200


async def test_too_many_connections_in_the_clear_are_bounded_as_others_are(some_pki: Pki) -> None:
    limits = attrs.evolve(QUICK, connections_total=1)
    async with serving(ok, pki=some_pki, limits=limits) as door, door.dial(), door.dial(plain=True) as wire:
        await wire.send(GET)
        answer = await wire.answer()
        assert (answer.status, answer.code) == (503, "TOO_MANY_CONNECTIONS")


# Binding and stopping


async def test_port_0_tells_the_port_it_got_and_a_taken_port_is_an_oserror() -> None:
    with bind("127.0.0.1", 0) as sock:
        server = Server(ok, sock, tls=None, limits=QUICK, on_request_done=lambda record: None)
        host, port = server.address
        assert (host, port) == sock.getsockname()
        assert port
        with pytest.raises(OSError, match="in use") as taken:
            bind(host, port)
        assert taken.value.errno == errno.EADDRINUSE


async def test_requests_in_flight_get_their_answer_and_no_new_one_is_taken(pki: Pki | None) -> None:
    began, finish = trio.Event(), trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await finish.wait()
        await reply(send)

    limits = attrs.evolve(QUICK, grace_seconds=HANG)
    async with serving(app, pki=pki, limits=limits) as door, door.dial() as busy, door.dial() as idle:
        await busy.send(GET)
        await within(began)
        door.server.stop()
        assert await idle.until_closed() == b""
        with pytest.raises(ConnectionRefusedError):
            async with door.dial():
                pass
        finish.set()
        answer = await busy.answer()
        assert answer.status == 200
        assert answer.headers[b"connection"] == b"close"
        assert await busy.until_closed() == b""


async def test_streams_that_end_by_themselves_end_the_stop(pki: Pki | None) -> None:
    limits = Limits(grace_seconds=10 * HANG, linger_seconds=10 * HANG)
    async with serving(ticking, pki=pki, limits=limits) as door, door.dial() as wire:
        await wire.send(GET)
        await wire.until(b": hello\n\n")
        door.server.stop()
        await door.settled()  # though the client keeps its side open
        assert (await wire.until_closed()).endswith(b": bye\n\n\r\n0\r\n\r\n")


async def test_what_does_not_end_within_the_grace_is_cut(pki: Pki | None) -> None:
    app = Waiting()
    limits = Limits(grace_seconds=0.2, linger_seconds=60.0, write_seconds=60.0)
    async with serving(app, pki=pki, limits=limits) as door:
        async with door.dial() as busy, door.dial() as half, door.dial(plain=True), door.dial() as lazy:
            await half.send(b"GET / HT")
            await lazy.send(b"nonsense\r\n\r\n")  # answered with 400, then lingering
            await lazy.until(b"BAD_REQUEST")
            await busy.send(GET)
            await within(app.began)
            door.server.stop()
            assert await busy.until_closed() == b""
            await within(app.cancelled)
            await door.settled()
        assert [record.status for record in door.records] == [400, None]


async def test_cancelling_ends_everything_at_once(pki: Pki | None) -> None:
    app = Flood()
    limits = Limits(grace_seconds=600.0, write_seconds=600.0)
    server = Server(
        app,
        bind("127.0.0.1", 0),
        tls=None if pki is None else server_context(pki.tls),
        limits=limits,
        on_request_done=lambda record: None,
    )
    with trio.fail_after(HANG), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            async with Door(server, [], pki).dial(receive_buffer=4096) as wire:
                await wire.send(b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")
                await wire.until(b"\r\n\r\n")
                scope.cancel()
                await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert app.cancelled.is_set()
    assert server.statistics().open == 0


async def test_two_servers_live_beside_each_other(some_pki: Pki) -> None:
    async def named(name: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, name)

    one: AsgiApp = partial(named, b"one")
    two: AsgiApp = partial(named, b"two")
    async with serving(one, limits=QUICK) as first, serving(two, pki=some_pki, limits=QUICK) as second:
        assert (await first.get()).body == b"one"
        assert (await second.get()).body == b"two"
