"""What is checked of a peer that was killed and started again: its files, its door, its processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.soak.history import Fact, living, problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.soak.ledger import Ledger

ENDLESS = ("sleep", "100000")
"""A job that ends when it is stopped."""
STARTS = frozenset({"DeploymentStarted", "JobStarted"})
INSTANCE, WORKLOAD = "BEST_PEER_INSTANCE", "BEST_PEER_WORKLOAD"


def log_bytes(data: Path) -> bytes:
    """The event log's files, one after another."""
    return b"".join(path.read_bytes() for path in sorted((data / "events").glob("*.jsonl")))


def whole_lines(log: bytes) -> list[bytes]:
    """Its whole lines."""
    return [line for line in log.split(b"\n")[:-1] if _is_json(line)]


def facts_of(log: bytes) -> list[Fact]:
    """Its facts."""
    return [json.loads(line) for line in whole_lines(log)]


def accepted_ids(data: Path) -> list[str]:
    """The ids of the commands that were kept, in order."""
    path = data / "accepted.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line)["id"] for line in lines if _is_json(line)]


def under_way(data: Path, types: Mapping[str, str]) -> int:
    """How many commands were kept and had not completed."""
    completed = {f.get("causationid") for f in facts_of(log_bytes(data)) if f["type"] in COMPLETING}
    return sum(identifier not in completed for identifier in accepted_ids(data) if identifier in types)


COMPLETING = frozenset(
    {
        "DeploymentReady",
        "DeploymentFailed",
        "DeploymentEnded",
        "OutOfMemory",
        "Undeployed",
        "JobStarted",
        "JobFailed",
        "JobStopped",
        "PromptAnswered",
        "PromptFailed",
        "CommandFailed",
        "AgentRevoked",
    }
)


def files(data: Path, before: bytes, ledger: Ledger) -> list[str]:
    """What is wrong with the log, once the peer is back and at rest.

    Args:
        data: the data folder.
        before: the event log's files as they lay when the peer was killed.
        ledger: what the outside remembers.
    """
    log = log_bytes(data)
    found = [f"{line!r} is no fact" for line in log.split(b"\n")[:-1] if not _is_json(line)]
    whole = before[: before.rfind(b"\n") + 1]
    if not log.startswith(whole):
        found.append("what lay in the log when the peer was killed is not there as it was")
    lines = {json.loads(line)["id"]: line for line in whole_lines(log)}
    for identifier, line in ledger.seen.items():
        if lines.get(identifier) != line:
            found.append(f"{identifier} was delivered as {line!r} and stands as {lines.get(identifier)!r}")
    kept = accepted_ids(data)
    if len(kept) != len(set(kept)):
        found.append("a command was accepted twice")
    found += [
        f"{i} was acknowledged and is not kept" for i in ledger.of("acknowledged") if i not in set(kept)
    ]
    found += [f"{i} was refused and is kept" for i in ledger.of("refused") if i in set(kept)]
    types = {c.id: c.type for c in ledger.sent.values()}
    found += [f"{i} is kept and was never sent" for i in kept if i not in types]
    facts = facts_of(log)
    found += problems(facts, {i: types[i] for i in kept if i in types})
    found += [
        f"{f['type']} names a command that was not kept: {f['causationid']}"
        for f in facts
        if "causationid" in f and f["causationid"] not in set(kept)
    ]
    return found + ledger.contradictions


def reading(rows: list[Fact], facts: Iterable[Fact], holder: str) -> list[str]:
    """What is wrong with the pages that a key without `all` was given."""
    own = [f for f in facts if f.get("holder") == holder]
    if rows == own:
        return []
    return [f"{holder} reads {len(rows)} facts by pages and has {len(own)} of its own"]


def promises(hardware: dict[str, Any], facts: Iterable[Fact]) -> list[str]:
    """What is wrong with the memory that is promised, once all is at rest."""
    promised = sum(device["memory_promised_bytes"] for device in hardware["devices"])
    held = sum(living(facts).values())
    return [] if promised == held else [f"{promised} bytes are promised, and what lives holds {held}"]


def holdings(workloads: dict[str, Any], facts: Iterable[Fact], holder: str) -> list[str]:
    """What is wrong with what a key without `all` is told that it holds, once all is at rest."""
    facts = list(facts)
    started = [f for f in facts if f["type"] in STARTS and f["holder"] == holder]
    own = {f["data"].get("deployment") or f["data"]["job"] for f in started}
    held = {name: size for name, size in living(facts).items() if name in own}
    told = {row["deployment"]: row["memory_bytes"] for row in workloads["deployments"]}
    told |= {row["job"]: row.get("memory_bytes", 0) for row in workloads["jobs"]}
    found = [] if told == held else [f"{holder} is told that it holds {told}, and {held} lives"]
    if workloads["held_bytes"] != sum(held.values()):
        found.append(f"{holder} is told of {workloads['held_bytes']} bytes and holds {sum(held.values())}")
    found += [f"{r['deployment']} is {r['phase']}" for r in workloads["deployments"] if r["phase"] != "ready"]
    return found + [f"{r['job']} is {r['phase']}" for r in workloads["jobs"] if r["phase"] != "running"]


def ending_jobs(facts: Iterable[Fact], ledger: Ledger) -> set[str]:
    """Jobs that live and will end by themselves: until they have, nothing is at rest."""
    facts = list(facts)
    alive = living(facts)
    runs = {f["data"]["job"]: f["causationid"] for f in facts if f["type"] == "JobStarted"}
    commands = {job: ledger.sent[runs[job]].envelope["data"]["command"] for job in alive if job in runs}
    return {job for job, command in commands.items() if command != [*ENDLESS]}


def remembered_programs(data: Path) -> dict[str, list[int]]:
    """What the fake runtime keeps anything of: what has ended and was told is not among it."""
    return {path.stem: [0] for path in (data / "workloads").glob("*.json")}


def labelled_processes(instance: str) -> dict[str, list[int]]:
    """The living processes that bear a peer's label, by workload."""
    found: dict[str, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parts = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        named = dict(part.decode("utf-8", "replace").partition("=")[::2] for part in parts)
        if named.get(INSTANCE) == instance and WORKLOAD in named and state != "Z":
            found.setdefault(named[WORKLOAD], []).append(int(entry.name))
    return found


def orphans(running: Mapping[str, list[int]], facts: Iterable[Fact]) -> list[str]:
    """What runs, or is kept, of no workload that lives, and what lives and does not run."""
    alive = set(living(facts))
    return [f"{w} is there (pid {running[w]}) and does not live" for w in set(running) - alive] + [
        f"{w} lives and runs nowhere" for w in alive - set(running)
    ]


def end_all(running: Mapping[str, list[int]]) -> None:
    """Kill what a run left, when it is over."""
    for pids in running.values():
        for pid in pids:
            try:
                os.kill(pid, 9)
            except OSError:
                continue


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
