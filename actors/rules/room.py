"""How much of a device may still be promised (F18).

Room is counted twice and the smaller counts: what is not promised, and what the driver sees free after what
the peer's own workloads were promised and do not use yet. A figure that the driver did not give is unknown:
without its free memory promises alone decide, and without its total nothing can be promised.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import attrs

from actors.rules.refusal import Refusal
from actors.state.world import World
from adapters.gpu.port import Device

NOTHING_KNOWN: Mapping[str, int] = MappingProxyType({})
"""Of no workload is it known what it uses."""


@attrs.frozen
class Room:
    """What a device has left for a new promise, in bytes.

    `by_promises` is None when the driver does not say how much it has, `by_driver` when it does not say how
    much is free.
    """

    by_promises: int | None
    by_driver: int | None

    @property
    def bytes(self) -> int:
        """The smaller of the two, never negative; 0 where nothing is known to promise of."""
        if self.by_promises is None:
            return 0
        return max(0, self.by_promises if self.by_driver is None else min(self.by_promises, self.by_driver))


def room_on(device: Device, world: World, uses: Mapping[str, int] = NOTHING_KNOWN) -> Room:
    """How much may still be promised on a device.

    Args:
        device: as it was read just now.
        world: what is promised on it.
        uses: what workloads use of their device's memory, in bytes, read before the device was: what one
            takes meanwhile is then counted twice and never left out.
    """
    total = device.total_bytes
    by_driver = None
    if device.memory_free_bytes is not None:
        by_driver = device.memory_free_bytes - _not_used_yet(device.uuid, world, uses)
    return Room(None if total is None else total - world.promised.get(device.uuid, 0), by_driver)


Say = Literal["none", "words", "verdict"]
"""What the use of memory by workloads has a say in: nothing, what a refusal tells, or whether it is one."""


def say_of_use(devices: Iterable[Device], world: World, memory_bytes: int) -> Say:
    """What depends on what the workloads use now, where so many bytes are asked for on any of these devices.

    To ask each of them costs the more the more of them there are. A device takes a promise whatever they use
    where they may use nothing yet of what they were promised, and refuses it whatever they use where they may
    use all of it.
    """
    says = {_say(device, world, memory_bytes) for device in devices}
    return "verdict" if "verdict" in says else "words" if "words" in says else "none"


def _say(device: Device, world: World, memory_bytes: int) -> Say:
    total, free = device.total_bytes, device.memory_free_bytes
    promised = world.promised.get(device.uuid, 0)
    # Without a figure use has no say; see `Room.bytes` for the 0.
    if total is None or free is None or promised == 0 or memory_bytes <= max(0, min(total, free) - promised):
        return "none"
    return "words" if memory_bytes > max(0, min(total - promised, free)) else "verdict"


def no_room(memory_bytes: int, rooms: Sequence[tuple[Device, Room]]) -> Refusal:
    """Why none of these devices takes a promise of so many bytes: the one with the most room is named."""
    best, most = max(rooms, key=lambda pair: pair[1].bytes)
    told = {
        "requested_bytes": memory_bytes,
        "available_bytes": most.bytes,
        "unpromised_bytes": most.by_promises,
        "driver_bytes": most.by_driver,
        "device": best.id,
    }
    if most.by_promises is None:
        return Refusal(
            "INSUFFICIENT_MEMORY",
            f"{memory_bytes} bytes were asked for and the driver of {best.id} does not say how much memory "
            "it has, so none of it can be promised; name another device, or the CPU",
            **told,
        )
    driver = "the driver gives no figure" if most.by_driver is None else f"{most.by_driver} by the driver"
    return Refusal(
        "INSUFFICIENT_MEMORY",
        f"{memory_bytes} bytes were asked for and the device with the most room, {best.id}, has "
        f"{most.bytes}: {most.by_promises} are not promised, {driver}; "
        f"ask for {most.bytes} at most, or end a workload",
        **told,
    )


def taken_as_used(world: World) -> frozenset[str]:
    """Workloads whose promise counts as used where nobody knows what they use."""
    ready = (deployment.id for deployment in world.deployments.values() if deployment.was_ready)
    return frozenset((*ready, *(job.id for job in world.jobs.values() if job.started)))


def _not_used_yet(uuid: str, world: World, uses: Mapping[str, int]) -> int:
    # Where nobody knows what one uses: a deployment that is ready has loaded its weights and its cache, so
    # its use is in the driver's figure already; before that its promise is still to come. When a job has
    # taken what it takes, nothing tells. Once it runs its use is in the driver's figure as it grows; to count
    # its promise beside that as well would count most of its memory twice for all its life.
    left = 0
    for deployment in world.deployments.values():
        if deployment.device_uuid == uuid:
            promise, used = deployment.memory_bytes, uses.get(deployment.id)
            if used is None:
                used = promise if deployment.was_ready else 0
            if used < promise:
                left += promise - used
    for job in world.jobs.values():
        if job.device_uuid == uuid:
            promise, used = job.memory_bytes or 0, uses.get(job.id)
            if used is None:
                used = promise if job.started else 0
            if used < promise:
                left += promise - used
    return left
