"""Hosts an ASGI app on one listening socket, over HTTP/1.1, so that no client can do it harm.

hypercorn's protocol layer (h11 and the ASGI stream) is kept; its connection task is not, because there one
client can end the process, hold up its end for ever, or keep what it holds. Each guard says at its place what
it is against.

What an app must know:

- Only ``http`` scopes come. No lifespan: a task in such a nursery could die while the server goes on; run
  tasks in a nursery of your own and give the app what it needs when you make it.
- ``scope["state"]`` is a dict of this request. ``stopping`` is a :class:`trio.Event`, set when the server
  begins to stop: end streams then. The app may set ``holder`` (whose credential it was, for the request's
  record) and, before it reads the body, ``body_limit_bytes`` (a lower limit than the server's).
- A connection's next request waits until the app has returned from the one before.
- **A client that leaves cancels the handler**, at whatever it awaits, also in the middle of a POST, and also
  when it only closed its sending half. Effects belong to an actor, never to a handler.
- Too many bytes behind a request (``header_bytes``) stop the reading until its answer: such a client's
  leaving is noticed when next written to. So a stream writes a comment now and then, and other handlers have
  a deadline.
- There is no deadline on an answer: an event stream lives as long as its client reads.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup

from peer.door import limits as words
from peer.door.http1 import Http1, Phase, Shared
from peer.door.limits import Gate, Limits, Refusal, RequestRecord, ServerStatistics, plain_address
from peer.door.tls import begins_in_the_clear
from peer.logs import ROOT

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from peer.door.http1 import AsgiApp

logger = logging.getLogger(f"{ROOT}.door")

_BACKLOG = 1024  # at 100, hundreds of clients that connect at once wait for retransmitted handshakes
_READ = 16 * 1024  # one read may be thousands of chunks, and all of it is parsed before another task runs
_WRITE = 64 * 1024  # under one deadline
_LINGER_BYTES = 1024 * 1024
_REFUSED_AT_ONCE = 64  # connections answered with 503 at one time; past it they are closed unanswered
# A peer that vanished is found in 30 s.
_KEEP_ALIVE_PROBES = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 lets the system choose one.

    Args:
        host: an address, or a name (then its first address). ``::`` serves IPv4 too.

    Raises:
        OSError: as the system says it: in use, not permitted, no such address.
    """
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, proto)
    try:
        if os.name == "posix":  # elsewhere it would let another process take the port from us
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _as_it_is(path: str, refusal: Refusal) -> Refusal:  # noqa: ARG001 - one signature for all
    return refusal


