"""Server-sent events as the standard has them, in whatever pieces they come."""

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceptance.discovery import Surface
from acceptance.names import Names
from acceptance.problems import Faulty, Unreachable
from acceptance.stream import LONGEST_FRAME, Follower, Frame, Frames
from acceptance.transcript import Transcript
from acceptance.wire import Wire

DOOR = "https://there.example"
SURFACE = Surface(f"{DOOR}/.well-known/best", "0.9.18", "A place.", DOOR, {"type": "none"})


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


class Streams:
    """A service whose streams tell what a test says, opening by opening, and whose log has one fact."""

    def __init__(self, *openings: list[str]) -> None:
        self._openings = list(openings)
        self.asked: list[str | None] = []

    def follower(self) -> Follower:
        """An agent's follower of this service."""
        return Follower(Wire(Transcript(Names()), transport=httpx.MockTransport(self._answer)), SURFACE, "c")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/events":
            return httpx.Response(200, json={"events": [{"id": "1"}]})
        self.asked.append(request.headers.get("last-event-id"))
        if not self._openings:
            raise httpx.ConnectError("nobody there")
        told = "".join(f"id: {name}\ndata: {json.dumps({'id': name})}\n\n" for name in self._openings.pop(0))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=told)


class Clock:
    """Time that only pauses move."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.stream.time", Clock())


def _heard(streams: Streams, count: int) -> list[str]:
    heard = []
    with streams.follower() as follower:
        for envelope in follower.facts(seconds=30):
            heard.append(envelope["id"])
            if len(heard) == count:
                break
    return heard


def test_what_log_and_stream_both_tell_is_heard_once() -> None:
    assert _heard(Streams([], ["1", "2"]), 2) == ["1", "2"]


def test_a_stream_is_taken_up_after_the_last_fact() -> None:
    streams = Streams(["1"], ["2"], [], ["3"])
    assert _heard(streams, 3) == ["1", "2", "3"]
    assert streams.asked == [None, "1", "2", "2"]


def test_a_service_that_went_away_is_told_once_the_time_is_up() -> None:
    streams = Streams(["1"])
    with streams.follower() as follower, pytest.raises(Unreachable, match="nobody there"):
        list(follower.facts(seconds=30))


def test_a_frame_whose_id_is_not_its_fact_s_is_refused() -> None:
    frames = httpx.MockTransport(
        lambda _: httpx.Response(
            200, headers={"content-type": "text/event-stream"}, text='id: 1\ndata: {"id": "2"}\n\n'
        )
    )
    with (
        Follower(Wire(Transcript(Names()), transport=frames), SURFACE, "c") as follower,
        pytest.raises(Faulty, match="is not that of the fact"),
    ):
        list(follower.facts(seconds=30))


def test_what_is_no_stream_is_refused() -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, json={}))
    with pytest.raises(Faulty, match="expected 200 text/event-stream"):
        Follower(Wire(Transcript(Names()), transport=page), SURFACE, "c").__enter__()
