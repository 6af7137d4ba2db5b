"""Everything that can be asked of a door, and which kind of key is answered how.

The rules are the product's, written by hand: what a key may do is a sentence of F5, F12, F13 or F36 here, not
what the code happens to answer. What can be asked is held against the door's own routes and catalogues by the
test, so that nothing is added without a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import orjson

from peer.door.catalogue import Catalogue
from tests.support.agents import DEVICE_GRANT, envelope
from tests.support.permissions import answers as a
from tests.support.permissions.answers import Answer
from tests.support.permissions.ground import (
    CARD,
    CPU,
    ENGINE,
    HELD,
    IMAGE,
    MIB,
    RUNS_ON,
    STREAM,
    Ground,
    Request,
)
from tests.support.permissions.kinds import SHARE_BYTES, Kind

COMMANDS: Final = "POST /commands"
_SCOPES: Final = {
    "DeployModel": "deploy",
    "UndeployModel": "deploy",
    "PullImage": "deploy",
    "Prompt": "prompt",
    "RunJob": "jobs",
    "StopJob": "jobs",
    "RevokeAgent": "any",
}
"""Which scope each command needs, as the manifest's authentication block says it in words."""


@attrs.frozen
class Act:
    """One thing that is asked.

    Args:
        group: the table of the page that it stands in.
        column: the heading there; several acts may share one, and are then answered alike.
        route: the method and the rule of the route it goes by.
        ask: what is sent.
        rule: what each kind of key is answered.
        subject: the command, query, document or recipe it names, if it is for one.
    """

    group: str
    column: str
    route: str
    ask: Callable[[Ground], Request]
    rule: Callable[[Kind], Answer]
    subject: str | None = None


def acts(catalogue: Catalogue) -> tuple[Act, ...]:
    """Everything there is to ask, in an order in which each still finds what it names: the key's end last."""
    return (*_public(), *_reading(catalogue), *_making(), *_ending(), *_owners(), _giving_back())


def commands_of(kind: Kind) -> set[str]:
    """The commands that a kind of key may send, which are those its catalogue lists."""
    return {command for command, scope in _SCOPES.items() if kind.may(scope)}


def scope_of(command: str) -> str:
    """The scope that a command needs."""
    return _SCOPES[command]


# Rules.


def _anybody(answer: Answer = a.OK) -> Callable[[Kind], Answer]:
    """A key makes no difference."""
    return lambda kind: answer


def _reader(answer: Answer = a.OK) -> Callable[[Kind], Answer]:
    """Reading is every open key's but a collector's."""

    def rule(kind: Kind) -> Answer:
        if not kind.is_open:
            return a.UNAUTHORIZED
        return a.FORBIDDEN if kind.is_collectors else answer

    return rule


def _collector(kind: Kind) -> Answer:
    """The metrics are every open key's, a collector's too."""
    return a.OK if kind.is_open else a.UNAUTHORIZED


def _owner(kind: Kind) -> Answer:
    """The owner's routes open to the admin token alone, and to that only where it belongs."""
    return a.OK if kind.stand == "owner" else a.UNAUTHORIZED


def _sender(command: str, decided: Callable[[Kind], Answer]) -> Callable[[Kind], Answer]:
    """A command needs an open key, then its scope, and is then decided on."""

    def rule(kind: Kind) -> Answer:
        if not kind.is_open:
            return a.UNAUTHORIZED
        return decided(kind) if kind.may(_SCOPES[command]) else a.FORBIDDEN

    return rule


def _taken(kind: Kind) -> Answer:
    return a.TAKEN


def _deploys(kind: Kind) -> Answer:
    return a.DEPLOYMENTS_EXCEEDED if kind.counts_used else a.TAKEN


def _deploys_too_much(kind: Kind) -> Answer:
    """More than a share; without one the machine has the room."""
    return a.SHARE_EXCEEDED if kind.has_share else _deploys(kind)


def _deploys_on_the_cpu(kind: Kind) -> Answer:
    return a.ACCELERATORS_ONLY if kind.accelerators_only else _deploys(kind)


