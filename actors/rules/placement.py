"""Where a workload goes: the smallest device with room that runs its engine, the CPU last (F18).

Room is counted twice and the smaller counts: what is not promised, and what the driver sees free after what
the peer's own workloads were promised and do not use yet. A figure that the driver did not give is unknown:
then promises alone decide, and the refusal says so.
"""

from collections.abc import Iterable, Sequence

import attrs

from actors.rules.refusal import Refusal
from actors.state.keys import Grant
from actors.state.workloads import Deployment
from actors.state.world import World
from adapters.gpu.port import ApiName, Device

ISOLATION_LEVELS = ("process", "container", "user-namespace", "vm")
"""Weakest first (F32)."""


@attrs.frozen
class Room:
    """What a device has left for a new promise, in bytes.

    `by_driver` is None when the driver gave no figure.
    """

    by_promises: int
    by_driver: int | None

    @property
    def bytes(self) -> int:
        """The smaller of the two, never negative."""
        return max(0, self.by_promises if self.by_driver is None else min(self.by_promises, self.by_driver))


def room_on(device: Device, world: World) -> Room:
    """How much may still be promised on a device."""
    promised = world.promised.get(device.uuid, 0)
    by_driver = None
    if device.memory_free_bytes is not None:
        by_driver = device.memory_free_bytes - _not_used_yet(device.uuid, world.deployments.values())
    return Room(device.memory_total_bytes - promised, by_driver)


def _not_used_yet(uuid: str, deployments: Iterable[Deployment]) -> int:
    # A deployment that is ready has loaded its weights and its cache: its use is in the driver's figure
    # already. Before that its promise is still to come.
    return sum(d.memory_bytes for d in deployments if d.device_uuid == uuid and not d.was_ready)


def place(
    *,
    engine: str,
    apis: frozenset[ApiName],
    memory_bytes: int,
    wanted_device: str | None,
    wanted_isolation: str | None,
    isolation: str,
    devices: Sequence[Device],
    grant: Grant,
    world: World,
) -> Device:
    """Choose a device, or say why none will do.

    Raises:
        Refusal: UNKNOWN_DEVICE, ACCELERATORS_ONLY, ENGINE_NEEDS_DEVICE, ISOLATION_UNAVAILABLE,
            INSUFFICIENT_MEMORY, each with what may be sent instead.
    """
    seen = [d for d in devices if not (grant.accelerators_only and d.is_cpu)]
    if wanted_device is not None:
        named = [d for d in devices if wanted_device in (d.id, d.uuid)]
        if named and named[0] not in seen:
            raise Refusal(
                "ACCELERATORS_ONLY",
                f"this key uses accelerators alone, and {wanted_device} offers only the CPU; "
                f"name one of: {_names(seen)}",
                devices=[d.id for d in seen],
            )
        if not named:
            raise Refusal(
                "UNKNOWN_DEVICE",
                f"there is no device {wanted_device} here; name one of: {_names(seen)}",
                devices=[d.id for d in seen],
            )
        seen = named
    if not seen:
        raise Refusal(
            "ACCELERATORS_ONLY",
            "this key uses accelerators alone, and this machine has none; "
            "ask its owner for a key without that limit",
            devices=[],
        )
    _check_isolation(wanted_isolation, isolation)
    able = [d for d in seen if d.offers(apis)]
    if not able:
        raise Refusal(
            "ENGINE_NEEDS_DEVICE",
            f"{engine} runs on {', '.join(sorted(apis))}, which {_names(seen)} does not offer; "
            "choose another engine or device",
            engine=engine,
            needs=sorted(apis),
            devices=[d.id for d in seen],
        )
    rooms = [(d, room_on(d, world)) for d in able]
    fitting = [(d, r) for d, r in rooms if r.bytes >= memory_bytes]
    if fitting:
        return min(fitting, key=lambda pair: (pair[0].is_cpu, pair[0].memory_total_bytes))[0]
    best, most = max(rooms, key=lambda pair: pair[1].bytes)
    driver = "the driver gives no figure" if most.by_driver is None else f"{most.by_driver} by the driver"
    raise Refusal(
        "INSUFFICIENT_MEMORY",
        f"{memory_bytes} bytes were asked for and the device with the most room, {best.id}, has "
        f"{most.bytes}: {most.by_promises} are not promised, {driver}; "
        f"ask for {most.bytes} at most, or end a deployment",
        requested_bytes=memory_bytes,
        available_bytes=most.bytes,
        unpromised_bytes=most.by_promises,
        driver_bytes=most.by_driver,
        device=best.id,
    )


def _check_isolation(wanted: str | None, offered: str) -> None:
    if wanted is None or ISOLATION_LEVELS.index(wanted) <= ISOLATION_LEVELS.index(offered):
        return
    raise Refusal(
        "ISOLATION_UNAVAILABLE",
        f"no device here offers isolation {wanted}; this machine offers {offered}: "
        "leave isolation out, or ask for that at most",
        requested=wanted,
        offered=offered,
    )


def _names(devices: Sequence[Device]) -> str:
    return ", ".join(d.id for d in devices) or "none"
