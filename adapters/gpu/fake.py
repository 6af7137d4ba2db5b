"""Devices that a test or a demonstration makes up."""

from typing import Final

import attrs
import trio

from adapters.gpu.port import Api, Device

GIB: Final = 1024**3


def cpu_device(memory_bytes: int = 16 * GIB) -> Device:
    """A host processor."""
    return Device(
        id="cpu",
        uuid="cpu",
        name="Fake CPU",
        vendor="fake",
        apis=(Api("cpu"),),
        memory_total_bytes=memory_bytes,
        memory_free_bytes=memory_bytes,
    )


def cuda_device(index: int = 0, memory_bytes: int = 24 * GIB) -> Device:
    """A card."""
    return Device(
        id=f"gpu-{index}",
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        name="Fake Card",
        vendor="nvidia",
        apis=(Api("cuda", "13.0"),),
        memory_total_bytes=memory_bytes,
        memory_free_bytes=memory_bytes,
        temperature_celsius=40.0,
        power_watts=30.0,
        utilisation_ratio=0.0,
        energy_joules=0.0,
    )


@attrs.define(eq=False)
class FakeGpu:
    """Shows the devices it was given last. `reads` counts how often it was asked."""

    shown: tuple[Device, ...] = attrs.field(factory=lambda: (cpu_device(),))
    reads: int = attrs.field(default=0, init=False)
    _script: list[tuple[Device, ...]] = attrs.field(factory=list, init=False)

    async def devices(self) -> tuple[Device, ...]:
        """The next of the script, and the last of it from then on."""
        await trio.lowlevel.checkpoint()
        self.reads += 1
        if self._script:
            self.shown = self._script.pop(0)
        return self.shown

    def then(self, *devices: Device) -> None:
        """Show these at a reading to come: each call is for one more."""
        self._script.append(devices)

    def put(self, device: Device) -> None:
        """Show this device in place of the one with its UUID from now on."""
        self.shown = tuple(device if one.uuid == device.uuid else one for one in self.shown)
