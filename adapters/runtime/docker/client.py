"""Calls to a Docker Engine: short ones answered whole, and streams."""

import importlib.metadata
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import attrs
import httpx
import orjson
import trio

from adapters.runtime.docker.endpoint import Endpoint
from adapters.runtime.docker.faults import (
    BadAnswer,
    EngineError,
    EngineForbidden,
    EngineGone,
    EngineHung,
    EngineTooOld,
)
from adapters.runtime.docker.transport import CLOSE_SECONDS, Body, OwnConnections

OLDEST_API: Final = (1, 41)
NEWEST_API: Final = (1, 47)
"""What the adapter was written for; an engine that speaks newer ones too is asked in this one."""
PATIENCE_SECONDS: Final = 30.0
"""How long calls are tried again while the engine is away: it takes some seconds to restart."""
CALL_SECONDS: Final = 60.0
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
MAX_BODY: Final = 16 * 1024 * 1024
MAX_ERROR_BODY: Final = 64 * 1024
MAX_MESSAGE: Final = 2000
IDEMPOTENT: Final = frozenset({"GET", "HEAD"})

Parameters = Mapping[str, str | int]

logger = logging.getLogger(__name__)


@attrs.frozen
class EngineVersion:
    """Which engine answers: its version, the API's version spoken with it, and what its machine is."""

    version: str
    api: str
    os: str
    architecture: str


@attrs.frozen
class _Question:
    """One request. Its headers may carry a credential and are never shown."""

    method: str
    path: str
    params: Parameters | None = None
    json: object = attrs.field(default=None, repr=False)
    tar: bytes | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    timeout: float = CALL_SECONDS
    ok: Collection[int] = ()
    is_repeatable: bool = False
    most_bytes: int = MAX_BODY
    is_versioned: bool = True


