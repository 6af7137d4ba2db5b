"""Reading commands and parameters: what is taken, what is refused and in which words (F3, Q03)."""

import copy
import string
from typing import Any, cast

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validators

from peer.door.catalogue import Catalogue, CommandEntry, QueryEntry
from peer.door.expected import MAX_ECHO, looks_secret
from peer.door.validation import (
    MAX_DEPTH,
    MAX_PROBLEMS,
    Check,
    Envelope,
    Problems,
    check_data,
    check_query,
    parse_object,
    read_command,
)

CATALOGUE = Catalogue.load("https://door.example")
DEPLOYMENT = "dep-3f9c2Lk8QmZ1xT7a"
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _entry(command_type: str) -> CommandEntry:
    entry = CATALOGUE.command(command_type)
    assert entry is not None
    return entry


def _command(**changes: Any) -> dict[str, Any]:
    """A whole and valid command; a change to None takes the attribute out."""
    envelope = {
        "specversion": "1.0",
        "id": "7b0e6f5e-3f3c-4a53-9f43-0c1c5f0f9a11",
        "source": "urn:agent",
        "type": "UndeployModel",
        "datacontenttype": "application/json",
        "dataschema": "https://door.example/commands/undeploy-model/1.0",
        "time": "2026-01-31T12:00:00.123Z",
        "data": {"deployment": DEPLOYMENT},
        **changes,
    }
    return {name: value for name, value in envelope.items() if value is not None}


def _refused(body: bytes | dict[str, Any]) -> Problems:
    found = read_command(body if isinstance(body, bytes) else orjson.dumps(body), CATALOGUE)
    assert isinstance(found, Problems), found
    return found


def _read(**changes: Any) -> Envelope:
    found = read_command(orjson.dumps(_command(**changes)), CATALOGUE)
    assert isinstance(found, Envelope), found
    return found


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": ""}, "UndeployModel"),
        ({"dataschema": "https://door.example/commands/undeploy-model/9.0"}, "UndeployModel"),
        ({"data": {}}, "UndeployModel"),
        ({"type": "MadeUp"}, None),
        ({"type": None}, None),
        ({"type": 7, "id": ""}, None),
        ({"type": ["UndeployModel"]}, None),
    ],
)
def test_what_is_refused_keeps_its_type_where_that_is_one_of_the_doors(
    changes: dict[str, Any], named: str | None
) -> None:
    """For the counts of what is refused, in which nothing of a sender's own may stand."""
    assert _refused(_command(**changes)).type == named
    assert _refused(b"{").type is None


def test_a_whole_command_is_read() -> None:
    envelope = _read()
    assert envelope.entry is _entry("UndeployModel")
    assert envelope.id == "7b0e6f5e-3f3c-4a53-9f43-0c1c5f0f9a11"
    assert envelope.correlationid is None
    assert envelope.data == {"deployment": DEPLOYMENT}
    assert _read(correlationid="order-7").correlationid == "order-7"


@pytest.mark.parametrize(
    "changes",
    [
        {"traceparent": "00-ab", "subject": 5, "data_base64": None, "X": {"deep": [1, 2]}},
        {"source": "svc"},
        {"source": "../relative"},
        {"time": "2026-01-31T12:00:00+05:30"},
        {"id": "é" * 256},
        {f"ext{number}": number for number in range(56)},
    ],
)
def test_what_the_profile_leaves_open_is_taken(changes: dict[str, Any]) -> None:
    assert _read(**changes).data == {"deployment": DEPLOYMENT}


@pytest.mark.parametrize("name", sorted(_command()))
def test_every_attribute_is_required(name: str) -> None:
    refused = _refused(_command(**{name: None}))
    assert refused.code == "INVALID_ENVELOPE"
    assert [problem.pointer for problem in refused.found] == [f"/{name}"]


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"specversion": "0.3"}, "/specversion", 'expected 1.0; got "0.3"'),
        ({"datacontenttype": "text/plain"}, "/datacontenttype", "expected application/json"),
        ({"id": ""}, "/id", "a string of 1 to 256 characters"),
        ({"id": "a" * 257}, "/id", "got a string of 257 characters"),
        ({"id": "a\nb"}, "/id", "matching"),
        ({"correlationid": "a\x85b"}, "/correlationid", "matching"),
        ({"correlationid": ""}, "/correlationid", "got a string of 0 characters"),
        ({"source": "not a uri"}, "/source", "a URI or a relative reference"),
        ({"type": 5}, "/type", "expected a string of 1 to 128 characters; got a number"),
        ({"type": "T" * 129}, "/type", "got a string of 129 characters"),
        ({"time": "yesterday"}, "/time", "an RFC 3339 date and time"),
        ({"time": "2026-01-31T12:00:00"}, "/time", "such as 2026-01-31T12:00:00Z"),
        ({"data": [1]}, "/data", "expected an object; got a list of 1 item"),
        ({"dataschema": "commands/x"}, "/dataschema", "https://door.example/commands/undeploy-model/1.0"),
        ({f"ext{number}": 1 for number in range(57)}, "", "an object of at most 64 members"),
        ({f"ext{number}": 1 for number in range(900)}, "", "an object of at most 64 members"),
    ],
)
def test_a_wrong_attribute_is_named_with_what_was_expected(
    changes: dict[str, Any], pointer: str, words: str
) -> None:
    refused = _refused(_command(**changes))
    assert refused.code == "INVALID_ENVELOPE"
    assert [problem.pointer for problem in refused.found] == [pointer]
    assert words in refused.found[0].message


