"""Streams of JSON, one object a line."""

from collections.abc import AsyncIterator
from typing import Any, Final, Self

import orjson

from adapters.runtime.docker.faults import BadAnswer

MAX_LINE: Final = 256 * 1024


class JsonLines:
    """The objects of a stream of JSON lines, whatever pieces they come in.

    Raises, while it is iterated:
        BadAnswer: a line is longer than `most` bytes, or is no JSON object.
    """

    def __init__(self, pieces: AsyncIterator[bytes], *, most: int = MAX_LINE) -> None:
        self._pieces = pieces
        self._most = most
        self._rest = bytearray()
        self._lines: list[bytes] = []
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while True:
            while self._lines:
                line = self._lines.pop().strip()
                if line:
                    return self._object(line)
            if self._is_over:
                raise StopAsyncIteration
            await self._read()

    async def _read(self) -> None:
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            self._is_over = True
            piece = b"\n"
        head, newline, rest = piece.rpartition(b"\n")
        if newline:
            self._lines = bytes(self._rest + head).split(b"\n")
            self._rest = bytearray(rest)
        else:
            self._rest += piece
        if len(self._rest) > self._most or any(len(line) > self._most for line in self._lines):
            raise BadAnswer(f"a line of what the container engine tells is longer than {self._most} bytes")
        self._lines.reverse()

    def _object(self, line: bytes) -> dict[str, Any]:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BadAnswer(f"what the container engine tells is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadAnswer("a line of what the container engine tells is no JSON object")
        return value
