"""What the workloads that run use of their devices' memory now, for admission (F18)."""

from collections.abc import Collection, Mapping

import trio

from actors.attribution import attribution, owned_processes
from actors.house import House
from actors.state.holds import HOST
from actors.state.workloads import Workload

SECONDS = 6.0
"""What is not known by then is not waited for: a promise that may be used already counts as used."""


async def device_uses(house: House) -> Mapping[str, int]:
    """Bytes by workload, each of the memory of its own device, of those that were started.

    One of which it is not known is left out: what runs it does not say which its processes are, or the driver
    does not say what they hold.
    """
    world = house.store.world
    started: list[Workload] = [d for d in world.deployments.values() if d.started]
    started += [j for j in world.jobs.values() if j.started]
    on_host = [one.id for one in started if one.device_uuid == HOST]
    on_cards = {one.id: one.device_uuid for one in started if one.device_uuid not in (None, HOST)}
    found: dict[str, int] = {}

    async def look_at_host() -> None:
        found.update(await _of_host(house, on_host))

    async def look_at_cards() -> None:
        use = await attribution(house)
        for workload, uuid in on_cards.items():
            card = use.get(uuid or "")
            held = None if card is None else card.held_by(workload)
            if held is not None:
                found[workload] = held

    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            if on_host:
                nursery.start_soon(look_at_host)
            if on_cards:
                nursery.start_soon(look_at_cards)
    return found


async def _of_host(house: House, workloads: Collection[str]) -> Mapping[str, int]:
    owned = await owned_processes(house, workloads)
    pids: dict[str, set[int]] = {}
    for pid, workload in owned.by_pid.items():
        pids.setdefault(workload, set()).add(pid)
    # One that runs and has no process is about to end, or cannot be told.
    return await house.gpu.host_memory({one: frozenset(pids[one]) for one in workloads if one in pids})
