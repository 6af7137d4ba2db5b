"""POST /commands: from a body to a receipt (F3; conformance K05 to K13)."""

import hashlib

import orjson
from quart import Request, Response

from actors.desk import Submission
from actors.messages.commands import structure_command
from actors.rules.refusal import Refusal
from actors.state.keys import Key
from peer.door.context import Door, body_of
from peer.door.problems import JSON, unauthorized
from peer.door.validation import Envelope, Problems, read_command

CONTENT_TYPES = frozenset({JSON, "application/cloudevents+json"})


async def post_command(door: Door, request: Request) -> Response:
    """Take one command; 201 once it is durable.

    Envelope, schema, scope, share and state are checked in that order, and the first that fails is told.
    """
    key = door.key_of(request)
    if request.mimetype not in CONTENT_TYPES:
        raise Refusal(
            "UNSUPPORTED_MEDIA_TYPE",
            f"a command is sent as {' or '.join(sorted(CONTENT_TYPES))}, "
            f"not as {request.mimetype[:80] or 'nothing'}",
            accepted=sorted(CONTENT_TYPES),
        )
    envelope = read_command(await body_of(request), door.catalogue)
    if isinstance(envelope, Problems):
        raise Refusal(envelope.code, envelope.message, **envelope.details())
    _check_scope(key, envelope, door)
    try:
        receipt = await door.desk.submit(key, _submission(envelope))
    except Refusal as refusal:
        if refusal.code == "UNAUTHORIZED":  # the desk does not know where the way in is described
            raise unauthorized(door.manifest_url, refusal.message) from refusal
        raise
    body = orjson.dumps({"id": receipt.id, "correlationId": receipt.correlation})
    return Response(body, 201, content_type=JSON)


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
