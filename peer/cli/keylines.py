"""What a key may do and what it holds of that, in words, as the door tells its owner (F12)."""

from __future__ import annotations

from typing import Any

from peer.units import describe_size

Json = dict[str, Any]


def grant_of(key: Json) -> Json:
    """What a key was approved for; empty where the door does not say."""
    grant = key.get("grant")
    return grant if isinstance(grant, dict) else {}


def is_collectors(key: Json) -> bool:
    """Whether it reads metrics and never runs anything."""
    return grant_of(key).get("scopes") == ["metrics"]


def may_words(key: Json) -> str:
    """Its scopes, and where it may run what it runs: `deploy, jobs; never this host's CPU`."""
    grant = grant_of(key)
    scopes = grant.get("scopes")
    words = [", ".join(map(str, scopes if isinstance(scopes, list) else ()))]
    if grant.get("accelerators_only"):
        words.append("never this host's CPU")
    if grant.get("open_jobs"):
        words.append("its jobs run outside the closed box")
    return "; ".join(words)


def holds_words(key: Json) -> str:
    """What it holds, and of how much: `1 GiB of 40 GiB; 1 of 2 deployments; 0 jobs`."""
    held, share = key.get("held_bytes"), grant_of(key).get("memory_bytes")
    memory = describe_size(held) if isinstance(held, int) else "unknown"
    if isinstance(share, int):
        memory = f"{memory} of {describe_size(share)}"
    return f"{memory}; {_count(key, 'deployments')}; {_count(key, 'jobs')}"


def _count(key: Json, what: str) -> str:
    number, most = key.get(what, "unknown"), grant_of(key).get(what)
    if isinstance(most, int):
        return f"{number} of {most} {what if most != 1 else what[:-1]}"
    return f"{number} {what if number != 1 else what[:-1]}"
