"""`docs/permissions.md`: the rules as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from peer.door.catalogue import Catalogue
from tests.support.permissions.acts import Act, acts, commands_of
from tests.support.permissions.answers import INVALID_GRANT
from tests.support.permissions.ground import CPU
from tests.support.permissions.kinds import KINDS, OWNER, REFUSED_GRANTS, Kind
from tests.support.permissions.sight import FACTS, SERIES, devices_of, scrapes_all

_HEAD: Final = """\
# Permissions

Made by `scripts/make-permissions-docs` from `tests/support/permissions/`, whose rules are written by hand.
`tests/system/test_permissions.py` tries each of them: for every kind of key a door is opened, everything
below is asked of it over its socket, and the answer is held against the rule. A route, command, query, fact
or series without a rule fails that test, so what is not on this page is not there.

`yes` is an answer of the 200s. Everything else is a refusal, by its status and its code
([errors](errors.md)). Kinds of key that are answered alike share a row. A key is sent in `X-Api-Key` or as
`Authorization: Bearer`, which makes no difference.

Ids are not secrets. To know another's deployment, job, command or correlation opens nothing: what a key may
not see is refused in the words for what is not there.

"""
_KINDS: Final = """\
## Keys

Under a share (`--memory`) a key is a tenant's: it sees, prompts and ends its own work alone, unless it was
approved for `all` as well. The first seven are called _{closed}_ below.

"""
_CLOSED: Final = "what opens nothing"
_SIGHT: Final = """\
## What a key sees

"""
_FACTS: Final = """
## Facts

Who reads a fact on the pages of `GET /events` and on the stream, which show a key the same. No correlation,
cursor or `Last-Event-ID` shows it more.

"""
_SERIES: Final = """
## Metrics

Who finds a series at `GET /metrics`. A key that is held to the accelerators finds none of the host's CPU. A
key for metrics opens nothing else.

"""
_GRANTS: Final = """
## Approvals that nobody can give

`best-peer approve` refuses each of these with {answer}, and grants nothing.

"""


def markdown() -> str:
    """The whole page."""
    catalogue = Catalogue.load("http://door")
    every = acts(catalogue)
    text = _HEAD + _KINDS.format(closed=_CLOSED)
    text += _table(("key", "how it is had"), [(kind.name, kind.made) for kind in KINDS])
    for group in dict.fromkeys(act.group for act in every):
        text += f"\n## {group}\n\n" + _answers([act for act in every if act.group == group])
    text += "\n" + _SIGHT + _sights() + _FACTS
    told = catalogue.event_dataschemas
    text += _table(
        ("fact", "who reads it"), [(f"`{name}`", who) for name, who in FACTS.items() if name in told]
    )
    text += _SERIES
    text += _table(("series", "who finds it"), [(f"`{name}`", who) for name, who in SERIES.items()])
    text += _GRANTS.format(answer=INVALID_GRANT.text())
    text += _table(("approval", "why"), [(each.options, each.why) for each in REFUSED_GRANTS])
    return text


def _answers(group: Sequence[Act]) -> str:
    """A table of one group: a row for all kinds that are answered alike."""
    columns: dict[str, Act] = {}
    for act in group:
        before = columns.setdefault(act.column, act)
        if any(before.rule(kind) != act.rule(kind) for kind in KINDS):
            raise ValueError(f"two things under {act.column!r} are answered in two ways")
    cells = [(kind, tuple(act.rule(kind).text() for act in columns.values())) for kind in KINDS]
    return _table(("key", *columns), _merged(cells))


def _sights() -> str:
    """What the open kinds see, those alike in one row."""
    cells = []
    for kind in KINDS:
        if kind.is_open:
            commands = ", ".join(f"`{name}`" for name in sorted(commands_of(kind)))
            shown = "all, the CPU too" if CPU.id in devices_of(kind) else "accelerators"
            work = "everybody's" if kind.sees_all else "its own"
            row = (
                commands or "none",
                "none" if kind.is_collectors else shown,
                "none" if kind.is_collectors else work,
                "everybody's" if scrapes_all(kind) else "its own",
                _box(kind),
            )
            cells.append((kind, row))
    heads = (
        "key",
        "commands listed",
        "devices",
        "workloads, in `get-workloads`",
        "workloads, in the metrics",
        "its jobs run in the closed box",
    )
    return _table(heads, _merged(cells))


def _box(kind: Kind) -> str:
    if not kind.may("jobs"):
        return "it runs none"
    return "yes" if kind.boxed else "no"


def _merged(cells: Iterable[tuple[Kind, tuple[str, ...]]]) -> list[tuple[str, ...]]:
    alike: dict[tuple[str, ...], list[Kind]] = {}
    for kind, row in cells:
        alike.setdefault(row, []).append(kind)
    return [(_names(kinds), *row) for row, kinds in alike.items()]


def _names(kinds: list[Kind]) -> str:
    if len(kinds) == len(KINDS):
        return "whatever comes"
    closed = [kind for kind in KINDS if not kind.is_open and kind is not OWNER]
    names = [kind.name for kind in kinds]
    if all(kind in kinds for kind in closed):
        names = [_CLOSED, *(kind.name for kind in kinds if kind not in closed)]
    if len(kinds) == len(KINDS) - 1:
        (missing,) = (kind for kind in KINDS if kind not in kinds)
        names = [f"whatever comes but {missing.name}"]
    return "; ".join(names)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines) + "\n"
