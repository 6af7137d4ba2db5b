"""What a container wrote, out of the engine's frames (F25).

A frame is the stream's number (1 out, 2 error), three zeros, the length as four bytes big-endian, and so
many bytes. The engine's pieces cut frames anywhere, and a frame may be as long as the container likes.
"""

from collections.abc import AsyncIterator
from typing import Final, Literal, Self

import trio

from adapters.runtime.docker.client import DockerClient, Parameters
from adapters.runtime.docker.faults import EngineGone
from adapters.runtime.output import MAX_BEFORE, MAX_LINES
from adapters.runtime.port import Chunk, RuntimeUnavailable

TAIL_SECONDS: Final = 30.0
_HEAD: Final = 8
_STREAMS: Final[dict[int, Literal["out", "err"]]] = {1: "out", 2: "err"}
_KEPT: Final = 128 * 1024
"""Bytes of a tail that can matter: what is told of it, and lines of a usual length before that."""


class Chunks:
    """The chunks in a stream of frames; a long frame is several.

    Raises, while it is iterated:
        RuntimeUnavailable: the engine broke off, or what it sends is no frame.
    """

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._raw = bytearray()
        self._stream: Literal["out", "err"] = "out"
        self._left = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while True:
            if self._left and self._raw:
                data = bytes(self._raw[: self._left])
                del self._raw[: self._left]
                self._left -= len(data)
                return Chunk(self._stream, data)
            if not self._left and len(self._raw) >= _HEAD:
                self._read_head()
            else:
                await self._read()

    def _read_head(self) -> None:
        stream = _STREAMS.get(self._raw[0])
        if stream is None or any(self._raw[1:4]):
            raise RuntimeUnavailable("what the container engine sends as output is no output")
        self._stream = stream
        self._left = int.from_bytes(self._raw[4:_HEAD], "big")
        del self._raw[:_HEAD]

    async def _read(self) -> None:
        try:
            self._raw += await anext(self._pieces)
        except EngineGone as gone:
            raise RuntimeUnavailable(str(gone)) from gone
        except StopAsyncIteration:
            if self._raw or self._left:
                raise RuntimeUnavailable("the container engine broke off in the middle of output") from None
            raise


class Nothing:
    """The chunks of what is not there."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        raise StopAsyncIteration


async def read_tail(client: DockerClient, container: str) -> bytes:
    """The end of what a container wrote, by its id: what its last lines are made of, and those before.

    Raises:
        EngineError: there is no such container.
        EngineGone, RuntimeUnavailable: the engine went away.
    """
    params: Parameters = {"stdout": 1, "stderr": 1, "tail": MAX_LINES + MAX_BEFORE}
    kept = bytearray()
    with trio.move_on_after(TAIL_SECONDS):
        async with client.stream("GET", f"/containers/{container}/logs", params=params) as pieces:
            async for chunk in Chunks(pieces):
                kept += chunk.data
                if len(kept) > 2 * _KEPT:
                    del kept[:-_KEPT]
        return bytes(kept[-_KEPT:])
    raise RuntimeUnavailable("the container engine does not come to the end of a container's output")