def _runs(kind: Kind) -> Answer:
    return a.JOBS_EXCEEDED if kind.counts_used else a.TAKEN


def _deploys_on_a_held_device(kind: Kind) -> Answer:
    """The owner comes first, whoever asks."""
    return a.DEPLOYMENTS_EXCEEDED if kind.counts_used else a.DEVICE_BUSY


def _runs_on_a_held_device(kind: Kind) -> Answer:
    return a.JOBS_EXCEEDED if kind.counts_used else a.DEVICE_BUSY


def _runs_too_much(kind: Kind) -> Answer:
    return a.SHARE_EXCEEDED if kind.has_share else _runs(kind)


def _runs_on_the_cpu(kind: Kind) -> Answer:
    return a.ACCELERATORS_ONLY if kind.accelerators_only else _runs(kind)


def _runs_on_no_device(kind: Kind) -> Answer:
    """A share counts device memory: a job that is promised none would run outside of it."""
    return a.JOB_NEEDS_DEVICE if kind.has_share else _runs_on_the_cpu(kind)


def _everybodys(unknown: Answer, allowed: Answer = a.TAKEN) -> Callable[[Kind], Answer]:
    """Another holder's work is there for a key approved for `all`, and for no other."""
    return lambda kind: allowed if kind.sees_all else unknown


def _never(answer: Answer) -> Callable[[Kind], Answer]:
    return lambda kind: answer


# What is sent.


def _get(path: str, **query: str) -> Callable[[Ground], Request]:
    return lambda ground: Request("GET", path, query=query)


def _post(path: str, body: Callable[[Ground], Any]) -> Callable[[Ground], Request]:
    return lambda ground: Request("POST", path, json=body(ground))


def _command(
    command: str, data: Callable[[Ground], dict[str, Any]], **attributes: Callable[[Ground], str]
) -> Callable[[Ground], Request]:
    def sent(ground: Ground) -> Request:
        given = {name: value(ground) for name, value in attributes.items()}
        return Request(
            "POST", "/commands", json=envelope(ground.door.endpoint, command, data(ground), **given)
        )

    return sent


def _document(collection: str, schema: str, version: str) -> Callable[[Ground], Request]:
    return _get(f"/{collection}/{schema}/{version}")


# Acts.


def _public() -> list[Act]:
    group = "What anybody may ask"
    device = {"client_id": "somebody"}

    def token(ground: Ground) -> dict[str, str]:
        return {"grant_type": DEVICE_GRANT, "device_code": ground.device_code, **device}

    return [
        Act(group, "the manifest", "GET /.well-known/best", _get("/.well-known/best"), _anybody()),
        Act(group, "the person's page", "GET /device", _get("/device"), _anybody()),
        Act(
            group,
            "begin a sign-in",
            "POST /oauth/device",
            lambda ground: Request("POST", "/oauth/device", form=device),
            _anybody(),
        ),
        Act(
            group,
            "fetch a key that nobody approved",
            "POST /oauth/token",
            lambda ground: Request("POST", "/oauth/token", form=token(ground)),
            _anybody(a.PENDING),
        ),
        Act(group, "what is not there", "GET /nothing", _get("/nothing"), _anybody(a.NOT_FOUND)),
    ]