def test_a_missing_dataschema_is_answered_with_the_one_to_send() -> None:
    refused = _refused(_command(dataschema=None))
    expected = "expected https://door.example/commands/undeploy-model/1.0, the schema of UndeployModel"
    assert refused.found[0].message == expected


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", "INVALID_JSON", "empty"),
        (b"  \n", "INVALID_JSON", "empty"),
        (b"{", "INVALID_JSON", "not JSON"),
        (b'{"a": NaN}', "INVALID_JSON", "not JSON"),
        (b'{"a": 1e999}', "INVALID_JSON", "not JSON"),
        (b'{"a": "\xff"}', "INVALID_JSON", "not JSON"),
        (b'{"a": "\\ud800"}', "INVALID_JSON", "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "INVALID_JSON", "not JSON"),
        (b"[]", "INVALID_ENVELOPE", "got a list of 0 items"),
        (b'"text"', "INVALID_ENVELOPE", "got a string of 4 characters"),
        (b"null", "INVALID_ENVELOPE", "got null"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(body: bytes, code: str, words: str) -> None:
    refused = _refused(body)
    assert refused.code == code
    assert words in refused.message


def _nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def test_depth_is_bounded() -> None:
    assert isinstance(parse_object(_nested(MAX_DEPTH)), dict)
    refused = parse_object(_nested(MAX_DEPTH + 1))
    assert isinstance(refused, Problems)
    assert "at most 32 levels" in refused.message
    assert isinstance(parse_object(b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}"), Problems)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"type":"A","type":"B"}', '"type"'),
        (b'{"a":{"k":1,"\\u006b":2}}', '"k"'),
        (b'{"a":[{"x":":"},{"x":1,"y":":","x":2}]}', '"x"'),
        (b'{"bp_secret":1,"bp_secret":2}', "of a member"),
    ],
)
def test_a_name_twice_in_one_object_is_refused(body: bytes, name: str) -> None:
    refused = parse_object(body)
    assert isinstance(refused, Problems)
    assert refused.code == "INVALID_JSON"
    assert f"the name {name} stands twice" in refused.message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('a"\\:,{}[]é\n', max_size=6),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.text('ab":\\', max_size=3), below, max_size=4)
    ),
    max_leaves=12,
)


@QUIET
@given(st.dictionaries(st.text('ab":\\', max_size=3), _JSON, max_size=4), st.booleans())
def test_json_with_no_name_twice_is_read_as_it_is(document: dict[str, Any], indented: bool) -> None:
    body = orjson.dumps(document, option=orjson.OPT_INDENT_2 if indented else 0)
    assert parse_object(body) == document


def test_an_unknown_type_is_answered_with_the_one_that_was_meant() -> None:
    refused = _refused(_command(type="deploy-model"))
    assert refused.code == "UNKNOWN_COMMAND"
    assert refused.found[0].pointer == "/type"
    assert 'got "deploy-model": send DeployModel' in refused.message
    assert "https://door.example/commands lists them" in _refused(_command(type="Dance")).message


@pytest.mark.parametrize(
    "dataschema",
    [
        "https://door.example/commands/undeploy-model/1.1",
        "https://door.example/commands/deploy-model/1.0",
        "https://other.example/commands/undeploy-model/1.0",
        "https://door.example//commands/undeploy-model/1.0",
    ],
)
def test_a_dataschema_of_another_type_version_or_door_is_refused(dataschema: str) -> None:
    refused = _refused(_command(dataschema=dataschema))
    assert refused.code == "UNKNOWN_SCHEMA"
    assert refused.found[0].pointer == "/dataschema"
    assert "expected https://door.example/commands/undeploy-model/1.0" in refused.message
    assert dataschema in refused.message


