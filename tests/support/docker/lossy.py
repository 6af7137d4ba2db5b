"""Calls to an engine whose answers are lost on the way: the engine has done what it was asked."""

import httpx

from adapters.runtime.docker.endpoint import Endpoint
from adapters.runtime.docker.transport import CARRIER, OwnConnections


class LossyTransport(httpx.AsyncBaseTransport):
    """Carries every call, and breaks off before the answers of some.

    Args:
        endpoint: where the engine listens.
        lost: method and end of the path of each call whose answer is lost, once for each time it stands here.
    """

    def __init__(self, endpoint: Endpoint, *lost: tuple[str, str]) -> None:
        self._carrier = OwnConnections(endpoint)
        self.lost = list(lost)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._carrier.handle_async_request(request)
        for one in self.lost:
            method, end = one
            if request.method == method and request.url.path.endswith(end):
                self.lost.remove(one)
                await response.aread()
                await response.aclose()
                await response.extensions[CARRIER].aclose()
                raise httpx.RemoteProtocolError("the answer was lost", request=request)
        return response
