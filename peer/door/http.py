"""One door as an ASGI app: its routes on Quart, commands and the event stream straight on ASGI (F1 to F3).

No view works: it reads, asks the desk or the registrar, and waits. A client that leaves cancels the view and
loses the answer alone.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import trio
from quart import Request, Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from actors.reports import Machine, hardware_state, workloads
from actors.rules.refusal import Refusal
from peer.door.admin import Admin
from peer.door.catalogue import QueryEntry
from peer.door.context import WELL_KNOWN, Door
from peer.door.events import get_events
from peer.door.ingest import serve_command
from peer.door.limits import Refusal as ServerRefusal
from peer.door.manifest import DEVICE_AUTHORIZATION_PATH, TOKEN_PATH, SignInGuidance
from peer.door.metrics import PATH as METRICS_PATH
from peer.door.metrics import Metrics
from peer.door.problems import JSON, Send, error_body, refusal_answer, send_answer
from peer.door.public import PublicPace
from peer.door.signin import PAGE_PATH, SignIn, flat_refusal, sign_in_too_often
from peer.door.stream import serve_stream
from peer.door.validation import Problems, check_query

logger = logging.getLogger("best_peer.door")

SCHEMA_JSON = "application/schema+json"
COMMANDS_PATH = "/commands"
STREAM_PATH = "/events/stream"
SIGN_IN = frozenset({DEVICE_AUTHORIZATION_PATH, TOKEN_PATH})
PUBLIC = SIGN_IN | {WELL_KNOWN, PAGE_PATH}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class DoorApp:
    """The ASGI app of a peer's root door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._prefix = _path_of(door.endpoint)
        self._public = PublicPace()
        # Quart types its ASGI messages; ours are the plain mappings they are made of.
        self._app: Any = _quart(door)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: under the endpoint's own path, or without it for a proxy that takes it off."""
        scope["path"] = path = self._own(scope["path"])
        if path in PUBLIC:
            wait = self._public.wait_seconds(scope["client"][0], trio.current_time())
            if wait:
                await send_answer(send, *_too_often(path, wait))
                return
        method = scope["method"]
        if path == COMMANDS_PATH and method == "POST":
            await serve_command(self._door, scope, receive, send)
        elif path == COMMANDS_PATH and method not in ("GET", "HEAD"):
            await send_answer(send, *_not_allowed(method, ["GET", "HEAD", "POST"]))
        elif path != STREAM_PATH:
            await self._app(scope, receive, send)
        elif method == "GET":
            await serve_stream(self._door, scope, send)
        else:
            await send_answer(send, *_not_allowed(method, ["GET"]))

    def reword(self, path: str, refusal: ServerRefusal) -> ServerRefusal:
        """A refusal of the server's own, at a path as it arrived, as that path's clients read it (R15).

        Called once for each. A command that was too large never came to the door's own count of them.
        """
        own = self._own(path)
        if own == COMMANDS_PATH and refusal.code == "PAYLOAD_TOO_LARGE":
            self._door.desk.counts.refuse(None, refusal.code)
        return flat_refusal(refusal) if own in SIGN_IN else refusal

    def _own(self, path: str) -> str:
        """A path without the endpoint's own."""
        if self._prefix and path.startswith(self._prefix + "/"):
            path = path[len(self._prefix) :]
        # A client may join the endpoint and a path with one slash too many; Quart's routes take that too.
        return "/" + path.lstrip("/") if path.startswith("//") else path


def _too_often(path: str, wait: int) -> tuple[bytes, int, dict[str, str]]:
    if path in SIGN_IN:
        return sign_in_too_often(path, wait)
    return refusal_answer(
        Refusal(
            "TOO_MANY_REQUESTS",
            f"this address asks too often for what needs no key; wait {wait} s and ask again",
            retry_after_seconds=wait,
        )
    )


def _not_allowed(method: str, allowed: list[str]) -> tuple[bytes, int, dict[str, str]]:
    body = error_body(
        "METHOD_NOT_ALLOWED",
        f"{method[:20]} is not served here; use {' or '.join(allowed)}",
        {"allowed": allowed},
    )
    return body, 405, {"content-type": JSON, "allow": ", ".join(allowed)}


def _path_of(endpoint: str) -> str:
    _, _, rest = endpoint.partition("://")
    _, slash, path = rest.partition("/")
    return f"{slash}{path}".rstrip("/")


def _quart(door: Door) -> QuartTrio:
    app = QuartTrio("best-peer", static_folder=None)
    app.config.update(
        # The server below bounds bodies and time; a stream must outlive any deadline on answers.
        MAX_CONTENT_LENGTH=None,
        BODY_TIMEOUT=None,
        RESPONSE_TIMEOUT=None,
        PROPAGATE_EXCEPTIONS=False,
        # An answer to OPTIONS would be a success that no document tells of.
        PROVIDE_AUTOMATIC_OPTIONS=False,
    )
    # Else //commands is redirected, which loses a POST's body on its way.
    app.url_map.merge_slashes = False
    machine = Machine(door.house)
    _protocol_routes(app, door, machine)
    _metrics_route(app, Metrics(door, machine))
    _sign_in_routes(app, door)
    _admin_routes(app, door)
    _error_handlers(app)
    return app


