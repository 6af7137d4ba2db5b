"""A machine's cards and its processor behind one port: the cards first, the CPU last (F17)."""

from collections.abc import Mapping

import attrs

from adapters.gpu.port import Device, DeviceProcess, Gpu, GpuState


@attrs.frozen
class JoinedGpu:
    """What the peer serves on where the machine has a driver.

    Args:
        cards: the accelerators; its state is the whole's.
        host: the processor.
    """

    cards: Gpu
    host: Gpu

    async def devices(self) -> tuple[Device, ...]:
        """The cards, then the processor, which is there whatever becomes of them."""
        return (*await self.cards.devices(), *await self.host.devices())

    async def processes(self) -> Mapping[str, tuple[DeviceProcess, ...] | None]:
        """What runs on the cards."""
        return await self.cards.processes()

    async def host_memory(self, pids: frozenset[int]) -> int | None:
        """As the system says."""
        return await self.host.host_memory(pids)

    @property
    def state(self) -> GpuState:
        """What the latest reading said of the cards' driver."""
        return self.cards.state
