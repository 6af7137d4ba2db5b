"""The processes of all of a peer's containers, in as few questions as there can be."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from adapters.runtime.docker.containers import Containers
from adapters.runtime.docker.faults import DockerFault
from adapters.runtime.docker.groups import by_container

AT_ONCE: Final = 8
"""Containers that the engine is asked about side by side."""


async def processes_of_all(
    containers: Containers, among: frozenset[int] | None
) -> Mapping[str, frozenset[int]]:
    """By workload, of every container that runs; one of which it is not known is left out.

    Where the kernel shows which process is in which container the engine is asked once, for what runs.
    Elsewhere (in a container, or with processes hidden) it is asked for each container.
    """
    # Before the list: what is found in a container then was in one that is listed, or has ended.
    groups = await trio.to_thread.run_sync(partial(by_container, among))
    running = await containers.running()
    if groups is not None:
        return {name: frozenset(groups.get(identity, ())) for name, identity in running.items()}
    found: dict[str, frozenset[int]] = {}
    turns = trio.CapacityLimiter(AT_ONCE)

    async def ask(name: str, identity: str) -> None:
        async with turns:
            try:
                pids = await containers.processes(identity)
            except DockerFault:
                return
            found[name] = pids if among is None else pids & among

    async with trio.open_nursery() as nursery:
        for name, identity in running.items():
            nursery.start_soon(ask, name, identity)
    return found
