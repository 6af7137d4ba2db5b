"""Signing in by the device flow: the two endpoints and the person's page (F10, F11; RFC 8628, RFC 6749).

Errors here are the flat ones of RFC 6749, not BEST's. Bodies are forms; nothing else is read.
"""

import re
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import parse_qsl

import attrs
import orjson
from quart import Request, Response

from actors.codes import Lifetime, TooManyCodes
from actors.issuing import Credential
from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.registrar import PollRefused
from peer.door.context import Door, body_of
from peer.door.limits import Refusal
from peer.door.manifest import KEY_HEADER, TOKEN_PATH, SignInGuidance
from peer.door.metrics import PATH as METRICS_PATH
from peer.door.page import approval_page
from peer.door.problems import JSON

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
PAGE_PATH = "/device"
FORM = "application/x-www-form-urlencoded"
CONNECTION = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
MOST_BODY = 8192
MOST_TEXT = 256

_NO_STORE = {"cache-control": "no-store", "pragma": "no-cache"}
_HEADER = f"{KEY_HEADER}: <access_token>"


@attrs.frozen
class OAuthError(Exception):
    """Raised to answer with an RFC 6749 error."""

    error: str
    description: str
    status: int = 400
    retry_after: int | None = None

    def body(self) -> bytes:
        """The flat body (R15)."""
        return orjson.dumps({"error": self.error, "error_description": self.description})

    def headers(self) -> dict[str, str]:
        """Never stored; when to ask again, where that is known."""
        headers = dict(_NO_STORE)
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        return headers

    def answer(self) -> Response:
        """The whole answer."""
        return Response(self.body(), self.status, self.headers(), content_type=JSON)


def sign_in_too_often(path: str, wait_seconds: int) -> tuple[bytes, int, dict[str, str]]:
    """Body, status and headers for an address past its pace, in words that a device's client knows."""
    description = f"this address asks too often; wait {wait_seconds} s"
    error = (
        OAuthError("slow_down", description, 400, wait_seconds)
        if path == TOKEN_PATH
        else OAuthError("temporarily_unavailable", description, 503, wait_seconds)
    )
    return error.body(), error.status, {"content-type": JSON, **error.headers()}


