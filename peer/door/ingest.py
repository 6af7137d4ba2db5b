"""POST /commands: from a body to a receipt, straight on ASGI (F3; conformance K05 to K13).

Plain ASGI because nothing is sent more often: a framework's request costs twice what is done here.
"""

import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from actors.desk import Submission
from actors.messages.commands import structure_command
from actors.rules.refusal import Refusal
from actors.state.keys import Key
from peer.door.context import Door
from peer.door.problems import JSON, Send, refusal_answer, send_answer, unauthorized
from peer.door.validation import Envelope, Problems, read_command

CONTENT_TYPES = frozenset({JSON, "application/cloudevents+json"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def serve_command(door: Door, scope: Scope, receive: Receive, send: Send) -> None:
    """Take one command; 201 once it is durable.

    Envelope, schema, scope, share and state are checked in that order, and the first that fails is told.
    """
    command: str | None = None
    try:
        key = _open(door, scope)
        read = read_command(await _body(receive), door.catalogue)
        command = read.type
        receipt = await _take(door, key, read)
    except Refusal as refusal:
        door.desk.counts.refuse(command, refusal.code)
        await send_answer(send, *refusal_answer(refusal))
    else:
        await send_answer(send, receipt, 201, {"content-type": JSON})


def _open(door: Door, scope: Scope) -> Key:
    """The key that sends something of a type that is taken here.

    Raises:
        Refusal: as `Door.open_key`; UNSUPPORTED_MEDIA_TYPE.
    """
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    key = door.open_key(headers.get("x-api-key"), headers.get("authorization"), scope["state"])
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in CONTENT_TYPES:
        raise Refusal(
            "UNSUPPORTED_MEDIA_TYPE",
            f"a command is sent as {' or '.join(sorted(CONTENT_TYPES))}, "
            f"not as {content_type[:80] or 'nothing'}",
            accepted=sorted(CONTENT_TYPES),
        )
    return key


async def _take(door: Door, key: Key, envelope: Envelope | Problems) -> bytes:
    """The receipt of a command.

    Raises:
        Refusal: with what to send instead.
    """
    if isinstance(envelope, Problems):
        raise Refusal(envelope.code, envelope.message, **envelope.details())
    _check_scope(key, envelope, door)
    try:
        receipt = await door.desk.submit(key, _submission(envelope))
    except Refusal as refusal:
        if refusal.code == "UNAUTHORIZED":  # the desk does not know where the way in is described
            raise unauthorized(door.manifest_url, refusal.message) from refusal
        raise
    return orjson.dumps({"id": receipt.id, "correlationId": receipt.correlation})


async def _body(receive: Receive) -> bytes:
    """The whole body; the server has bounded it, and cancels this when its client leaves."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _check_scope(key: Key, envelope: Envelope, door: Door) -> None:
    if key.may(envelope.entry.scope):
        return
    allowed = door.catalogue.command_types(key.grant.scopes)
    raise Refusal(
        "FORBIDDEN",
        f"{envelope.type} needs the scope {envelope.entry.scope}, and this key was approved for "
        f"{', '.join(key.grant.scopes)}; it may send: {', '.join(allowed) or 'nothing'}",
        needs=envelope.entry.scope,
        scopes=list(key.grant.scopes),
        allowed=list(allowed),
    )


def _submission(envelope: Envelope) -> Submission:
    data = orjson.dumps(envelope.data)
    # What makes a retry the same command: its type, its correlation and its data, however spelled.
    content = orjson.dumps(
        [envelope.type, envelope.correlationid, envelope.data], option=orjson.OPT_SORT_KEYS
    )
    return Submission(
        id=envelope.id,
        correlation=envelope.correlationid,
        body=structure_command(envelope.type, envelope.data),
        data=data,
        hash=hashlib.blake2b(content, digest_size=16).hexdigest(),
    )
