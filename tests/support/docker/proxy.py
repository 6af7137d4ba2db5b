"""A registry that fails as registries do: a proxy before a real one, and faults for what is asked of it.

Stands before an engine's socket as well, for a call that is held, or whose answer does not come.

async with open_proxy(bed.registry.address) as proxy:
    reference = proxy.reference(push_as(bed, "layered", "my/own"))
    held = proxy.fault("GET .*/blobs/", Hold(after=1000))
    ...start to pull the reference...
    await held.reached.wait()
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import attrs
import h11
import httpx
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PIECE = 1 << 16
_MOST_SENT = 64 << 20
_IDLE_SECONDS = 60.0
# What is between two neighbours and not passed on.
_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade"}


@attrs.frozen
class Answer:
    """The registry is not asked; this is the answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def error(cls, status: int, code: str, message: str = "") -> Answer:
        """An error as registries word them, `TOOMANYREQUESTS` and the like."""
        body = f'{{"errors": [{{"code": "{code}", "message": "{message or code.lower()}"}}]}}'
        return cls(status, body.encode(), {"Content-Type": "application/json"})


@attrs.frozen
class Hold:
    """The answer stops after so many bytes of its body, until `Fault.release`; None is before its start."""

    after: int | None = None


@attrs.frozen
class Mute:
    """What is asked is done, and its answer does not come, until `Fault.release`."""


@attrs.frozen
class Cut:
    """The connection ends after so many bytes of the answer's body; None is before its start."""

    after: int | None = None


@attrs.frozen
class Corrupt:
    """One byte of the answer's body is another."""

    at: int = 0


@attrs.frozen
class Instead:
    """The answer's body is another one, of its own length, under the same headers."""

    body: bytes


Kind = Answer | Hold | Mute | Cut | Corrupt | Instead


@attrs.define(eq=False)
class Fault:
    """A kind of failure and the requests that it meets.

    Args:
        pattern: matched from the start of `METHOD /path?query`.
        kind: what happens to them.
        times: how many of them; None for all.
        met: how many it has met.
        reached: set once it has met one; for a hold or a cut, once so many bytes have been sent.
    """

    pattern: str
    kind: Kind
    times: int | None = None
    met: int = 0
    reached: trio.Event = attrs.field(factory=trio.Event)
    _released: trio.Event = attrs.field(factory=trio.Event)

    def release(self) -> None:
        """Let those that are held go on, and hold no more."""
        self._released.set()

    async def wait_released(self) -> None:
        """Wait for `release`."""
        await self._released.wait()

    def meets(self, line: str) -> bool:
        """Whether it is for this request; counts it if so."""
        if (self.times is not None and self.met >= self.times) or not re.match(self.pattern, line):
            return False
        self.met += 1
        return True


@attrs.frozen
class Seen:
    """A request that was made."""

    method: str
    path: str
    headers: httpx.Headers = attrs.field(repr=False)