@attrs.frozen
class FlatRefusal(Refusal):
    """A refusal of the server's own, as an RFC 6749 error: invalid_request, or temporarily_unavailable."""

    def body(self) -> bytes:
        """The flat body (R15)."""
        error = "invalid_request" if _is_askers_fault(self.status) else "temporarily_unavailable"
        return OAuthError(error, self.message).body()

    def headers(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """The server's own, and never stored."""
        return [*super().headers(body), (b"cache-control", b"no-store")]


def _is_askers_fault(status: int) -> bool:
    # A method or a version that nobody serves is not served later either.
    never = (HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    return status < HTTPStatus.INTERNAL_SERVER_ERROR or status in never


def flat_refusal(refusal: Refusal) -> FlatRefusal:
    """What the server refuses at the sign-in's addresses before the app is asked."""
    at_fault = _is_askers_fault(refusal.status)
    status = HTTPStatus.BAD_REQUEST if at_fault else HTTPStatus.SERVICE_UNAVAILABLE
    return FlatRefusal(status, refusal.code, refusal.message, retry_after=refusal.retry_after)


class SignIn:
    """The three sign-in routes of one door."""

    def __init__(self, door: Door, guidance: SignInGuidance) -> None:
        self._door = door
        self._guidance = guidance

    async def device_authorization(self, request: Request) -> Response:
        """POST: begin a sign-in (R01 to R09)."""
        try:
            return self._begin(await _form(request), _address(request))
        except OAuthError as error:
            return error.answer()
        except TooManyCodes as full:
            return OAuthError("temporarily_unavailable", str(full), 503, full.wait_seconds).answer()

    async def token(self, request: Request) -> Response:
        """POST: a device polls for its key (R10 to R15)."""
        try:
            return await self._poll(await _form(request))
        except OAuthError as error:
            return error.answer()
        except PollRefused as refused:
            return OAuthError(refused.error, refused.description).answer()
        except (NoRoom, JournalUnavailable):
            description = "this peer cannot keep a key right now; poll again"
            return OAuthError("temporarily_unavailable", description, 503, 5).answer()

    async def page(self, request: Request) -> Response:
        """GET: what the person who approves sees; works without script (F10, R22)."""
        typed = request.args.get("user_code", "")[:64]
        waiting = self._door.registrar.look(typed) if typed else None
        body = approval_page(waiting, self._door.endpoint)
        headers = {
            **_NO_STORE,
            "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
            "frame-ancestors 'none'; base-uri 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        return Response(body, 200, headers, content_type="text/html; charset=utf-8")

    def _begin(self, form: dict[str, str], address: str | None) -> Response:
        client_id = _required(form, "client_id")
        if not client_id.isprintable():  # a person reads it, on the page and at the console
            raise OAuthError("invalid_request", "client_id has characters that cannot be shown")
        connection = form.get("connection")
        if connection is not None and not CONNECTION.fullmatch(connection):
            raise OAuthError(
                "invalid_request",
                "connection is one word of at most 64 lower-case letters, digits and hyphens, "
                f"beginning with a letter or digit: ^{CONNECTION.pattern}$",
            )
        begun = self._door.registrar.begin(
            client_id=client_id,
            address=address,
            name=connection or _address_name(self._door.endpoint),
            agent_label=_printable(form.get("agent_label")),
            lifetime=_lifetime(form.get("credential_lifetime")),
        )
        page = f"{self._door.endpoint}{PAGE_PATH}"
        return _json(
            {
                "device_code": begun.device_code,
                "user_code": begun.user_code,
                "verification_uri": page,
                "verification_uri_complete": f"{page}?user_code={begun.user_code}",
                "expires_in": begun.expires_in,
                "interval": begun.interval,
                "note": self._guidance.device,
            }
        )

    async def _poll(self, form: dict[str, str]) -> Response:
        grant = _required(form, "grant_type")
        if grant != DEVICE_GRANT:
            raise OAuthError("unsupported_grant_type", f"expected grant_type={DEVICE_GRANT}")
        device_code = _required(form, "device_code")
        client_id = _required(form, "client_id")
        return _json(self._credential(await self._door.registrar.poll(device_code, client_id)))

    def _credential(self, credential: Credential) -> dict[str, Any]:
        key, endpoint = credential.key, self._door.endpoint
        app = _variable_word(key.name)
        # A connector takes sign-ins of one tenant_id for one account and mixes their keys; here each sign-in
        # is an identity of its own, so its holder id stands there.
        answer: dict[str, Any] = {
            "access_token": credential.secret,
            "token_type": KEY_HEADER,
            "auth_header": KEY_HEADER,
            "name": key.name,
            "tenant_id": key.holder,
            "scope": " ".join(key.grant.scopes),
            "endpoint": endpoint,
            "manifest": self._door.manifest_url,
            "note": self._guidance.token,
        }
        if key.expires_ms is not None:
            answer["expires_in"] = max(0, (key.expires_ms - key.issued_ms) // 1000)
        if key.is_metrics_only:  # none of the rest opens to it
            metrics = f"{endpoint}{METRICS_PATH}"
            return {**answer, "ready_check": metrics, "http": {"header": _HEADER, "metrics": metrics}}
        answer["ready_check"] = f"{endpoint}/commands"
        answer["mcp"] = {
            key.name: {
                "command": "npx",
                "args": ["-y", "@behavioralstate/best-mcp"],
                "env": {f"BEST_{app}_BASE_URL": endpoint, f"BEST_{app}_API_KEY": credential.secret},
            }
        }
        answer["http"] = {
            "header": _HEADER,
            **{name: f"{endpoint}/{name}" for name in ("commands", "queries", "events", "workflows")},
        }
        return answer


async def _form(request: Request) -> dict[str, str]:
    """The form's fields; an empty value counts as absent (RFC 6749 3.1), one given twice is refused."""
    if request.mimetype != FORM:
        raise OAuthError("invalid_request", f"expected a form, {FORM}")
    body = await body_of(request)
    if len(body) > MOST_BODY:
        raise OAuthError("invalid_request", f"the form is larger than {MOST_BODY} bytes")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=32, errors="strict")
    except ValueError:
        raise OAuthError("invalid_request", f"the body is no form: expected {FORM}") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in fields:
            raise OAuthError("invalid_request", f"{name[:40]} is given twice")
        if value:
            fields[name] = value
    return fields


def _required(form: dict[str, str], name: str) -> str:
    value = form.get(name)
    if value is None:
        raise OAuthError("invalid_request", f"{name} is missing")
    if len(value) > MOST_TEXT:
        raise OAuthError("invalid_request", f"{name} has more than {MOST_TEXT} characters")
    return value


def _lifetime(text: str | None) -> Lifetime:
    lifetimes: dict[str | None, Literal["durable", "session"]] = {
        None: "durable",
        "durable": "durable",
        "session": "session",
    }
    if text not in lifetimes:
        raise OAuthError("invalid_request", "credential_lifetime is durable or session")
    return lifetimes[text]


def _printable(text: str | None) -> str | None:
    if text is None:
        return None
    return "".join(c for c in text[:MOST_TEXT] if c.isprintable()) or None


def _address(request: Request) -> str | None:
    # The connection's own address; no forwarded header is read, since any client can write one (F11).
    client = request.scope.get("client")
    return client[0] if client else None


def _variable_word(name: str) -> str:
    """The word that stands for a name in the connector's variables: BEST_<word>_API_KEY.

    Upper-case letters and digits, a letter first: it finds no others.
    """
    word = "".join(c for c in name.upper() if c.isascii() and c.isalnum())
    return word if word[:1].isalpha() else f"PEER{word}"


def _address_name(endpoint: str) -> str:
    return endpoint.split("://", 1)[1]


def _json(answer: dict[str, Any]) -> Response:
    return Response(orjson.dumps(answer), 200, dict(_NO_STORE), content_type=JSON)
