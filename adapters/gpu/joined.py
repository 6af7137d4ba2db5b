"""A machine's cards and its processor behind one port: the cards first, the CPU last (F17)."""

from collections.abc import Mapping

import attrs

from adapters.gpu.host import boot_ticks
from adapters.gpu.port import Device, DeviceProcess, Gpu, GpuState, Program


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
        """What runs on the cards, as the driver says, and which processes those are, as the system does."""
        asked = boot_ticks()
        listed = await self.cards.processes()
        pids = frozenset(one.pid for found in listed.values() for one in found or ())
        programs = await self.host.programs(pids) if pids else {}
        if programs is None:
            return listed
        return {
            uuid: None if found is None else tuple(_known(one, programs.get(one.pid), asked) for one in found)
            for uuid, found in listed.items()
        }

    async def programs(self, pids: frozenset[int]) -> Mapping[int, Program] | None:
        """As the system says."""
        return await self.host.programs(pids)

    async def host_memory(self, groups: Mapping[str, frozenset[int]]) -> Mapping[str, int]:
        """As the system says."""
        return await self.host.host_memory(groups)

    @property
    def state(self) -> GpuState:
        """What the latest reading said of the cards' driver."""
        return self.cards.state


def _known(listed: DeviceProcess, program: Program | None, asked: int) -> DeviceProcess:
    # Within a tick nobody can tell which was first: then it is taken for the one that was listed.
    if program is None or program.started > asked:
        return attrs.evolve(listed, is_gone=True)
    return attrs.evolve(listed, program=program)
