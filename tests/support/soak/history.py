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
JOB_ENDS = frozenset({"JobFinished", "JobFailed", "JobStopped", "CommandFailed"})
BEFORE_STARTED = frozenset({"JobFailed", "JobStopped", "CommandFailed"})
COMPLETING = {
    "UndeployModel": frozenset({"Undeployed", "CommandFailed"}),
    "Prompt": frozenset({"PromptAnswered", "PromptFailed", "CommandFailed"}),
    "PullImage": frozenset({"ImagePulled", "CommandFailed"}),
    "StopJob": frozenset({"JobStopped", "CommandFailed"}),
    "RevokeAgent": frozenset({"AgentRevoked", "CommandFailed"}),
}
ON_THE_WAY = {"PullImage": frozenset({"ImagePulling"})}
IMAGES = frozenset({"ImagePulling", "ImagePulled"})
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
    jobs = _Jobs(facts, accepted)
    found = _numbers(facts)
    for command, kind in accepted.items():
        caused = [f["type"] for f in by_cause.get(command, ())]
        if kind == "DeployModel":
            wrong = _wrong_deploy(caused, all_done=all_done)
        elif kind == "RunJob":
            caused = jobs.told_of(by_cause.get(command, []))
            wrong = _wrong_job(caused, all_done=all_done and bool(caused))
        else:
            on_the_way = ON_THE_WAY.get(kind, frozenset())
            last = [each for each in caused if each not in on_the_way]
            wrong = _wrong_completion(last, COMPLETING[kind], all_done=all_done)
        if wrong is not None:
            found.append(f"{kind} {command}: {wrong}: {caused}")
    if all_done:
        found += jobs.never_completed(by_cause)
    return found + _after_the_end(facts)


def living(facts: Iterable[Fact]) -> dict[str, int]:
    """Workloads that were started and have not ended, with the device memory they hold."""
    held: dict[str, int] = {}
    for fact in facts:
        kind, data = fact["type"], fact["data"]
        if kind == "DeploymentStarted":
            held[data["deployment"]] = data["memory_bytes"]
        elif kind == "JobStarted":
            held[data["job"]] = data.get("memory_bytes", 0)
        elif kind in ENDS | {"Undeployed"}:
            held.pop(data.get("deployment", ""), None)
        elif kind in JOB_ENDS:
            held.pop(data.get("job", ""), None)
    return held


class _Jobs:
    """Which facts tell of which run-job. One JobStopped may end two commands of one correlation."""

    def __init__(self, facts: list[Fact], accepted: Mapping[str, str]) -> None:
        self._runs = [command for command, kind in accepted.items() if kind == "RunJob"]
        self._facts: dict[str, list[Fact]] = defaultdict(list)
        for fact in facts:
            if "job" in fact["data"]:
                self._facts[fact["data"]["job"]].append(fact)

    def told_of(self, caused: list[Fact]) -> list[str]:
        """The types of what was told under a run-job's correlation of its job, in order."""
        if not caused:
            return []
        run = caused[0]
        told = self._facts.get(run["data"].get("job", ""), [])
        own = [f for f in told if f.get("correlationid") == run.get("correlationid")]
        return [f["type"] for f in own or caused]

    def never_completed(self, by_cause: Mapping[str, list[Fact]]) -> list[str]:
        """Run-jobs of which nothing was told, but for those that a stop ended before anything was."""
        silent = [run for run in self._runs if run not in by_cause]
        runs = set(self._runs)
        stopped = [
            job for job, told in self._facts.items() if not any(f.get("causationid") in runs for f in told)
        ]
        return [] if len(silent) <= len(stopped) else [f"RunJob: some never completed: {silent}"]


def _numbers(facts: list[Fact]) -> list[str]:
    ids = [fact["id"] for fact in facts]
    expected = [f"evt-{number}" for number in range(len(ids))]
    if ids == expected:
        return []
    at = next((n for n, (a, b) in enumerate(zip(ids, expected, strict=True)) if a != b), len(ids))
    return [f"facts are not numbered one after another from row {at} on: {ids[at : at + 3]}"]


def _wrong_deploy(caused: list[str], *, all_done: bool) -> str | None:
    wrong = _wrong_life(caused, ENDS, once=("DeploymentStarted", "DeploymentReady"))
    if wrong is not None:
        return wrong
    steps = [ORDER[kind] for kind in caused if kind in ORDER]
    if steps != sorted(steps):
        return "told out of order"
    ended = caused[-1] if caused and caused[-1] in ENDS else None
    if "DeploymentReady" in caused and ended is not None and ended not in AFTER_READY:
        return "it was ready and failed all the same"
    if all_done and "DeploymentReady" not in caused and ended is None:
        return "it never completed"
    return None


def _wrong_job(caused: list[str], *, all_done: bool) -> str | None:
    wrong = _wrong_life(caused, JOB_ENDS, once=("JobStarted",))
    if wrong is not None:
        return wrong
    ended = caused[-1] if caused and caused[-1] in JOB_ENDS else None
    if "JobStarted" not in caused and ended is not None and ended not in BEFORE_STARTED:
        return "it finished and had not started"
    if "JobStarted" in caused and ended == "CommandFailed":
        return "it started and its command failed all the same"
    if all_done and "JobStarted" not in caused and ended is None:
        return "it never completed"
    return None


def _wrong_life(caused: list[str], ends: frozenset[str], *, once: tuple[str, ...]) -> str | None:
    """What is wrong with a workload's facts, whatever it is: it begins once, ends once, and is then over."""
    for kind in once:
        if caused.count(kind) > 1:
            return f"{kind} was told {caused.count(kind)} times"
    if once[0] in caused and any(kind in IMAGES for kind in caused[caused.index(once[0]) :]):
        return "its image was fetched after it had started"
    at = [number for number, kind in enumerate(caused) if kind in ends]
    if len(at) > 1:
        return "it ended twice"
    if at and at[0] != len(caused) - 1:
        return "something was told after its end"
    return None


def _wrong_completion(caused: list[str], completing: frozenset[str], *, all_done: bool) -> str | None:
    strange = [kind for kind in caused if kind not in completing]
    if strange:
        return f"{strange[0]} is none of its facts"
    if len(caused) > 1:
        return f"it completed {len(caused)} times"
    return "it never completed" if all_done and not caused else None


def _after_the_end(facts: list[Fact]) -> list[str]:
    """Of a workload that has ended nothing is told but the end of what was under way on it."""
    ended: dict[str, str] = {}
    found = []
    for fact in facts:
        name, kind = fact["data"].get("deployment") or fact["data"].get("job"), fact["type"]
        if name is None or kind.startswith("Prompt"):
            continue
        # The command that ended it is told of it as well, under its own correlation.
        by_command = kind == "Undeployed" or (kind == ended.get(name) == "JobStopped")
        if name in ended and not by_command:
            found.append(f"{kind} of {name} was told after its {ended[name]}")
        if kind in ENDS | JOB_ENDS | {"Undeployed"}:
            ended[name] = kind
    return found