def _data_problems(command_type: str, data: dict[str, Any]) -> dict[str, str]:
    refused = check_data(_entry(command_type), data)
    assert isinstance(refused, Problems), refused
    assert refused.code == "SCHEMA_VALIDATION"
    return {problem.pointer: problem.message for problem in refused.found}


def test_every_fault_of_the_data_is_told_at_once() -> None:
    problems = _data_problems(
        "DeployModel", {"engine": "llama.cpp", "memory_bytes": 0, "device": "", "gpu": 1, "isolation": None}
    )
    assert problems == {
        "/data/model": "is missing; expected a string of 1 to 256 characters",
        "/data/engine": 'expected one of llamacpp, ollama, vllm; got "llama.cpp"',
        "/data/memory_bytes": "expected an integer from 1 to 1125899906842624; got 0",
        "/data/device": "expected a string of 1 to 64 characters; got a string of 0 characters",
        "/data/gpu": "is not known here; expected only model, engine, memory_bytes, device, isolation",
        "/data/isolation": "expected one of process, container, user-namespace, vm; got null",
    }


@pytest.mark.parametrize(
    ("command_type", "data", "pointer", "words"),
    [
        ("UndeployModel", {"deployment": "dep-short"}, "/data/deployment", 'got "dep-short"'),
        ("UndeployModel", {"deployment": DEPLOYMENT + "\n"}, "/data/deployment", "matching ^dep-"),
        ("StopJob", {"job": DEPLOYMENT}, "/data/job", "matching ^job-"),
        ("RevokeAgent", {"holder": "h-1"}, "/data/holder", "is not known here; expected nothing"),
        ("RunJob", {"image": "i", "env": {"1BAD": "x"}}, "/data/env", "has a name that may not be"),
        ("RunJob", {"image": "i", "env": {"A": 5}}, "/data/env/A", "at most 8192 characters; got a number"),
        (
            "RunJob",
            {"image": "i", "command": []},
            "/data/command",
            "a list of 1 to 256 items; got a list of 0",
        ),
        ("RunJob", {"image": "i", "command": ["x"] * 300}, "/data/command", "of 1 to 256 items"),
        ("RunJob", {"image": "i", "env": {f"V{n}": "" for n in range(200)}}, "/data/env", "128 members"),
    ],
)
def test_a_fault_in_the_data_is_told_where_it_is(
    command_type: str, data: dict[str, Any], pointer: str, words: str
) -> None:
    problems = _data_problems(command_type, data)
    assert words in problems[pointer]
    assert list(problems) == [pointer]


def test_prompts_are_told_by_place_and_size_and_never_repeated() -> None:
    private = "my account number is 42"
    problems = _data_problems(
        "Prompt",
        {
            "deployment": DEPLOYMENT,
            "messages": [{"role": private, "content": [private]}, {"role": "user", "content": ""}, private],
            "temperature": 3,
            "stop": ["", private * 20],
        },
    )
    assert problems["/data/messages/0/content"].endswith("got a list of 1 item")
    assert problems["/data/messages/2"].endswith(f"got a string of {len(private)} characters")
    assert problems["/data/temperature"] == "expected a number from 0 to 2; got 3"
    assert set(problems) == {
        *(
            "/data/messages/0/role",
            "/data/messages/0/content",
            "/data/messages/1/content",
            "/data/messages/2",
        ),
        *("/data/temperature", "/data/stop/0", "/data/stop/1"),
    }
    others = [message for pointer, message in problems.items() if not pointer.endswith("role")]
    assert not any(private in message for message in others)


def test_a_whole_number_written_as_a_fraction_becomes_one() -> None:
    data = check_data(_entry("DeployModel"), {"model": "m", "engine": "ollama", "memory_bytes": 1024.0})
    assert isinstance(data, dict)
    assert data == {"model": "m", "engine": "ollama", "memory_bytes": 1024}
    assert type(data["memory_bytes"]) is int
    prompt = {"deployment": DEPLOYMENT, "messages": [{"role": "user", "content": "x"}], "temperature": 1.0}
    assert check_data(_entry("Prompt"), prompt) == prompt


def test_problems_are_bounded_and_say_that_there_are_more() -> None:
    refused = _refused(_command(**_typed("RunJob"), data={f"k{n}": n for n in range(20_000)}))
    assert len(refused.found) == MAX_PROBLEMS
    assert refused.more
    assert refused.details()["more"] is True
    assert "(31 or more further in details.problems)" in refused.message
    hostile = [{"x": [1] * 50}] * 2_000
    assert len(_refused(_command(**_typed("Prompt"), data={"messages": hostile})).found) == MAX_PROBLEMS


