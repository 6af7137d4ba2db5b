"""What the workloads that run use of the host's memory now, for admission (F18)."""

from collections.abc import Mapping

import trio

from actors.house import House
from adapters.runtime.port import RuntimeUnavailable

AT_ONCE = 8
"""Workloads that are looked at side by side: a container engine is asked for each."""

SECONDS = 3.0
"""What is not known by then is not waited for: a promise that may be used already counts as used."""


async def host_uses(house: House) -> Mapping[str, int]:
    """Bytes by workload, of those that were started; one of which it is not known is left out."""
    world = house.store.world
    started = [d.id for d in world.deployments.values() if d.started]
    started += [j.id for j in world.jobs.values() if j.started]
    found: dict[str, int] = {}
    turns = trio.CapacityLimiter(AT_ONCE)

    async def look(workload: str) -> None:
        async with turns:
            try:
                pids = await house.runtime.processes(workload)
            except RuntimeUnavailable:
                return
            held = await house.gpu.host_memory(pids) if pids else None
            if held is not None:
                found[workload] = held

    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for workload in started:
                nursery.start_soon(look, workload)
    return found
