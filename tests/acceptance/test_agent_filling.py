"""Filling data from documents: where each value comes from, in which order, and when there is none."""

from typing import Any

import pytest

from acceptance.filling import Known, Wishes, fill, records
from acceptance.problems import Faulty, Refused

ASKED = "Why is the sky blue?"
NAME = {"type": "string", "maxLength": 100}
NOTHING = Wishes(ASKED)


def _schema(properties: dict[str, Any], *examples: dict[str, Any], required: list[str] | None = None) -> Any:
    return {
        "type": "object",
        "required": list(properties) if required is None else required,
        "properties": properties,
        "examples": list(examples),
    }


def _known(answer: Any = None, **told: Any) -> Known:
    known = Known(answers=[] if answer is None else [("look", answer)])
    known.take_fact("Made", told)
    return known


def test_a_fact_goes_before_a_query_s_answer() -> None:
    filled = fill(_schema({"room": NAME}), _known({"room": "old"}, room="new"), NOTHING)
    assert filled.data == {"room": "new"}
    assert filled.why == {"room": "Made told it"}


def test_a_told_value_that_does_not_fit_is_passed_over() -> None:
    filled = fill(_schema({"room": {"type": "integer"}}), _known({"room": 4}, room="four"), NOTHING)
    assert filled.data == {"room": 4}


def test_the_last_fact_counts() -> None:
    known = _known(room="first")
    known.take_fact("Made", {"room": "second"})
    assert fill(_schema({"room": NAME}), known, NOTHING).data == {"room": "second"}


def test_values_come_from_one_record_and_what_it_lies_in() -> None:
    answer = {
        "houses": [
            {"house": "a", "rooms": []},
            {"house": "b", "rooms": [{"room": "b1", "beds": 2}, {"room": "b2", "beds": 1}]},
        ]
    }
    schema = _schema({"room": NAME, "house": NAME, "beds": {"type": "integer"}})
    assert fill(schema, _known(answer), NOTHING).data == {"room": "b1", "house": "b", "beds": 2}


def test_a_preference_chooses_the_record() -> None:
    answer = {"rooms": [{"room": "cellar"}, {"room": "Attic, large"}]}
    filled = fill(_schema({"room": NAME}), _known(answer), Wishes(ASKED, prefer="attic"))
    assert filled.data == {"room": "Attic, large"}


def test_a_number_may_come_from_a_field_that_the_description_names() -> None:
    beds = {"type": "integer", "description": "Beds to reserve: at most the room's free_beds."}
    answer = {"rooms": [{"room": "attic", "free_beds": 3}]}
    assert fill(_schema({"room": NAME, "beds": beds}), _known(answer), NOTHING).data["beds"] == 3


def test_a_text_does_not_come_from_a_field_that_the_description_names() -> None:
    guest = {"type": "string", "maxLength": 9, "description": "Not the room's free_beds."}
    with pytest.raises(Refused, match="nothing says what guest is to be"):
        fill(_schema({"room": NAME, "guest": guest}), _known({"room": "attic", "free_beds": "3"}), NOTHING)


def test_a_person_s_number_goes_before_everything() -> None:
    filled = fill(
        _schema({"most_beds": {"type": "integer"}}),
        _known(most_beds=1),
        Wishes(ASKED, numbers={"beds": 5.0}),
    )
    assert filled.data == {"most_beds": 5}
    assert isinstance(filled.data["most_beds"], int)


def test_a_person_s_number_fills_what_need_not_be_filled() -> None:
    schema = _schema({"beds": {"type": "integer"}, "warmth": {"type": "number"}}, required=[])
    assert fill(schema, _known(), Wishes(ASKED, numbers={"warmth": 0.5})).data == {"warmth": 0.5}


def test_a_person_s_number_past_the_bound_is_refused() -> None:
    schema = _schema({"beds": {"type": "integer", "maximum": 4}})
    with pytest.raises(Refused, match="beds=9 is more than beds takes"):
        fill(schema, _known(), Wishes(ASKED, numbers={"beds": 9}))


def test_a_field_of_one_value_has_it() -> None:
    schema = _schema({"kind": {"const": "a"}, "other": {"enum": ["b"]}})
    assert fill(schema, _known(), NOTHING).data == {"kind": "a", "other": "b"}


def test_a_text_with_room_for_sentences_takes_the_question() -> None:
    filled = fill(_schema({"text": {"type": "string", "maxLength": 5000}}), _known(), NOTHING)
    assert filled.data == {"text": ASKED}
    assert filled.asks


def test_a_name_does_not_take_the_question() -> None:
    with pytest.raises(Refused):
        fill(_schema({"text": NAME}), _known(), NOTHING)


def test_the_question_goes_into_the_last_and_roomiest_text_of_the_simplest_example() -> None:
    said = {
        "type": "object",
        "properties": {
            "by": {"enum": ["guest", "host"]},
            "text": {"type": "string", "maxLength": 9000},
            "mood": NAME,
        },
    }
    talk = {"type": "array", "items": said}
    long = [{"by": "host", "text": "Yes?"}, {"by": "guest", "text": "No."}, {"by": "guest", "text": "Well."}]
    short = [{"by": "host", "text": "Yes?", "mood": "calm"}, {"by": "guest", "text": "No."}]
    filled = fill(_schema({"talk": talk}, {"talk": long}, {"talk": short}), _known(), NOTHING)
    assert filled.data["talk"] == [
        {"by": "host", "text": "Yes?", "mood": "calm"},
        {"by": "guest", "text": ASKED},
    ]
    assert filled.asks


def test_the_example_is_left_as_it_was() -> None:
    schema = _schema(
        {"talk": {"type": "array", "items": {"type": "string", "maxLength": 9000}}}, {"talk": ["hello"]}
    )
    fill(schema, _known(), NOTHING)
    assert schema["examples"] == [{"talk": ["hello"]}]


def test_only_an_example_that_agrees_with_what_was_found_is_followed() -> None:
    schema = _schema(
        {"guest": NAME, "kind": {"enum": ["inn", "hut"]}},
        {"guest": "Ann", "kind": "inn"},
        {"guest": "Bartholomew", "kind": "hut"},
    )
    assert fill(schema, _known({"kind": "hut"}), NOTHING).data == {"guest": "Bartholomew", "kind": "hut"}


def test_a_document_that_refuses_what_it_led_to_is_faulty() -> None:
    schema = {**_schema({"room": NAME}), "maxProperties": 0}
    with pytest.raises(Faulty, match="refused by the document itself"):
        fill(schema, _known(room="attic"), NOTHING)


def test_records_know_the_plain_fields_around_them() -> None:
    answer = {"a": 1, "list": [{"b": 2, "a": 3, "deep": {"c": 4}}]}
    assert list(records(answer)) == [{"a": 1}, {"a": 3, "b": 2}, {"a": 3, "b": 2, "c": 4}]
