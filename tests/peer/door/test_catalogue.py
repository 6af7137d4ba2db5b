"""The documents of the door: complete, bounded, in step with each other and with the spec (F2, F9)."""

import re
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from jsonschema import Draft202012Validator
from msgspec import UNSET

from actors.messages.commands import COMMANDS, COMPLETES, structure_command
from actors.messages.events import Event
from peer.door.catalogue import ANY, DOCUMENTS, SCOPES, Catalogue, CatalogueError
from peer.door.validation import Check
from tests.support.best_schemas import best_errors

ENDPOINT = "https://door.example:7777/machine"
ALL = frozenset({"all"})
Node = dict[str, Any]


def _names(kind: str) -> list[str]:
    return sorted(path.stem for path in (DOCUMENTS / kind).glob("*.json"))


def _document(kind: str, name: str) -> Node:
    document: Node = orjson.loads((DOCUMENTS / kind / f"{name}.json").read_bytes())
    return document


def _schemas() -> Iterator[tuple[str, Node]]:
    """Every JSON Schema the door publishes, with a name for it."""
    for kind in ("commands", "events"):
        for name in _names(kind):
            yield f"{kind}/{name}", _document(kind, name)
    for name in _names("queries"):
        query = _document("queries", name)
        yield f"{name} response", query["response"]
        if "parameters" in query:
            yield f"{name} parameters", query["parameters"]


