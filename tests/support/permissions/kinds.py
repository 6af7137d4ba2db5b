"""Every kind of key that comes to a door, and what was said when it was approved (F12, F13).

What each may do is written by hand from the product's own words, never read from the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

COMMAND_SCOPES: Final = frozenset({"deploy", "jobs", "prompt", "workspaces"})
SHARE_BYTES: Final = 1 << 30
"""What `--memory 1G` says."""
EXPIRES_SECONDS: Final = 60
SESSION_SECONDS: Final = 8 * 3600

Stand = Literal["never was", "open", "expired", "revoked", "given back", "owner"]


@attrs.frozen
class Kind:
    """One kind of key.

    Args:
        name: what the page calls it.
        made: how a key of this kind is had, for the page.
        stand: how it stands when it asks; `owner` is the admin token as the command line sends it.
        grant: the body of its approval; None where nobody approved it.
        scopes: what that grants, `all` or the scopes of commands, or `metrics`.
        has_share: it holds `SHARE_BYTES` at most, which makes it a tenant's.
        counts_used: it may run one deployment and one job, and runs both.
        accelerators_only: the host's CPU is not for it.
        boxed: its jobs run in the closed box.
        is_session: its agent asked for a session.
    """

    name: str
    made: str
    stand: Stand = "open"
    grant: Mapping[str, Any] | None = None
    scopes: frozenset[str] = frozenset()
    has_share: bool = False
    counts_used: bool = False
    accelerators_only: bool = False
    boxed: bool = False
    is_session: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it is a key that opens anything at all."""
        return self.stand == "open"

    @property
    def is_collectors(self) -> bool:
        """Whether it is for metrics, and for nothing else."""
        return self.scopes == {"metrics"}

    @property
    def sees_all(self) -> bool:
        """Whether every holder's workloads are its to see and to end."""
        return "all" in self.scopes

    def may(self, scope: str) -> bool:
        """Whether it may send a command of a scope; `any` is every open key's but a collector's."""
        if not self.is_open or self.is_collectors:
            return False
        return scope == "any" or self.sees_all or scope in self.scopes


def _of_scope(scope: str) -> Kind:
    return Kind(scope, f"`--may {scope}`", grant={"scopes": [scope]}, scopes=frozenset({scope}))


def _share_of(scope: str) -> Kind:
    return Kind(
        f"share, {scope}",
        f"`--may {scope} --memory 1G`",
        grant={"scopes": [scope], "memory_bytes": SHARE_BYTES},
        scopes=frozenset({scope}),
        has_share=True,
        boxed=True,
    )


_ALL: Final = frozenset({"all"})

NO_KEY: Final = Kind("no key", "nothing came with the request", "never was")
MALFORMED: Final = Kind("malformed", "something that no key looks like", "never was")
UNKNOWN: Final = Kind("unknown", "what keys look like, and nobody was given", "never was")
ADMIN_AS_KEY: Final = Kind("admin token", "the admin token in a key's place", "never was")
OWNER: Final = Kind(
    "owner",
    "the admin token as `Authorization: Bearer`, which is how the command line sends it",
    "owner",
)
EVERYTHING: Final = Kind("all", "nothing said, or `--may all`", grant={}, scopes=_ALL)

KINDS: Final[tuple[Kind, ...]] = (
    NO_KEY,
    MALFORMED,
    UNKNOWN,
    Kind("expired", "`--expires 60s`, a minute ago", "expired", {"expires_seconds": EXPIRES_SECONDS}, _ALL),
    Kind("revoked", "taken back with `best-peer revoke`", "revoked", {}, _ALL),
    Kind("given back", "given back with `RevokeAgent`", "given back", {}, _ALL),
    ADMIN_AS_KEY,
    OWNER,
    _of_scope("deploy"),
    _of_scope("jobs"),
    _of_scope("prompt"),
    _of_scope("workspaces"),
    _of_scope("metrics"),
    Kind(
        "share",
        "`--memory 1G`",
        grant={"memory_bytes": SHARE_BYTES},
        scopes=COMMAND_SCOPES,
        has_share=True,
        boxed=True,
    ),
    _share_of("deploy"),
    _share_of("jobs"),
    _share_of("prompt"),
    _share_of("workspaces"),
    _share_of("all"),
    Kind(
        "counts used up",
        "`--deployments 1 --jobs 1`, and runs one of each",
        grant={"deployments": 1, "jobs": 1},
        scopes=_ALL,
        counts_used=True,
    ),
    Kind(
        "accelerators-only",
        "`--accelerators-only`",
        grant={"accelerators_only": True},
        scopes=_ALL,
        accelerators_only=True,
    ),
    Kind(
        "share, accelerators-only",
        "`--memory 1G --accelerators-only`",
        grant={"memory_bytes": SHARE_BYTES, "accelerators_only": True},
        scopes=COMMAND_SCOPES,
        has_share=True,
        accelerators_only=True,
        boxed=True,
    ),
    Kind(
        "share, open-jobs",
        "`--memory 1G --open-jobs`",
        grant={"memory_bytes": SHARE_BYTES, "open_jobs": True},
        scopes=COMMAND_SCOPES,
        has_share=True,
    ),
    Kind(
        "session",
        "nothing said, for an agent that asked for a session; it ends after eight hours",
        grant={},
        scopes=_ALL,
        is_session=True,
    ),
    EVERYTHING,
)
"""In the page's order."""


@attrs.frozen
class RefusedGrant:
    """An approval that no owner can give, by the options that say it and the body that the door gets."""

    options: str
    why: str
    body: Mapping[str, Any]
    is_session: bool = False


REFUSED_GRANTS: Final[tuple[RefusedGrant, ...]] = (
    *(
        RefusedGrant(
            f"`--may metrics,{scope}`",
            "metrics stands alone",
            {"scopes": ["metrics", scope]},
        )
        for scope in ("deploy", "jobs", "prompt", "workspaces", "all")
    ),
    RefusedGrant(
        "`--may metrics --memory 1G`",
        "a key for metrics runs nothing",
        {"scopes": ["metrics"], "memory_bytes": SHARE_BYTES},
    ),
    RefusedGrant(
        "`--may metrics --deployments 1`",
        "a key for metrics runs nothing",
        {"scopes": ["metrics"], "deployments": 1},
    ),
    RefusedGrant("`--may prompt --jobs 1`", "a key that may run no jobs", {"scopes": ["prompt"], "jobs": 1}),
    RefusedGrant(
        "`--may jobs --deployments 1`", "a key that may not deploy", {"scopes": ["jobs"], "deployments": 1}
    ),
    RefusedGrant("`--may anything`", "there is no such scope", {"scopes": ["anything"]}),
    RefusedGrant("`--may` and nothing", "a key for nothing", {"scopes": []}),
    RefusedGrant("`--expires 367d`", "366 days at most", {"expires_seconds": 367 * 86_400}),
    RefusedGrant(
        "`--expires 9h`, for a session",
        "eight hours at most",
        {"expires_seconds": SESSION_SECONDS + 3600},
        is_session=True,
    ),
)