class Server:
    """One app behind one listening socket.

    Args:
        app: a plain ASGI 3 app; see the module for what it may expect.
        sock: from :func:`bind`. The server owns it from here.
        tls: from :func:`peer.door.tls.server_context`; None serves plain HTTP.
        on_request_done: called once for each request, in the event loop: it must not block. What it raises is
            logged.
        reword: gives a refusal of the server's own in the words that clients of a path know; called with the
            path as it arrived, ``-`` where the request could not be read.
    """

    def __init__(
        self,
        app: AsgiApp,
        sock: socket.socket,
        *,
        tls: ssl.SSLContext | None,
        limits: Limits,
        on_request_done: Callable[[RequestRecord], None],
        reword: Callable[[str, Refusal], Refusal] = _as_it_is,
    ) -> None:
        self._sock = sock
        self._address: tuple[str, int] = sock.getsockname()[:2]
        self._tls = tls
        _guard_against_lost_peers(sock, limits)
        self._shared = Shared(app, limits, on_request_done, reword)
        self._gate = Gate(limits, total=min(limits.connections_total, _descriptors() // 2))
        self._stop = trio.Event()
        self._empty = trio.Event()
        self._connections: set[_Connection] = set()
        self._accepted = self._refused = self._being_refused = self._crashed = 0

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that the system chose."""
        return self._address

    def statistics(self) -> ServerStatistics:
        return ServerStatistics(
            open=len(self._connections),
            accepted=self._accepted,
            refused=self._refused,
            failed_handshakes=self._shared.failed_handshakes,
            dropped_slow_readers=self._shared.dropped_slow_readers,
            crashed_connections=self._crashed,
        )

    def show(self, tls: ssl.SSLContext) -> None:
        """Serve new connections with another certificate; open ones live on with theirs.

        Raises:
            ValueError: this server serves plain HTTP.
        """
        if self._tls is None:
            raise ValueError("a server without TLS has no certificate to change; make one with tls=...")
        self._tls = tls

    def stop(self) -> None:
        """Begin to stop: :meth:`run` returns within ``grace_seconds`` and a moment, whatever clients do."""
        self._stop.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until :meth:`stop`, or until cancelled, which cuts everything at once. Runs once.

        Raises:
            OSError: the listening socket broke.
        """
        async with trio.open_nursery() as handlers:
            try:
                async with trio.open_nursery() as accepting:
                    listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._sock))
                    await accepting.start(
                        partial(trio.serve_listeners, self._serve, [listener], handler_nursery=handlers)
                    )
                    task_status.started()
                    await self._stop.wait()
                    accepting.cancel_scope.cancel()  # closes the listener
                await self._shared.begin_stop()
                for connection in tuple(self._connections):
                    connection.stop_if_idle()
                if self._connections:
                    with trio.move_on_after(self._shared.limits.grace_seconds):
                        await self._empty.wait()
            finally:
                # A send to a client that does not read is shielded, so cancelling would wait for it (up to
                # write_seconds; in hypercorn, for ever). A closed socket ends it at once.
                for connection in tuple(self._connections):
                    connection.cut()
                handlers.cancel_scope.cancel()

    async def _serve(self, transport: trio.SocketStream) -> None:
        self._accepted += 1
        try:
            host, port = transport.socket.getpeername()[:2]
            server = transport.socket.getsockname()[:2]
        except OSError:
            return  # reset before we came to it
        client = (plain_address(host), port)
        refusal = self._gate.enter(client[0])
        if refusal is not None:
            self._refused += 1
            if self._being_refused >= _REFUSED_AT_ONCE:
                return
            self._being_refused += 1
        connection = _Connection(self._shared, transport, self._tls, client, server)
        self._connections.add(connection)
        try:
            await connection.run(refusal)
        except* Exception as crash:
            # Guard A: in hypercorn what a connection raises ends the server, and a client can make it raise.
            self._crashed += 1
            logger.warning("a connection from %s broke by a fault of ours: %s", client[0], _one_line(crash))
            logger.debug("the same, with its traceback", exc_info=crash)
        finally:
            self._connections.discard(connection)
            if refusal is None:
                self._gate.leave(client[0])
            else:
                self._being_refused -= 1
            if self._stop.is_set() and not self._connections:
                self._empty.set()


