"""Starts one empty box when the peer starts, to see what the engine really takes (F30, F31).

An engine's limits on what it can give, and the names it knows, show only when a container is started. The box
has no program: its init says that it found none, and that is how a box ends which was started whole.
"""

import io
import logging
import tarfile
from typing import Final

import attrs
import trio

from adapters.runtime.docker.client import Parameters
from adapters.runtime.docker.containers import Containers
from adapters.runtime.docker.ends import exit_of
from adapters.runtime.docker.failures import OpenFilesRefused, SeccompNameRefused
from adapters.runtime.docker.faults import BadAnswer, EngineError, EngineGone
from adapters.runtime.docker.info import EngineInfo
from adapters.runtime.docker.networks import OwnNetwork
from adapters.runtime.docker.output import read_tail
from adapters.runtime.docker.starting import Starter
from adapters.runtime.port import Container, RuntimeUnavailable, StartFailed, WorkloadSpec

PROBE: Final = "probe"
PROBE_SECONDS: Final = 60.0
CLEAN_UP_SECONDS: Final = 10.0
_MEMORY: Final = 64 * 1024 * 1024

logger = logging.getLogger("best_peer.runtime")


async def probe(
    containers: Containers, network: OwnNetwork, engine: EngineInfo
) -> tuple[EngineInfo, str | None]:
    """What a box can be given on this engine, and what is wrong with it when none can be started.

    Raises:
        EngineGone: the engine does not answer.
    """
    try:
        with trio.move_on_after(PROBE_SECONDS):
            # An earlier peer that was killed while it looked left these.
            await _clean_up(containers)
            await make_empty_image(containers)
            while True:
                try:
                    return engine, await _run(Starter(containers, network, engine, "127.0.0.1"))
                except OpenFilesRefused:
                    engine = attrs.evolve(engine, open_files=None)
                except SeccompNameRefused:
                    engine = attrs.evolve(engine, seccomp=None)
    except StartFailed as failed:
        return engine, f"{failed.reason}; {failed.fix}"
    except (EngineError, BadAnswer, RuntimeUnavailable) as fault:
        return engine, str(fault)
    else:
        return engine, f"an empty container did not start and end within {PROBE_SECONDS:.0f} s"
    finally:
        with trio.move_on_after(CLEAN_UP_SECONDS, shield=True):
            try:
                await _clean_up(containers)
            except (EngineError, EngineGone, BadAnswer) as fault:
                logger.warning("an empty container or its image is left on the container engine: %s", fault)


async def _run(starter: Starter) -> str | None:
    containers = starter.containers
    program = Container(image=image_name(containers), command=("/best-peer-looks",), tasks=16, is_boxed=True)
    spec = WorkloadSpec(PROBE, "", program, memory_bytes=_MEMORY)
    identity = await starter.make(spec, program, None)
    await starter.start(spec, program, identity)
    await containers.until_ended(identity)
    found = await containers.look(PROBE)
    if found is None:
        return "an empty container was removed by somebody else"
    ended = exit_of(found.state, await read_tail(containers.client, identity))
    if ended.not_found:
        return None
    return f"an empty container ended with {ended.code}: {' '.join(ended.output)[:200]}"


def image_name(containers: Containers) -> str:
    """The name of the empty image, by which it is found when its removal was cut off."""
    return f"best-peer/probe:{containers.instance}"


async def make_empty_image(containers: Containers) -> None:
    """Have the engine hold an image with nothing in it but /tmp."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
    repository, _, tag = image_name(containers).partition(":")
    params: Parameters = {"fromSrc": "-", "repo": repository, "tag": tag}
    await containers.client.call("POST", "/images/create", params=params, tar=raw.getvalue())


async def _clean_up(containers: Containers) -> None:
    found = await containers.look(PROBE)
    if found is not None:
        await containers.remove(found.id, even_if_running=True)
    path = f"/images/{image_name(containers)}"
    await containers.client.call("DELETE", path, ok=(404,), again=True)
