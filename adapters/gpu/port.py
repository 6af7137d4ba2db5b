"""The vendor-neutral picture of a machine's devices.

A figure that the driver did not give is `None`, which means unknown: never zero, never fine
(rule 8 of the house).
"""

from typing import Literal, Protocol

import attrs

ApiName = Literal["cuda", "rocm", "oneapi", "metal", "vulkan", "cpu"]
Slicing = Literal["none", "mig"]


@attrs.frozen
class Api:
    """A compute API that a device offers, with the version where the driver says it."""

    api: ApiName
    version: str | None = None


@attrs.frozen
class Device:
    """One card, one MIG instance, or the host's CPU with its memory, as read just now.

    `id` is for people (`gpu-0`, `gpu-0/mig-1`, `cpu`); `uuid` is what promises and holds are kept by.
    Sizes are bytes.
    """

    id: str
    uuid: str
    name: str
    vendor: str
    apis: tuple[Api, ...]
    memory_total_bytes: int
    memory_free_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    utilisation_ratio: float | None = None
    energy_joules: float | None = None
    slicing: Slicing = "none"

    def offers(self, apis: frozenset[ApiName]) -> bool:
        """Whether any API of `apis` runs here."""
        return any(offered.api in apis for offered in self.apis)

    @property
    def is_cpu(self) -> bool:
        """Whether this is the host's processor and not an accelerator."""
        return all(offered.api == "cpu" for offered in self.apis)


class Gpu(Protocol):
    """Reads the devices of this machine, accelerators first, the host's CPU last."""

    async def devices(self) -> tuple[Device, ...]:
        """Read every device now. One bad reading never hides the others."""
        ...
