"""Facts: what makes one a failure, and what a fact that is none is refused for."""

from typing import Any

import httpx
import pytest

from acceptance.discovery import Surface
from acceptance.facts import Fact, FactReader
from acceptance.names import Names
from acceptance.problems import Faulty
from acceptance.transcript import Transcript
from acceptance.wire import Wire

DOOR = "https://there.example"
SURFACE = Surface(f"{DOOR}/.well-known/best", "0.9.18", "A place.", DOOR, {"type": "none"})
DOCUMENT = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
ENVELOPE: dict[str, Any] = {
    "specversion": "1.0",
    "id": "1",
    "source": "there",
    "type": "RoomMade",
    "datacontenttype": "application/json",
    "dataschema": f"{DOOR}/events/room-made/1.0",
    "time": "2026-10-19T12:00:00Z",
    "correlationid": "c",
    "data": {"room": "attic"},
}


def _reader() -> FactReader:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=DOCUMENT))
    return FactReader(Wire(Transcript(Names()), transport=transport), SURFACE)


def _fact(kind: str, document: dict[str, Any], **data: Any) -> Fact:
    return Fact("1", kind, data, document)


@pytest.mark.parametrize("kind", ["RoomFailed", "RequestRejected", "EntryDenied", "WaitTimedOut"])
def test_some_names_tell_of_a_failure(kind: str) -> None:
    assert _fact(kind, DOCUMENT).went_wrong


@pytest.mark.parametrize("field", ["code", "reason", "error", "fix"])
def test_so_does_a_document_that_always_says_why(field: str) -> None:
    assert _fact("RoomEnded", {"required": ["room", field]}).went_wrong


def test_a_reason_that_may_be_given_tells_of_none() -> None:
    assert not _fact("RoomMade", {**DOCUMENT, "properties": {"reason": {"type": "string"}}}).went_wrong


def test_progress_is_a_whole_number_that_ends_at_a_hundred() -> None:
    done = {"properties": {"age": {"type": "integer"}, "done": {"type": "integer", "maximum": 100}}}
    assert _fact("RoomSwept", done, age=7, done=30).percent == 30
    assert _fact("RoomSwept", done, age=7).percent is None


def test_the_words_are_the_roomiest_text() -> None:
    texts = {"properties": {"name": {"type": "string", "maxLength": 9}, "letter": {"type": "string"}}}
    assert _fact("LetterSent", texts, name="Ann", letter="Dear").words == "Dear"
    assert _fact("LetterSent", {"properties": {}}).words is None


def test_a_count_that_is_not_known_is_left_out() -> None:
    counts = {"properties": {"pages": {"type": ["integer", "null"]}, "lines": {"type": ["integer", "null"]}}}
    assert _fact("LetterSent", counts, pages=None, lines=3).counts == {"lines": 3}


def test_a_sound_fact_is_read() -> None:
    assert _reader().read(ENVELOPE, "c") == Fact("1", "RoomMade", {"room": "attic"}, DOCUMENT)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"specversion": "2.0"}, "no event of the protocol"),
        ({"correlationid": "d"}, "came under d and not c"),
        ({"dataschema": None}, "names no document of this service"),
        (
            {"dataschema": "https://elsewhere.example/events/room-made/1.0"},
            "names no document of this service",
        ),
        ({"data": {"room": 7}}, "does not fit its own document: /room"),
    ],
)
def test_an_unsound_fact_is_refused_with_what_is_wrong(change: dict[str, Any], told: str) -> None:
    with pytest.raises(Faulty, match=told):
        _reader().read({**ENVELOPE, **change}, "c")


def test_a_fact_without_an_attribute_is_refused_by_its_name() -> None:
    with pytest.raises(Faulty, match=r"\(without source\)"):
        _reader().read({name: value for name, value in ENVELOPE.items() if name != "source"}, "c")
