"""Filling a command's data from its document, from what was learnt on the way, and from what a person said.

No name is known in advance. A field's value is looked for, in this order:

1. a number the person gave for it, by a word of its name;
2. a field of that name in the facts told so far;
3. a field of that name in one record of what a query answered, the record that knows most of the fields;
4. a field of that record which the description of the field in hand speaks of;
5. the one value it may have;
6. an example of the document: one that agrees with all that was found, with the person's words in place of
   the example's where the field has room for sentences.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from acceptance.documents import fits, is_free_text, is_number, problems_of, room
from acceptance.problems import Faulty, Refused
from acceptance.shorten import is_plain

SPOKEN_OF = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
"""A field's name as it stands in prose: words joined by underscores."""
ROOM_FOR_WORDS = 1000
"""A text with room for this many characters is for sentences; one with less is for names."""


@dataclass(frozen=True)
class Wishes:
    """What the person said, in the person's words."""

    question: str
    prefer: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """By a word: memory, tokens, temperature."""


@dataclass
class Known:
    """What was learnt on the way."""

    told: dict[str, tuple[Any, str]] = field(default_factory=dict)
    """From facts, by field: the value told last, and the type of the fact."""
    answers: list[tuple[str, Any]] = field(default_factory=list)
    """What queries answered, by their names."""

    def take_fact(self, kind: str, data: Mapping[str, Any]) -> None:
        """Remember what a fact said."""
        for name, value in data.items():
            self.told[name] = (value, kind)


@dataclass
class Filled:
    """Data that fits its document, and how each field was found."""

    data: dict[str, Any]
    why: dict[str, str]
    asks: bool = False
    """Whether the person's question is in it."""


def fill(schema: dict[str, Any], known: Known, wishes: Wishes) -> Filled:
    """Make data for a document.

    Raises:
        Refused: a required field's value is nowhere to be found.
        Faulty: everything was found and the document refuses it all the same.
    """
    required = list(schema.get("required", []))
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    record, record_of = _best_record(required, properties, known, wishes)
    filled = Filled({}, {})
    for name in required:
        _find(name, properties.get(name, {}), filled, _Sources(known, wishes, record, record_of))
    for name in required:
        if name not in filled.data:
            _take_example(name, schema, filled, wishes, record_of)
    for name, item in properties.items():
        if name not in filled.data and (number := _wished(name, item, wishes)) is not None:
            filled.data[name], filled.why[name] = number, "the person said so"
    if problems := problems_of(schema, filled.data):
        raise Faulty(f"what the documents led to is refused by the document itself: {'; '.join(problems)}")
    return filled


@dataclass(frozen=True)
class _Sources:
    known: Known
    wishes: Wishes
    record: dict[str, Any]
    record_of: str


def _find(name: str, item: dict[str, Any], filled: Filled, sources: _Sources) -> None:
    """Fill a field from what is known; leave it where nothing is."""

    def found(value: Any, why: str) -> None:
        filled.data[name], filled.why[name] = value, why

    record = sources.record
    if (number := _wished(name, item, sources.wishes)) is not None:
        return found(number, "the person said so")
    if name in sources.known.told:
        value, kind = sources.known.told[name]
        if fits(item, value):
            return found(value, f"{kind} told it")
    if name in record and fits(item, record[name]):
        return found(record[name], f"{sources.record_of} answered it")
    if is_number(item):
        for other in SPOKEN_OF.findall(str(item.get("description", ""))):
            if other != name and other in record and fits(item, record[other]):
                return found(
                    record[other], f"its description names {other}, which {sources.record_of} answered"
                )
    if "const" in item or len(item.get("enum", ())) == 1:
        return found(item.get("const", (item.get("enum") or [None])[0]), "the one value it may have")
    if is_free_text(item) and room(item) >= ROOM_FOR_WORDS:
        filled.asks = True
        return found(sources.wishes.question, "the person's words")
    return None


def _take_example(name: str, schema: dict[str, Any], filled: Filled, wishes: Wishes, record_of: str) -> None:
    """Fill a field from the simplest of the document's examples that contradict nothing found so far."""
    item = schema.get("properties", {}).get(name, {})
    choices = [other for other, bound in schema.get("properties", {}).items() if "enum" in bound]
    shown = [
        example[name]
        for example in schema.get("examples", [])
        if name in example
        and all(example.get(other) == filled.data[other] for other in choices if other in filled.data)
    ]
    if not shown:
        description = item.get("description", "it has no description")
        raise Refused(
            f"nothing says what {name} is to be ({record_of or 'no query'} answered it): {description}"
        )
    shape = min(shown, key=lambda value: len(str(value)))
    value = _with_words(shape, item, wishes.question)
    spoken = value != shape
    filled.asks = filled.asks or spoken
    filled.data[name] = value
    filled.why[name] = "an example of the document" + (", with the person's words" if spoken else "")


def _wished(name: str, item: dict[str, Any], wishes: Wishes) -> float | int | None:
    """The person's number for this field, where one of the field's words was said."""
    if not is_number(item):
        return None
    for word in name.lower().split("_"):
        if word in wishes.numbers:
            number = wishes.numbers[word]
            value = int(number) if number == int(number) else number
            if problems := problems_of(item, value):
                raise Refused(f"{word}={value} is more than {name} takes: {'; '.join(problems)}")
            return value
    return None


def _best_record(
    required: list[str], properties: dict[str, dict[str, Any]], known: Known, wishes: Wishes
) -> tuple[dict[str, Any], str]:
    """The record that knows most of what is needed; the person's preference goes before that."""
    best: tuple[tuple[int, int], dict[str, Any], str] = ((0, 0), {}, "")
    for query, answer in known.answers:
        for record in records(answer):
            usable = [
                name for name in required if name in record and fits(properties.get(name, {}), record[name])
            ]
            if not usable:
                continue
            preferred = bool(wishes.prefer) and any(
                wishes.prefer.lower() in str(record[name]).lower() for name in usable
            )
            score = (int(preferred), len(usable))
            if score > best[0]:
                best = (score, record, query)
    preferred_at_all = best[0][0]
    if wishes.prefer and best[1] and not preferred_at_all:
        raise Refused(
            f"nothing here is called {wishes.prefer}; without that wish {best[2]} has something to offer"
        )
    return best[1], best[2]


def records(answer: Any, around: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Every object in an answer, with the plain fields of the objects it lies in."""
    if isinstance(answer, list):
        for item in answer:
            yield from records(item, around)
    elif isinstance(answer, dict):
        plain = {name: value for name, value in answer.items() if is_plain(value)}
        own = {**(around or {}), **plain}
        yield own
        for value in answer.values():
            if not is_plain(value):
                yield from records(value, own)


def _with_words(shape: Any, item: dict[str, Any], words: str) -> Any:
    """An example with the person's words for its own, in the last of the roomiest free texts it has."""
    places = list(_texts(shape, item, ()))
    if not places:
        return shape
    most = max(size for _, size in places)
    place = [path for path, size in places if size == most][-1]
    return _replaced(shape, place, words)


def _texts(
    value: Any, schema: dict[str, Any], path: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], int]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, schema.get("properties", {}).get(name, {}), (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, schema.get("items", {}), (*path, index))
    elif isinstance(value, str) and is_free_text(schema) and room(schema) >= ROOM_FOR_WORDS:
        yield path, room(schema)


def _replaced(value: Any, path: tuple[Any, ...], words: str) -> Any:
    if not path:
        return words
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], words)
    return copy
