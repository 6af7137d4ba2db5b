"""The `BEST_PEER_*` names that are no setting of this release, and what is said of each (F33)."""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from peer.log_text import clean
from peer.setting import Problem, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PREFIX: Final = "BEST_PEER_"
MAX_UNKNOWN: Final = 32
"""Unknown variables named, at most."""
LIKENESS: Final = 0.7
"""Of what follows the prefix, for a typing error; 1 is the same name."""

RETIRED: Final = MappingProxyType(
    {
        "BEST_PEER_DEPLOYMENTS_PER_HOLDER": "say it for each key: best-peer approve CODE --deployments N",
        "BEST_PEER_JOBS_PER_HOLDER": "say it for each key: best-peer approve CODE --jobs N",
        "BEST_PEER_MEMBERS": "wait for a later release: clouds of several peers come with it",
    }
)
"""Settings of old, each with what replaced it. One that is set refuses the start: its owner relies on it."""

LATER: Final = frozenset(
    {
        "BEST_PEER_PROMPT_RETENTION",
        "BEST_PEER_STORE_CLEARTEXT",
        "BEST_PEER_TRUST",
    }
)
"""Settings whose feature is not in this release: set, they are told to have no effect yet."""

INSTALLER: Final = frozenset(
    {"BEST_PEER_INSTALL_DIR", "BEST_PEER_PYTHON", "BEST_PEER_SOURCE", "BEST_PEER_VERSION"}
)
"""What the installer reads and the peer does not."""


def retired(name: str, value: str) -> Problem:
    """Why a start is refused over a setting of old."""
    fix = f"unset it and {RETIRED[name]}"
    return Problem(variable=name, shown=shown(value), expected="it is no setting any more", fix=fix)


def unknown(environ: Mapping[str, str], known: Sequence[str]) -> Iterator[str]:
    """A line for each variable of the environment that looks like a setting and is none.

    Args:
        environ: the environment.
        known: the names of all settings.
    """
    names = sorted(name for name in environ if name.startswith(PREFIX))
    strange = [name for name in names if name not in INSTALLER | RETIRED.keys() | set(known)]
    # Without what all of them begin with, which would make any two alike.
    likely = [name.removeprefix(PREFIX) for name in known]
    for name in strange[:MAX_UNKNOWN]:
        if name in LATER:
            yield f"{name} has no effect yet: its feature comes with a later release"
            continue
        close = difflib.get_close_matches(name.removeprefix(PREFIX), likely, n=1, cutoff=LIKENESS)
        hint = f"did you mean {PREFIX}{close[0]}?" if close else "best-peer --help lists the settings"
        yield f"{clean(name, 80)} is no setting and has no effect: {hint}"
