"""Lines of JSON, whatever pieces they come in."""

import itertools
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.runtime.docker.faults import BadAnswer
from adapters.runtime.docker.lines import JsonLines


class Pieces(AsyncIterator[bytes]):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


async def read(*pieces: bytes, most: int = 1000) -> list[dict[str, Any]]:
    return [line async for line in JsonLines(Pieces(pieces), most=most)]


# Integers of 64 bits: what is greater is a float to orjson, and nothing that an engine tells.
@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=4), st.text(max_size=8) | st.integers(-(2**63), 2**64 - 1), max_size=3
        ),
        max_size=6,
    ),
    st.lists(st.integers(0, 200), max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    st.booleans(),
)
async def test_the_objects_come_out_wherever_the_pieces_are_cut(
    objects: list[dict[str, Any]], cuts: list[int], newline: bytes, is_ended: bool
) -> None:
    raw = newline.join(json.dumps(one).encode() for one in objects) + (newline if is_ended else b"")
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    pieces = [raw[begin:end] for begin, end in itertools.pairwise(places)]
    assert await read(*pieces, most=10_000) == objects


async def test_several_lines_of_one_piece_come_in_order() -> None:
    assert await read(b'{"a": 1}\n{"a": 2}\n{"a"', b": 3}") == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize(
    "pieces",
    [
        (b'{"a": "' + b"x" * 2000 + b'"}\n',),
        tuple(b"x" * 100 for _ in range(20)),
        (b'{"a": 1}\n{"a": "', b"x" * 2000),
    ],
)
async def test_a_line_without_end_is_not_collected(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(BadAnswer, match="longer than 1000 bytes"):
        await read(*pieces)


@pytest.mark.parametrize("line", [b"not json", b"[1]", b'"text"', b"1", b'{"a": \xff}', b'{"a"'])
async def test_what_is_no_object_is_a_bad_answer(line: bytes) -> None:
    with pytest.raises(BadAnswer, match="no JSON"):
        await read(b'{"a": 1}\n', line + b"\n")


async def test_nothing_is_no_line() -> None:
    assert await read() == []
    assert await read(b"\n", b"", b"  \r\n") == []
