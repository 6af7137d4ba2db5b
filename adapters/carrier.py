"""What carries httpx's requests: as httpx's own, save that a request may be left in the middle of its body.

httpx hands a body of bytes to httpcore as an async generator, and httpcore leaves it where it stands when the
peer closes, or the task is cancelled, while the body is being sent. Such a generator is ended by the garbage
collector, which Trio tells of as the fault that it is (a ResourceWarning), in whatever task runs just then.
"""

from collections.abc import AsyncIterator

import attrs
import httpx


class Carrier(httpx.AsyncHTTPTransport):
    """A transport for `httpx.AsyncClient(transport=...)`; its arguments are those of httpx's own."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and give what answers it, its body unread.

        Raises:
            httpx.TransportError: as httpx's own.
        """
        if isinstance(request.stream, httpx.ByteStream):
            request.stream = _WholeBody(request.content)
        return await super().handle_async_request(request)


@attrs.frozen
class _WholeBody(httpx.AsyncByteStream):
    """A body that may be sent any number of times."""

    body: bytes

    def __aiter__(self) -> AsyncIterator[bytes]:
        return _Once(self.body)


@attrs.define
class _Once(AsyncIterator[bytes]):
    """One sending of it: an object with nothing to end, so that it may be left at any point."""

    left: bytes | None

    async def __anext__(self) -> bytes:
        piece, self.left = self.left, None
        if piece is None:
            raise StopAsyncIteration
        return piece
