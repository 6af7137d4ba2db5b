"""What is shown of a device, of its driver, and to the owner of who is on it (F16, F17).

What the driver did not say is null or absent: unknown is never zero.
"""

from typing import Any

from actors.attribution import attribution
from actors.house import House
from actors.looks import CardUse
from actors.rules.availability import Availability
from adapters.gpu.port import Device, DeviceProcess, GpuState


def device_report(device: Device, house: House, availability: Availability) -> dict[str, Any]:
    """One device as get-hardware-state shows it."""
    report: dict[str, Any] = {
        "id": device.id,
        "uuid": device.uuid,
        "name": device.name,
        "vendor": device.vendor,
        "apis": [
            {"api": a.api} if a.version is None else {"api": a.api, "version": a.version} for a in device.apis
        ],
        "memory_total_bytes": device.total_bytes,
        "memory_free_bytes": device.memory_free_bytes,
        "memory_promised_bytes": house.store.world.promised.get(device.uuid, 0),
        "slicing": device.slicing,
        "isolation": house.runtime.isolation,
        "availability": {"state": "free" if availability.is_free else "busy", **availability.known()},
        "condition": device.condition,
        **_known({"condition_reason": device.condition_reason}),
    }
    figures = ("temperature_celsius", "power_watts", "utilisation_ratio", "energy_joules")
    return report | _known({name: getattr(device, name) for name in figures})


def driver_report(state: GpuState) -> dict[str, Any]:
    """The driver of the cards as get-hardware-state shows it."""
    report: dict[str, Any] = {"condition": state.condition, **_known({"version": state.driver_version})}
    if state.unreadable:
        report["unreadable"] = state.unreadable
    if state.fault is not None:
        report["fault"] = {"code": state.fault.code, "reason": state.fault.reason, "fix": state.fault.fix}
    return report


async def cards_report(house: House) -> list[dict[str, Any]]:
    """Who is on each card now, for the owner alone: it names programs that are nobody's of the peer's."""
    return [
        {"uuid": uuid, "known": False} if use is None else {"uuid": uuid, "known": True, **_use(use)}
        for uuid, use in (await attribution(house)).items()
    ]


def _use(use: CardUse) -> dict[str, Any]:
    own = [{"workload": one.workload, **_process(one.process)} for one in use.own]
    strangers = {"others": use.others, "unsure": use.unsure, "gone": use.gone}
    return {"own": own, **{kind: [_process(one) for one in found] for kind, found in strangers.items()}}


def _process(one: DeviceProcess) -> dict[str, Any]:
    name = None if one.program is None else one.program.name
    return {
        "pid": one.pid,
        "kind": one.kind,
        "memory_bytes": one.memory_bytes,
        **_known({"name": name, "utilisation_ratio": one.utilisation_ratio}),
    }


def _known(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if value is not None}
