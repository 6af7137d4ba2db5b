"""An agent at a door: signs in, sends commands, reads pages and streams. It knows the protocol alone."""

from __future__ import annotations

import json
import re
import ssl
import uuid
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import attrs
import h11
import httpx
import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
HANG = 15.0
"""A bound on a hang, no measure of speed."""


@cache
def plain_tls() -> ssl.SSLContext:
    """A context that trusts nobody, for doors without TLS: the default one costs 40 ms to make."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def kebab(command_type: str) -> str:
    """The schema's name of a command type: `deploy-model` for `DeployModel`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", command_type).lower()


def envelope(endpoint: str, command_type: str, data: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    """A command as it goes over the wire; an attribute given as None is left out."""
    made = {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        "source": "urn:test",
        "type": command_type,
        "datacontenttype": "application/json",
        "dataschema": f"{endpoint}/commands/{kebab(command_type)}/1.0",
        "time": "2026-10-19T12:00:00Z",
        "data": data,
        **attributes,
    }
    return {name: value for name, value in made.items() if value is not None}


class Listener:
    """The frames of one event stream, over a connection of its own.

    Not by httpx: a stream that its reader leaves would leave open generators behind.
    """

    def __init__(self, wire: trio.abc.Stream) -> None:
        self.wire = wire
        self._http = h11.Connection(h11.CLIENT)
        self._text = b""
        self._is_over = False
        self.headers: dict[str, str] = {}
        self.comments: list[str] = []
        self.ids: list[str] = []

    async def ask(self, target: str, headers: dict[str, str]) -> int:
        """Send the request; the answer's status."""
        request = h11.Request(method="GET", target=target, headers=[("host", "door"), *headers.items()])
        await self.wire.send_all(
            (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        )
        with trio.fail_after(HANG):
            head = await self._event()
        assert isinstance(head, h11.Response)
        self.headers = {name.decode(): value.decode() for name, value in head.headers}
        return head.status_code

    async def next(self) -> dict[str, Any] | None:
        """The next event, None at the stream's end."""
        with trio.fail_after(HANG):
            while (frame := await self._frame()) is not None:
                event = self._read(frame)
                if event is not None:
                    return event
        return None

    async def until(self, *types: str) -> list[dict[str, Any]]:
        """Every event up to the first of one of these types."""
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["type"] not in types:
            event = await self.next()
            assert event is not None, f"the stream ended after {[e['type'] for e in seen]}"
            seen.append(event)
        return seen

    async def comment(self) -> str:
        """The next comment; no event may come before it."""
        with trio.fail_after(HANG):
            frame = await self._frame()
        assert frame is not None
        assert self._read(frame) is None
        return self.comments[-1]

    def _read(self, frame: str) -> dict[str, Any] | None:
        event: dict[str, Any] | None = None
        for line in frame.split("\n"):
            field, _, value = line.partition(": ")
            if field == "id":
                self.ids.append(value)
            elif field == "data":
                event = json.loads(value)
            elif not field:
                self.comments.append(value)
        return event

    async def _frame(self) -> str | None:
        while b"\n\n" not in self._text and not self._is_over:
            got = await self._event()
            if isinstance(got, h11.Data):
                self._text += got.data
            else:
                self._is_over = True
        frame, found, self._text = self._text.partition(b"\n\n")
        return frame.decode() if found else None

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self.wire.receive_some(65536)))
        return event


async def connect(endpoint: str, tls: ssl.SSLContext) -> trio.abc.Stream:
    """A connection to a door."""
    parts = urlsplit(endpoint)
    assert parts.hostname
    assert parts.port
    stream: trio.abc.Stream = await trio.open_tcp_stream(parts.hostname, parts.port)
    if parts.scheme == "https":
        stream = trio.SSLStream(stream, tls, server_hostname=parts.hostname, https_compatible=True)
    return stream


@attrs.frozen
class Agent:
    """A key and a client that sends it."""

    http: httpx.AsyncClient
    key: str = attrs.field(repr=False)
    holder: str
    endpoint: str
    tls: ssl.SSLContext = attrs.field(repr=False)

    async def get(self, path: str, **parameters: Any) -> httpx.Response:
        return await self.http.get(path, params=parameters)

    async def query(self, name: str, **parameters: Any) -> dict[str, Any]:
        """A query's answer."""
        answer = await self.get(f"/queries/{name}", **parameters)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def envelope(self, command_type: str, data: dict[str, Any], **attributes: Any) -> dict[str, Any]:
        return envelope(self.endpoint, command_type, data, **attributes)

    async def send(self, command_type: str, data: dict[str, Any], **attributes: Any) -> httpx.Response:
        """POST a command; whatever comes of it."""
        return await self.http.post("/commands", json=self.envelope(command_type, data, **attributes))

    async def command(self, command_type: str, data: dict[str, Any], **attributes: Any) -> str:
        """A command that is accepted; its correlation id."""
        answer = await self.send(command_type, data, **attributes)
        assert answer.status_code == 201, answer.text
        correlation: str = answer.json()["correlationId"]
        return correlation

    async def events(self, **parameters: Any) -> list[dict[str, Any]]:
        """Every event of every page, oldest first."""
        found: list[dict[str, Any]] = []
        while True:
            answer = await self.get("/events", **parameters)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found += page["events"]
            if "nextCursor" not in page:
                return found
            parameters["after"] = page["nextCursor"]

    @asynccontextmanager
    async def stream(self, last_event_id: str | None = None, **parameters: str) -> AsyncIterator[Listener]:
        """An open event stream."""
        headers = {"x-api-key": self.key}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        async with await connect(self.endpoint, self.tls) as wire:
            listener = Listener(wire)
            target = f"{urlsplit(self.endpoint).path}/events/stream?{urlencode(parameters)}"
            assert await listener.ask(target, headers) == 200
            assert await listener.comment() == "open"
            yield listener

    async def wait_for(self, event_type: str, correlation: str) -> dict[str, Any]:
        """The first event of a type under a correlation, told already or still to come."""
        async with self.stream("from the beginning", correlationId=correlation) as listener:
            return (await listener.until(event_type, "CommandFailed"))[-1]


async def begin(client: httpx.AsyncClient, connection: str | None = None, **form: str) -> dict[str, Any]:
    """Begin a sign-in: the device's answer."""
    fields = {"client_id": "an-agent", **({} if connection is None else {"connection": connection}), **form}
    answer = await client.post("/oauth/device", data=fields)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


async def poll(client: httpx.AsyncClient, device_code: str, client_id: str = "an-agent") -> httpx.Response:
    """Ask once for the key."""
    form = {"grant_type": DEVICE_GRANT, "device_code": device_code, "client_id": client_id}
    return await client.post("/oauth/token", data=form)


async def sign_in(
    client: httpx.AsyncClient,
    approve: Callable[..., Awaitable[httpx.Response]],
    connection: str | None = None,
    **grant: Any,
) -> dict[str, Any]:
    """Go through the device flow; the token answer."""
    begun = await begin(client, connection)
    approved = await approve(begun["user_code"], **grant)
    assert approved.status_code == 200, approved.text
    answer = await poll(client, begun["device_code"])
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result
