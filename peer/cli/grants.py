"""What a key may do, in words for the person who approves it and for the table of keys (F12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from actors.rules.grants import without_use
from actors.state.keys import Grant
from peer.units import describe_duration, describe_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.state.keys import Scope

_MAY: Final[Mapping[Scope, str]] = {
    "deploy": "deploy and undeploy models",
    "jobs": "run and stop jobs",
    "prompt": "prompt its models",
    "workspaces": "create workspaces, once this peer has them: this version has none",
    "metrics": "read the metrics of this whole door, everybody's workloads in them, and nothing else",
    "all": "do everything, and see and end everybody's workloads",
}


def grant_words(grant: Grant, *, is_session: bool) -> tuple[str, ...]:
    """A grant as sentences without a subject, the widest right first.

    Args:
        grant: as it will be given; its expiry None where nothing was said.
        is_session: whether the agent asked for a session's key, which ends by itself.
    """
    words = [f"may {_MAY[scope]}" for scope in grant.scopes]
    words += without_use(grant)
    if "metrics" not in grant.scopes:
        words += [*_share(grant), *_counts(grant)]
        if grant.accelerators_only:
            words.append("never sees or uses this host's CPU")
    words.append(_end(grant, is_session=is_session))
    return tuple(words)


def _share(grant: Grant) -> list[str]:
    has_jobs = bool({"jobs", "all"} & set(grant.scopes))
    in_the_open = "runs its jobs in the open, with network and as the image says"
    if grant.memory_bytes is None:
        words = ["may hold as much device memory as there is: it has no share"]
        if has_jobs:
            words.append(f"{in_the_open}: the closed box comes with a share")
        return words
    words = [f"may hold {describe_size(grant.memory_bytes)} of device memory at most, in all its workloads"]
    if "all" not in grant.scopes:
        words.append("sees, prompts and ends its own workloads alone")
    if has_jobs:
        box = "runs its jobs in a closed box: no network, nothing of this machine"
        words.append(in_the_open if grant.open_jobs else box)
    return words


def _counts(grant: Grant) -> list[str]:
    words = []
    if grant.deployments is not None:
        words.append(f"may have {_counted(grant.deployments, 'deployment')} at once at most")
    if grant.jobs is not None:
        words.append(f"may have {_counted(grant.jobs, 'job')} at once at most")
    # No peer has any yet: of the number that was not chosen there is nothing to say.
    if grant.workspaces != Grant().workspaces and {"workspaces", "all"} & set(grant.scopes):
        words.append(f"may own {_counted(grant.workspaces, 'workspace')} at most, once this peer has them")
    return words


def _end(grant: Grant, *, is_session: bool) -> str:
    if grant.expires_seconds is not None:
        return f"ends {describe_duration(grant.expires_seconds)} after its agent fetched it"
    if is_session:
        return "ends 8 h after its agent fetched it, since the agent asked for a session"
    return "is good until you revoke it"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