@attrs.define(eq=False)
class DockerClient:
    """Speaks to one engine; opened as an async context manager, which agrees with it on a version.

    May be used by any number of tasks; each call has a connection of its own. How many calls run at once is
    bounded by the callers.

    Args:
        endpoint: where it listens.
        patience_seconds: how long an engine that is away is waited for.
        transport: what carries the calls instead, for tests.
    """

    endpoint: Endpoint
    patience_seconds: float = PATIENCE_SECONDS
    transport: httpx.AsyncBaseTransport | None = None
    _http: httpx.AsyncClient | None = attrs.field(default=None, init=False)
    _engine: EngineVersion | None = attrs.field(default=None, init=False)

    @property
    def engine(self) -> EngineVersion:
        """The engine as it was when it was last asked for its version."""
        assert self._engine is not None, "the client is not open"
        return self._engine

    async def __aenter__(self) -> Self:
        """Connect and agree on a version of the API.

        Raises:
            EngineGone: there is no engine within the client's patience.
            EngineTooOld: it does not speak what the adapter speaks.
            EngineError, BadAnswer: what answers is no Docker Engine.
        """
        self._http = httpx.AsyncClient(
            base_url=self.endpoint.base_url,
            transport=self.transport or OwnConnections(self.endpoint),
            timeout=None,  # noqa: S113 - each call is bounded by a scope around it
            trust_env=False,
            headers={"user-agent": _user_agent(), "accept-encoding": "identity"},
        )
        try:
            await self._negotiate()
        except BaseException:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Parameters | None = None,
        json: object = None,
        tar: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = CALL_SECONDS,
        ok: Collection[int] = (),
        again: bool | None = None,
        most_bytes: int = MAX_BODY,
    ) -> Any:
        """Make one call and read its answer whole: its JSON, or None where there is none.

        A call that did not reach the engine is made again while the client's patience lasts. One that may
        have reached it is made again only when `again` says so, by default for GET and HEAD; for any other
        the caller looks at what it did. Dropping a call does not stop what the engine does for it.

        Args:
            path: without the API's version, `/containers/json`.
            tar: an archive to send, where the engine takes one.
            timeout: seconds that the engine has to answer, each time.
            ok: further statuses that are no error; they give None.
            most_bytes: how long the answer may be.

        Raises:
            EngineError: the engine answered with an error.
            EngineGone, EngineHung: it did not answer.
            BadAnswer: the answer is too long, or no JSON.
        """
        is_repeatable = method in IDEMPOTENT if again is None else again
        question = _Question(method, path, params, json, tar, headers, timeout, ok, is_repeatable, most_bytes)
        try:
            return await self._patiently(question)
        except EngineError as error:
            if not (error.status == 400 and error.message.startswith("client version ")):
                raise
            # Another engine than the one we agreed with: it was exchanged under us, and did nothing.
            await self._negotiate()
            return await self._patiently(question)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Parameters | None = None,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Make a call and hand out its body as it comes, in pieces of any size.

        Entered when the engine has answered with its headers; never made again. How long that takes, and
        each piece, is bounded by the caller. Leaving drops the connection.

        Raises:
            EngineError: the engine answered with an error.
            EngineGone: it cannot be reached, or broke off in the middle; from the iterator too.
        """
        response = await self._send(_Question(method, path, params, json, headers=headers))
        body = Body(response, self._broke)
        try:
            if not response.is_success:
                raise EngineError(response.status_code, await _message(body))
            yield body
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await body.drop()

    async def _patiently(self, question: _Question) -> Any:
        until = trio.current_time() + self.patience_seconds
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._once(question)
            except (EngineHung, EngineForbidden):
                raise
            except EngineGone as error:
                if error.may_have_acted and not question.is_repeatable:
                    raise
                if trio.current_time() + pause > until:
                    raise
                logger.debug("the container engine is away, asking it again: %s", error)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _once(self, question: _Question) -> Any:
        with trio.move_on_after(question.timeout):
            response = await self._send(question)
            body = Body(response, self._broke)
            try:
                if response.is_success:
                    return _parsed(question, await _whole(body, question.most_bytes))
                if response.status_code in question.ok:
                    return None
                raise EngineError(response.status_code, await _message(body))
            finally:
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await body.drop()
        raise EngineHung(
            f"the container engine at {self.endpoint} did not answer {question.method} {question.path} "
            f"within {question.timeout:g} s",
            fix="look at its log (journalctl -u docker), and restart it when it hangs",
            may_have_acted=True,
        )

    async def _send(self, question: _Question) -> httpx.Response:
        assert self._http is not None, "the client is not open"
        headers = dict(question.headers or {})
        content = None
        if question.json is not None:
            content = orjson.dumps(question.json)
            headers["content-type"] = "application/json"
        elif question.tar is not None:
            content = question.tar
            headers["content-type"] = "application/x-tar"
        path = f"/v{self.engine.api}{question.path}" if question.is_versioned else question.path
        request = self._http.build_request(
            question.method, path, params=dict(question.params or {}), content=content, headers=headers
        )
        try:
            return await self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise self._broke(error) from error

    def _broke(self, error: Exception) -> EngineGone:
        system = _system_error(error)
        reason = (system.strerror if system is not None else None) or str(error) or type(error).__name__
        text = f"the container engine at {self.endpoint} does not answer: {reason}"
        if isinstance(system, PermissionError):
            return EngineForbidden(
                text,
                fix="let the peer's user reach it: put it in the group docker and log in again",
                may_have_acted=False,
            )
        return EngineGone(
            text,
            fix="start it (systemctl start docker), or name the right one by DOCKER_HOST",
            may_have_acted=not isinstance(error, httpx.ConnectError),
        )

    async def _negotiate(self) -> None:
        answer = await self._patiently(_Question("GET", "/version", is_repeatable=True, is_versioned=False))
        if not isinstance(answer, dict):
            raise BadAnswer("what the container engine says of its version is no object")
        oldest, newest = _api(answer.get("MinAPIVersion")), _api(answer.get("ApiVersion"))
        if newest is None or newest < OLDEST_API or (oldest is not None and oldest > NEWEST_API):
            raise EngineTooOld(
                f"the container engine {answer.get('Version')} speaks versions {answer.get('MinAPIVersion')} "
                f"to {answer.get('ApiVersion')} of its API, and the peer {_text(OLDEST_API)} to "
                f"{_text(NEWEST_API)}: use Docker 20.10 or newer, or a newer best-peer"
            )
        self._engine = EngineVersion(
            version=str(answer.get("Version", "")),
            api=_text(min(newest, NEWEST_API)),
            os=str(answer.get("Os", "")),
            architecture=str(answer.get("Arch", "")),
        )

    async def _close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


async def _whole(body: Body, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = most_bytes
    async for part in body:
        left -= len(part)
        if left < 0:
            raise BadAnswer(f"the container engine's answer is longer than {most_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


async def _message(body: Body) -> str:
    try:
        raw = await _whole(body, MAX_ERROR_BODY)
    except BadAnswer:
        return "an error too long to be shown"
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        text = raw.decode("utf-8", "replace")
    else:
        text = str(value.get("message", "")) if isinstance(value, dict) else str(value)
    return text.strip()[:MAX_MESSAGE] or "no reason was given"


def _parsed(question: _Question, raw: bytes) -> Any:
    if not raw.strip():
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadAnswer(
            f"the container engine's answer to {question.method} {question.path} is no JSON: {error}"
        ) from error


def _system_error(error: BaseException) -> OSError | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _api(value: object) -> tuple[int, int] | None:
    major, dot, minor = str(value).partition(".")
    if dot and major.isdecimal() and minor.isdecimal() and len(major) < 6 and len(minor) < 6:
        return int(major), int(minor)
    return None


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _user_agent() -> str:
    return f"best-peer/{importlib.metadata.version('best-peer')}"
