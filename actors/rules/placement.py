"""Where a workload goes: the smallest device with room that it runs on, the CPU last (F18, F25).

Only devices that can be read and that their owner leaves free take new work (F17, F28, F29).
"""

from collections.abc import Mapping, Sequence

from actors.rules.availability import ALL_FREE, Availability, device_busy, host_busy, is_free
from actors.rules.refusal import Refusal
from actors.rules.room import NOTHING_KNOWN, no_room, room_on
from actors.state.holds import HOST
from actors.state.keys import Grant
from actors.state.world import World
from adapters.gpu.port import ApiName, Device

ISOLATION_LEVELS = ("process", "container", "user-namespace", "vm")
"""Weakest first (F32)."""


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
    uses: Mapping[str, int] = NOTHING_KNOWN,
    availability: Mapping[str, Availability] = ALL_FREE,
) -> Device:
    """Choose a deployment's device, or say why none will do.

    Raises:
        Refusal: UNKNOWN_DEVICE, ACCELERATORS_ONLY, ENGINE_NEEDS_DEVICE, ISOLATION_UNAVAILABLE,
            DEVICE_NOT_READY, DEVICE_BUSY, INSUFFICIENT_MEMORY, each with what may be sent instead.
    """
    seen = _meant(wanted_device, devices, grant)
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
    return _with_room(_taking(able, availability), memory_bytes, world, uses)


def place_job(
    *,
    memory_bytes: int | None,
    wanted_device: str | None,
    wanted_isolation: str | None,
    isolation: str,
    devices: Sequence[Device],
    grant: Grant,
    world: World,
    uses: Mapping[str, int] = NOTHING_KNOWN,
    availability: Mapping[str, Availability] = ALL_FREE,
) -> Device | None:
    """Choose a job's device, or say why none will do; None runs it on the host with no device.

    A promise alone goes to any device that has the room, whatever it offers: only the job knows what it
    computes with. A device that is named without a promise is handed over and nothing is promised on it: its
    memory may still all be promised to others. What runs with no device runs on the host's processor, and not
    while its owner holds that.

    Raises:
        Refusal: UNKNOWN_DEVICE, ACCELERATORS_ONLY, ISOLATION_UNAVAILABLE,
            DEVICE_NOT_READY, DEVICE_BUSY, INSUFFICIENT_MEMORY, each with what may be sent instead.
    """
    if memory_bytes is None and wanted_device is None:
        if grant.accelerators_only:
            raise Refusal(
                "ACCELERATORS_ONLY",
                "this key uses accelerators alone, and a job without a device runs on the host's CPU; "
                "send memory_bytes or name a device",
                devices=[d.id for d in devices if not d.is_cpu],
            )
        _check_isolation(wanted_isolation, isolation)
        if not is_free(availability, HOST):
            raise host_busy(availability)
        return None
    seen = _meant(wanted_device, devices, grant)
    _check_isolation(wanted_isolation, isolation)
    return _with_room(_taking(seen, availability), memory_bytes or 0, world, uses)


def _meant(wanted: str | None, devices: Sequence[Device], grant: Grant) -> list[Device]:
    """The devices that may be meant: the named one, or all that the key may use; never none."""
    seen = [d for d in devices if not (grant.accelerators_only and d.is_cpu)]
    if wanted is not None:
        named = [d for d in devices if wanted in (d.id, d.uuid)]
        if named and named[0] not in seen:
            raise Refusal(
                "ACCELERATORS_ONLY",
                f"this key uses accelerators alone, and {wanted} offers only the CPU; "
                f"name one of: {_names(seen)}",
                devices=[d.id for d in seen],
            )
        if not named:
            raise Refusal(
                "UNKNOWN_DEVICE",
                f"there is no device {wanted} here; name one of: {_names(seen)}",
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
    return seen


def _taking(able: Sequence[Device], availability: Mapping[str, Availability]) -> list[Device]:
    """Those that take new work now; never none."""
    ready = [d for d in able if d.is_ready]
    if not ready:
        first = able[0]
        raise Refusal(
            "DEVICE_NOT_READY",
            f"{first.id} takes no new work: {first.condition_reason or first.condition}; "
            "choose another device, or send it again when get-hardware-state shows the device's memory",
            device=first.id,
            condition=first.condition,
        )
    free = [d for d in ready if is_free(availability, d.uuid)]
    if not free:
        raise device_busy(ready, availability)
    return free


def _with_room(able: Sequence[Device], memory_bytes: int, world: World, uses: Mapping[str, int]) -> Device:
    rooms = [(d, room_on(d, world, uses)) for d in able]
    fitting = [(d, r) for d, r in rooms if r.bytes >= memory_bytes]
    if fitting:
        return min(fitting, key=lambda pair: (pair[0].is_cpu, pair[0].memory_total_bytes))[0]
    raise no_room(memory_bytes, rooms)


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
