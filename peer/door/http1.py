"""HTTP/1.1 between one connection and an ASGI app: hypercorn's protocol classes, their holes closed.

``Http1`` is one connection's requests, ``Exchange`` is one of them with the app that answers it. Neither
touches a socket: ``peer.door.server`` feeds them bytes and does what they ask through ``send``.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import attrs
import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import EndBody, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from peer.door import limits as words
from peer.door.limits import Limits, Refusal, RequestRecord
from peer.logs import ROOT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from hypercorn.trio.task_group import TaskGroup
    from hypercorn.typing import AppWrapper, ASGISendEvent, H11SendableEvent

    Message = MutableMapping[str, Any]
    AsgiApp = Callable[
        [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
        Awaitable[None],
    ]

logger = logging.getLogger(f"{ROOT}.door")


class Phase(Enum):
    """What a connection waits for, which decides how long it may."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()  # the app's
    REST = auto()  # of a body that the app answered without reading
    IDLE = auto()


class Shared:
    """What the connections of one server have in common."""

    def __init__(
        self,
        app: AsgiApp,
        limits: Limits,
        on_request_done: Callable[[RequestRecord], None],
        reword: Callable[[str, Refusal], Refusal],
    ) -> None:
        self.app = app
        self.limits = limits
        self.reword = reword
        self._on_request_done = on_request_done
        self.seconds = {
            Phase.HEAD: limits.header_seconds,
            Phase.BODY: limits.body_seconds,
            Phase.ANSWER: inf,
            Phase.REST: limits.linger_seconds,
            Phase.IDLE: limits.keep_alive_seconds,
        }
        self.context = WorkerContext(None)
        self.stopping = trio.Event()
        self.failed_handshakes = 0
        self.dropped_slow_readers = 0
        self.config = Config()
        self.config.h11_max_incomplete_size = limits.header_bytes
        self.config.keep_alive_max_requests = limits.requests_per_connection
        self.config.include_server_header = False
        # Its logger would put handlers on loggers of the whole process, and its access log is slow.
        self.config.errorlog = self.config.accesslog = None

    async def begin_stop(self) -> None:
        await self.context.terminated.set()  # from here answers say Connection: close
        self.stopping.set()

    def tell(self, record: RequestRecord) -> None:
        try:
            self._on_request_done(record)
        except Exception:
            # Part of guard A: a server whose access log raises must not end by it.
            logger.exception("the hook for finished requests failed on %s %s", record.method, record.path)


@attrs.frozen
class _Asked:
    """A request that has no record yet."""

    method: str
    path: str
    at: float
    state: dict[str, Any]


