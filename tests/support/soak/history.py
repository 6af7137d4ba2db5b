"""What must be true of a log's facts, however often its peer was killed: read from the lines alone.

Shares no code with the product's fold.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Fact = dict[str, Any]

ENDS = frozenset({"DeploymentFailed", "DeploymentEnded", "OutOfMemory", "CommandFailed"})
AFTER_READY = frozenset({"DeploymentEnded", "OutOfMemory"})
COMPLETING = {
    "UndeployModel": frozenset({"Undeployed", "CommandFailed"}),
    "Prompt": frozenset({"PromptAnswered", "PromptFailed", "CommandFailed"}),
    "PullImage": frozenset({"ImagePulled", "CommandFailed"}),
    "RevokeAgent": frozenset({"AgentRevoked", "CommandFailed"}),
}
ON_THE_WAY = {"PullImage": frozenset({"ImagePulling"})}
"""What else a command may have caused, before it completes."""
IMAGE = frozenset({"ImagePulling", "ImagePulled"})
ORDER = {"DeploymentStarted": 0, "WeightsLoading": 1, "DeploymentReady": 2}


def problems(facts: Iterable[Fact], accepted: Mapping[str, str], *, all_done: bool = True) -> list[str]:
    """What is wrong with a history; nothing when it is as promised.

    Args:
        facts: every fact of the log, in order.
        accepted: the type of each command that the door acknowledged, by its id.
        all_done: nothing is under way any more, so that every command must have completed.
    """
    facts = list(facts)
    by_cause: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        if "causationid" in fact:
            by_cause[fact["causationid"]].append(fact)
    found = _numbers(facts)
    for command, kind in accepted.items():
        caused = [f["type"] for f in by_cause.get(command, ())]
        wrong = (
            _wrong_deploy(caused, all_done=all_done)
            if kind == "DeployModel"
            else _wrong_completion(kind, caused, all_done=all_done)
        )
        if wrong is not None:
            found.append(f"{kind} {command}: {wrong}: {caused}")
    return found + _after_the_end(facts)


def living(facts: Iterable[Fact]) -> dict[str, int]:
    """Deployments that were started and have not ended, with the memory they hold."""
    held: dict[str, int] = {}
    for fact in facts:
        if fact["type"] == "DeploymentStarted":
            held[fact["data"]["deployment"]] = fact["data"]["memory_bytes"]
        elif fact["type"] in ENDS | {"Undeployed"}:
            held.pop(fact["data"].get("deployment", ""), None)
    return held


def _numbers(facts: list[Fact]) -> list[str]:
    ids = [fact["id"] for fact in facts]
    expected = [f"evt-{number}" for number in range(len(ids))]
    if ids == expected:
        return []
    at = next((n for n, (a, b) in enumerate(zip(ids, expected, strict=True)) if a != b), len(ids))
    return [f"facts are not numbered one after another from row {at} on: {ids[at : at + 3]}"]


def _wrong_deploy(caused: list[str], *, all_done: bool) -> str | None:
    for once in (*ORDER, *ENDS):
        if once != "WeightsLoading" and caused.count(once) > 1:
            return f"{once} was told {caused.count(once)} times"
    steps = [ORDER[kind] for kind in caused if kind in ORDER]
    if steps != sorted(steps):
        return "told out of order"
    images = [at for at, kind in enumerate(caused) if kind in IMAGE]
    if steps and images and images[-1] > min(caused.index(kind) for kind in ORDER if kind in caused):
        return "its image was told after its start"
    if steps and images and caused[images[-1]] != "ImagePulled":
        return "it was started before its image was there"
    ends = [at for at, kind in enumerate(caused) if kind in ENDS]
    if len(ends) > 1:
        return "it ended twice"
    if ends and ends[0] != len(caused) - 1:
        return "something was told after its end"
    if "DeploymentReady" in caused and ends and caused[-1] not in AFTER_READY:
        return "it was ready and failed all the same"
    if all_done and "DeploymentReady" not in caused and not ends:
        return "it never completed"
    return None


def _wrong_completion(command: str, caused: list[str], *, all_done: bool) -> str | None:
    completing, on_the_way = COMPLETING[command], ON_THE_WAY.get(command, frozenset())
    strange = [kind for kind in caused if kind not in completing | on_the_way]
    if strange:
        return f"{strange[0]} is none of its facts"
    ends = [at for at, kind in enumerate(caused) if kind in completing]
    if len(ends) > 1:
        return f"it completed {len(ends)} times"
    if ends and ends[0] != len(caused) - 1:
        return "something was told after its end"
    return "it never completed" if all_done and not ends else None


def _after_the_end(facts: list[Fact]) -> list[str]:
    """Of a deployment that has ended nothing is told but the end of what was under way on it."""
    ended: dict[str, str] = {}
    found = []
    for fact in facts:
        name, kind = fact["data"].get("deployment"), fact["type"]
        if name is None or kind.startswith("Prompt"):
            continue
        if name in ended and kind != "Undeployed":
            found.append(f"{kind} of {name} was told after its {ended[name]}")
        if kind in ENDS | {"Undeployed"}:
            ended[name] = kind
    return found