def _typed(command_type: str) -> dict[str, str]:
    return {"type": command_type, "dataschema": _entry(command_type).dataschema}


def test_details_are_plain_json() -> None:
    refused = _refused(_command(id=5, time=None))
    assert orjson.loads(orjson.dumps(refused.details())) == {
        "problems": [{"pointer": p.pointer, "message": p.message} for p in refused.found]
    }
    assert refused.message.endswith("(1 further in details.problems)")


@pytest.mark.parametrize(
    "secret",
    [
        "bp_" + "a" * 43,
        "Bearer abc",
        "ghp_0123456789abcdefABCDEF",
        "-----BEGIN KEY",
        "eyJhbGciOiJIUzI1NiJ9.e30.x",
    ],
)
def test_what_may_be_a_credential_is_never_repeated(secret: str) -> None:
    assert looks_secret(secret)
    bodies = [
        _command(type=secret),
        _command(specversion=secret, id=["x"], time=secret),
        _command(**_typed("DeployModel"), data={"engine": secret, secret: 1, "device": {secret: secret}}),
        _command(**_typed("RunJob"), data={"image": "i", "env": {secret: 1}, "isolation": secret}),
        _command(dataschema=f"https://door.example/commands?access_token={secret}".replace(" ", "")),
    ]
    for body in bodies:
        told = str(_refused(body).details())
        assert secret not in told
        assert secret.replace(" ", "") not in told


@QUIET
@given(st.text(string.printable + "é\x00\u2028", min_size=MAX_ECHO + 1, max_size=400))
def test_no_message_repeats_more_than_it_may(text: str) -> None:
    body = _command(
        **_typed("DeployModel"), data={"engine": text, text: text, "model": [text], "device": {"a": text}}
    )
    for problem in _refused(body).found:
        assert text not in problem.message
        assert text[: MAX_ECHO + 1] not in problem.message + problem.pointer
        assert len(problem.pointer) <= 512


QUERY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["deployment"],
    "properties": {
        "deployment": {"type": "string", "maxLength": 68},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10},
        "ended": {"type": "boolean"},
    },
}


@pytest.fixture
def query() -> QueryEntry:
    types = {name: node["type"] for name, node in QUERY_SCHEMA["properties"].items()}
    return QueryEntry(
        "q", "1.0", "https://door.example/queries/q/1.0", Check.compile(QUERY_SCHEMA), {}, types, {}
    )


def test_parameters_become_what_their_schema_declares(query: QueryEntry) -> None:
    pairs = [("deployment", "10"), ("limit", "10"), ("ended", "true")]
    assert check_query(query, pairs) == {"deployment": "10", "limit": 10, "ended": True}
    assert check_query(query, [("ended", "false"), ("deployment", "")]) == {"ended": False, "deployment": ""}


@pytest.mark.parametrize(
    ("pairs", "pointer", "words"),
    [
        ([], "/deployment", "is missing"),
        ([("deployment", "a"), ("deployment", "a")], "/deployment", "more than once"),
        ([("deployment", "a"), ("colour", "red")], "/colour", "expected only deployment, limit, ended"),
        ([("deployment", "a"), ("limit", "ten")], "/limit", 'an integer from 1 to 10; got "ten"'),
        ([("deployment", "a"), ("limit", "1.0")], "/limit", 'an integer from 1 to 10; got "1.0"'),
        ([("deployment", "a"), ("limit", "٣")], "/limit", r'an integer from 1 to 10; got "\u0663"'),
        ([("deployment", "a"), ("limit", "9" * 30)], "/limit", "an integer from 1 to 10; got"),
        ([("deployment", "a"), ("limit", "11")], "/limit", "an integer from 1 to 10; got 11"),
        ([("deployment", "a"), ("ended", "1")], "/ended", "expected true or false; got a string"),
    ],
)
def test_bad_parameters_are_refused(
    query: QueryEntry, pairs: list[tuple[str, str]], pointer: str, words: str
) -> None:
    refused = check_query(query, pairs)
    assert isinstance(refused, Problems)
    assert [problem.pointer for problem in refused.found] == [pointer]
    assert words in refused.found[0].message