class Http1(H11Protocol):
    """One connection's requests, one after another.

    Guard B: there is no other protocol behind it. hypercorn's own class goes over to HTTP/2, whose sending
    has no back-pressure, at a client's word, and to websockets, where junk ends the process.
    """

    connection: h11.Connection

    def __init__(
        self,
        shared: Shared,
        send: Callable[[Event], Awaitable[None]],
        tasks: TaskGroup,
        tls: bool,
        client: tuple[str, int],
        server: tuple[str, int],
    ) -> None:
        app = cast("AppWrapper", shared.app)  # not called by hypercorn: Exchange does it
        state = ConnectionState({})
        super().__init__(app, shared.config, shared.context, tasks, state, tls, client, server, send)
        self.shared = shared
        self._peer = client
        self._exchange: Exchange | None = None
        self._asked: _Asked | None = None
        self._held = b""
        self._rest: int | None = None  # bytes so far of a body whose answer is out
        self._over = False
        self._held_up = False  # reading, by too much that follows a request

    def phase(self) -> Phase:
        their = self.connection.their_state
        if self._rest is not None:
            return Phase.REST
        if their is h11.IDLE:
            return Phase.HEAD if self._buffered() else Phase.IDLE
        return Phase.BODY if their is h11.SEND_BODY else Phase.ANSWER

    def client_may_be_sending(self) -> bool:
        """Whether a request is unfinished, or something followed one."""
        finished = self.connection.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        return not finished or self._buffered() > 0

    # From the client

    async def handle(self, event: Event) -> None:
        """Take bytes, or that the connection is closed (or about to be, by us)."""
        if isinstance(event, RawData):
            # After the client's Connection: close, or ours, its bytes mean nothing. Kept, they would pile up.
            if not self._over and self.connection.their_state is not h11.MUST_CLOSE:
                self.connection.receive_data(event.data)
                await self._handle_events()
        elif isinstance(event, Closed):
            self._over = True
            await self._close_stream()
            await self.can_read.set()
            self._record(None)

    async def _handle_events(self) -> None:
        while not self._over and self.connection.their_state is not h11.MUST_CLOSE:
            in_head = self.connection.their_state is h11.IDLE
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                head = self.connection.trailing_data[0] if in_head else None
                await self.refuse(words.malformed(error, head, self.shared.limits))
                return
            if isinstance(event, h11.Request):
                await self._begin(event)
            elif isinstance(event, h11.Data):
                await self._take(event.data)
            elif isinstance(event, h11.EndOfMessage):
                if self._exchange is not None:
                    self._exchange.end()
                elif self._rest is not None:
                    self._rest = None
                    await self._maybe_recycle()
            elif event is h11.PAUSED and self._buffered() > self.shared.limits.header_bytes:
                await self.send(Updated(idle=False))  # its time for the head is over
                self._held_up = True
                await self.can_read.clear()
                await self.can_read.wait()
                self._held_up = False
            else:  # it needs more data, or what follows can wait for the answer
                return

    async def resume(self) -> None:
        """An answer is done: take up what followed its request."""
        if self._buffered() and not self._held_up:  # else the reader is at it
            await self._handle_events()
            await self.send(Updated(idle=False))

    def _buffered(self) -> int:
        return len(self.connection.trailing_data[0])

    async def _begin(self, request: h11.Request) -> None:
        path, _, query = request.target.partition(b"?")
        # What is no path or no method may hold a password, which no log is to tell.
        told = path.decode("ascii") if path.startswith(b"/") else "-"
        method = request.method.decode("ascii") if request.method in words.METHODS else "-"
        state: dict[str, Any] = {"stopping": self.shared.stopping}
        asked = _Asked(method, told, trio.current_time(), state)
        self._asked = asked
        refusal = words.check_head(request, self.shared.limits)
        if refusal is not None:
            await self.refuse(refusal)
            return
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"spec_version": "2.3", "version": "3.0"},
            "http_version": request.http_version.decode("ascii"),
            "method": asked.method,
            "scheme": "https" if self.ssl else "http",
            "path": unquote(asked.path),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": self.client,
            "server": self.server,
            "state": state,
            "extensions": {},
        }
        # hypercorn says 100 at once and h11 would remind us; the app's first wish for the body is the time to
        # say it, or a client would send what is then refused.
        waits = self.connection.client_is_waiting_for_100_continue
        self.connection.client_is_waiting_for_100_continue = False
        self._exchange = Exchange(self, scope, waits_for_continue=waits)
        self.task_group.spawn(self._exchange.run)
        self.keep_alive_requests += 1

    async def _take(self, data: bytes) -> None:
        # Counted here and not where the app reads: it may never read, and the body may have no end.
        if self._exchange is not None:
            arrived = self._exchange.feed(data)
        else:
            arrived = self._rest = (self._rest or 0) + len(data)
        if arrived > self.shared.limits.body_bytes:
            await self.refuse(words.body_too_large(self.shared.limits.body_bytes))

    # To the client

    async def refuse(self, refusal: Refusal) -> None:
        """Answer in the server's own name where nothing has been answered yet, and close in any case.

        The app, if it has begun, is cancelled.
        """
        if self._over:
            return
        self._over = True
        await self._close_stream()  # may cancel the task that is here; what is sent below is shielded
        if self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._answer(refusal)
        await self.send(Closed())

    async def _answer(self, refusal: Refusal) -> None:
        if self._asked is None:
            self._asked = _Asked("-", "-", trio.current_time(), {})
        with_body = self._asked.method != "HEAD"
        refusal = self.shared.reword(self._asked.path, refusal)
        body = refusal.body()
        headers = refusal.headers(body) + self.config.response_headers("h11")
        await self._send_h11_event(h11.Response(status_code=refusal.status, headers=headers))
        if with_body:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response) and event.status_code >= 200 and self._closes_after_this():
            event.headers.append((b"connection", b"close"))
        await super().stream_send(event)

    def _closes_after_this(self) -> bool:
        # A client that waited for 100 in vain may send its body or its next request; nothing tells which.
        waits = self._exchange is not None and self._exchange.waits_for_continue
        return waits or self.context.terminated.is_set()

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        data = self.connection.send(event)
        if isinstance(event, h11.Response):
            self._record(event.status_code)
            if any(name == b"content-length" for name, _ in event.headers):
                # Goes out with the body, in one write. A head without a length is a stream's: that one is
                # wanted at once.
                self._held = data
                return
        data = self._held + data if self._held else data
        self._held = b""
        if data:
            await self.send(RawData(data))

    async def _maybe_recycle(self) -> None:
        """The app is done with its request: make the connection ready for the next one, or close it."""
        states = self.connection.our_state, self.connection.their_state
        exchange = self._exchange
        if exchange is not None and states == (h11.DONE, h11.SEND_BODY) and not self._closes_after_this():
            # Most clients send a body whatever the answer: a moment for it saves them a connection.
            await self._close_stream()
            self._rest = exchange.arrived
            await self.send(Updated(idle=False))
        else:
            await super()._maybe_recycle()

    async def _close_stream(self) -> None:
        if self._exchange is not None:
            self._exchange.leave()
            self._exchange = None

    def _record(self, status: int | None) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            seconds = trio.current_time() - asked.at
            holder = asked.state.get("holder")
            self.shared.tell(RequestRecord(*self._peer, asked.method, asked.path, status, seconds, holder))


