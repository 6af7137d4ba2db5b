"""Refusals as HTTP answers: each code's status, in one place (conformance H01, H02, H04).

`docs/errors.md` lists the same codes for people; a test holds the two together.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

import orjson

from actors.rules.refusal import Refusal
from peer.log_text import without_keys

JSON = "application/json"

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

STATUS: Mapping[str, int] = {
    # What was sent is not what is taken here.
    "BAD_REQUEST": 400,
    "INVALID_JSON": 400,
    "INVALID_ENVELOPE": 400,
    "UNKNOWN_COMMAND": 400,
    "UNKNOWN_SCHEMA": 400,
    "SCHEMA_VALIDATION": 400,
    "INVALID_PARAMETERS": 400,
    "INVALID_GRANT": 400,
    "INVALID_HOLD": 400,
    # Who sent it.
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "ACCELERATORS_ONLY": 403,
    "NOT_ADMITTED": 403,
    # What is not there, or not for this caller.
    "NOT_FOUND": 404,
    "UNKNOWN_DEPLOYMENT": 404,
    "UNKNOWN_JOB": 404,
    "UNKNOWN_CODE": 404,
    "UNKNOWN_KEY": 404,
    "METHOD_NOT_ALLOWED": 405,
    "DUPLICATE_ID": 409,
    "ID_NOT_YOURS": 409,
    "CODE_USED": 409,
    "CODE_APPROVED": 409,
    "CODE_DENIED": 409,
    "CODE_EXPIRED": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    # What the state of this machine does not allow now.
    "INSUFFICIENT_MEMORY": 422,
    "MEMORY_TOO_SMALL": 422,
    "SHARE_EXCEEDED": 422,
    "DEPLOYMENTS_EXCEEDED": 422,
    "JOBS_EXCEEDED": 422,
    "UNKNOWN_DEVICE": 422,
    "ENGINE_NEEDS_DEVICE": 422,
    "JOB_NEEDS_DEVICE": 422,
    "ENGINE_UNAVAILABLE": 422,
    "ISOLATION_UNAVAILABLE": 422,
    "DEVICE_BUSY": 422,
    "DEVICE_NOT_READY": 422,
    "MODEL_NOT_FOUND": 422,
    "MODEL_UNUSABLE": 422,
    "DEPLOYMENT_NOT_READY": 422,
    "MAX_TOKENS_TOO_LARGE": 422,
    "DEPLOYMENT_ENDING": 422,
    "JOB_ENDING": 422,
    "JOBS_UNAVAILABLE": 422,
    "IMAGES_UNAVAILABLE": 422,
    "INVALID_IMAGE": 422,
    # Later.
    "TOO_MANY_COMMANDS": 429,
    "TOO_MANY_REQUESTS": 429,
    "INTERNAL": 500,
    "TOO_MANY_UNFINISHED": 503,
    "NO_ROOM": 503,
    "LOG_UNAVAILABLE": 503,
    "APPROVAL_UNAVAILABLE": 503,
}


def error_body(code: str, message: str, details: Mapping[str, Any] | None = None) -> bytes:
    """A BEST error: `{"error": {"code", "message", "details"?}}`."""
    error: dict[str, Any] = {"code": code, "message": message}
    if details:
        error["details"] = details
    body = orjson.dumps({"error": error})
    # Refusals name what was sent, and are pasted into conversations: a key that somebody put in the wrong
    # place must not go on from there. Keys are plain ASCII, which JSON leaves as it is.
    return without_keys(body.decode()).encode() if b"bp" in body else body


def refusal_answer(refusal: Refusal) -> tuple[bytes, int, dict[str, str]]:
    """Body, status and header fields of a refusal."""
    headers = {"content-type": JSON}
    wait = refusal.details.get("retry_after_seconds")
    if isinstance(wait, int):
        headers["retry-after"] = str(wait)
    status = STATUS[refusal.code]
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"  # RFC 9110 wants one; the scheme that has a registered name
    return error_body(refusal.code, refusal.message, refusal.details), status, headers


def unauthorized(manifest_url: str, reason: str) -> Refusal:
    """No key, or one that opens nothing: where the way in is described (H04)."""
    return Refusal("UNAUTHORIZED", f"{reason}; the manifest says how a key is had", manifest=manifest_url)


async def send_answer(send: Send, body: bytes, status: int, headers: Mapping[str, str]) -> None:
    """Give a whole answer straight to ASGI."""
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    pairs.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body, "more_body": False})