def _protocol_routes(app: QuartTrio, door: Door, machine: Machine) -> None:
    catalogue = door.catalogue

    @app.get(WELL_KNOWN)
    async def manifest() -> Response:
        return Response(door.manifest, 200, content_type=JSON)

    @app.get(COMMANDS_PATH)
    async def commands() -> Response:
        key = door.key_of(_request())
        return Response(catalogue.commands_for(key.grant.scopes), 200, content_type=JSON)

    @app.get("/commands/<schema>/<version>")
    async def command_document(schema: str, version: str) -> Response:
        door.key_of(_request())
        return _document(catalogue.command_document(schema, version), SCHEMA_JSON)

    @app.get("/events")
    async def events() -> Response:
        return await get_events(door, _request())

    @app.get("/events/<schema>/<version>")
    async def event_document(schema: str, version: str) -> Response:
        door.key_of(_request())
        return _document(catalogue.event_document(schema, version), SCHEMA_JSON)

    @app.get("/queries")
    async def queries() -> Response:
        door.key_of(_request())
        return Response(catalogue.queries_index, 200, content_type=JSON)

    @app.get("/queries/<schema>/<version>")
    async def query_document(schema: str, version: str) -> Response:
        door.key_of(_request())
        return _document(catalogue.query_document(schema, version), JSON)

    @app.get("/queries/<schema>")
    async def query(schema: str) -> Response:
        return await _answer_query(door, machine, _request(), schema)

    @app.get("/workflows")
    async def workflows() -> Response:
        door.key_of(_request())
        return Response(catalogue.workflows_index, 200, content_type=JSON)

    @app.get("/workflows/<workflow>")
    async def workflow(workflow: str) -> Response:
        door.key_of(_request())
        return _document(catalogue.workflow_document(workflow), JSON)


def _metrics_route(app: QuartTrio, metrics: Metrics) -> None:
    @app.get(METRICS_PATH)
    async def scrape() -> Response:
        return await metrics.answer(_request())


def _sign_in_routes(app: QuartTrio, door: Door) -> None:
    sign_in = SignIn(door, SignInGuidance.load())

    @app.post(DEVICE_AUTHORIZATION_PATH)
    async def device_authorization() -> Response:
        return await sign_in.device_authorization(_request())

    @app.post(TOKEN_PATH)
    async def token() -> Response:
        return await sign_in.token(_request())

    @app.get(PAGE_PATH)
    async def device_page() -> Response:
        return await sign_in.page(_request())


def _admin_routes(app: QuartTrio, door: Door) -> None:
    admin = Admin(door)
    routes: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("GET", "pending", admin.keys.pending),
        ("POST", "approve", admin.keys.approve),
        ("POST", "deny", admin.keys.deny),
        ("POST", "revoke", admin.keys.revoke),
        ("GET", "keys", admin.keys.keys),
        ("GET", "holds", admin.holds.look),
        ("POST", "hold", admin.holds.hold),
        ("POST", "release", admin.holds.release),
        ("GET", "status", admin.status),
    ]
    for method, name, view in routes:

        async def checked(view: Callable[[Request], Awaitable[Response]] = view) -> Response:
            admin.check(_request())
            return await view(_request())

        app.add_url_rule(f"/admin/{name}", f"admin-{name}", checked, methods=[method])


def _error_handlers(app: QuartTrio) -> None:
    @app.errorhandler(Refusal)
    async def refused(refusal: Refusal) -> Response:
        body, status, headers = refusal_answer(refusal)
        return Response(body, status, headers)

    @app.errorhandler(HTTPException)
    async def http_error(error: HTTPException) -> Response:
        if isinstance(error, MethodNotAllowed):
            body, status, headers = _not_allowed(_request().method, sorted(error.valid_methods or ()))
            return Response(body, status, headers)
        if error.code == 404:
            body = error_body("NOT_FOUND", "there is nothing at this path; the catalogues list what there is")
            return Response(body, 404, content_type=JSON)
        body = error_body("BAD_REQUEST", error.description or error.name)
        return Response(body, error.code or 400, content_type=JSON)

    @app.errorhandler(Exception)
    async def crashed(error: Exception) -> Response:
        logger.error("a view failed on %s: %r", _request().method, error, exc_info=error)
        body = error_body("INTERNAL", "this peer failed over the request; its owner finds why in its log")
        return Response(body, 500, content_type=JSON)


async def _answer_query(door: Door, machine: Machine, asked: Request, schema: str) -> Response:
    key = door.key_of(asked)
    entry: QueryEntry | None = door.catalogue.query(schema)
    if entry is None:
        raise Refusal("NOT_FOUND", "there is no such query here; GET /queries lists them")
    parameters = check_query(entry, asked.args.items(multi=True) if asked.query_string else ())
    if isinstance(parameters, Problems):
        raise Refusal(parameters.code, parameters.message, **parameters.details())
    if schema == "get-hardware-state":
        answer = await hardware_state(machine, key, instance=door.instance, version=door.version)
    else:
        answer = workloads(door.house, key, parameters.get("deployment"), parameters.get("job"))
    return Response(orjson.dumps(answer), 200, content_type=JSON)


def _document(document: bytes | None, content_type: str) -> Response:
    if document is None:
        raise Refusal("NOT_FOUND", "there is no such document or version here; the catalogues list them")
    return Response(document, 200, content_type=content_type)


def _request() -> Request:
    return request