class Exchange(HTTPStream):
    """One request, and the task of the app that answers it.

    What arrives of the body is kept here, bounded by the limit, until the app asks. hypercorn's queue of ten
    pieces made the reader wait for an app that does not read, and then neither saw that the other was gone.
    """

    def __init__(self, http: Http1, scope: dict[str, Any], *, waits_for_continue: bool) -> None:
        h = http
        super().__init__(
            h.app, h.config, h.context, h.task_group, h.ssl, h.client, h.server, h.stream_send, STREAM_ID
        )
        self.scope = cast("Any", scope)
        self.waits_for_continue = waits_for_continue
        self.arrived = 0
        self._http = http
        self._app = http.shared.app
        self._state = scope["state"]
        self._body = bytearray()
        self._complete = False
        self._delivered = False
        self._news = trio.Event()
        self._running = trio.CancelScope()

    def feed(self, data: bytes) -> int:
        """Take a piece of the body; returns how many bytes there have been."""
        self.waits_for_continue = False
        self._body += data
        self.arrived += len(data)
        self._news.set()
        return self.arrived

    def end(self) -> None:
        """The body is whole."""
        self._complete = True
        self._news.set()

    def leave(self) -> None:
        """Guard E: whoever waits for this answer has gone, or has got it; the app's task ends."""
        self.closed = True
        self._news.set()
        self._running.cancel()

    async def run(self) -> None:
        try:
            with self._running:
                await self._app(cast("Any", self.scope), self.receive, cast("Any", self.app_send))
        except* Exception as failed:
            # The path as it arrived: the decoded one may hold a line break.
            path = self.scope["raw_path"].decode("ascii")
            logger.exception("the app failed on %s %s", self.scope["method"], path, exc_info=failed)
        await self.app_send(None)
        await self._http.resume()

    async def receive(self) -> Message:
        """ASGI's receive: what has arrived since the last time, in one piece."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.closed and self.state is not ASGIHTTPState.CLOSED:
            limit = self._state.get("body_limit_bytes")
            if limit is not None and max(self.arrived, self._declared()) > limit:
                await self._http.refuse(words.body_too_large(limit))
                break
            if self.waits_for_continue and self.state is ASGIHTTPState.REQUEST:
                self.waits_for_continue = False
                await self._http.stream_send(Response(stream_id=STREAM_ID, headers=[], status_code=100))
            if self._body or (self._complete and not self._delivered):
                body = bytes(self._body)
                self._body.clear()
                self._delivered = self._complete
                return {"type": "http.request", "body": body, "more_body": not self._complete}
            self._news = trio.Event()
            await self._news.wait()
        await trio.lowlevel.checkpoint()  # an app may ask again and again
        return {"type": "http.disconnect"}

    def _declared(self) -> int:
        return next((int(value) for name, value in self.scope["headers"] if name == b"content-length"), 0)

    async def app_send(self, message: ASGISendEvent | None) -> None:
        """ASGI's send; None says that the app has returned."""
        if message is None:
            if self.state is ASGIHTTPState.REQUEST:
                await self._http.refuse(words.INTERNAL)
        elif self.closed:
            await trio.lowlevel.checkpoint()  # or an app that only sends would never let another task run
            return
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        await super().app_send(message)

    async def _send_closed(self) -> None:
        # Guard D: hypercorn goes on to the next request from here, in the app's task, and tells the app that
        # its client left; quart-trio then cancels that same task in the middle, and the connection neither
        # closes nor idles. Here the next request waits until run() has seen the app return.
        await self.send(EndBody(stream_id=STREAM_ID))
        self.state = ASGIHTTPState.CLOSED
        self._news.set()
