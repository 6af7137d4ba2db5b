"""A service of another trade, in memory: it lends books. It shares the protocol with the product and no word.

An agent that gets through here was taught the protocol and not the product.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import attrs
import httpx

DOOR = "https://library.example/lending"
KEY = "lk_9fJ2-secret-of-the-reader_77"
LOAN = "loan-Zk3v9QpL0aXw7RtB"
OTHER_LOAN = "loan-AnotherReaders0000"
REPLY = "It is about a whale.\nAnd about a man."
NAMES = ("borrow-book", "ask-librarian", "return-book")
TEXT = {"type": "string", "minLength": 1, "maxLength": 200}
WORDS = {"type": "string", "minLength": 1, "maxLength": 20000}
LOAN_ID = {"type": "string", "pattern": "^loan-[A-Za-z0-9]{16,32}$"}


def _closed(properties: dict[str, Any], *required: str, **members: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required or properties),
        "properties": properties,
        **members,
    }


def command_documents() -> dict[str, dict[str, Any]]:
    """The documents of the commands, by name."""
    recipe = ["lend-a-book"]
    days = {"type": "integer", "minimum": 1, "maximum": 30, "description": "At most the book's shelf_days."}
    said = _closed({"by": {"enum": ["reader", "librarian"]}, "text": WORDS})
    return {
        "borrow-book": _closed(
            {"title": TEXT, "branch": {"enum": ["north", "south"]}, "days": days, "pages": days},
            "title",
            "branch",
            "days",
            commandType="BorrowBook",
            produces=["BookFetched", "BookLent", "BorrowingRefused"],
            completes=["BookLent", "BorrowingRefused"],
            workflows=recipe,
            examples=[{"title": "Emma", "branch": "south", "days": 3}],
        ),
        "ask-librarian": _closed(
            {"loan": LOAN_ID, "talk": {"type": "array", "items": said}},
            commandType="AskLibrarian",
            produces=["LibrarianReplied"],
            completes=["LibrarianReplied"],
            workflows=recipe,
            examples=[{"loan": LOAN, "talk": [{"by": "reader", "text": "Is it long?"}]}],
        ),
        "return-book": _closed(
            {"loan": LOAN_ID},
            commandType="ReturnBook",
            produces=["BookReturned"],
            completes=["BookReturned"],
            workflows=recipe,
            impact={"categories": ["destructive"], "confirmation": "recommended", "warning": "It goes back."},
        ),
    }


def event_documents() -> dict[str, dict[str, Any]]:
    """The documents of the events, by type."""
    count = {"type": ["integer", "null"], "minimum": 0}
    return {
        "BookFetched": _closed(
            {"loan": LOAN_ID, "fetched_pct": {"type": "integer", "minimum": 0, "maximum": 100}}
        ),
        "BookLent": _closed({"loan": LOAN_ID, "title": TEXT}),
        "BorrowingRefused": _closed({"reason": TEXT}),
        "LibrarianReplied": _closed({"loan": LOAN_ID, "reply": WORDS, "words": count}),
        "BookReturned": _closed({"loan": LOAN_ID}),
    }


@attrs.define
class Library:
    """The service. What it does amiss is switched on by its fields.

    Args:
        refuses: the text it refuses every borrowing with, as a fact.
        says_no: the code it answers a command of this name with.
        breaks_after: facts after which a stream is cut, each time it is opened.
        keeps_loans: whether a returned book still stands in the list of loans.
        tells: facts it tells in place of the right ones, by command.
        pending_polls: polls of the token endpoint before the reader is approved.
    """

    refuses: str | None = None
    says_no: tuple[str, str] | None = None
    breaks_after: int | None = None
    keeps_loans: bool = False
    tells: dict[str, list[tuple[str, dict[str, Any]]]] = attrs.field(factory=dict)
    confirmation: str = "recommended"
    pending_polls: int = 0
    slow_down: bool = False
    log: list[dict[str, Any]] = attrs.field(factory=list)
    sent: list[dict[str, Any]] = attrs.field(factory=list)
    streams: list[str | None] = attrs.field(factory=list)
    lent: bool = False
    on_send: Callable[[str], None] = lambda name: None

    def transport(self) -> httpx.MockTransport:
        """What an HTTP client speaks to."""
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/lending")
        if path == "/.well-known/best":
            return httpx.Response(200, json=self._manifest())
        if path == "/device":
            return httpx.Response(
                200,
                json={
                    "device_code": "dc_4fK29dLq0Zt7Yx1Ws8",
                    "user_code": "READ-BOOK",
                    "verification_uri": f"{DOOR}/desk",
                    "interval": 0.01,
                    "expires_in": 600,
                },
            )
        if path == "/token":
            return self._token(request)
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            error = {"code": "NO_CARD", "message": "a reader's card is needed"}
            return httpx.Response(401, json={"error": error})
        if path == "/events/stream":
            return self._stream(request)
        if request.method == "POST" and path == "/commands":
            return self._take(json.loads(request.content))
        return self._read(path, dict(request.url.params))

    def _token(self, request: httpx.Request) -> httpx.Response:
        form = parse_qs(request.content.decode())
        assert form["device_code"] == ["dc_4fK29dLq0Zt7Yx1Ws8"]
        if self.pending_polls:
            self.pending_polls -= 1
            error = "slow_down" if self.slow_down else "authorization_pending"
            return httpx.Response(400, json={"error": error})
        return httpx.Response(
            200,
            json={
                "access_token": KEY,
                "token_type": "Bearer",
                "name": "reader",
                "mcp": {"reader": {"env": {"CARD": f"x={KEY};" + "y" * 200}}},
            },
        )

    def _manifest(self) -> dict[str, Any]:
        names = ("commands", "events", "queries", "workflows")
        capabilities: list[dict[str, Any]] = [
            {"name": f"io.best.agents.{name}", "version": "0.9.18", "service": "example.library"}
            for name in names
        ]
        capabilities[1]["push"] = {"sse": True}
        service = {"version": "1.0.0", "description": "Books to read.", "http": {"endpoint": f"{DOOR}/"}}
        return {
            "best": {
                "version": "0.9.18",
                "services": {"example.library": service},
                "capabilities": capabilities,
                "authentication": {
                    "type": "bearer",
                    "deviceAuthorizationUrl": f"{DOOR}/device",
                    "tokenUrl": f"{DOOR}/token",
                },
            }
        }

    def _read(self, path: str, params: dict[str, str]) -> httpx.Response:
        documents = command_documents()
        documents["return-book"]["impact"]["confirmation"] = self.confirmation
        queries = {"list-shelves": _SHELVES, "list-loans": _LOANS}
        shelves = {"branches": [{"branch": "north", "books": [{"title": "Moby Dick", "shelf_days": 7}]}]}
        loans = [{"loan": LOAN}] if self.lent or self.keeps_loans else []
        answers: dict[str, Any] = {
            "/workflows": {
                "workflows": [_OTHER_RECIPE, {k: _RECIPE[k] for k in ("id", "name", "description")}]
            },
            "/workflows/lend-a-book": _RECIPE,
            "/commands": {
                "commands": [
                    {
                        "schema": name,
                        "version": "2.0",
                        "dataschema": f"{DOOR}/commands/{name}/2.0",
                        **{k: v for k, v in document.items() if k in ("commandType", "workflows", "impact")},
                    }
                    for name, document in documents.items()
                ]
            },
            "/queries": {
                "queries": [
                    {
                        "schema": name,
                        "version": "1.0",
                        "dataschema": f"{DOOR}/queries/{name}/1.0",
                        "workflows": ["lend-a-book"],
                    }
                    for name in queries
                ]
            },
            "/queries/list-shelves": shelves,
            "/queries/list-loans": {"loans": [{"loan": OTHER_LOAN}, *loans]},
            **{f"/commands/{name}/2.0": document for name, document in documents.items()},
            **{f"/queries/{name}/1.0": document for name, document in queries.items()},
            **{f"/events/{kind}/1.0": document for kind, document in event_documents().items()},
        }
        if path == "/events":
            return httpx.Response(200, json=self._page(params))
        if path not in answers:
            return httpx.Response(404, json={"error": {"code": "NOT_FOUND", "message": "no such page"}})
        return httpx.Response(200, json=answers[path])

    def _page(self, params: dict[str, str]) -> dict[str, Any]:
        under = [told for told in self.log if told["correlationid"] == params["correlationId"]]
        begin, limit = int(params.get("after", 0)), int(params.get("limit", 100))
        page: dict[str, Any] = {"events": under[begin : begin + limit]}
        if begin + limit < len(under):
            page["nextCursor"] = str(begin + limit)
        return page

    def _take(self, envelope: dict[str, Any]) -> httpx.Response:
        name = next(n for n in NAMES if envelope["dataschema"] == f"{DOOR}/commands/{n}/2.0")
        if self.says_no is not None and self.says_no[0] == name:
            error = {"code": self.says_no[1], "message": "not today", "details": {"come": "tomorrow"}}
            return httpx.Response(422, json={"error": error})
        self.sent.append(envelope)
        for kind, data in self.tells.get(name) or self._facts(name, envelope["data"]):
            self.log.append(self._envelope(kind, data, envelope["correlationid"]))
        self.on_send(name)
        return httpx.Response(201, json={"id": envelope["id"], "correlationId": envelope["correlationid"]})

    def _facts(self, name: str, data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if name == "borrow-book":
            if self.refuses is not None:
                fetched = {"loan": LOAN, "fetched_pct": 40}
                return [("BookFetched", fetched), ("BorrowingRefused", {"reason": self.refuses})]
            self.lent = True
            return [
                ("BookFetched", {"loan": LOAN, "fetched_pct": 40}),
                ("BookFetched", {"loan": LOAN, "fetched_pct": 100}),
                ("BookLent", {"loan": LOAN, "title": data["title"]}),
            ]
        if name == "ask-librarian":
            return [("LibrarianReplied", {"loan": LOAN, "reply": REPLY, "words": 9})]
        self.lent = False
        return [("BookReturned", {"loan": data["loan"]})]

    def _envelope(self, kind: str, data: dict[str, Any], correlation: str) -> dict[str, Any]:
        return {
            "specversion": "1.0",
            "id": f"fact-{len(self.log) + 1}",
            "source": "urn:library",
            "type": kind,
            "datacontenttype": "application/json",
            "dataschema": f"{DOOR}/events/{kind}/1.0",
            "time": "2026-10-19T12:00:00Z",
            "correlationid": correlation,
            "data": data,
        }

    def _stream(self, request: httpx.Request) -> httpx.Response:
        last = request.headers.get("Last-Event-ID")
        self.streams.append(last)
        told = self._told(request.url.params["correlationId"], last, len(self.log))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=_Stream(told))

    def _told(self, correlation: str, last: str | None, since: int) -> Iterator[bytes]:
        """What a stream tells: all after the last id, or what is told from its opening on."""
        yield b": open\n\n"
        ids = [told["id"] for told in self.log]
        begin = ids.index(last) + 1 if last is not None else since
        wanted = [told for told in self.log[begin:] if told["correlationid"] == correlation]
        for told in wanted[: self.breaks_after]:
            yield f"id: {told['id']}\ndata: {json.dumps(told)}\n\n".encode()


class _Stream(httpx.SyncByteStream):
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return self._parts


_OTHER_RECIPE = {"id": "pay-a-fine", "name": "Pay a fine", "description": "Settle what is owed."}
_RECIPE = {
    "id": "lend-a-book",
    "name": "Borrow a book and ask the librarian",
    "description": "Take a book home, ask about it, bring it back.",
    "steps": [
        {"kind": "query", "dataschema": f"{DOOR}/queries/list-shelves/1.0", "guidance": "Choose a book."},
        {"kind": "command", "dataschema": f"{DOOR}/commands/borrow-book/2.0"},
        {"kind": "query", "dataschema": f"{DOOR}/queries/list-loans/1.0", "optional": True},
        {"kind": "command", "dataschema": f"{DOOR}/commands/ask-librarian/2.0"},
        {"kind": "command", "dataschema": f"{DOOR}/commands/return-book/2.0"},
    ],
}
_SHELVES = {
    "response": _closed(
        {
            "branches": {
                "type": "array",
                "items": _closed(
                    {
                        "branch": TEXT,
                        "books": {
                            "type": "array",
                            "items": _closed({"title": TEXT, "shelf_days": {"type": "integer"}}),
                        },
                    }
                ),
            }
        }
    ),
    "workflows": ["lend-a-book"],
}
_LOANS = {
    "response": _closed({"loans": {"type": "array", "items": _closed({"loan": LOAN_ID})}}),
    "workflows": ["lend-a-book"],
}
