"""How a container is known as this peer's, and what it says of its workload (F37)."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from adapters.runtime.port import WORKLOAD_ID, Container, WorkloadSpec

PREFIX: Final = "io.behavioralstate.best-peer."
INSTANCE: Final = f"{PREFIX}instance"
WORKLOAD: Final = f"{PREFIX}workload"
HOLDER: Final = f"{PREFIX}holder"
KIND: Final = f"{PREFIX}kind"
"""`deployment` or `job`, for whoever looks at the engine."""
PORT: Final = f"{PREFIX}port"
SECRET: Final = f"{PREFIX}secret-variable"
"""The name of the variable that carries the secret; never the secret."""
DETAIL: Final = f"{PREFIX}detail"
"""JSON of the specification's detail."""

_INSTANCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def network_name(instance: str) -> str:
    """The name of a peer's network; a ValueError for what is no instance's id."""
    if _INSTANCE.fullmatch(instance) is None:
        raise ValueError(f"{instance!r} is no instance's id")
    return f"bp-{instance}"


def container_name(instance: str, workload: str) -> str:
    """The name of a workload's container; a ValueError for what is no instance's or workload's id."""
    if WORKLOAD_ID.fullmatch(workload) is None:
        raise ValueError(f"{workload!r} is no workload's id")
    return f"{network_name(instance)}-{workload}"


def labels_of(spec: WorkloadSpec, instance: str) -> dict[str, str]:
    """What a container is labelled with. Always all of them: an image may bear labels of these names."""
    program = spec.program
    port = program.port if isinstance(program, Container) else None
    secret = program.secret if isinstance(program, Container) else None
    return {
        INSTANCE: instance,
        WORKLOAD: spec.workload,
        HOLDER: spec.holder,
        KIND: "job" if port is None else "deployment",
        PORT: "" if port is None else str(port),
        SECRET: "" if secret is None else secret[0],
        DETAIL: json.dumps(dict(spec.detail), sort_keys=True),
    }


def workload_of(labels: Mapping[str, Any], name: str, instance: str) -> str | None:
    """The workload whose container this is, None when it is not this peer's.

    Labels alone do not tell: an image may bear any. Its name it cannot choose.
    """
    workload = labels.get(WORKLOAD)
    if labels.get(INSTANCE) != instance or not isinstance(workload, str):
        return None
    if WORKLOAD_ID.fullmatch(workload) is None:
        return None
    return workload if name.removeprefix("/") == container_name(instance, workload) else None


def detail_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The specification's detail again."""
    return dict(json.loads(labels.get(DETAIL) or "{}"))