class _Connection:
    """One accepted connection: handshake, reading with deadlines, writing with a deadline, and its end."""

    def __init__(
        self,
        shared: Shared,
        transport: trio.SocketStream,
        context: ssl.SSLContext | None,
        client: tuple[str, int],
        server: tuple[str, int],
    ) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._transport = transport
        # https_compatible: browsers and most clients close without TLS's own goodbye.
        self._tls = (
            None
            if context is None
            else trio.SSLStream(transport, context, server_side=True, https_compatible=True)
        )
        self._stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream = self._tls or transport
        self._client = client
        self._server = server
        self._sending = trio.Lock()
        self._reading = trio.CancelScope()
        self._phase = Phase.HEAD
        self._silent = True
        self._hung_up = False
        self._cut = False

    async def run(self, refusal: Refusal | None) -> None:
        """Serve it to its end, or only tell it the refusal."""
        if self._tls is not None:
            try:  # guard: hypercorn's handshake may take a minute
                with trio.fail_after(self._limits.handshake_seconds):
                    if await begins_in_the_clear(self._transport):
                        self._shared.failed_handshakes += 1
                        refusal = refusal or words.IN_THE_CLEAR
                        self._stream, self._tls = self._transport, None
                    else:
                        await self._tls.do_handshake()
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                self._shared.failed_handshakes += 1
                return
        async with TaskGroup() as tasks:
            try:
                # Guard B: made here and not by hypercorn's wrapper, which knows a way to HTTP/2.
                self._http = Http1(
                    self._shared, self.send, tasks, self._tls is not None, self._client, self._server
                )
                self._enter(Phase.HEAD)
                if refusal is not None:
                    await self._http.refuse(refusal)
                else:
                    await self._read()
                await self._http.handle(Closed())
                if self._hung_up and self._http.client_may_be_sending():
                    await self._linger()
            finally:
                # Before the wait for the app's task, which may be sending to a client that does not read.
                self.cut()

    def stop_if_idle(self) -> None:
        """The server stops: end a connection that waits for a request."""
        if self._phase is Phase.IDLE or self._silent:
            self.cut()

    def cut(self) -> None:
        """End it now. Whoever reads or writes is woken with an error."""
        if not self._cut:
            self._cut = True
            self._transport.socket.close()
            self._reading.cancel()

    async def _read(self) -> None:
        with self._reading:
            while not self._hung_up:
                try:
                    data = await self._stream.receive_some(_READ)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                if not data:
                    return
                self._silent = False
                await self._http.handle(RawData(bytes(data)))
                phase = self._http.phase()
                if phase is not self._phase:
                    self._enter(phase)
        if self._reading.cancelled_caught and not self._hung_up and not self._cut:
            await self._too_late()

    async def _too_late(self) -> None:
        # Guard: a request that drips in holds a connection for as long as its client likes.
        if self._phase is Phase.HEAD and not self._silent:
            await self._http.refuse(words.too_slow("head", self._limits.header_seconds))
        elif self._phase is Phase.BODY:
            await self._http.refuse(words.too_slow("body", self._limits.body_seconds))

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._reading.deadline = trio.current_time() + self._shared.seconds[phase]

    async def send(self, event: Event) -> None:
        """What the protocol wants done: bytes sent, the connection closed, or its idle time begun."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Closed):
            self._hang_up()
            await self._http.handle(event)
        elif isinstance(event, Updated):
            self._enter(self._http.phase())

    async def _write(self, data: bytes) -> None:
        # Guard C: shielded, because half a frame would break all that follows; so with a deadline, because a
        # client that does not read would hold it, and with it the end of the process, as in hypercorn.
        with trio.CancelScope(shield=True) as scope:
            async with self._sending:
                try:
                    with memoryview(data) as view:
                        for start in range(0, len(view), _WRITE):
                            scope.deadline = trio.current_time() + self._limits.write_seconds
                            await self._stream.send_all(view[start : start + _WRITE])
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.cut()
        if scope.cancelled_caught:
            self._shared.dropped_slow_readers += 1
            logger.info(
                "a client at %s took nothing for %g s and was cut",
                self._client[0],
                self._limits.write_seconds,
            )
            self.cut()
        if self._cut:
            await self._http.handle(Closed())

    def _hang_up(self) -> None:
        """Say that no more will come; what the client still sends is read by :meth:`_linger`."""
        if not self._hung_up:
            self._hung_up = True
            with suppress(OSError):
                self._transport.socket.shutdown(socket.SHUT_WR)
            self._reading.cancel()

    async def _linger(self) -> None:
        # Guard: see Limits.linger_seconds. Below TLS, where bytes can be thrown away unread.
        left = _LINGER_BYTES
        with (
            trio.move_on_after(self._limits.linger_seconds),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            while left > 0 and (data := await self._transport.receive_some(_READ)):
                left -= len(data)


def _guard_against_lost_peers(sock: socket.socket, limits: Limits) -> None:
    """Options that accepted sockets inherit, for clients that vanish without a word.

    Keep-alive finds those to which nothing is sent. TCP_USER_TIMEOUT finds those who no longer acknowledge
    while the kernel still takes our bytes, and bounds how long it keeps unsent ones after a close. Each
    misses the other's case.
    """
    with suppress(OSError):  # not TCP
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE_PROBES:
            if hasattr(socket, name):  # macOS and Windows lack some
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A little later than our own deadline, which counts those it cuts.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(limits.write_seconds * 1500))


def _descriptors() -> int:
    """How many files this process may have open; clients must not take those that the log needs."""
    try:
        import resource
    except ImportError:  # not POSIX
        return 1 << 16
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 16 if soft == resource.RLIM_INFINITY else soft


def _one_line(error: BaseException) -> str:
    """What a group holds, or an exception is, in one bounded line."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_one_line(inner) for inner in error.exceptions)[:400]
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
