"""A server on a real loopback socket, and a client that writes bytes no decent client would.

Every wait here ends within `HANG` seconds: that is a bound on a hang, not a measure of speed.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import h11
import trio
import trustme

from peer.door.limits import Limits, RequestRecord
from peer.door.server import Server, bind
from peer.door.tls import Tls, server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from peer.door.http1 import AsgiApp

HANG = 20.0
HOST = b"Host: door\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
QUICK = Limits(grace_seconds=0.2, linger_seconds=0.3)
"""Limits for tests that are not about them."""
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError)


def post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST " + path + b" HTTP/1.1\r\n" + HOST + length + headers + b"\r\n" + body


async def within(event: trio.Event) -> None:
    with trio.fail_after(HANG):
        await event.wait()


@attrs.frozen
class Pki:
    """A certificate for 127.0.0.1 and what a client needs to trust it."""

    tls: Tls
    client: ssl.SSLContext

    @classmethod
    def make(cls, folder: Path) -> Pki:
        folder.mkdir(exist_ok=True)
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        chain, key = folder / "chain.pem", folder / "key.pem"
        chain.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        client = ssl.create_default_context()
        authority.configure_trust(client)
        return cls(Tls(chain, key), client)


@attrs.frozen
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def code(self) -> str:
        """The code of a BEST error; the shape is checked on the way."""
        assert self.headers[b"content-type"] == b"application/json"
        document = json.loads(self.body)
        assert set(document) == {"error"}
        error = document["error"]
        assert {"code", "message"} <= set(error) <= {"code", "message", "details"}
        assert isinstance(error["message"], str)
        assert error["message"]
        return str(error["code"])

    @property
    def details(self) -> dict[str, Any]:
        details: dict[str, Any] = json.loads(self.body)["error"]["details"]
        return details


class Wire:
    """One connection of a client, plain or TLS."""

    def __init__(self, transport: trio.SocketStream, tls: trio.SSLStream[trio.SocketStream] | None) -> None:
        self.transport = transport
        self.stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream = tls or transport
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._asked = False

    async def send(self, data: bytes) -> None:
        with trio.fail_after(HANG):
            await self.stream.send_all(data)

    async def try_send(self, data: bytes) -> bool:
        """Send to a server that may have closed meanwhile; says whether it went out."""
        try:
            await self.send(data)
        except _BROKEN:
            return False
        return True

    async def receive(self) -> bytes:
        """The next bytes; empty where the server closed or reset."""
        with trio.fail_after(HANG):
            try:
                return bytes(await self.stream.receive_some(65536))
            except _BROKEN:
                return b""

    async def until_closed(self) -> bytes:
        """Everything until the server closes."""
        received = bytearray()
        while data := await self.receive():
            received += data
        return bytes(received)

    async def until(self, mark: bytes) -> bytes:
        """Everything up to the first piece that completes `mark`."""
        received = bytearray()
        while mark not in received:
            data = await self.receive()
            assert data, f"closed after {bytes(received[-200:])!r}"
            received += data
        return bytes(received)

    async def answer(self, method: bytes = b"GET") -> Answer:
        """The next final answer, parsed by h11."""
        if self._asked:
            self._parser.start_next_cycle()
        self._asked = True
        self._parser.send(h11.Request(method=method, target="/", headers=[("host", "door")]))
        self._parser.send(h11.EndOfMessage())
        head: h11.Response | None = None
        body = bytearray()
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(await self.receive())
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return Answer(head.status_code, dict(head.headers), bytes(body))
            else:
                assert isinstance(event, h11.InformationalResponse), event

    async def half_close(self) -> None:
        await self.transport.send_eof()

    def reset(self) -> None:
        """Close so that the server sees a reset."""
        linger = struct.pack("ii", 1, 0)
        self.transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.transport.socket.close()

    def close(self) -> None:
        self.transport.socket.close()


class Door:
    """A running server, and what its hook was told."""

    def __init__(self, server: Server, records: list[RequestRecord], pki: Pki | None) -> None:
        self.server = server
        self.records = records
        self.pki = pki

    @asynccontextmanager
    async def dial(
        self, *, plain: bool = False, receive_buffer: int | None = None, client: ssl.SSLContext | None = None
    ) -> AsyncIterator[Wire]:
        """Connect; over TLS where the door has it, unless `plain`."""
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            with trio.fail_after(HANG):
                await sock.connect(self.server.address)
                transport = trio.SocketStream(sock)
                tls = None
                if self.pki is not None and not plain:
                    context = client or self.pki.client
                    tls = trio.SSLStream(
                        transport, context, server_hostname="127.0.0.1", https_compatible=True
                    )
                    await tls.do_handshake()
            yield Wire(transport, tls)
        finally:
            sock.close()

    async def ask(self, request: bytes) -> Answer:
        """One request on a connection of its own."""
        async with self.dial() as wire:
            await wire.send(request)
            return await wire.answer(request.partition(b" ")[0])

    async def get(self, path: bytes = b"/", headers: bytes = b"") -> Answer:
        return await self.ask(b"GET " + path + b" HTTP/1.1\r\n" + HOST + headers + b"\r\n")

    async def settled(self, condition: Callable[[], bool] | None = None) -> None:
        """Wait until the condition holds; without one, until no connection is open."""
        wanted = condition or (lambda: self.server.statistics().open == 0)
        with trio.fail_after(HANG):
            while not wanted():  # noqa: ASYNC110 (what is waited for happens partly in the kernel)
                await trio.sleep(0.002)


@asynccontextmanager
async def serving(app: AsgiApp, *, pki: Pki | None = None, limits: Limits = QUICK) -> AsyncIterator[Door]:
    """A server with the app behind it. On the way out it must have kept none of its connections."""
    records: list[RequestRecord] = []
    server = Server(
        app,
        bind("127.0.0.1", 0),
        tls=None if pki is None else server_context(pki.tls),
        limits=limits,
        on_request_done=records.append,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        yield Door(server, records, pki)
        server.stop()
    assert server.statistics().open == 0
