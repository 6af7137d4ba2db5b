"""GET /events: pages of history (F5; conformance E01 to E04)."""

import base64
import binascii
import re
from collections.abc import Iterable

from quart import Request, Response

from actors.log.index import EventQuery
from actors.messages.times import time_ms, time_text
from actors.rules.refusal import Refusal
from actors.rules.visibility import Reader
from peer.door.context import Door, reader_of
from peer.door.problems import JSON

DEFAULT_LIMIT = 100
MOST = 500
MOST_TEXT = 256

FILTERS = ("type", "correlationId", "source", "from", "to", "limit", "after")
STREAM_FILTERS = ("type", "correlationId", "source")

_SEQ = re.compile(rb"[0-9]{1,15}")


async def get_events(door: Door, request: Request) -> Response:
    """A page of what the key may read, oldest first; `nextCursor` when there may be more."""
    key = door.key_of(request)
    parameters = read_parameters(request.args.items(multi=True), FILTERS)
    query = event_query(reader_of(key), parameters)
    after = _cursor(parameters.get("after"))
    page = await door.house.store.events.page(query, after, _limit(parameters.get("limit")))
    body = b'{"events":[' + b",".join(page.lines) + b"]"
    if page.after is not None:
        body += b',"nextCursor":"%b"' % _cursor_text(page.after)
    return Response(body + b"}", 200, content_type=JSON)


def read_parameters(pairs: Iterable[tuple[str, str]], known: tuple[str, ...]) -> dict[str, str]:
    """Query parameters, each known, given once and bounded.

    Raises:
        Refusal: INVALID_PARAMETERS, with every problem.
    """
    problems: list[dict[str, str]] = []
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            message = f"is not a parameter here; expected only {', '.join(known)}"
            problems.append({"parameter": name[:80], "message": message})
        elif name in found:
            problems.append({"parameter": name, "message": "is given twice; give it once"})
        elif not value or len(value) > MOST_TEXT:
            problems.append({"parameter": name, "message": f"expected 1 to {MOST_TEXT} characters"})
        else:
            found[name] = value
    if problems:
        raise _invalid(problems[:32])
    return found


def event_query(reader: Reader, parameters: dict[str, str]) -> EventQuery:
    """The filters, combined.

    Raises:
        Refusal: INVALID_PARAMETERS: a time that is none.
    """
    times: dict[str, str] = {}
    for name in ("from", "to"):
        if name in parameters:
            try:
                # A plus sign unescaped in a query is a space: accept the time that was meant.
                # Before 1970 nothing was told, and years of three digits would not sort as text.
                times[name] = time_text(max(0, time_ms(parameters[name].replace(" ", "+"))))
            except (ValueError, OverflowError):
                raise _invalid(
                    [{"parameter": name, "message": "expected a time such as 2026-10-19T12:00:00Z"}]
                ) from None
    return EventQuery(
        reader=reader,
        type=parameters.get("type"),
        correlation=parameters.get("correlationId"),
        source=parameters.get("source"),
        since=times.get("from"),
        until=times.get("to"),
    )


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise _invalid(
            [{"parameter": "limit", "message": f"expected a whole number from 1; {MOST} is the most"}]
        )
    return min(int(text), MOST)


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except (ValueError, binascii.Error):
        plain = b""
    if not _SEQ.fullmatch(plain):
        raise _invalid(
            [{"parameter": "after", "message": "expected the nextCursor of a page, as it was given"}]
        )
    return int(plain)


def _cursor_text(seq: int) -> bytes:
    return base64.urlsafe_b64encode(b"%d" % seq).rstrip(b"=")


def _invalid(problems: list[dict[str, str]]) -> Refusal:
    first = problems[0]
    more = f" ({len(problems) - 1} more in details.problems)" if len(problems) > 1 else ""
    return Refusal("INVALID_PARAMETERS", f"{first['parameter']}: {first['message']}{more}", problems=problems)
