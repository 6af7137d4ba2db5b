"""What the owner's routes read and answer: JSON bodies of one shape, and answers that nobody keeps."""

from typing import Any, TypeVar

import msgspec
import orjson
from quart import Request, Response

from actors.rules.refusal import Refusal
from peer.door.context import body_of
from peer.door.problems import JSON

T = TypeVar("T", bound=msgspec.Struct)


async def read_body(request: Request, kind: type[T]) -> T:
    """The body of a request of the owner's.

    Raises:
        Refusal: INVALID_JSON, SCHEMA_VALIDATION.
    """
    body = await body_of(request)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:  # names fields and types, never values
        raise Refusal("SCHEMA_VALIDATION", f"the body is not as expected: {str(error)[:200]}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal("INVALID_JSON", "the body is not JSON; expected one JSON object") from error


def json_answer(answer: dict[str, Any]) -> Response:
    """An answer for the owner alone."""
    return Response(orjson.dumps(answer), 200, {"cache-control": "no-store"}, content_type=JSON)
