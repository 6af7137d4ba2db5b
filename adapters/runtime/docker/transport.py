"""How a call travels: on a connection of its own, with a body that can be dropped in the middle."""

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final

import httpx
import trio

from adapters.carrier import Carrier
from adapters.runtime.docker.endpoint import Endpoint

CARRIER: Final = "carrier"
CLOSE_SECONDS: Final = 2.0
"""Bound of closing a connection, which is our end of a socket alone and waits for nobody."""


class OwnConnections(httpx.AsyncBaseTransport):
    """A connection for each request, closed with its response.

    So no stream can hold up a short call, and there is no pool that a burst of cancelled calls could leave
    full for good (encode/httpcore#1093). On a socket of this machine a connection costs next to nothing.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._socket = str(endpoint.socket) if endpoint.socket is not None else None
        # Made once: httpx would read its bundle of authorities for each connection.
        self._tls = endpoint.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        carrier = Carrier(uds=self._socket, verify=self._tls, trust_env=False)
        try:
            response = await carrier.handle_async_request(request)
        except BaseException:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await carrier.aclose()
            raise
        response.extensions[CARRIER] = carrier
        return response


class Body(AsyncIterator[bytes]):
    """A response's body in pieces of any size. `broke` makes the error that a broken connection raises."""

    def __init__(self, response: httpx.Response, broke: Callable[[Exception], Exception]) -> None:
        self._response = response
        self._broke = broke
        self._pieces = response.aiter_raw()
        self._is_over = False

    async def __anext__(self) -> bytes:
        if self._is_over:
            raise StopAsyncIteration
        try:
            return await anext(self._pieces)
        except httpx.TransportError as error:
            self._is_over = True
            raise self._broke(error) from error
        except BaseException:
            # A generator that raised, its end and a cancelled wait included, is over.
            self._is_over = True
            raise

    async def drop(self) -> None:
        """Close the connection, read to its end or not. The caller shields this from cancellation."""
        # The pieces come from generators within generators. Left where they stand, the inner ones would be
        # ended by the garbage collector, some time; a cancelled read ends them all here, in order.
        while not self._is_over:
            with trio.CancelScope(shield=True) as scope:
                scope.cancel()
                try:
                    await anext(self)
                except StopAsyncIteration:
                    break
                except Exception as error:
                    if not isinstance(error.__cause__, httpx.TransportError):
                        raise
        await self._response.aclose()
        carrier = self._response.extensions.get(CARRIER)
        if isinstance(carrier, httpx.AsyncBaseTransport):
            await carrier.aclose()
