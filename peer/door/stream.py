"""GET /events/stream: server-sent events, straight on ASGI (F6; conformance E07 to E09).

Plain ASGI because a stream lives long and there are many: a framework's request costs a third more memory
and half more time for each burst.
"""

from collections.abc import Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import trio

from actors.rules.refusal import Refusal
from actors.streams import Stream
from peer.door.context import Door, reader_of
from peer.door.events import STREAM_FILTERS, event_query, read_parameters
from peer.door.problems import Send, refusal_answer, send_answer

QUIET_SECONDS = 15.0
"""After so long without a fact a comment is written, so that both ends know the other is there."""

Scope = MutableMapping[str, Any]

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def serve_stream(door: Door, scope: Scope, send: Send) -> None:
    """Answer one subscriber until it leaves (the server cancels this), its key ends, or the peer stops."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        key = door.open_key(headers.get("x-api-key"), headers.get("authorization"), scope["state"])
        parameters = read_parameters(_pairs(scope["query_string"]), STREAM_FILTERS)
        query = event_query(reader_of(key), parameters)
    except Refusal as refusal:
        await send_answer(send, *refusal_answer(refusal))
        return
    most = door.streams_per_credential if key.is_tenant else None
    stream = door.streams.open(key.holder, query, headers.get("last-event-id"), most)
    try:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        with trio.move_on_after(door.registrar.seconds_left(key)):
            await _write(stream, send, lambda: door.registrar.seconds_left(key) > 0)
        door.registrar.note_end(key)
        await send({"type": "http.response.body", "body": b": closed\n\n", "more_body": False})
    finally:
        door.streams.close(key.holder, stream)


async def _write(stream: Stream, send: Send, is_open: Callable[[], bool]) -> None:
    # Written at once, so that a client behind buffers knows it is connected.
    await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
    while True:
        frames = await stream.next(quiet_seconds=QUIET_SECONDS)
        # By the wall clock as well: that goes on while a machine sleeps, and its timers stand still.
        if frames is None or not is_open():
            return
        await send({"type": "http.response.body", "body": frames or b": keepalive\n\n", "more_body": True})
        # Let go before the wait for more, or each of a thousand quiet streams holds its last batch.
        del frames


def _pairs(query: bytes) -> list[tuple[str, str]]:
    # The server bounds the target, and with it how many there can be.
    return parse_qsl(query.decode("latin-1"), keep_blank_values=True)