def test_a_query_without_parameters_takes_none() -> None:
    entry = CATALOGUE.query("get-hardware-state")
    assert entry is not None
    assert check_query(entry, []) == {}
    assert isinstance(check_query(entry, [("device", "gpu-0")]), Problems)
    workloads = CATALOGUE.query("get-workloads")
    assert workloads is not None
    assert check_query(workloads, [("deployment", DEPLOYMENT)]) == {"deployment": DEPLOYMENT}
    assert isinstance(check_query(workloads, [("deployment", "all")]), Problems)


def test_a_broken_schema_is_a_fault_of_the_build() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Check.compile({"type": "nonsense"})


# Two implementations of JSON Schema read our documents alike: a client's own validator agrees with the door.

COMMANDS = sorted(CATALOGUE.command_types({"all"}))


def _whole_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Any:
    """JSON Schema's `$` ends a text; Python's also stands before a last line feed."""
    ecma = pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern
    return Draft202012Validator.VALIDATORS["pattern"](validator, ecma, instance, schema)


Other = validators.extend(Draft202012Validator, {"pattern": _whole_pattern})


def _values(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values near a schema node: most of them valid, many at a bound or just past it."""
    if "enum" in node:
        return st.sampled_from([*node["enum"], "other", None, 1])
    match node.get("type"):
        case "string":
            low, high = node.get("minLength", 0), node["maxLength"]
            lengths = st.sampled_from([max(low - 1, 0), low, low + 1, high, high + 1])
            texts = lengths.map(lambda size: "é" * size if size < 300 else "x" * min(size, 9_000))
            return (
                st.sampled_from([DEPLOYMENT, DEPLOYMENT + "\n", "job-" + "a" * 16, "", "A_1", "ok"]) | texts
            )
        case "integer" | "number":
            low, high = node["minimum"], node["maximum"]
            return st.sampled_from(
                [low - 1, low, float(low), low + 0.5, high, high + 1, True, "1", 1e300, 2**63]
            )
        case "array":
            items = _values(node["items"])
            return st.lists(items, max_size=3) | items.map(lambda one: [one] * (node["maxItems"] + 1))
        case _:
            return _objects(node)


def _objects(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    known = {name: _values(child) for name, child in node.get("properties", {}).items()}
    required = {name: known[name] for name in node.get("required", ())}
    whole = st.fixed_dictionaries(required, optional={n: s for n, s in known.items() if n not in required})
    if isinstance(node.get("additionalProperties"), dict):
        names = st.sampled_from(["A", "A_1", "1A", "", "A\n", "é", "V" * 129])
        return st.dictionaries(names, _values(node["additionalProperties"]), max_size=3)
    extra = st.dictionaries(st.sampled_from(["extra", "", "Model"]), st.none(), max_size=1)
    return st.one_of(whole, whole, st.builds(lambda one, more: {**one, **more}, whole, extra))


@st.composite
def _mutated(draw: st.DrawFn, command_type: str) -> Any:
    """An example of the document, with one value somewhere replaced or one member taken out."""
    schema = cast("dict[str, Any]", _entry(command_type).check.schema)
    document = copy.deepcopy(draw(st.sampled_from(schema["examples"])))
    containers: list[Any] = [document]
    for one in containers:
        containers.extend(
            v for v in (one.values() if isinstance(one, dict) else one) if isinstance(v, dict | list)
        )
    chosen = draw(st.sampled_from(containers))
    key = draw(st.sampled_from([*(chosen if isinstance(chosen, dict) else range(len(chosen))), "new"]))
    junk = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text()
    )
    if isinstance(chosen, dict):
        chosen[key] = draw(junk | st.lists(junk, max_size=2))
        if draw(st.booleans()):
            del chosen[key]
    elif key != "new":
        chosen[key] = draw(junk)
    return document


@pytest.mark.parametrize("command_type", COMMANDS)
@QUIET
@given(data=st.data())
def test_two_validators_agree_on_every_command(command_type: str, data: st.DataObject) -> None:
    entry = _entry(command_type)
    schema = cast("dict[str, Any]", entry.check.schema)
    document = data.draw(st.one_of(_objects(schema), _mutated(command_type)))
    other = Other(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).is_valid(document)
    ours = check_data(entry, document)
    assert isinstance(ours, dict) is other, (document, ours)


@pytest.mark.parametrize("command_type", COMMANDS)
def test_the_generator_makes_valid_and_invalid_documents(command_type: str) -> None:
    seen: set[bool] = set()

    @settings(max_examples=80, deadline=None, database=None, derandomize=True)
    @given(_mutated(command_type))
    def look(document: Any) -> None:
        seen.add(isinstance(check_data(_entry(command_type), document), dict))

    look()
    assert seen == {True, False}
