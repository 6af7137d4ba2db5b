"""After a run: the log must say what the stream said, and nothing that was made may be left."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from acceptance.discovery import Surface
from acceptance.facts import Fact
from acceptance.names import is_opaque
from acceptance.problems import Faulty
from acceptance.recipe import Step
from acceptance.stream import Follower, history
from acceptance.wire import Wire

SMALL_PAGE = 2
"""So small that following the cursor is needed."""
REPLAY_SECONDS = 30.0


@dataclass(frozen=True)
class Taken:
    """A command that came to its outcome."""

    step: Step
    correlation: str
    seconds: float
    facts: tuple[Fact, ...]
    asked: bool
    """Whether the person's question was in it."""


def compare_with_log(wire: Wire, surface: Surface, taken: list[Taken]) -> None:
    """Read each command's facts again, by pages and by a stream taken up after the first.

    Raises:
        Faulty: one of them says something else than was heard.
    """
    for each in taken:
        logged = [envelope["id"] for envelope in history(wire, surface, each.correlation, page=SMALL_PAGE)]
        heard = [fact.id for fact in each.facts]
        if logged[: len(heard)] != heard:
            raise Faulty(f"the log tells {each.step.name} otherwise than the stream: {logged} and {heard}")
        replayed = _replay(wire, surface, each.correlation, logged)
        if replayed != logged[1:]:
            raise Faulty(f"the stream taken up after {logged[0]} told {replayed} and not {logged[1:]}")


def check_nothing_left(step: Step, taken: list[Taken], answer: Any) -> None:
    """Look for what the run made in a query's answer; raises Faulty where it still stands there."""
    left = _handed_on(taken).intersection(_texts(answer))
    if left:
        raise Faulty(f"{step.name} still lists {', '.join(sorted(left))}, which was taken down")


def _replay(wire: Wire, surface: Surface, correlation: str, logged: list[str]) -> list[str]:
    told: list[str] = []
    if len(logged) < 2:
        return told
    with Follower(wire, surface, correlation, after=logged[0]) as follower:
        for envelope in follower.facts(REPLAY_SECONDS):
            told.append(envelope["id"])
            if len(told) == len(logged) - 1:
                break
    return told


def _handed_on(taken: list[Taken]) -> set[str]:
    """What a fact of one command told and a later command required, opaque: the ids of what was made."""
    told: set[str] = set()
    handed: set[str] = set()
    for each in taken:
        required = each.step.document.get("required", [])
        handed |= {
            str(fact.data[name]) for fact in each.facts for name in required if name in fact.data
        } & told
        told |= {value for fact in each.facts for value in fact.data.values() if is_opaque(value)}
    return handed


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
