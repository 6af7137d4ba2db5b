"""Questions over plain HTTP/1.1 to engines, answered whole or line by line.

Small on purpose: a general client's pool is one that a burst of cancelled questions can leave full for good
(encode/httpcore#1093), and its layers cost more than a local engine's answer. Here a connection belongs to
one question at a time; whatever goes wrong with that question, cancellation included, closes it.
"""

import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    async def send(self, request: h11.Request, content: bytes) -> None:
        parts = [
            self.protocol.send(request),
            self.protocol.send(h11.Data(content)),
            self.protocol.send(h11.EndOfMessage()),
        ]
        await self.stream.send_all(b"".join(part for part in parts if part))

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
class Lines:
    """An answer taken a line at a time, on a connection that serves nothing else.

    Args:
        line: the connection.
        most_bytes: the longest line that is taken.
    """

    _line: _Line
    _most_bytes: int
    status: int = attrs.field(default=0, init=False)
    _rest: bytearray = attrs.field(factory=bytearray, init=False)
    _seen: int = attrs.field(default=0, init=False)
    _ended: bool = attrs.field(default=False, init=False)

    async def begin(self, request: h11.Request, content: bytes) -> None:
        """Ask, and wait for the status.

        Raises:
            NoAnswer: there is none.
        """
        with _broken():
            await self._line.send(request, content)
            while self.status == 0:
                event = await self._event()
                if isinstance(event, h11.Response):
                    self.status = event.status_code

    async def receive(self) -> bytes | None:
        """The next line without its end, None after the last. A call that is cancelled loses nothing.

        Raises:
            NoAnswer: the answer broke off before its end.
            TooMuch: a line is too long.
        """
        with _broken():
            while True:
                end = self._rest.find(b"\n", self._seen)
                if end >= 0:
                    return self._take(end, 1)
                self._seen = len(self._rest)
                if self._seen > self._most_bytes:
                    raise TooMuch(f"a line is longer than {self._most_bytes} bytes", begun=True)
                if self._ended:
                    return self._take(self._seen, 0) if self._rest else None
                event = await self._event()
                if isinstance(event, h11.Data):
                    self._rest += event.data
                elif isinstance(event, h11.EndOfMessage):
                    self._ended = True

    def close(self) -> None:
        """Give up what has not come."""
        self._line.close()

    def _take(self, length: int, end: int) -> bytes:
        taken = bytes(self._rest[:length])
        del self._rest[: length + end]
        self._seen = 0
        return taken

    async def _event(self) -> object:
        while (event := self._line.protocol.next_event()) is h11.NEED_DATA:
            self._line.protocol.receive_data(await self._line.stream.receive_some(CHUNK))
        return event


@contextmanager
def _broken() -> Iterator[None]:
    """Turn what a connection may raise into `NoAnswer`."""
    try:
        yield
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
        raise NoAnswer(f"the connection broke: {error.__cause__ or error}", begun=True) from error
    except h11.RemoteProtocolError as error:
        raise NoAnswer(f"the connection was closed before all of it: {error}", begun=True) from error


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
        request = _request(base_url, method, path, headers, content)
        line = self._take(base_url)
        if line is not None:
            try:
                return await self._exchange(base_url, line, request, content, most_bytes)
            except NoAnswer as error:
                if error.begun:
                    raise
                # The server closed it in this very moment, as it may close an idle one: once more.
        return await self._exchange(base_url, await _open(base_url), request, content, most_bytes)

    async def open_lines(
        self,
        base_url: str,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        content: bytes,
        most_bytes: int,
    ) -> "Lines":
        """Ask one question on a connection of its own and take the answer a line at a time.

        Returned once the answer's status has come; the caller closes it.

        Args:
            base_url: where.
            method: how.
            path: what.
            headers: beside those that are always sent.
            content: the question's body.
            most_bytes: the longest line that is taken.

        Raises:
            NoAnswer: there is none.
        """
        lines = Lines(await _open(base_url), most_bytes)
        try:
            await lines.begin(_request(base_url, method, path, headers, content), content)
        except BaseException:
            lines.close()
            raise
        return lines

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
            await line.send(request, content)
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


def _request(
    base_url: str, method: str, path: str, headers: Mapping[str, str], content: bytes
) -> h11.Request:
    return h11.Request(
        method=method,
        target=path,
        headers=[
            ("host", urlsplit(base_url).netloc),
            ("content-length", str(len(content))),
            *headers.items(),
        ],
    )


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
