"""Requests with a secret in a wrong place: every header, query and body where one could be put by mistake."""

from __future__ import annotations

import base64
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import attrs
import httpx

from tests.support.agents import DEVICE_GRANT, envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPLOYMENT = "dep-" + "x" * 22
JOB = "job-" + "x" * 22
COMMANDS: dict[str, dict[str, Any]] = {
    "DeployModel": {"model": "small", "engine": "llamacpp", "memory_bytes": 1 << 20, "device": "cpu"},
    "UndeployModel": {"deployment": DEPLOYMENT},
    "Prompt": {
        "deployment": DEPLOYMENT,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "stop": ["x"],
    },
    "RunJob": {"image": "i", "command": ["c"], "env": {"A": "b"}, "memory_bytes": 1 << 20},
    "StopJob": {"job": JOB},
    "PullImage": {"image": "i"},
}
FORMS: dict[str, dict[str, str]] = {
    "/oauth/device": {
        "client_id": "c",
        "connection": "lab",
        "agent_label": "l",
        "credential_lifetime": "session",
    },
    "/oauth/token": {"grant_type": DEVICE_GRANT, "device_code": "d", "client_id": "c"},
}
ADMIN: dict[str, dict[str, Any]] = {
    "approve": {"user_code": "BCDF-GHJK", "scopes": ["all"], "memory_bytes": 1, "expires_seconds": 5},
    "deny": {"user_code": "BCDF-GHJK"},
    "revoke": {"name": "nobody", "keep_running": False},
    "hold": {"hold": "hold-1", "device": "gpu-7", "seconds": 5, "reason": "r", "now": False},
    "release": {"device": "gpu-7", "hold": "hold-1"},
}
PATHS = (
    "/",
    "/.well-known/best",
    "/commands",
    "/commands/deploy-model/1.0",
    "/events",
    "/events/stream",
    "/queries",
    "/queries/get-workloads",
    "/queries/get-hardware-state",
    "/queries/get-workloads/1.0",
    "/workflows",
    "/workflows/serve-a-model",
    "/events/deployment-ready/1.0",
    "/metrics",
    "/oauth/device",
    "/oauth/token",
    "/device",
    "/admin/status",
    "/admin/pending",
    "/admin/keys",
    "/admin/holds",
    "/admin/nowhere",
)
PARAMETERS = (
    "type",
    "after",
    "limit",
    "from",
    "to",
    "source",
    "correlationId",
    "deployment",
    "job",
    "user_code",
)
HEADERS = (
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "cookie",
    "user-agent",
    "referer",
    "origin",
    "from",
    "via",
    "accept",
    "accept-language",
    "accept-encoding",
    "content-type",
    "content-language",
    "if-none-match",
    "if-modified-since",
    "range",
    "last-event-id",
    "forwarded",
    "x-forwarded-for",
    "x-real-ip",
    "x-request-id",
    "traceparent",
    "idempotency-key",
    "host",
)
TYPES = ("application/json", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data", "")


@attrs.frozen
class Sent:
    """One such request, and where the secret stands in it."""

    place: str
    method: str
    path: str
    headers: dict[str, str] = attrs.field(factory=dict)
    content: bytes = b""
    is_data: bool = False
    """Whether it stands where what is sent is for the one who reads it: a model's name, a message."""

    def by(self, client: httpx.Client) -> httpx.Response:
        """Send it; of an event stream, which has no end, the head is the answer."""
        asked = client.build_request(self.method, self.path, headers=self.headers, content=self.content)
        answer = client.send(asked, stream=True)
        try:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                return httpx.Response(answer.status_code, headers=answer.headers, request=asked)
            answer.read()
            return answer
        finally:
            answer.close()


def everywhere(mark: str, endpoint: str, key: str, token: str) -> Iterator[Sent]:
    """Every one of them.

    Args:
        mark: the secret.
        endpoint: the door's.
        key: one that opens it, where a request has to come past that.
        token: its owner's.
    """
    yield from _in_headers(mark, key, token)
    yield from _in_targets(mark, key)
    yield from _in_commands(mark, endpoint, key)
    yield from _in_broken_bodies(mark, key)
    yield from _in_forms(mark)
    yield from _in_admin(mark, token)


def marked(document: Any, mark: str) -> Iterator[Any]:
    """The document with the mark in each place in turn: as a value, as a name, and beside the others."""
    if isinstance(document, dict):
        for name, value in document.items():
            for inner in marked(value, mark):
                yield {**document, name: inner}
            yield {(mark if other == name else other): item for other, item in document.items()}
        yield {**document, mark: 1}
    elif isinstance(document, list):
        for place, value in enumerate(document):
            for inner in marked(value, mark):
                yield [*document[:place], inner, *document[place + 1 :]]
    yield mark


def _in_headers(mark: str, key: str, token: str) -> Iterator[Sent]:
    basic = base64.b64encode(f"me:{mark}".encode()).decode()
    for path in PATHS:
        # More of a request is read once it is let in.
        mine = {"authorization": f"Bearer {token if path.startswith('/admin/') else key}"}
        for name in HEADERS:
            yield Sent(f"header {name}", "GET", path, {name: mark})
            yield Sent(f"header {name} beside a key", "GET", path, {**mine, name: mark})
        yield Sent("header name", "GET", path, {mark: "1"})
        yield Sent("cookie", "GET", path, {"cookie": f"session={mark}; {mark}=1"})
        for name in ("authorization", "proxy-authorization", "x-api-key"):
            for value in (f"Bearer {mark}", f"Basic {basic}", f"ApiKey {mark}"):
                yield Sent(f"{name} of a scheme", "GET", path, {name: value})
        yield Sent("referer's query", "GET", path, {"referer": f"http://elsewhere/?key={mark}"})
        # Two at once: the one that opens it, and another that should not be here.
        yield Sent("second credential", "GET", path, {"x-api-key": key, "authorization": f"Bearer {mark}"})


def _in_targets(mark: str, key: str) -> Iterator[Sent]:
    mine = {"x-api-key": key}
    for path in PATHS:
        for name in PARAMETERS:
            yield Sent(f"parameter {name}", "GET", f"{path}?{name}={mark}", mine)
        yield Sent(
            "all parameters", "GET", f"{path}?{'&'.join(f'{name}={mark}' for name in PARAMETERS)}", mine
        )
        for query in (f"access_token={mark}", f"{mark}=1", mark, f"type={mark}&type={mark}", f"a={mark}%zz"):
            yield Sent("query", "GET", f"{path}?{query}", mine)
            yield Sent("query without a key", "GET", f"{path}?{query}")
        yield Sent("query of a POST", "POST", f"{path}?key={mark}", mine)
        yield Sent("method", mark[:20], path)


def _in_commands(mark: str, endpoint: str, key: str) -> Iterator[Sent]:
    mine = {"x-api-key": key, "content-type": "application/json"}
    for command, data in COMMANDS.items():
        made = envelope(endpoint, command, data, correlationid="chain")
        for sent in marked(made, mark):
            yield Sent(
                command, "POST", "/commands", mine, json.dumps(sent).encode(), is_data=_is_data(sent, mark)
            )


def _is_data(sent: Any, mark: str) -> bool:
    if not isinstance(sent, dict):
        return False
    return mark in json.dumps([sent.get("data"), sent.get("id"), sent.get("correlationid")])


def _in_broken_bodies(mark: str, key: str) -> Iterator[Sent]:
    text = f'{{"type": "Prompt", "id": "{mark}", "data": {{"{mark}": "{mark}"}}}}'
    broken = {
        "cut off": text[:-5].encode(),
        "too much": f"{text} {mark}".encode(),
        "no JSON": f"key={mark}".encode(),
        "a bare word": mark.encode(),
        "twice": f'{{"id": "{mark}", "id": "{mark}"}}'.encode(),
        "not UTF-8": b"\xff" + text.encode() + b"\xff",
        "UTF-16": text.encode("utf-16"),
        "a broken escape": f'{{"id": "{mark}\\u12"}}'.encode(),
        "a control character": f'{{"id": "{mark}\x01"}}'.encode(),
        "deep": (f'{{"{mark}":' * 2000 + "1" + "}" * 2000).encode(),
        "long": f'{{"id": "{mark * 4000}"}}'.encode(),
        "too large": f'{{"id": "{mark * 6000}"}}'.encode(),
        "a list": f'["{mark}"]'.encode(),
        "a multipart": f'--b\r\ncontent-disposition: form-data; name="{mark}"\r\n\r\n{mark}'.encode(),
    }
    for path in ("/commands", "/oauth/token", "/admin/approve", "/events", "/metrics"):
        for place, content in broken.items():
            for kind in TYPES if place in ("cut off", "no JSON", "a multipart") else TYPES[:1]:
                yield Sent(f"body {place}", "POST", path, {"x-api-key": key, "content-type": kind}, content)
        yield Sent("type", "POST", path, {"x-api-key": key, "content-type": f"application/{mark}"}, b"{}")
        yield Sent("charset", "POST", path, {"content-type": f"application/json; charset={mark}"}, b"{}")
        coded = {"x-api-key": key, "content-type": "application/json", "content-encoding": mark}
        yield Sent("coding", "POST", path, coded, text.encode())
        yield Sent("body of a PUT", "PUT", path, {"x-api-key": key}, text.encode())
        yield Sent("body of a DELETE", "DELETE", path, {}, text.encode())


def _in_forms(mark: str) -> Iterator[Sent]:
    for path, form in FORMS.items():
        for sent in marked(form, mark):
            if isinstance(sent, dict):
                content = "&".join(f"{quote(n)}={quote(str(v))}" for n, v in sent.items()).encode()
                kind = {"content-type": "application/x-www-form-urlencoded"}
                shown = path == "/oauth/device" and mark in (sent.get("client_id"), sent.get("agent_label"))
                # What a client calls itself, its owner is to read.
                yield Sent("form", "POST", path, kind, content, is_data=shown)
            yield Sent("form as JSON", "POST", path, {"content-type": TYPES[0]}, json.dumps(sent).encode())


def _in_admin(mark: str, token: str) -> Iterator[Sent]:
    kind = {"content-type": "application/json"}
    for name, body in ADMIN.items():
        for sent in marked(body, mark):
            content = json.dumps(sent).encode()
            # Whoever holds a device has the reason told to those who may know.
            shown = isinstance(sent, dict) and mark in (sent.get("reason"), sent.get("hold"))
            for credential in (token, mark):
                yield Sent(
                    f"admin {name}",
                    "POST",
                    f"/admin/{name}",
                    {**kind, "authorization": f"Bearer {credential}"},
                    content,
                    is_data=shown,
                )


def raw(mark: str) -> Iterator[bytes]:
    """Requests that no client library sends."""
    host = "Host: door\r\n"
    for text in (
        f"GET / HTTP/1.1\r\n{host}X-Api-Key : {mark}\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}{mark}\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}X-Api-Key: {mark}\x01\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {mark}@door\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}Authorization: Bearer\r\n {mark}\r\n\r\n",
        f"GET http://me:{mark}@door/ HTTP/1.1\r\n{host}\r\n",
        f"GET /?key={mark} HTTP/9.9\r\n{host}\r\n",
        f"GET /?key={mark}#{mark} HTTP/1.1\r\n{host}\r\n",
        f"{mark} / HTTP/1.1\r\n{host}\r\n",
        f"{mark}\r\n\r\n",
        f"GET / HTTP/1.1\r\n{host}X: {mark * 600}\r\n\r\n",
        f"GET /?{mark * 600} HTTP/1.1\r\n{host}\r\n",
        f"POST / HTTP/1.1\r\n{host}Content-Length: {mark}\r\n\r\n",
        f"POST / HTTP/1.1\r\n{host}Transfer-Encoding: {mark}\r\n\r\n",
        f"POST / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n{mark}\r\n",
        f"POST / HTTP/1.1\r\n{host}Content-Length: 2\r\n\r\n{{}}{mark}",
        f"GET / HTTP/1.1\r\n{host}Upgrade: websocket\r\nSec-WebSocket-Key: {mark}\r\n\r\n",
    ):
        yield text.encode()


def answer_to(endpoint: str, tls: ssl.SSLContext | None, data: bytes) -> bytes:
    """What a door says to bytes, until it closes."""
    where = urlsplit(endpoint)
    received = b""
    with socket.create_connection((where.hostname, where.port), timeout=20) as plain:
        connection = plain if tls is None else tls.wrap_socket(plain, server_hostname=where.hostname)
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                received += more
        except OSError:
            pass  # reset by a door that has said all it wanted
        finally:
            connection.close()
    return received