def _reading(catalogue: Catalogue) -> list[Act]:
    group = "Reading"
    command_document = "GET /commands/<schema>/<version>"
    event_document = "GET /events/<schema>/<version>"
    query_document = "GET /queries/<schema>/<version>"
    found = [
        Act(group, "the commands", "GET /commands", _get("/commands"), _reader()),
        Act(group, "the queries", "GET /queries", _get("/queries"), _reader()),
        Act(group, "the recipes", "GET /workflows", _get("/workflows"), _reader()),
        Act(group, "its events", "GET /events", _get("/events"), _reader()),
        Act(group, "its stream", f"GET {STREAM}", _get(STREAM), _reader()),
        Act(group, "the metrics", "GET /metrics", _get("/metrics"), _collector),
    ]
    found += [
        Act(group, "a document", command_document, _document("commands", *name), _reader(), name[0])
        for name in catalogue._command_documents
    ]
    found += [
        Act(group, "a document", event_document, _document("events", *name), _reader(), name[0])
        for name in catalogue._event_documents
    ]
    found += [
        Act(group, "a document", query_document, _document("queries", *name), _reader(), name[0])
        for name in catalogue._query_documents
    ]
    found += [
        Act(group, "a document", "GET /workflows/<workflow>", _get(f"/workflows/{name}"), _reader(), name)
        for name in catalogue._workflow_documents
    ]
    missing = ("/commands/make-tea/1.0", "/events/tea-made/1.0", "/queries/get-tea/1.0", "/queries/get-tea")
    routes = (command_document, event_document, query_document, "GET /queries/<schema>")
    found += [
        Act(group, "one that is not there", route, _get(path), _reader(a.NOT_FOUND))
        for route, path in zip(routes, missing, strict=True)
    ]
    return [*found, *_queries()]


def _queries() -> list[Act]:
    group, route = "Queries", "GET /queries/<schema>"

    def workloads(
        column: str, query: Callable[[Ground], dict[str, str]], rule: Callable[[Kind], Answer]
    ) -> Act:
        return Act(
            group,
            column,
            route,
            lambda ground: Request("GET", "/queries/get-workloads", query=query(ground)),
            rule,
            "get-workloads",
        )

    theirs = _everybodys(a.UNKNOWN_DEPLOYMENT, a.OK), _everybodys(a.UNKNOWN_JOB, a.OK)
    return [
        Act(
            group,
            "`get-hardware-state`",
            route,
            _get("/queries/get-hardware-state"),
            _reader(),
            "get-hardware-state",
        ),
        workloads("`get-workloads`", lambda ground: {}, _reader()),
        workloads(
            "of a deployment of its own", lambda ground: {"deployment": ground.own.deployment}, _reader()
        ),
        workloads(
            "of another's deployment",
            lambda ground: {"deployment": ground.theirs.deployment},
            lambda kind: theirs[0](kind) if _reader()(kind).is_allowed else _reader()(kind),
        ),
        workloads("of a job of its own", lambda ground: {"job": ground.own.job}, _reader()),
        workloads(
            "of another's job",
            lambda ground: {"job": ground.theirs.job},
            lambda kind: theirs[1](kind) if _reader()(kind).is_allowed else _reader()(kind),
        ),
    ]


def _commands(
    group: str, command: str, *each: tuple[str, Callable[[Ground], dict[str, Any]], Callable[[Kind], Answer]]
) -> list[Act]:
    return [
        Act(group, column, COMMANDS, _command(command, data), _sender(command, decided), command)
        for column, data, decided in each
    ]


