"""Docker, and NVIDIA's toolkit with it (F21, F30)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import EndpointRefused, endpoint_from
from adapters.runtime.docker.failures import CONFIGURE_TOOLKIT
from adapters.runtime.docker.faults import DockerFault, EngineForbidden, EngineGone
from adapters.runtime.docker.info import OPEN_FILES, EngineInfo, EngineRefused, examine
from peer.checks.line import ok, problem, warning
from peer.units import GIB, describe_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.runtime.docker.endpoint import Endpoint
    from peer.checks.line import Line

SUBJECT: Final = "docker"
TOOLKIT: Final = "toolkit"
ENGINE_SECONDS: Final = 8.0
"""For everything that it is asked."""
ROOM_WANTED: Final = 10 * GIB
"""Under Docker's storage: an engine's image and one small model are a few GB."""
HOOK: Final = "nvidia-container-runtime-hook"
"""What Docker runs for ``--gpus`` where it was told of no runtime: it only has to be on its PATH."""
OTHERWISE: Final = (
    "without Docker, set BEST_PEER_RUNTIME=process to serve GGUF files by llama.cpp, or native to serve by "
    "an Ollama that is installed here"
)


@attrs.frozen
class Engine:
    """What a container engine said of itself, as it said it."""

    info: Mapping[str, Any]
    version: Mapping[str, Any]
    endpoint: Endpoint


async def look(docker: Mapping[str, str], *, wants_cards: bool) -> tuple[Line, ...]:
    """Ask the engine that Docker's variables name.

    Args:
        docker: those variables.
        wants_cards: whether the peer is to hand cards over to it.
    """
    try:
        with trio.fail_after(ENGINE_SECONDS):
            engine = await ask(docker)
    except trio.TooSlowError:
        return (
            problem(
                SUBJECT,
                f"the container engine did not answer within {ENGINE_SECONDS:g} seconds",
                f"look at its log (journalctl -u docker), and restart it when it hangs; {OTHERWISE}",
            ),
        )
    except EndpointRefused as fault:
        return (problem(SUBJECT, fault.reason, fault.fix),)
    except EngineForbidden as fault:
        return (problem(SUBJECT, fault.reason, fault.fix),)
    except EngineGone as fault:
        return (problem(SUBJECT, fault.reason, f"{fault.fix}; {OTHERWISE}"),)
    except DockerFault as fault:
        return (problem(SUBJECT, str(fault), f"see what listens there (docker version); {OTHERWISE}"),)
    lines = judge(engine, free_bytes)
    return (*lines, *toolkit(engine, has_hook=shutil.which(HOOK) is not None)) if wants_cards else lines


async def ask(docker: Mapping[str, str]) -> Engine:
    """What the engine says of itself; asked once, waiting for nothing.

    Raises:
        EndpointRefused: Docker's variables name none that the peer talks to.
        DockerFault: it did not answer, or not as an engine.
    """
    endpoint = endpoint_from(docker, home=Path(docker.get("HOME") or "/"))
    async with DockerClient(endpoint, patience_seconds=0) as client:
        info = await client.call("GET", "/info")
        version = await client.call("GET", "/version")
    return Engine(info or {}, version or {}, endpoint)


def judge(engine: Engine, room: Callable[[str], int | None]) -> tuple[Line, ...]:
    """The lines for an engine that answered.

    Args:
        engine: what it said.
        room: the free bytes of the file system of a path on this machine; None where they are not known.
    """
    try:
        found = examine(engine.info, engine.version)
    except EngineRefused as fault:
        return (problem(SUBJECT, fault.reason, f"{fault.fix}; {OTHERWISE}"),)
    lines = [
        ok(
            SUBJECT,
            f"Docker Engine {found.version} at {engine.endpoint}, {_groups(engine.info)}, "
            # A container tells, and a look starts none.
            f"isolation {found.isolation}; whether it gives a container {OPEN_FILES} open files, only a "
            "start tries, and says it in the peer's log",
        )
    ]
    lines += [_remark(remark) for remark in found.remarks()]
    lines += _storage(engine, found, room)
    return tuple(lines)


def _storage(engine: Engine, found: EngineInfo, room: Callable[[str], int | None]) -> list[Line]:
    # The root's path is the engine's own, and names nothing here where it is on another machine.
    free = room(found.root) if engine.endpoint.socket is not None else None
    if free is None:
        return []
    if free < ROOM_WANTED:
        return [
            warning(
                SUBJECT,
                f"{describe_size(free)} are free under Docker's storage ({found.root})",
                "free some there (docker system df shows what is held): an image and a model are a few GB",
            )
        ]
    return [ok(SUBJECT, f"{describe_size(free)} are free under Docker's storage ({found.root})")]


def toolkit(engine: Engine, *, has_hook: bool) -> tuple[Line, ...]:
    """Whether the engine can hand NVIDIA's cards over.

    Args:
        engine: what it said.
        has_hook: whether the toolkit's hook is on this machine's PATH.
    """
    if examine_has_nvidia(engine):
        return (ok(TOOLKIT, "Docker knows the NVIDIA container toolkit"),)
    if engine.endpoint.socket is None:
        return (
            warning(
                TOOLKIT,
                "Docker is on another machine and does not say whether it has the NVIDIA container toolkit",
                f"there: {CONFIGURE_TOOLKIT}",
            ),
        )
    if has_hook:
        return (
            ok(TOOLKIT, "the NVIDIA container toolkit is installed, its runtime not registered with Docker"),
        )
    return (
        problem(
            TOOLKIT,
            "Docker knows no NVIDIA container toolkit, so no container can be given a card",
            f"{CONFIGURE_TOOLKIT}; or set BEST_PEER_GPU=none to serve on this machine's CPU alone",
        ),
    )


def examine_has_nvidia(engine: Engine) -> bool:
    """Whether the engine says that it knows NVIDIA's toolkit; an engine that is refused says nothing."""
    try:
        return examine(engine.info, engine.version).has_nvidia
    except EngineRefused:
        return False


def free_bytes(path: str) -> int | None:
    """The free bytes of the file system of a path, or None."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _groups(info: Mapping[str, Any]) -> str:
    version, driver = info.get("CgroupVersion"), info.get("CgroupDriver")
    return f"cgroup v{version or ' unknown'} by {driver or 'an unknown driver'}"


def _remark(remark: str) -> Line:
    what, semicolon, remedy = remark.partition("; ")
    if not semicolon:
        what, _, remedy = remark.partition(": ")
    return warning(SUBJECT, what, remedy or "see docs/containers.md")
