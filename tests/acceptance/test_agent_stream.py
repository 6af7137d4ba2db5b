"""Server-sent events as the standard has them, in whatever pieces they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.problems import Faulty
from acceptance.stream import LONGEST_FRAME, Frame, Frames


def _frames(*pieces: str) -> list[Frame]:
    frames = Frames()
    return [frame for piece in pieces for frame in frames.feed(piece)]


def test_a_frame_ends_with_an_empty_line() -> None:
    assert _frames("id: 1\ndata: a\n") == []
    assert _frames("id: 1\ndata: a\n\n") == [Frame("1", "a")]


def test_lines_of_data_are_joined() -> None:
    assert _frames("data: a\ndata:b\ndata\n\n") == [Frame(None, "a\nb\n")]


def test_comments_and_unknown_fields_give_nothing() -> None:
    assert _frames(": keepalive\n\nevent: x\nretry: 5\nwhat: ever\n\n") == []


def test_one_space_after_the_colon_is_left_out() -> None:
    assert _frames("data:  a\n\n") == [Frame(None, " a")]


def test_the_id_stays_until_another_comes_and_none_with_a_nul_is_taken() -> None:
    assert _frames("id: 1\ndata: a\n\ndata: b\n\nid: 2\0\ndata: c\n\n") == [
        Frame("1", "a"),
        Frame("1", "b"),
        Frame("1", "c"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_end_of_a_line_is_known(end: str) -> None:
    assert _frames(f"id: 1{end}data: a{end}{end}data: b{end}{end}: more")[:2] == [
        Frame("1", "a"),
        Frame("1", "b"),
    ]


@given(st.data())
def test_pieces_do_not_matter(data: st.DataObject) -> None:
    text = ": open\r\n\r\nid: 1\r\ndata: ä\r\ndata: b\r\n\r\n: keepalive\n\nid: 2\ndata: c\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert _frames(*pieces) == [Frame("1", "ä\nb"), Frame("2", "c")]


def test_a_frame_without_end_is_given_up() -> None:
    frames = Frames()
    half = "data: " + "x" * (LONGEST_FRAME // 2) + "\n"
    assert list(frames.feed(half)) == []
    with pytest.raises(Faulty, match="more than"):
        list(frames.feed(half + "data: more\n"))
