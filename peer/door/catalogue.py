"""What one door publishes: its commands, events, queries and workflows, read from the documents beside it.

A document is a file `<kind>/<schema>-<version>.json`, written by hand and served as it stands; only the URIs
that hold the door's endpoint (`dataschema`) are made when the catalogue is loaded. Everything a request may
ask for is ready as bytes from then on (F2, F9; conformance K01-K04, X01-X04, E05, Q01, Q02, F01-F05).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from peer.door.validation import Check

DOCUMENTS: Final = Path(__file__).with_name("schemas")
SCOPES: Final = ("deploy", "jobs", "prompt", "workspaces", "metrics")
"""What a key may be approved for, as the manifest lists it; `all` is every one of them."""
ANY: Final = "any"
"""The scope of a command that any key may send but one for metrics, which stands alone and sends nothing."""

_NAME: Final = re.compile(r"(?P<schema>[a-z][a-z0-9]*(?:-[a-z0-9]+)*)-(?P<version>[0-9]+\.[0-9]+)")
_NO_PARAMETERS: Final = {"type": "object", "additionalProperties": False, "properties": {}}


class CatalogueError(Exception):
    """Raised when the documents of a door do not fit together; a fault of the build, met at start."""


@attrs.frozen
class CommandEntry:
    """One command of a door: what its entry says, which scope it needs, and how its data is checked."""

    schema: str
    version: str
    command_type: str
    scope: str
    dataschema: str
    produces: tuple[str, ...]
    completes: frozenset[str]
    check: Check
    listed: dict[str, Any]
    integers: frozenset[str]
    """Members of data whose type is integer."""

    def allows(self, scopes: Collection[str]) -> bool:
        """Whether a key approved for `scopes` may send this command; no scope allows nothing (S02)."""
        if "all" in scopes:
            return True
        return bool(set(scopes) - {"metrics"}) if self.scope == ANY else self.scope in scopes


@attrs.frozen
class QueryEntry:
    """One query of a door; `parameter_types` has the declared JSON type of each parameter by name."""

    schema: str
    version: str
    dataschema: str
    check: Check
    response: Mapping[str, Any]
    parameter_types: Mapping[str, str]
    listed: dict[str, Any]


_Documents = Mapping[tuple[str, str], bytes]


@attrs.frozen
class Catalogue:
    """The catalogue of one door. It never changes; each door of a peer has its own, with its own endpoint.

    The `*_document` methods give None for a name or a version the door does not have, which is a 404.
    """

    endpoint: str
    """The door's base URL, without a slash at its end."""
    envelope: Check
    queries_index: bytes
    """The body of GET /queries."""
    workflows_index: bytes
    """The body of GET /workflows."""
    event_dataschemas: Mapping[str, str]
    """The `dataschema` of each type of event this door tells."""
    _commands: Mapping[str, CommandEntry]
    _queries: Mapping[str, QueryEntry]
    _command_documents: _Documents
    _query_documents: _Documents
    _event_documents: _Documents
    _workflow_documents: Mapping[str, bytes]
    # At most one entry for each set of known scopes: what else a key names is left out of the look-up.
    _commands_by_scopes: dict[frozenset[str], bytes] = attrs.field(init=False, factory=dict)

    @classmethod
    def load(cls, endpoint: str, documents: Path = DOCUMENTS) -> "Catalogue":
        """Read the documents of a door whose public base URL is `endpoint`, with or without last slash (D05).

        Raises CatalogueError when they do not fit together.
        """
        base = endpoint.rstrip("/")
        commands = _load_commands(base, documents)
        queries = _load_queries(base, documents)
        workflows = _load_workflows(base, documents)
        events = {key: text for key, text, _ in _documents_in(documents / "events")}
        event_schemas = {_pascal(schema): f"{base}/events/{schema}/{version}" for schema, version in events}
        for entry in commands.values():
            if unknown := {*entry.produces, *entry.completes} - event_schemas.keys():
                raise CatalogueError(f"{entry.schema} names events that have no document: {sorted(unknown)}")
        return cls(
            endpoint=base,
            envelope=Check.compile(_read(documents / "envelope.json")),
            queries_index=orjson.dumps({"queries": [entry.listed for entry in queries.values()]}),
            workflows_index=_workflows_index(workflows),
            event_dataschemas=event_schemas,
            commands=commands,
            queries=queries,
            command_documents={key: text for key, text, _ in _documents_in(documents / "commands")},
            query_documents={key: text for key, text, _ in _documents_in(documents / "queries")},
            event_documents=events,
            workflow_documents={name: orjson.dumps(document) for name, document in workflows.items()},
        )

    def commands_for(self, scopes: Collection[str]) -> bytes:
        """The body of GET /commands for a key approved for `scopes`: only what it may send (K04)."""
        known = frozenset(scopes) & {*SCOPES, "all"}
        body = self._commands_by_scopes.get(known)
        if body is None:
            listed = [entry.listed for entry in self._commands.values() if entry.allows(known)]
            body = self._commands_by_scopes[known] = orjson.dumps({"commands": listed})
        return body

    def command(self, command_type: str) -> CommandEntry | None:
        """The one entry of a CloudEvents `type`: schema, authority and dispatch all follow from it (K13)."""
        return self._commands.get(command_type)

    def command_types(self, scopes: Collection[str]) -> tuple[str, ...]:
        """The types a key approved for `scopes` may send, in the catalogue's order."""
        return tuple(entry.command_type for entry in self._commands.values() if entry.allows(scopes))

    def command_meant(self, text: str) -> str | None:
        """The command type that `text` spells in another way ("deploy-model", "deployModel"), if any."""
        plain = _plain(text)
        return next((known for known in self._commands if _plain(known) == plain), None)

    def query(self, schema: str) -> QueryEntry | None:
        """The query that GET /queries/{schema} runs."""
        return self._queries.get(schema)

    def event_dataschema(self, event_type: str) -> str | None:
        """The `dataschema` that events of `event_type` carry on this door."""
        return self.event_dataschemas.get(event_type)

    def command_document(self, schema: str, version: str) -> bytes | None:
        """The JSON Schema of a command's data, served as application/schema+json."""
        return self._command_documents.get((schema, version))

    def query_document(self, schema: str, version: str) -> bytes | None:
        """A query's description, parameters and response, served as application/json."""
        return self._query_documents.get((schema, version))

    def event_document(self, schema: str, version: str) -> bytes | None:
        """The JSON Schema of an event's data, served as application/schema+json."""
        return self._event_documents.get((schema, version))

    def workflow_document(self, workflow: str) -> bytes | None:
        """One recipe with its steps, by id."""
        return self._workflow_documents.get(workflow)


