"""Questions over plain HTTP/1.1 to engines, each answered whole.

Small on purpose: a general client's pool is one that a burst of cancelled questions can leave full for good
(encode/httpcore#1093), and its layers cost more than a local engine's answer. Here a connection belongs to
one question at a time; whatever goes wrong with that question, cancellation included, closes it.
"""

import select
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs
import h11
import trio

CONNECT_SECONDS: Final = 5.0
"""An engine near by takes a connection at once, or hangs with its queue full."""
IDLE_SECONDS: Final = 2.0
"""How long an unused connection is kept: shorter than servers keep it (llama.cpp's five seconds), so that a
question is rarely sent into one that is just being closed."""
MAX_IDLE: Final = 64
"""Unused connections kept, for all engines together."""
MAX_HEAD: Final = 64 * 1024
CHUNK: Final = 64 * 1024


class NoAnswer(Exception):
    """Raised when a server cannot be reached, breaks off or answers what is no HTTP."""

    def __init__(self, reason: str, *, begun: bool = False) -> None:
        super().__init__(reason)
        self.begun = begun
        """Whether some of an answer had come."""


class TooMuch(NoAnswer):
    """Raised when an answer is longer than the caller takes."""


@attrs.define(eq=False)
class _Line:
    stream: trio.SocketStream
    protocol: h11.Connection
    idle_since: float = 0.0

    def close(self) -> None:
        self.stream.socket.close()

    def is_stale(self, now: float) -> bool:
        """Whether it idled too long, or has something to read: its end, or what nobody asked for."""
        if now - self.idle_since > IDLE_SECONDS:
            return True
        poll = select.poll()
        poll.register(self.stream.socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))


@attrs.define(eq=False)
class PlainHttp:
    """Asks servers and keeps connections to them for the next question.

    How many ask at once is bounded by the callers: nobody waits for a connection here.
    """

    _idle: dict[str, list[_Line]] = attrs.field(factory=dict, init=False)

    async def ask(
        self,
        base_url: str,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        most_bytes: int,
    ) -> tuple[int, bytes]:
        """Ask one question; the status and the body of its answer. The caller owns the deadline.

        Raises:
            NoAnswer: there is none.
            TooMuch: its body is longer than `most_bytes`.
        """
        request = h11.Request(
            method=method,
            target=path,
            headers=[
                ("host", urlsplit(base_url).netloc),
                ("content-length", str(len(content))),
                *headers.items(),
            ],
        )
        line = self._take(base_url)
        if line is not None:
            try:
                return await self._exchange(base_url, line, request, content, most_bytes)
            except NoAnswer as error:
                if error.begun:
                    raise
                # The server closed it in this very moment, as it may close an idle one: once more.
        return await self._exchange(base_url, await _open(base_url), request, content, most_bytes)

    def close(self) -> None:
        """Close the connections that are not in use; those in use close with their questions."""
        for lines in self._idle.values():
            for line in lines:
                line.close()
        self._idle.clear()

    async def _exchange(
        self, base_url: str, line: _Line, request: h11.Request, content: bytes, most_bytes: int
    ) -> tuple[int, bytes]:
        whole = begun = ended = False
        try:
            protocol = line.protocol
            parts = [
                protocol.send(request),
                protocol.send(h11.Data(content)),
                protocol.send(h11.EndOfMessage()),
            ]
            await line.stream.send_all(b"".join(part for part in parts if part))
            status = 0
            body: list[bytes] = []
            left = most_bytes
            while True:
                event = protocol.next_event()
                if event is h11.NEED_DATA:
                    raw = await line.stream.receive_some(CHUNK)
                    begun, ended = begun or bool(raw), not raw
                    protocol.receive_data(raw)
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    left -= len(event.data)
                    if left < 0:
                        raise TooMuch(f"the answer is longer than {most_bytes} bytes", begun=True)
                    body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    whole = True
                    return status, b"".join(body)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise NoAnswer(f"the connection broke: {error.__cause__ or error}", begun=begun) from error
        except h11.RemoteProtocolError as error:
            what = "the connection was closed before all of it" if ended else f"it is no HTTP: {error}"
            raise NoAnswer(what, begun=begun) from error
        finally:
            if whole and line.protocol.our_state is h11.DONE and line.protocol.their_state is h11.DONE:
                self._keep(base_url, line)
            else:
                line.close()

    def _take(self, base_url: str) -> _Line | None:
        now = trio.current_time()
        lines = self._idle.get(base_url, [])
        while lines:
            line = lines.pop()
            if not line.is_stale(now):
                return line
            line.close()
        return None

    def _keep(self, base_url: str, line: _Line) -> None:
        line.protocol.start_next_cycle()
        line.idle_since = now = trio.current_time()
        self._idle.setdefault(base_url, []).append(line)
        # The oldest stand first: what an engine that is gone left goes here too.
        for url, lines in list(self._idle.items()):
            while lines and now - lines[0].idle_since > IDLE_SECONDS:
                lines.pop(0).close()
            if not lines:
                del self._idle[url]
        if sum(map(len, self._idle.values())) > MAX_IDLE:
            self._idle[base_url].pop().close()


async def _open(base_url: str) -> _Line:
    parts = urlsplit(base_url)
    assert parts.hostname is not None
    with trio.move_on_after(CONNECT_SECONDS):
        try:
            stream = await trio.open_tcp_stream(parts.hostname, parts.port or 80)
        except OSError as error:
            raise NoAnswer(f"no connection: {error.strerror or error}") from error
        return _Line(stream, h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD))
    raise NoAnswer(f"no connection within {CONNECT_SECONDS:.0f} s")
