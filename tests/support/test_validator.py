"""The validator finds a door's faults, and none in a door that has none."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import attrs
import orjson
import pytest

from peer.door.catalogue import Catalogue
from peer.door.manifest import KEY_HEADER, SignInGuidance, root_manifest
from peer.door.validation import Problems, read_command
from tests.support.probes import Check
from tests.support.validator import validate

KEY = "bp_of-the-small-door"
HARDWARE: dict[str, Any] = {
    "peer": {"instance": "i", "version": "1"},
    "devices": [],
    "engines": [],
    "jobs": False,
}
Answer = tuple[int, str, bytes]


def _json(status: int, body: Any, kind: str = "application/json") -> Answer:
    return status, kind, body if isinstance(body, bytes) else orjson.dumps(body)


@attrs.define
class SmallDoor:
    """Just enough of a door to be probed: `broken` answers in place of a route, `public` asks for no key."""

    url: str = ""
    broken: dict[str, Answer] = attrs.field(factory=dict)
    public: bool = False
    manifest: Callable[[dict[str, Any]], None] = lambda best: None
    asked: list[str] = attrs.field(factory=list)
    _catalogue: Catalogue | None = None

    @property
    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            self._catalogue = Catalogue.load(self.url)
        return self._catalogue

    def answer(self, method: str, path: str, key: str | None, kind: str, body: bytes) -> Answer:
        self.asked.append(f"{method} {path}")
        if f"{method} {path}" in self.broken:
            return self.broken[f"{method} {path}"]
        if path == "/.well-known/best":
            document = orjson.loads(root_manifest(self.url, "0.1.0"))
            self.manifest(document["best"])
            return _json(200, document)
        if path in {"/oauth/device", "/oauth/token"}:
            return self.sign_in(path, kind, body)
        if path == "/llms.txt":
            return _json(404, {"error": {"code": "NOT_FOUND", "message": "no such page"}})
        if key != KEY and not self.public:
            return _json(401, {"error": {"code": "UNAUTHORIZED", "message": "no key"}})
        return self.surface(method, path, body)

    def surface(self, method: str, path: str, body: bytes) -> Answer:
        catalogue = self.catalogue
        if method == "POST":
            found = read_command(body, catalogue)
            assert isinstance(found, Problems)
            return _json(
                400, {"error": {"code": found.code, "message": found.message, "details": found.details()}}
            )
        listed = {
            "/commands": catalogue.commands_for({"all"}),
            "/queries": catalogue.queries_index,
            "/workflows": catalogue.workflows_index,
            "/events": b'{"events": []}',
            "/queries/get-hardware-state": orjson.dumps(HARDWARE),
        }
        if path in listed:
            return _json(200, listed[path])
        kind, *rest = path.strip("/").split("/")
        document = {
            "commands": lambda: catalogue.command_document(rest[0], rest[1]),
            "queries": lambda: catalogue.query_document(rest[0], rest[1]),
            "workflows": lambda: catalogue.workflow_document(rest[0]),
        }[kind]()
        if document is None:
            return _json(404, {"error": {"code": "NOT_FOUND", "message": "no such document"}})
        return _json(200, document, "application/schema+json" if kind == "commands" else "application/json")

    def sign_in(self, path: str, kind: str, body: bytes) -> Answer:
        if not kind.startswith("application/x-www-form-urlencoded"):
            return _json(400, {"error": "invalid_request"})
        form = parse_qs(body.decode())
        if path == "/oauth/token":
            return _json(400, {"error": "invalid_grant"})
        if form["connection"] == ["Not One Word"]:
            return _json(400, {"error": "invalid_request", "error_description": "one word"})
        code = {"device_code": "d" * 43, "user_code": "ABCD-EFGH", "expires_in": 600, "interval": 5}
        links = {"verification_uri": "https://door.example/device"}
        return _json(200, {**code, **links, "note": SignInGuidance.load().device})


@pytest.fixture
def door() -> Iterator[SmallDoor]:
    small = SmallDoor()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            key, kind = self.headers.get(KEY_HEADER), self.headers.get("content-type", "")
            status, content_type, content = small.answer(self.command, self.path, key, kind, body)
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _serve  # noqa: N815 - the names http.server looks for

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        small.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield small
        server.shutdown()
        thread.join(10)


def _worse(door: SmallDoor, **options: Any) -> list[Check]:
    checks = validate(door.url, api_key=KEY, **options)
    return [check for check in checks if check.level in {"warn", "fail"}]


def test_a_good_door_passes_whole(door: SmallDoor) -> None:
    checks = validate(f"{door.url}/", api_key=KEY, probe_registration=True)
    assert [check for check in checks if check.level in {"warn", "fail"}] == []
    probed = {check.section for check in checks if check.level == "pass"}
    assert probed >= {"discovery", "discipline", "registration", "commands", "events", "queries", "workflows"}
    assert {"GET /workflows/serve-a-model", "GET /commands/undeploy-model/1.0"} <= set(door.asked)


def test_without_a_key_the_walk_stops_at_the_door(door: SmallDoor) -> None:
    checks = validate(door.url)
    assert not [check for check in checks if check.level in {"warn", "fail"}]
    assert "GET /commands/prompt/1.0" not in door.asked


def test_nothing_at_all_is_one_failure() -> None:
    checks = validate("http://127.0.0.1:1", timeout=2)
    assert [(check.section, check.level) for check in checks] == [("discovery", "fail")]


def _manifest_fault(member: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(best: dict[str, Any]) -> None:
        *above, last = member.split("/")
        at: Any = best
        for part in above:
            at = at[int(part)] if isinstance(at, list) else at[part]
        at[last] = value

    return change


SERVICE = "services/io.behavioralstate.best-peer"


@pytest.mark.parametrize(
    ("member", "value", "section", "level"),
    [
        ("version", "one", "discovery", "fail"),
        ("surprise", 1, "discovery", "fail"),
        ("authentication/note", "sign in somehow", "discovery", "fail"),
        (f"{SERVICE}/description", "See https://door.example", "discipline", "warn"),
        (f"{SERVICE}/description", "Send X-Api-Key", "discipline", "warn"),
        (f"{SERVICE}/description", "Fill in {tenantId}", "discipline", "warn"),
        (f"{SERVICE}/description", "x" * 501, "discipline", "warn"),
        (f"{SERVICE}/description", "Use deploy-model to begin", "discipline", "warn"),
        ("services/com.other", {"version": "1.0.0", "description": "idle"}, "discipline", "warn"),
        ("tenants", {"manifest": "https://door.example/.well-known/best/{id}"}, "tenancy", "fail"),
        ("capabilities/0/service", "no.such", "commands", "fail"),
        ("authentication", {"type": "apiKey", "scheme": KEY_HEADER, "in": "header"}, "registration", "warn"),
    ],
)
def test_faults_of_the_manifest_are_found(
    door: SmallDoor, member: str, value: Any, section: str, level: str
) -> None:
    door.manifest = _manifest_fault(member, value)
    assert (section, level) in [(check.section, check.level) for check in _worse(door)]


@pytest.mark.parametrize(
    ("route", "answer", "section", "level"),
    [
        ("POST /commands", _json(404, {}), "commands", "fail"),
        ("POST /commands", _json(201, {"id": "x"}), "commands", "warn"),
        ("POST /commands", _json(415, {}), "commands", "warn"),
        ("POST /commands", _json(400, {"oops": 1}), "commands", "warn"),
        ("GET /commands", _json(200, {"commands": [{"schema": "x"}]}), "commands", "fail"),
        ("GET /commands/best-validate-nonexistent/9.9", _json(200, {}), "commands", "warn"),
        ("GET /commands/deploy-model/1.0", _json(500, {}), "commands", "fail"),
        ("GET /commands/deploy-model/1.0", _json(200, {"x-queue": "q"}), "commands", "warn"),
        ("GET /events", _json(200, {"facts": []}), "events", "fail"),
        ("GET /events", _json(200, {"events": [{"id": 1}]}), "events", "warn"),
        ("GET /queries", _json(200, {"queries": []}), "queries", "warn"),
        ("GET /queries/get-hardware-state", _json(500, {}), "queries", "fail"),
        ("GET /queries/get-hardware-state", _json(200, {"peer": 5}), "queries", "warn"),
        ("GET /queries/get-hardware-state/1.0", _json(200, {"parameters": {}}), "queries", "fail"),
        ("GET /workflows/serve-a-model", _json(404, {}), "workflows", "fail"),
        ("GET /commands/prompt/1.0", _json(404, {}), "workflows", "fail"),
        ("POST /oauth/token", _json(400, {"error": "unsupported_grant_type"}), "registration", "fail"),
        ("POST /oauth/token", _json(415, {}), "registration", "warn"),
        ("GET /llms.txt", (200, "text/plain", b"POST to /commands"), "single entry", "warn"),
    ],
)
def test_faults_of_a_route_are_found(
    door: SmallDoor, route: str, answer: Answer, section: str, level: str
) -> None:
    door.broken[route] = answer
    assert (section, level) in [(check.section, check.level) for check in _worse(door)]


def test_a_surface_that_answers_bare_under_a_declared_key_is_warned_of(door: SmallDoor) -> None:
    door.public = True
    warned = {check.section for check in _worse(door) if check.level == "warn"}
    assert warned == {"commands", "events", "queries", "workflows"}


def test_a_pause_ends_the_walk_of_recipes(door: SmallDoor) -> None:
    door.broken["GET /queries/get-hardware-state/1.0"] = _json(429, {})
    checks = validate(door.url, api_key=KEY)
    assert Check("workflows", "skip", "the door asked for a pause") in checks


@pytest.mark.parametrize(
    "change",
    [{"device_code": "short"}, {"device_code": "ABCD-EFGH"}, {"note": "approve it"}, {"user_code": None}],
)
def test_faults_of_a_registration_are_found(door: SmallDoor, change: dict[str, Any]) -> None:
    _, _, good = door.sign_in(
        "/oauth/device", "application/x-www-form-urlencoded", b"connection=best-validate"
    )
    body = {name: value for name, value in {**json.loads(good), **change}.items() if value is not None}
    door.broken["POST /oauth/device"] = _json(200, body)
    failed = [check for check in _worse(door, probe_registration=True) if check.level == "fail"]
    assert {check.section for check in failed} == {"registration"}
    assert len(failed) > 1


def test_a_tenants_manifest_is_asked_with_the_key_and_held_to_the_rules(door: SmallDoor) -> None:
    template = f"{door.url}/.well-known/best/{{tenantId}}"
    door.manifest = _manifest_fault("tenants", {"manifest": template})
    scoped = orjson.loads(root_manifest(door.url, "0.1.0"))
    door.broken["GET /.well-known/best/ws-1"] = _json(200, scoped)
    checks = validate(door.url, api_key=KEY, tenant="ws-1")
    assert Check("tenancy", "pass", "no tenants within it") in checks
    scoped["best"]["tenants"] = {"manifest": template}
    door.broken["GET /.well-known/best/ws-1"] = _json(200, scoped)
    failed = [check.message for check in validate(door.url, tenant="ws-1") if check.level == "fail"]
    assert failed == ["no {tenantId} left in it", "no tenants within it"]
