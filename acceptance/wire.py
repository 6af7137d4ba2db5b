"""HTTP as an agent does it: bounded, recorded, and with the key for the one service it belongs to."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from acceptance.problems import Faulty, Refused, Unreachable
from acceptance.transcript import Transcript

LARGEST_ANSWER = 16 * 1024 * 1024
ANSWER_SECONDS = 30.0
QUIET_SECONDS = 60.0
"""A stream that says nothing for so long, not even a comment, is taken for dead."""


@dataclass(frozen=True)
class Answer:
    """An answer whose body was read; `body` is its JSON."""

    status: int
    content_type: str
    body: Any

    def member(self, name: str) -> Any:
        """A member of the body; raises Faulty where it is not there."""
        if not isinstance(self.body, dict) or name not in self.body:
            raise Faulty(f"an answer without {name}: {str(self.body)[:200]}")
        return self.body[name]


class Wire:
    """One client. After `carry` every request under that address bears the key, and no other does.

    Args:
        transcript: told of every request and answer.
        trust: a PEM file whose certificate is trusted besides the system's; None for the system's alone.
        transport: what carries the requests; None for the network.
    """

    def __init__(
        self, transcript: Transcript, trust: Path | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._transcript = transcript
        self._key: tuple[str, str] | None = None
        self._origin: tuple[str, str] | None = None
        self._client = httpx.Client(
            verify=_context(trust) if transport is None else True,
            trust_env=False,
            timeout=ANSWER_SECONDS,
            transport=transport,
        )

    def close(self) -> None:
        """End every connection."""
        self._client.close()

    def carry(self, header: str, value: str, endpoint: str) -> None:
        """Send this header to the endpoint's host from now on."""
        self._key = (header, value)
        self._origin = _origin(endpoint)

    def get(self, url: str, params: Mapping[str, str] | None = None, *, note: str = "") -> Answer:
        """GET, recorded."""
        return self._ask(
            self._client.build_request("GET", url, params=params, headers=self._key_for(url)), note=note
        )

    def document(self, url: str, *, note: str = "") -> Any:
        """A JSON object that must be there; raises Faulty otherwise."""
        answer = self.get(url, note=note)
        if answer.status != 200 or not isinstance(answer.body, dict):
            raise Faulty(f"GET {url} answered {answer.status} and no document: {_words(answer.body)}")
        return answer.body

    def post_form(self, url: str, fields: Mapping[str, str], secret: Mapping[str, str]) -> Answer:
        """POST of a form, which never bears the key.

        Args:
            url: where to.
            fields: the form.
            secret: members of the answer that are shown to nobody, with the names that stand for them.
        """
        request = self._client.build_request("POST", url, data=dict(fields))
        return self._ask(request, sent=dict(fields), secret=secret)

    def post_json(self, url: str, body: Any) -> Answer:
        """POST of JSON.

        Raises:
            Refused: any answer that is not 2xx, in the service's own words.
        """
        request = self._client.build_request("POST", url, json=body, headers=self._key_for(url))
        answer = self._ask(request, sent=body)
        if not 200 <= answer.status < 300:
            raise Refused(f"refused with {answer.status}: {_words(answer.body)}")
        return answer

    @contextmanager
    def stream(
        self, url: str, params: Mapping[str, str], last_event_id: str | None
    ) -> Iterator[Iterator[str]]:
        """A stream's text as it comes; entered once the service has begun to answer."""
        headers = {"accept": "text/event-stream", **self._key_for(url)}
        note = "a stream"
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
            note = f"a stream, `Last-Event-ID: {last_event_id}`"
        timeout = httpx.Timeout(ANSWER_SECONDS, read=QUIET_SECONDS)
        request = self._client.build_request(
            "GET", url, params=dict(params), headers=headers, timeout=timeout
        )
        self._transcript.request("GET", str(request.url), with_key=bool(self._key_for(url)), note=note)
        try:
            response = self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise Unreachable(
                f"{request.url.copy_with(query=None)} cannot be reached: {_why(error)}"
            ) from error
        try:
            kind = _content_type(response)
            self._transcript.answer(response.status_code, kind, None)
            if response.status_code != 200 or kind != "text/event-stream":
                raise Faulty(f"{url} answered {response.status_code} {kind}: expected 200 text/event-stream")
            yield response.iter_text()
        finally:
            response.close()

    def _ask(
        self,
        request: httpx.Request,
        *,
        sent: Any = None,
        note: str = "",
        secret: Mapping[str, str] | None = None,
    ) -> Answer:
        with_key = self._key is not None and self._key[0] in request.headers
        self._transcript.request(request.method, str(request.url), sent=sent, with_key=with_key, note=note)
        try:
            response = self._client.send(request, stream=True)
            try:
                raw = _read(response)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise Unreachable(f"{request.url} cannot be reached: {_why(error)}") from error
        kind = _content_type(response)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            raise Faulty(f"{request.url} answered {response.status_code} {kind} and no JSON") from None
        for member, name in (secret or {}).items():
            if isinstance(body, dict) and isinstance(body.get(member), str):
                self._transcript.names.keep_secret(body[member], name)
        self._transcript.answer(response.status_code, kind, body)
        return Answer(response.status_code, kind, body)

    def _key_for(self, url: str) -> dict[str, str]:
        if self._key is None:
            return {}
        if _origin(url) != self._origin:
            raise Faulty(f"the service names an address on another host, {url}: its key is not sent there")
        return dict([self._key])


def _context(trust: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if trust is not None:
        try:
            context.load_verify_locations(cafile=trust)
        except OSError as error:  # SSLError is one
            raise Unreachable(f"{trust} is no certificate to trust: {error.strerror or error}") from error
    return context


def _read(response: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        size += len(part)
        if size > LARGEST_ANSWER:
            raise Faulty(f"{response.url} answers with more than {LARGEST_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip()


def _why(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _words(body: Any) -> str:
    """A refusal in the service's words: the protocol's error, the flat one of sign-in, or what came."""
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        error = body["error"]
        details = f" {json.dumps(error['details'], ensure_ascii=False)}" if error.get("details") else ""
        return f"{error.get('code')}: {error.get('message')}{details}"
    return json.dumps(body, ensure_ascii=False)[:500]
