"""Reading what a client sent: bytes to JSON, JSON to an envelope, an envelope's data against its document.

Nothing here raises for what a client wrote. Each function gives the thing read, or `Problems`: every fault of
that step, each with a JSON pointer and what was expected, so that one answer is enough to mend them all (F3;
conformance W01-W03, K07, K11-K13, S07). The door answers any of them with 400.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import attrs
import jsonschema_rs
import orjson

from peer.door.expected import MAX_ECHO, describe, got, looks_secret, names_secret, segment

if TYPE_CHECKING:
    from peer.door.catalogue import Catalogue, CommandEntry, QueryEntry

Json = dict[str, Any] | list[Any] | str | int | float | bool | None
ProblemCode = Literal[
    "INVALID_JSON", "INVALID_ENVELOPE", "UNKNOWN_COMMAND", "UNKNOWN_SCHEMA", "SCHEMA_VALIDATION"
]

MAX_PROBLEMS: Final = 32
"""Faults that one refusal lists."""
MAX_DEPTH: Final = 32
"""Objects and lists within each other, the outermost counted."""

_MAX_POINTER: Final = 512
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
# What is wrong with a value that must have a form or lie in a range is seen only with the value at hand. All
# else is told by type and size, so that what a person wrote (a prompt, a variable's value) is never repeated.
_FORMS: Final = frozenset({"enum", "const", "pattern", "format", "minimum"})


@attrs.frozen
class Problem:
    """One fault: `pointer` (RFC 6901, from the top of the body, names cut) and what was expected there."""

    pointer: str
    message: str


@attrs.frozen
class Problems:
    """Why something was refused: the 1 to `MAX_PROBLEMS` faults of one step; `more`: some are left out.

    `type` is a refused command's where it named one of the door's, and None of what else is refused.
    """

    code: ProblemCode
    found: tuple[Problem, ...]
    more: bool = False
    type: str | None = None

    @property
    def message(self) -> str:
        """One line for people: the first fault, and how many others there are."""
        first, others = self.found[0], len(self.found) - 1
        line = f"{first.pointer}: {first.message}" if first.pointer else first.message
        if not others:
            return line
        return f"{line} ({others}{' or more' if self.more else ''} further in details.problems)"

    def details(self) -> dict[str, Any]:
        """The refusal's `details` object: `{problems: [{pointer, message}], more?}`."""
        found = [attrs.asdict(problem) for problem in self.found]
        return {"problems": found, "more": True} if self.more else {"problems": found}


@attrs.frozen
class Envelope:
    """A command as a client sent it, whole and valid; `correlationid` is None where none was sent (K09)."""

    entry: "CommandEntry"
    id: str
    source: str
    type: str
    time: str
    dataschema: str
    correlationid: str | None
    data: dict[str, Any]


@attrs.frozen
class Check:
    """One JSON Schema, compiled once: draft 2020-12, formats asserted, every value bounded, no `$ref`."""

    schema: Mapping[str, Any]
    _compiled: jsonschema_rs.Draft202012Validator

    @classmethod
    def compile(cls, schema: Mapping[str, Any]) -> "Check":
        """Compile `schema`; raises ValueError (jsonschema-rs's own) where it is no JSON Schema."""
        return cls(schema, jsonschema_rs.Draft202012Validator(dict(schema), validate_formats=True))

    def problems(self, value: Json, code: ProblemCode, at: str = "") -> Problems | None:
        """Every fault of `value` under `code`, or None where it has none; pointers start with `at`."""
        if self._compiled.is_valid(value):
            return None
        # One value that fails several keywords of one node (type and enum, say) has one fault.
        found: dict[tuple[str, str], Problem] = {}
        for problem, expected in self._faults(value, at):
            key = problem.pointer, expected
            if len(found) == MAX_PROBLEMS and key not in found:
                return Problems(code, tuple(found.values()), more=True)
            found.setdefault(key, problem)
        return Problems(code, tuple(found.values()))

    def _faults(self, value: Json, at: str) -> Iterator[tuple[Problem, str]]:
        """Each fault, with what was expected there."""
        for error in self._compiled.iter_errors(_narrowed(value, self.schema)):
            node = _node(self.schema, error.schema_path[:-1])
            pointer = at + "".join(segment(part) for part in error.instance_path)
            match error.kind:
                case jsonschema_rs.ValidationErrorKind.Required(property=name):
                    expected = describe(_node(node, ["properties", name]))
                    yield _problem(pointer + segment(name), f"is missing; expected {expected}"), expected
                case jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=names):
                    known = ", ".join(node.get("properties", {}))
                    expected = f"expected only {known}" if known else "expected nothing"
                    for name in names[: MAX_PROBLEMS + 1]:
                        said = f"is not known here; {expected}"
                        yield _problem(pointer + segment(name), said), expected
                case jsonschema_rs.ValidationErrorKind.PropertyNames():
                    expected = describe(_node(self.schema, _through(error.schema_path, "propertyNames")))
                    yield _problem(pointer, f"has a name that may not be; expected {expected}"), expected
                case _:
                    expected = describe(node)
                    echo = not _FORMS.isdisjoint(node) and not names_secret(pointer)
                    shown = got(_at(value, error.instance_path), echo=echo)
                    yield _problem(pointer, f"expected {expected}; got {shown}"), expected


