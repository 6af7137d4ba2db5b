"""ASGI apps for tests of the door's server, each with one habit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import trio
from quart import request
from quart_trio import QuartTrio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from peer.door.http1 import AsgiApp

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def reply(send: Send, body: bytes = b"ok", status: int = 200, headers: tuple[Any, ...] = ()) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def read_all(receive: Receive) -> bytes | None:
    """The body, or None where the client left before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await reply(send)


async def measure(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body."""
    body = await read_all(receive)
    if body is not None:
        await reply(send, b"%d" % len(body))


def quart_app() -> AsgiApp:
    """Two routes of quart-trio: a document, and the size of a body."""
    app = QuartTrio("door")

    @app.get("/")
    async def hello() -> dict[str, bool]:
        return {"ok": True}

    @app.post("/")
    async def size() -> dict[str, int]:
        return {"size": len(await request.get_data())}

    return cast("AsgiApp", app)


class Waiting:
    """An app that neither reads nor answers, and tells when it began and when it was cancelled."""

    def __init__(self) -> None:
        self.began = trio.Event()
        self.cancelled = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.began.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()


class Flood:
    """An app that streams for ever, to whoever reads."""

    def __init__(self) -> None:
        self.cancelled = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/flood":
            return await reply(send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        finally:
            self.cancelled.set()


async def ticking(scope: Scope, receive: Receive, send: Send) -> None:
    """An event stream: a comment at once, and a last one when the server stops."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
    await scope["state"]["stopping"].wait()
    await send({"type": "http.response.body", "body": b": bye\n\n"})
