"""What the workloads that run use of their devices' memory, for admission (F18)."""

from collections.abc import Collection, Mapping

import attrs
import trio

from actors.attribution import attribution, owned_processes
from actors.house import House
from actors.rules.room import taken_as_used
from actors.shared import Shared
from actors.state.holds import HOST
from actors.state.workloads import Workload
from actors.state.world import World

SECONDS = 6.0
"""What is not known by then is not waited for: a promise that may be used already counts as used."""

RECENT_SECONDS = 0.25
"""How old a figure may be that decides nothing: refused orders that come as fast as they can cost a few
readings a second, however many workloads there are."""


@attrs.frozen
class Use:
    """What the workloads used when they were asked.

    Args:
        by_workload: bytes; see `device_uses`.
        counted: those whose promise counted as used, where nobody knows, when asking began.
    """

    by_workload: Mapping[str, int]
    counted: frozenset[str]

    def among(self, world: World) -> Mapping[str, int]:
        """By workload, for the room there is now: who came so far since was not there to be asked.

        What it uses may not be in what the devices showed then.
        """
        came = taken_as_used(world) - self.counted
        return {**dict.fromkeys(came, 0), **self.by_workload} if came else self.by_workload


class UseReader:
    """Asks the workloads of one house what they use, all of them at once, for one who asks or for many."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._shared = Shared[Use]()

    async def now(self) -> Use:
        """From a reading that began after this call: what an admission may rely on."""
        return await self._shared.now(self._read)

    async def recent(self) -> Use:
        """From one that may have begun before, at most `RECENT_SECONDS` where it is not in hand still."""
        return await self._shared.recent(RECENT_SECONDS, self._read)

    def latest(self) -> Use | None:
        """The same where there is one; never a checkpoint."""
        return self._shared.latest(RECENT_SECONDS)

    async def _read(self) -> Use:
        counted = taken_as_used(self._house.store.world)
        return Use(await device_uses(self._house), counted)


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