def _making() -> list[Act]:
    deploys, jobs = "Deployments", "Jobs"
    small, too_much = {"memory_bytes": 16 * MIB}, {"memory_bytes": SHARE_BYTES + MIB}

    def deploy(**more: Any) -> Callable[[Ground], dict[str, Any]]:
        return lambda ground: {"model": "small", "engine": ENGINE, **small, **more}

    def job(**more: Any) -> Callable[[Ground], dict[str, Any]]:
        return lambda ground: {"image": IMAGE, "command": list(RUNS_ON), **more}

    def prompt(deployment: str) -> dict[str, Any]:
        return {"deployment": deployment, "messages": [{"role": "user", "content": "hello"}]}

    def nothing(ground: Ground) -> dict[str, Any]:
        return {}

    return [
        *_commands(
            deploys,
            "DeployModel",
            ("`DeployModel`", deploy(), _deploys),
            ("on the CPU", deploy(device=CPU.id), _deploys_on_the_cpu),
            ("on a card that is held", deploy(device=HELD.id), _deploys_on_a_held_device),
            ("of more than a share", deploy(**too_much), _deploys_too_much),
        ),
        *_commands(deploys, "PullImage", ("`PullImage`", lambda ground: {"image": IMAGE}, _taken)),
        *_commands(
            deploys,
            "Prompt",
            ("`Prompt` to its own", lambda ground: prompt(ground.own.deployment), _taken),
            (
                "`Prompt` to another's",
                lambda ground: prompt(ground.theirs.deployment),
                _never(a.UNKNOWN_DEPLOYMENT),
            ),
        ),
        *_commands(
            jobs,
            "RunJob",
            ("`RunJob`", job(**small), _runs),
            ("on a card by name", job(**small, device=CARD.id), _runs),
            ("on the CPU", job(**small, device=CPU.id), _runs_on_the_cpu),
            ("on no device", job(), _runs_on_no_device),
            ("on a card that is held", job(**small, device=HELD.id), _runs_on_a_held_device),
            ("of more than a share", job(**too_much), _runs_too_much),
        ),
        Act(
            "Any command",
            "of a type that is not there",
            COMMANDS,
            _command("MakeTea", nothing),
            _reader(a.UNKNOWN_COMMAND),
        ),
        *(
            Act(
                "Any command",
                f"{where} (`{command}`)",
                COMMANDS,
                _command(command, data, **{attribute: lambda ground: ground.theirs.command}),
                _sender(command, _never(a.ID_NOT_YOURS)),
                command,
            )
            for where, attribute in (
                ("under another's correlation", "correlationid"),
                ("with another's id", "id"),
            )
            for command, data in (("PullImage", lambda ground: {"image": IMAGE}), ("RevokeAgent", nothing))
        ),
    ]


def _ending() -> list[Act]:
    return [
        *_commands(
            "Deployments",
            "UndeployModel",
            ("`UndeployModel` of its own", lambda ground: {"deployment": ground.own.deployment}, _taken),
            (
                "of another's",
                lambda ground: {"deployment": ground.theirs.deployment},
                _everybodys(a.UNKNOWN_DEPLOYMENT),
            ),
        ),
        *_commands(
            "Jobs",
            "StopJob",
            ("`StopJob` of its own", lambda ground: {"job": ground.own.job}, _taken),
            ("of another's", lambda ground: {"job": ground.theirs.job}, _everybodys(a.UNKNOWN_JOB)),
        ),
    ]


def _giving_back() -> Act:
    return Act(
        "Any command",
        "`RevokeAgent`",
        COMMANDS,
        _command("RevokeAgent", lambda ground: {}),
        _sender("RevokeAgent", _taken),
        "RevokeAgent",
    )


def _owners() -> list[Act]:
    asked: dict[str, Callable[[Ground], Request]] = {
        "GET keys": _get("/admin/keys"),
        "GET pending": lambda ground: Request("GET", "/admin/pending", query={"user_code": ground.codes[0]}),
        "GET status": _get("/admin/status"),
        "GET holds": _get("/admin/holds"),
        "POST hold": _post(
            "/admin/hold", lambda ground: {"hold": "hold-of-the-first-card", "device": CARD.id}
        ),
        "POST release": _post("/admin/release", lambda ground: {"device": CARD.id}),
        "POST approve": _post("/admin/approve", lambda ground: {"user_code": ground.codes[0]}),
        "POST deny": _post("/admin/deny", lambda ground: {"user_code": ground.codes[1]}),
        "POST revoke": _post("/admin/revoke", lambda ground: {"name": ground.spare}),
    }
    return [
        Act("The owner's", f"`{name.split(' ')[1]}`", name.replace(" ", " /admin/"), ask, _owner)
        for name, ask in asked.items()
    ] + [
        Act(
            "The owner's",
            "`approve` of a code that does not wait",
            "POST /admin/approve",
            _post("/admin/approve", lambda ground: {"user_code": "BCDF-GHJK"}),
            lambda kind: a.UNKNOWN_CODE if kind.stand == "owner" else a.UNAUTHORIZED,
        )
    ]


def documents_of(catalogue: Catalogue) -> dict[str, list[str]]:
    """The names of what each index of a catalogue lists."""
    return {
        "queries": [one["schema"] for one in orjson.loads(catalogue.queries_index)["queries"]],
        "workflows": [one["id"] for one in orjson.loads(catalogue.workflows_index)["workflows"]],
    }