def parse_object(body: bytes) -> dict[str, Any] | Problems:
    """Read a request body as one JSON object: bounded in depth, no name twice in one object, no NaN.

    orjson takes the last of two equal names where another reader may take the first. A body that two readers
    understand differently is refused (K13).
    """
    if not body.strip():
        return _refused("INVALID_JSON", "the body is empty; expected one envelope as a JSON object")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # Only the reason and the place: the error's `doc` holds the whole body.
        return _refused("INVALID_JSON", f"the body is not JSON: {str(error)[:120]}; expected UTF-8 JSON text")
    members = _members(document)
    if members is None:
        return _refused("INVALID_JSON", f"the body nests too deep; expected at most {MAX_DEPTH} levels")
    # Outside of strings a colon stands once for each member that was written.
    if body.count(b":") != members and _STRING.sub(b"", body).count(b":") != members:
        name = _repeated(body)
        return _refused("INVALID_JSON", f"the name {name} stands twice in one object; expected it once")
    if not isinstance(document, dict):
        return _refused("INVALID_ENVELOPE", f"expected one envelope as a JSON object; got {got(document)}")
    return document


def read_envelope(document: dict[str, Any], catalogue: "Catalogue") -> Envelope | Problems:
    """Check a command's CloudEvents attributes, find its entry by `type`, hold `dataschema` to the entry.

    Attributes outside the profile are ignored (W02); dataschema is compared and never fetched (K11).
    """
    if problems := catalogue.envelope.problems(document, "INVALID_ENVELOPE"):
        return _naming_dataschema(problems, document, catalogue)
    entry = catalogue.command(document["type"])
    if entry is None:
        meant = catalogue.command_meant(document["type"])
        send = f"send {meant}" if meant else f"{catalogue.endpoint}/commands lists them"
        shown = got(document["type"], echo=True)
        return _refused(
            "UNKNOWN_COMMAND", f"expected a command type of this door; got {shown}: {send}", "/type"
        )
    if document["dataschema"] != entry.dataschema:
        shown = got(document["dataschema"], echo=True)
        expected = f"expected {entry.dataschema}, the schema of {entry.command_type}; got {shown}"
        return _refused("UNKNOWN_SCHEMA", expected, "/dataschema")
    return Envelope(
        entry=entry,
        id=document["id"],
        source=document["source"],
        type=document["type"],
        time=document["time"],
        dataschema=document["dataschema"],
        correlationid=document.get("correlationid"),
        data=document["data"],
    )


def check_data(entry: "CommandEntry", data: dict[str, Any]) -> dict[str, Any] | Problems:
    """Hold a command's data to its document; gives the data, with `1.0` as `1` where an integer is meant."""
    if problems := entry.check.problems(data, "SCHEMA_VALIDATION", at="/data"):
        return problems
    # JSON Schema counts 1.0 as an integer, and some clients write every number so.
    whole = {name: int(value) for name, value in data.items() if name in entry.integers}
    return {**data, **whole}


def read_command(body: bytes, catalogue: "Catalogue") -> Envelope | Problems:
    """All of the above for one request body; the first step that finds faults ends the reading."""
    document = parse_object(body)
    if isinstance(document, Problems):
        return document
    envelope = read_envelope(document, catalogue)
    if isinstance(envelope, Problems):
        named = document.get("type")
        is_ours = isinstance(named, str) and catalogue.command(named) is not None
        return attrs.evolve(envelope, type=named) if is_ours else envelope
    data = check_data(envelope.entry, envelope.data)
    if isinstance(data, Problems):
        return attrs.evolve(data, type=envelope.type)
    return attrs.evolve(envelope, data=data)


