"""The device that a workload was promised, at the moment it is started there (F17, F18)."""

from typing import Final

import trio

from actors.house import House
from adapters.gpu.port import Device
from adapters.runtime.port import StartFailed

UNAVAILABLE: Final = "DEVICE_UNAVAILABLE"

AGAIN_SECONDS: Final = 1.0
"""Between two looks at a device that cannot be used yet."""


async def promised_device(house: House, uuid: str, name: str | None, *, is_size_needed: bool) -> Device:
    """The device with that UUID, whatever number it has by now.

    One that cannot be read is waited for, `Bounds.card` at most: an engine that starts before its card can be
    used serves from the processor, or not at all (ollama #7669).

    Args:
        house: whose devices.
        uuid, name: what it is known by, and to people.
        is_size_needed: it has to be known how much memory it has, as for an engine that is told how much of
            it to leave alone.

    Raises:
        StartFailed: it is not there, or not to be used in time.
    """
    why = ""
    with trio.move_on_after(house.bounds.card):
        while True:
            device = next((d for d in await house.gpu.devices() if d.uuid == uuid), None)
            if device is None:
                raise StartFailed(
                    f"the device {name} is not there any more",
                    fix="read get-hardware-state and name a device it lists, or none",
                    code=UNAVAILABLE,
                )
            if device.is_ready and not (is_size_needed and device.total_bytes is None):
                return device
            why = device.condition_reason or "its driver does not say how much memory it has"
            await trio.sleep(AGAIN_SECONDS)
    raise StartFailed(
        f"{name} could not be used for {house.bounds.card:g} seconds"
        + (f": {why}" if why else ": its driver did not answer"),
        fix="send it again once get-hardware-state shows the device's memory, or name another device",
        code=UNAVAILABLE,
    )
