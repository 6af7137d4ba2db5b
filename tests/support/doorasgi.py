"""Requests straight to a door's app, from any address: sockets of this machine are all loopback."""

from typing import Any
from urllib.parse import urlencode

import httpx
import trio

from peer.door.http import DoorApp


async def ask(
    app: DoorApp,
    method: str,
    path: str,
    host: str,
    *,
    form: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """One request as `peer.door.server` would hand it on."""
    body = b"" if form is None else urlencode(form).encode()
    fields = {"host": "door", "content-length": str(len(body)), **(headers or {})}
    if form is not None:
        fields["content-type"] = "application/x-www-form-urlencoded"
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"spec_version": "2.3", "version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "client": (host, 4711),
        "server": ("door", 80),
        "state": {"stopping": trio.Event()},
        "extensions": {},
    }
    sent: list[Any] = []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await trio.sleep_forever()
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=content)