def check_query(entry: "QueryEntry", pairs: Iterable[tuple[str, str]]) -> dict[str, Any] | Problems:
    """Read a query's parameters: text becomes the type its schema declares, then the schema decides (Q03).

    `pairs` are the decoded names and values as they came. A name given twice is refused, and so is one that
    the query does not have.
    """
    values: dict[str, Any] = {}
    repeated: dict[str, Problem] = {}
    for name, text in pairs:
        if name in values and len(repeated) < MAX_PROBLEMS:
            repeated[name] = _problem(segment(name), "is given more than once; expected it once")
        values[name] = _typed(text, entry.parameter_types.get(name))
    if repeated:
        return Problems("SCHEMA_VALIDATION", tuple(repeated.values()), more=len(repeated) == MAX_PROBLEMS)
    return entry.check.problems(values, "SCHEMA_VALIDATION") or values


def _naming_dataschema(problems: Problems, document: Mapping[str, Any], catalogue: "Catalogue") -> Problems:
    """`problems`, with the URI to send where dataschema is at fault and the type says which one is meant."""
    named = document.get("type")
    entry = catalogue.command(named) if isinstance(named, str) else None
    if entry is None:
        return problems
    better = Problem("/dataschema", f"expected {entry.dataschema}, the schema of {entry.command_type}")
    found = tuple(better if problem.pointer == better.pointer else problem for problem in problems.found)
    return attrs.evolve(problems, found=found)


def _problem(pointer: str, message: str) -> Problem:
    return Problem(pointer if len(pointer) <= _MAX_POINTER else pointer[: _MAX_POINTER - 1] + "…", message)


def _refused(code: ProblemCode, message: str, pointer: str = "") -> Problems:
    return Problems(code, (Problem(pointer, message),))


def _node(schema: Mapping[str, Any], path: Iterable[str | int]) -> Mapping[str, Any]:
    """The schema node at `path`; an empty one where the path leads to none."""
    node: Any = schema
    for part in path:
        node = node[part] if isinstance(node, list) and isinstance(part, int) else node.get(part, {})
    return node if isinstance(node, dict) else {}


def _through(path: list[str | int], keyword: str) -> list[str | int]:
    """`path` up to `keyword` and with it."""
    return path[: path.index(keyword) + 1]


def _narrowed(value: Json, node: Mapping[str, Any]) -> Json:
    """`value` cut to what `node` can find fault with: one past its bounds, nothing below what it describes.

    jsonschema-rs makes every error, each with a copy of the value it is about, before it gives the first: a
    hostile body of 256 KiB would cost seconds. Faults stay at their places, and the schema's own depth bounds
    the recursion.
    """
    match value:
        case str():
            return value[: node.get("maxLength", len(value)) + 1]
        case list():
            items = node.get("items", {})
            return [_narrowed(item, items) for item in value[: node.get("maxItems", 0) + 1]] if items else []
        case dict():
            known, other = node.get("properties", {}), node.get("additionalProperties")
            kept = {name: _narrowed(value[name], known[name]) for name in known if name in value}
            others = (name for name in value if name not in known)
            below = other if isinstance(other, dict) else {}
            for name in islice(others, node.get("maxProperties", MAX_PROBLEMS) + 1):
                kept[name] = _narrowed(value[name], below)
            return kept
        case _:
            return value


def _at(value: Json, path: Iterable[str | int]) -> Json:
    """What stands in `value` at `path`, which leads somewhere."""
    for part in path:
        value = cast("Any", value)[part]
    return value


def _members(document: Json) -> int | None:
    """How many members all objects in `document` have together; None past `MAX_DEPTH`."""
    members = 0
    level: list[Any] = [document] if isinstance(document, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            values: Iterable[Any] = container
            if isinstance(container, dict):
                members += len(container)
                values = container.values()
            # A loop and `type`: a body may hold 80,000 empty objects, and a generator costs five times it.
            for value in values:
                if type(value) is dict or type(value) is list:
                    below.append(value)  # noqa: PERF401
        level = below
        if not level:
            return members
    return None


def _repeated(body: bytes) -> str:
    """The first name that stands twice in one object of `body`, which is known to have one."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice.append(next(name for place, name in enumerate(names) if name in names[:place]))

    json.loads(body, object_pairs_hook=note)
    name = twice[0]
    return "of a member" if len(name) > MAX_ECHO or looks_secret(name) else json.dumps(name)


def _typed(text: str, kind: str | None) -> Json:
    """The text of a query parameter as `kind`; text that is none stays text, for the schema to refuse."""
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "boolean" and text in {"true", "false"}:
        return text == "true"
    return text