def _load_commands(base: str, documents: Path) -> dict[str, CommandEntry]:
    table = _read(documents / "commands.json")
    entries: dict[str, CommandEntry] = {}
    for (schema, version), _, document in _documents_in(documents / "commands"):
        row = table.get(schema, {})
        if row.get("version") != version or row.get("scope") not in {*SCOPES, ANY}:
            raise CatalogueError(f"commands.json has no scope for {schema} {version}")
        listed = _listed(f"{base}/commands", schema, version, document)
        command_type = document["commandType"]
        if command_type in entries:
            raise CatalogueError(f"two documents say commandType {command_type}")
        properties = document["properties"]
        entries[command_type] = CommandEntry(
            schema=schema,
            version=version,
            command_type=command_type,
            scope=row["scope"],
            dataschema=listed["dataschema"],
            produces=tuple(document["produces"]),
            completes=frozenset(document["completes"]),
            check=Check.compile(document),
            listed=listed,
            integers=frozenset(name for name, node in properties.items() if node.get("type") == "integer"),
        )
    # The table's order is the catalogue's: the order in which a reader meets the commands.
    return {entry.command_type: entry for name in table for entry in entries.values() if entry.schema == name}


def _load_queries(base: str, documents: Path) -> dict[str, QueryEntry]:
    entries: dict[str, QueryEntry] = {}
    for (schema, version), _, document in _documents_in(documents / "queries"):
        if schema in entries:
            raise CatalogueError(f"two documents describe the query {schema}")
        parameters = document.get("parameters", _NO_PARAMETERS)
        listed = _listed(f"{base}/queries", schema, version, document)
        entries[schema] = QueryEntry(
            schema=schema,
            version=version,
            dataschema=listed["dataschema"],
            check=Check.compile(parameters),
            response=document["response"],
            parameter_types={name: node["type"] for name, node in parameters["properties"].items()},
            listed=listed,
        )
    return entries


def _load_workflows(base: str, documents: Path) -> dict[str, dict[str, Any]]:
    """Each recipe by id, its steps' dataschemas made absolute (F03)."""
    workflows: dict[str, dict[str, Any]] = {}
    for path in sorted((documents / "workflows").glob("*.json")):
        document = _read(path)
        if document["id"] != path.stem:
            raise CatalogueError(f"{path.name} holds the workflow {document['id']}")
        steps = [{**step, "dataschema": f"{base}/{step['dataschema']}"} for step in document["steps"]]
        workflows[path.stem] = {**document, "steps": steps}
    return workflows


def _workflows_index(workflows: Mapping[str, Mapping[str, Any]]) -> bytes:
    shown = ("id", "name", "description")
    return orjson.dumps({"workflows": [{name: one[name] for name in shown} for one in workflows.values()]})


def _listed(base: str, schema: str, version: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """A catalogue entry: the first paragraph of the description, and the members both must share (K16)."""
    entry = {
        "schema": schema,
        "version": version,
        "dataschema": f"{base}/{schema}/{version}",
        "description": document["description"].split("\n\n")[0],
    }
    shared = {name: document[name] for name in ("commandType", "impact", "workflows") if name in document}
    return {**entry, **shared}


def _documents_in(folder: Path) -> Iterator[tuple[tuple[str, str], bytes, dict[str, Any]]]:
    """Each document of a kind in name order: (schema, version), the bytes to serve, and itself."""
    for path in sorted(folder.glob("*.json")):
        name = _NAME.fullmatch(path.stem)
        if name is None:
            raise CatalogueError(f"{path.name} is not named <schema>-<version>.json")
        document = _read(path)
        yield (name["schema"], name["version"]), orjson.dumps(document), document


def _read(path: Path) -> dict[str, Any]:
    document = orjson.loads(path.read_bytes())
    if not isinstance(document, dict):
        raise CatalogueError(f"{path.name} is not a JSON object")
    return document


def _pascal(schema: str) -> str:
    return "".join(part.capitalize() for part in schema.split("-"))


def _plain(text: str) -> str:
    return text.replace("-", "").replace("_", "").casefold()