def _nodes(schema: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """A schema node and all below it, with their paths."""
    yield path, schema
    for name, node in schema.get("properties", {}).items():
        yield from _nodes(node, f"{path}/{name}")
    for member in ("items", "additionalProperties", "propertyNames"):
        if isinstance(schema.get(member), dict):
            yield from _nodes(schema[member], f"{path}/({member})")


def _unbounded(node: Node) -> list[str]:
    """What a node leaves open."""
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    needed: set[str] = set()
    for kind in kinds:
        match kind:
            case "string" if "enum" not in node and "const" not in node:
                needed |= {"maxLength"}
            case "integer" | "number":
                needed |= {"minimum", "maximum"}
            case "array":
                needed |= {"maxItems", "items"}
            case "object" if node.get("additionalProperties") is not False:
                needed |= {"maxProperties", "propertyNames", "additionalProperties"}
            case _:
                pass
    return sorted(needed - node.keys())


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue.load(ENDPOINT)


@pytest.mark.parametrize(("name", "schema"), list(_schemas()), ids=lambda value: str(value)[:40])
def test_every_value_of_every_document_is_described_and_bounded(name: str, schema: Node) -> None:
    Draft202012Validator.check_schema(schema)
    for path, node in _nodes(schema):
        assert "$ref" not in node, path
        assert _unbounded(node) == [], path
        assert path == "" or path.endswith("(propertyNames)") or node["description"], path


@pytest.mark.parametrize(("name", "schema"), list(_schemas()), ids=lambda value: str(value)[:40])
def test_no_document_has_what_the_two_validators_read_differently(name: str, schema: Node) -> None:
    known = {
        "$schema",
        "title",
        "description",
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "items",
        "format",
    }
    known |= {"additionalProperties", "propertyNames", "maxProperties", "minItems", "maxItems", "pattern"}
    known |= {"minLength", "maxLength", "minimum", "maximum", "examples"}
    known |= {"commandType", "produces", "completes", "impact", "workflows"}
    for path, node in _nodes(schema):
        assert node.keys() <= known, path


@pytest.mark.parametrize("kind", ["commands", "events"])
def test_examples_are_valid_by_both_validators(kind: str) -> None:
    for name in _names(kind):
        schema = _document(kind, name)
        assert schema["examples"], name
        for example in schema["examples"]:
            assert Check.compile(schema).problems(example, "SCHEMA_VALIDATION") is None, name
            assert Draft202012Validator(schema).is_valid(example), name


def test_events_are_what_the_peer_tells() -> None:
    documents = {
        document["title"]: document for document in (_document("events", name) for name in _names("events"))
    }
    told: dict[str, Any] = {one.__name__: attrs.fields(one) for one in typing.get_args(Event)}
    assert documents.keys() == told.keys()
    for title, fields in told.items():
        assert documents[title]["properties"].keys() == {field.name for field in fields}, title
        always = {field.name for field in fields if field.default is not UNSET}
        assert set(documents[title]["required"]) == always, title


def test_commands_are_what_the_peer_takes(catalogue: Catalogue) -> None:
    assert set(catalogue.command_types(ALL)) == COMMANDS.keys()
    for command_type, kind in COMMANDS.items():
        entry = catalogue.command(command_type)
        assert entry is not None
        assert entry.completes == COMPLETES[command_type]
        document = entry.check.schema
        fields: Any = attrs.fields(kind)
        assert document["properties"].keys() == {field.name for field in fields}, command_type
        always = {field.name for field in fields if field.default is attrs.NOTHING}
        assert set(document.get("required", ())) == always, command_type
        for example in document["examples"]:
            assert isinstance(structure_command(command_type, example), kind)


def test_entries_and_documents_say_the_same(catalogue: Catalogue) -> None:
    commands = orjson.loads(catalogue.commands_for(ALL))["commands"]
    queries = orjson.loads(catalogue.queries_index)["queries"]
    assert [entry["schema"] for entry in commands] == list(
        orjson.loads((DOCUMENTS / "commands.json").read_bytes())
    )
    for kind, entries in (("commands", commands), ("queries", queries)):
        for entry in entries:
            document = _document(kind, f"{entry['schema']}-{entry['version']}")
            shared = ("commandType", "impact", "workflows")
            assert {n: entry.get(n) for n in shared} == {n: document.get(n) for n in shared}, entry["schema"]
            assert document["description"].startswith(entry["description"])
            assert len(entry["description"]) <= 500
            assert entry["dataschema"] == f"{ENDPOINT}/{kind}/{entry['schema']}/{entry['version']}"


def test_commands_name_the_events_they_tell_and_complete_by(catalogue: Catalogue) -> None:
    for command_type in catalogue.command_types(ALL):
        entry = catalogue.command(command_type)
        assert entry is not None
        assert set(entry.produces) <= catalogue.event_dataschemas.keys()
        assert entry.completes <= set(entry.produces)
        assert "CommandFailed" in entry.completes
        document = _document("commands", f"{entry.schema}-{entry.version}")
        assert all(name in document["description"] for name in entry.produces), entry.schema


def test_each_command_says_its_scope_in_words(catalogue: Catalogue) -> None:
    for command_type in catalogue.command_types(ALL):
        entry = catalogue.command(command_type)
        assert entry is not None
        words = (
            "Any key may send it but a metrics key"
            if entry.scope == ANY
            else f"Needs the {entry.scope} scope"
        )
        assert words in entry.listed["description"]


def test_bodies_fit_the_schemas_of_the_spec(catalogue: Catalogue) -> None:
    commands, queries, workflows = (
        "agents/commands.json#/$defs/",
        "agents/queries.json#/$defs/",
        "agents/workflows.json#/$defs/",
    )
    assert best_errors(f"{commands}commandCatalogue", orjson.loads(catalogue.commands_for(ALL))) == []
    assert best_errors(f"{queries}queryCatalogue", orjson.loads(catalogue.queries_index)) == []
    assert best_errors(f"{workflows}workflowIndex", orjson.loads(catalogue.workflows_index)) == []
    for name in _names("queries"):
        assert best_errors(f"{queries}querySchemaDocument", _document("queries", name)) == []
    for name in _names("workflows"):
        body = catalogue.workflow_document(name)
        assert body is not None
        assert best_errors(f"{workflows}workflow", orjson.loads(body)) == []


def test_every_step_of_a_recipe_is_a_live_operation_that_names_the_recipe(catalogue: Catalogue) -> None:
    crosslinks: dict[str, set[str]] = {}
    for name in _names("workflows"):
        body = catalogue.workflow_document(name)
        assert body is not None
        for step in orjson.loads(body)["steps"]:
            kind, schema, version = step["dataschema"].removeprefix(f"{ENDPOINT}/").split("/")
            assert kind == {"command": "commands", "query": "queries"}[step["kind"]]
            found = catalogue.command_document if kind == "commands" else catalogue.query_document
            assert found(schema, version) is not None
            crosslinks.setdefault(f"{kind}/{schema}-{version}", set()).add(name)
    for kind in ("commands", "queries"):
        for name in _names(kind):
            assert set(_document(kind, name).get("workflows", ())) == crosslinks.get(
                f"{kind}/{name}", set()
            ), name


@pytest.mark.parametrize(
    ("scopes", "types"),
    [
        ((), ()),
        (("metrics",), ()),
        (("nonsense",), ()),
        (("prompt",), ("Prompt", "RevokeAgent")),
        (("deploy", "prompt"), ("DeployModel", "UndeployModel", "PullImage", "Prompt", "RevokeAgent")),
        (("workspaces",), ("RevokeAgent",)),
        (("jobs",), ("RunJob", "StopJob", "RevokeAgent")),
        (SCOPES, tuple(COMPLETES)),
        (("all",), tuple(COMPLETES)),
    ],
)
def test_a_key_sees_only_the_commands_it_may_send(
    catalogue: Catalogue, scopes: tuple[str, ...], types: tuple[str, ...]
) -> None:
    listed = orjson.loads(catalogue.commands_for(scopes))["commands"]
    assert tuple(entry["commandType"] for entry in listed) == tuple(t for t in listed_order() if t in types)


def listed_order() -> list[str]:
    table = orjson.loads((DOCUMENTS / "commands.json").read_bytes())
    return [
        str(_document("commands", f"{name}-{row['version']}")["commandType"]) for name, row in table.items()
    ]


def test_bodies_are_made_once_and_unknown_scopes_make_none(catalogue: Catalogue) -> None:
    first = catalogue.commands_for({"deploy"})
    assert catalogue.commands_for(["deploy", "no-such-scope"]) is first
    for number in range(50):
        assert orjson.loads(catalogue.commands_for({f"scope-{number}"})) == {"commands": []}
    assert len(catalogue._commands_by_scopes) == 2


def test_the_workloads_query_opens_with_what_this_version_has() -> None:
    """No order waits yet; what it says of them, it says of `queued`, further down."""
    first, _, more = str(_document("queries", "get-workloads-1.0")["description"]).partition("\n\n")
    assert "order" not in first
    assert "No order waits in this version: queued is empty." in more


def test_documents_are_found_by_name_and_version_alone(catalogue: Catalogue) -> None:
    document = catalogue.command_document("deploy-model", "1.0")
    assert document is not None
    assert orjson.loads(document) == _document("commands", "deploy-model-1.0")
    assert catalogue.command_document("deploy-model", "9.9") is None
    assert catalogue.command_document("no-such", "1.0") is None
    assert catalogue.event_document("prompt-answered", "1.0") is not None
    assert catalogue.event_document("prompt-answered", "2.0") is None
    assert catalogue.query_document("get-workloads", "1.0") is not None
    assert catalogue.query_document("get-workloads", "0.9") is None
    assert catalogue.query("get-workloads") is not None
    assert catalogue.query("get-nothing") is None
    assert catalogue.workflow_document("serve-a-model") is not None
    assert catalogue.workflow_document("commands.json") is None
    assert catalogue.command("deploy-model") is None
    assert catalogue.event_dataschema("PromptAnswered") == f"{ENDPOINT}/events/prompt-answered/1.0"
    assert catalogue.event_dataschema("NoSuchEvent") is None


def test_a_slash_at_the_endpoint_changes_nothing(catalogue: Catalogue) -> None:
    assert Catalogue.load(f"{ENDPOINT}/").commands_for(ALL) == catalogue.commands_for(ALL)


def test_two_doors_share_nothing_but_their_documents() -> None:
    one, other = Catalogue.load("https://a.example"), Catalogue.load("https://b.example/workspaces/ws-1")
    assert b"https://a.example" not in other.commands_for(ALL)
    workflow = other.workflow_document("serve-a-model")
    assert workflow is not None
    assert b"https://b.example/workspaces/ws-1/commands/prompt/1.0" in workflow
    assert one.event_dataschema("Undeployed") == "https://a.example/events/undeployed/1.0"


def test_texts_direct_no_client_and_teach_no_signing_in() -> None:
    barred = re.compile(
        r"https?://|\bsign(?:ed|ing)?[ -]in\b|\blog(?:ged)?[ -]in\b|\bconfig|\bmcp\b|x-api-key|\bbearer\b"
        r"|\byour (?:client|settings)|\bpasswords?\b|best_peer_",
        re.IGNORECASE,
    )
    for kind in ("commands", "events", "queries", "workflows"):
        for name in _names(kind):
            text = (
                (DOCUMENTS / kind / f"{name}.json")
                .read_text()
                .replace(str(_document(kind, name).get("$schema")), "")
            )
            assert barred.search(text) is None, (name, barred.search(text))


def test_no_name_is_one_of_signing_in_and_no_member_names_routing() -> None:
    for kind in ("commands", "events", "queries", "workflows"):
        for name in _names(kind):
            assert not re.search(r"sign-?(in|up|out)|log-?(in|out)", name)
            assert not any(member.startswith("x-") for member in _document(kind, name))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(DOCUMENTS, tmp_path / "schemas")
    return tmp_path / "schemas"


def test_a_command_without_a_scope_stops_the_load(copied: Path) -> None:
    table = orjson.loads((copied / "commands.json").read_bytes())
    del table["prompt"]
    (copied / "commands.json").write_bytes(orjson.dumps(table))
    with pytest.raises(CatalogueError, match=r"no scope for prompt 1\.0"):
        Catalogue.load(ENDPOINT, copied)


def test_an_event_without_a_document_stops_the_load(copied: Path) -> None:
    (copied / "events" / "undeployed-1.0.json").unlink()
    with pytest.raises(CatalogueError, match="Undeployed"):
        Catalogue.load(ENDPOINT, copied)


def test_one_type_with_two_documents_stops_the_load(copied: Path) -> None:
    document = (copied / "commands" / "prompt-1.0.json").read_bytes()
    (copied / "commands" / "ask-1.0.json").write_bytes(document)
    table = orjson.loads((copied / "commands.json").read_bytes())
    table["ask"] = {"version": "1.0", "scope": "prompt"}
    (copied / "commands.json").write_bytes(orjson.dumps(table))
    with pytest.raises(CatalogueError, match="two documents say commandType Prompt"):
        Catalogue.load(ENDPOINT, copied)


def test_a_file_that_is_not_named_as_a_document_stops_the_load(copied: Path) -> None:
    (copied / "queries" / "notes.json").write_text("{}")
    with pytest.raises(CatalogueError, match=r"notes\.json"):
        Catalogue.load(ENDPOINT, copied)
