"""Questions in JSON to an engine near by, answered whole or line by line.

What is asked and answered is never logged here, and no error repeats it.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import attrs

from adapters.engine.plain_http import Lines, NoAnswer, PlainHttp, TooMuch
from adapters.engine.port import EngineUnreachable

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes of one answer: more than any context that a model has."""
MAX_LINE: Final = 64 * 1024
MAX_WORDS: Final = 300
"""Characters of an engine's own words in an error."""


def shown(words: str) -> str:
    """An engine's own words, bounded and safe to show."""
    return "".join(c if c.isprintable() else " " for c in words[:MAX_WORDS])


@attrs.frozen
class Reply:
    """What an engine answered to any question: the status and its JSON, None where it sent none."""

    status: int
    body: Any

    @property
    def error(self) -> Mapping[str, Any]:
        """The error object that was sent, empty where there was none. A mere text is its `message`."""
        found = self.body.get("error") if isinstance(self.body, dict) else None
        if isinstance(found, dict):
            return found
        return {"message": found} if isinstance(found, str) else {}

    @property
    def words(self) -> str:
        """The engine's own message, bounded and safe to show."""
        return shown(str(self.error.get("message", "")))


@attrs.frozen
class ReplyLines:
    """An answer of many JSON lines, as they come: `async for line in reply`."""

    status: int
    _lines: Lines

    def __aiter__(self) -> Self:
        """Each line's value, None for one that is no JSON."""
        return self

    async def __anext__(self) -> Any:
        """The next line's value. One that is cancelled loses nothing.

        Raises:
            EngineUnreachable: it broke off before its end.
        """
        while True:
            try:
                line = await self._lines.receive()
            except NoAnswer as error:
                raise EngineUnreachable(
                    f"the engine broke off in the middle of its answer: {error}", fix="deploy the model again"
                ) from error
            if line is None:
                raise StopAsyncIteration
            if line.strip():
                return _parsed(line)


@attrs.define(eq=False)
class JsonHttp:
    """Asks engines; one object for all of them, with its connections.

    The composition owns it and closes it: `async with JsonHttp() as http`.
    """

    _http: PlainHttp = attrs.field(factory=PlainHttp, init=False)

    async def __aenter__(self) -> Self:
        """Nothing is opened before the first question."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._http.close()

    async def ask(
        self, base_url: str, method: str, path: str, question: Any = None, *, key: str | None = None
    ) -> Reply:
        """Any question, answered with JSON. The caller owns the deadline.

        Raises:
            EngineUnreachable: the engine cannot be reached, or sent more than 16 MiB.
        """
        status, raw = await self.ask_raw(base_url, method, path, question, key=key)
        return Reply(status, _parsed(raw))

    async def ask_raw(
        self, base_url: str, method: str, path: str, question: Any = None, *, key: str | None = None
    ) -> tuple[int, bytes]:
        """As `ask`; the answer as its bytes are."""
        headers, content = _request(question, key)
        try:
            return await self._http.ask(
                base_url, method, path, headers=headers, content=content, most_bytes=MAX_ANSWER
            )
        except TooMuch as error:
            raise EngineUnreachable(
                f"the engine did not end: {error}", fix="send a smaller max_tokens"
            ) from error
        except NoAnswer as error:
            raise _unreachable(error) from error

    @asynccontextmanager
    async def ask_for_lines(self, base_url: str, path: str, question: Any) -> AsyncIterator[ReplyLines]:
        """Any question that is answered with a JSON value a line; leaving the block gives the rest up.

        Raises:
            EngineUnreachable: the engine cannot be reached.
        """
        headers, content = _request(question, None)
        try:
            lines = await self._http.open_lines(
                base_url, "POST", path, headers=headers, content=content, most_bytes=MAX_LINE
            )
        except NoAnswer as error:
            raise _unreachable(error) from error
        try:
            yield ReplyLines(lines.status, lines)
        finally:
            lines.close()


def _request(question: Any, key: str | None) -> tuple[dict[str, str], bytes]:
    headers = {"user-agent": "best-peer", "accept": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    if question is None:
        return headers, b""
    headers["content-type"] = "application/json"
    return headers, json.dumps(question, ensure_ascii=False).encode("utf-8", "replace")


def _unreachable(error: NoAnswer) -> EngineUnreachable:
    return EngineUnreachable(
        f"the engine did not answer: {error}",
        fix="see whether the deployment still runs; deploy the model again if it ended",
    )


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
