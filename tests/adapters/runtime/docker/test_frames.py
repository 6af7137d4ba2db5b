"""What a container wrote, out of frames that are cut anywhere."""

from collections.abc import AsyncIterator

import pytest

from adapters.runtime.docker.faults import EngineGone
from adapters.runtime.docker.output import Chunks, Nothing
from adapters.runtime.port import Chunk, RuntimeUnavailable


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


class Pieces(AsyncIterator[bytes]):
    """Pieces of some bytes, and then an end or a break."""

    def __init__(self, raw: bytes, size: int, end: Exception | None = None) -> None:
        self._parts = [raw[i : i + size] for i in range(0, len(raw), size)]
        self._end = end or StopAsyncIteration()

    async def __anext__(self) -> bytes:
        if not self._parts:
            raise self._end
        return self._parts.pop(0)


def joined(chunks: list[Chunk]) -> list[tuple[str, bytes]]:
    """Chunks of one stream after another as one."""
    whole: list[tuple[str, bytes]] = []
    for chunk in chunks:
        if whole and whole[-1][0] == chunk.stream:
            whole[-1] = (chunk.stream, whole[-1][1] + chunk.data)
        else:
            whole.append((chunk.stream, chunk.data))
    return whole


RAW = frame(1, b"hello \xff") + frame(2, b"\x00\x01err") + frame(1, b"") + frame(1, b"x" * 1000)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 4096])
async def test_out_and_error_stay_apart_however_frames_are_cut(size: int) -> None:
    chunks = [chunk async for chunk in Chunks(Pieces(RAW, size))]

    assert joined(chunks) == [("out", b"hello \xff"), ("err", b"\x00\x01err"), ("out", b"x" * 1000)]
    assert all(chunk.data for chunk in chunks)


@pytest.mark.parametrize("cut", [1, 7, 9, len(RAW) - 1])
async def test_an_end_within_a_frame_is_a_break(cut: int) -> None:
    with pytest.raises(RuntimeUnavailable, match="broke off"):
        [chunk async for chunk in Chunks(Pieces(RAW[:cut], 4))]


async def test_an_engine_that_goes_away_says_so() -> None:
    gone = EngineGone("it went", fix="start it", may_have_acted=True)

    with pytest.raises(RuntimeUnavailable, match="it went"):
        [chunk async for chunk in Chunks(Pieces(frame(1, b"a"), 4, gone))]


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 200 OK", frame(0, b"in"), frame(3, b"x"), b"\x01\x01\x00\x00\x00\x00\x00\x01a"]
)
async def test_what_is_no_frame_is_not_output(raw: bytes) -> None:
    with pytest.raises(RuntimeUnavailable, match="no output"):
        [chunk async for chunk in Chunks(Pieces(raw, 64))]


async def test_a_frame_is_not_gathered_before_it_is_handed_on() -> None:
    endless = frame(1, b"y" * 100)[:8].replace((100).to_bytes(4, "big"), b"\xff\xff\xff\xff") + b"y" * 100

    assert await anext(Chunks(Pieces(endless, 50))) == Chunk("out", b"y" * 42)


async def test_what_is_not_there_wrote_nothing() -> None:
    assert [chunk async for chunk in Nothing()] == []