@attrs.define(eq=False)
class RegistryProxy:
    """A proxy that serves at `address` what is at `upstream`. `requests` are those made so far, in order."""

    address: str
    requests: list[Seen]
    upstream: str
    _nursery: trio.Nursery = attrs.field(repr=False)
    _faults: list[Fault] = attrs.field(factory=list)
    _serving: trio.CancelScope | None = attrs.field(default=None, repr=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, repr=False)

    def reference(self, reference: str) -> str:
        """A reference to the registry behind, as one through this proxy."""
        assert reference.startswith(f"{self.upstream}/"), f"{reference} is not at {self.upstream}"
        return f"{self.address}{reference.removeprefix(self.upstream)}"

    def fault(self, pattern: str, kind: Kind, *, times: int | None = None) -> Fault:
        """Let requests fail; of several faults that meet one, the first that was given does."""
        fault = Fault(pattern, kind, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Let nothing fail any more, and let go what is held."""
        for fault in self._faults:
            fault.release()
        self._faults.clear()

    def meet(self, seen: Seen) -> Fault | None:
        """Note a request, and say how it is to fail."""
        self.requests.append(seen)
        return next((fault for fault in self._faults if fault.meets(f"{seen.method} {seen.path}")), None)

    async def down(self) -> None:
        """End every connection and refuse new ones, as a registry does that was killed."""
        if self._serving is not None:
            self._serving.cancel()
            await self._ended.wait()

    async def up(self) -> None:
        """Serve again, at the same address."""
        if self._serving is None:
            self._ended = trio.Event()
            await self._nursery.start(self._serve)

    async def _serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        host, _, port = self.address.rpartition(":")
        listeners = await trio.open_tcp_listeners(int(port), host=host)
        self.address = f"{host}:{listeners[0].socket.getsockname()[1]}"
        with trio.CancelScope() as self._serving:
            task_status.started()
            await trio.serve_listeners(self._connection, listeners)
        self._serving = None
        self._ended.set()

    async def _connection(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            await _Connection(_Peer(stream, h11.Connection(h11.SERVER)), self).run()


@asynccontextmanager
async def open_proxy(upstream: str) -> AsyncIterator[RegistryProxy]:
    """A proxy without faults at first, before what is at `upstream`: `127.0.0.1:PORT`, or a socket's path."""
    async with trio.open_nursery() as nursery:
        proxy = RegistryProxy("127.0.0.1:0", [], upstream, nursery)
        await proxy.up()
        yield proxy
        nursery.cancel_scope.cancel()


@attrs.define
class _Peer:
    """What is spoken over one connection with a client, or with the registry."""

    stream: trio.SocketStream
    http: h11.Connection

    async def send(self, event: h11.Event) -> None:
        if data := self.http.send(event):
            await self.stream.send_all(data)

    async def next(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """The next event; NEED_DATA when none came for a minute."""
        with trio.move_on_after(_IDLE_SECONDS):
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self.stream.receive_some(_PIECE))
            return event
        return h11.NEED_DATA


@attrs.define
class _Connection:
    """One client's connection, a request after another."""

    _client: _Peer
    _proxy: RegistryProxy

    async def run(self) -> None:
        goes_on = True
        while goes_on:
            request = await self._client.next()
            if not isinstance(request, h11.Request):
                return
            body = bytearray()
            while isinstance(data := await self._client.next(), h11.Data):
                body += data.data
                assert len(body) <= _MOST_SENT, "more was sent through the proxy than it takes"
            goes_on = await self._answer(request, bytes(body))
            if goes_on and self._client.http.our_state is h11.DONE:
                self._client.http.start_next_cycle()
            else:
                return

    async def _answer(self, request: h11.Request, body: bytes) -> bool:
        """Whether the connection goes on."""
        # Several headers of one name stay several: dockerd sends one Accept for each kind it takes.
        headers = [(name, value) for name, value in request.headers if name not in _HOP]
        seen = Seen(request.method.decode(), request.target.decode(), httpx.Headers(headers))
        fault = self._proxy.meet(seen)
        kind = fault.kind if fault else None
        if fault and isinstance(kind, Answer):
            fault.reached.set()
            await self._send_whole(seen, kind)
            return True
        if fault and isinstance(kind, Hold | Cut) and kind.after is None:
            fault.reached.set()
            if isinstance(kind, Cut):
                return False
            await fault.wait_released()
        try:
            stream = await self._upstream()
        except OSError:
            away = Answer.error(502, "UNKNOWN", "the registry behind the proxy is away")
            await self._send_whole(seen, away)
            return True
        async with stream:
            registry = _Peer(stream, h11.Connection(h11.CLIENT))
            asked = h11.Request(method=request.method, target=request.target, headers=headers)
            for event in (asked, h11.Data(data=body), h11.EndOfMessage()):
                await registry.send(event)
            return await self._relay(seen, registry, fault)

    async def _upstream(self) -> trio.SocketStream:
        upstream = self._proxy.upstream
        if upstream.startswith("/"):
            return await trio.open_unix_socket(upstream)
        host, _, port = upstream.rpartition(":")
        return await trio.open_tcp_stream(host, int(port))

    async def _relay(self, seen: Seen, registry: _Peer, fault: Fault | None) -> bool:
        got = await registry.next()
        while isinstance(got, h11.InformationalResponse):
            got = await registry.next()
        if not isinstance(got, h11.Response):
            return False
        if fault and isinstance(fault.kind, Mute):
            fault.reached.set()
            await fault.wait_released()
        headers = [(name, value) for name, value in got.headers if name not in _HOP]
        if fault and isinstance(fault.kind, Instead):
            fault.reached.set()
            kept = {name.decode(): value.decode() for name, value in headers}
            await self._send_whole(seen, Answer(got.status_code, fault.kind.body, kept))
            return True
        await self._client.send(h11.Response(status_code=got.status_code, headers=headers))
        sent = 0
        while isinstance(data := await registry.next(), h11.Data):
            if not await self._send_piece(bytes(data.data), sent, fault):
                return False
            sent += len(data.data)
        if not isinstance(data, h11.EndOfMessage):
            return False
        await self._client.send(h11.EndOfMessage())
        return True

    async def _send_piece(self, piece: bytes, sent: int, fault: Fault | None) -> bool:
        """Send a piece of a body of which so much was sent; False when the connection is to end."""
        kind = fault.kind if fault else None
        at = kind.after if isinstance(kind, Hold | Cut) else kind.at if isinstance(kind, Corrupt) else None
        if fault is None or at is None or not sent <= at < sent + len(piece):
            await self._client.send(h11.Data(data=piece))
            return True
        before, rest = piece[: at - sent], piece[at - sent :]
        if before:
            await self._client.send(h11.Data(data=before))
        fault.reached.set()
        if isinstance(kind, Cut):
            return False
        if isinstance(kind, Hold):
            await fault.wait_released()
        else:
            rest = bytes([rest[0] ^ 0xFF]) + rest[1:]
        await self._client.send(h11.Data(data=rest))
        return True

    async def _send_whole(self, seen: Seen, answer: Answer) -> None:
        headers = {name.title(): value for name, value in answer.headers.items()}
        headers["Content-Length"] = str(len(answer.body))
        await self._client.send(h11.Response(status_code=answer.status, headers=list(headers.items())))
        if seen.method != "HEAD":
            await self._client.send(h11.Data(data=answer.body))
        await self._client.send(h11.EndOfMessage())
