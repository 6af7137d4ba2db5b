"""Devices that a test or a demonstration makes up."""

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from adapters.gpu.port import (
    Api,
    Condition,
    Device,
    DeviceProcess,
    DriverFault,
    GpuState,
    Program,
)

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


def mig_device(index: int = 0, slot: int = 0, memory_bytes: int = 18 * GIB) -> Device:
    """An instance of a card."""
    return Device(
        id=f"gpu-{index}/mig-{slot}",
        uuid=f"MIG-00000000-0000-0000-{slot:04d}-{index:012d}",
        name="Fake Card MIG 1g.18gb",
        vendor="nvidia",
        apis=(Api("cuda", "13.0"),),
        memory_total_bytes=memory_bytes,
        memory_free_bytes=memory_bytes,
        slicing="mig",
    )


LOST: Final = DriverFault(
    "DRIVER_NOT_LOADED", "the made-up driver is gone", "call bring_back, or set BEST_PEER_GPU=none"
)
LATE: Final = DriverFault("DRIVER_LATE", "the made-up driver does not answer", "call bring_back")


@attrs.define(eq=False)
class FakeGpu:
    """Shows the devices it was given last. `reads` counts how often it was asked for them.

    Args:
        shown: what it shows while its driver answers.
        held: what runs on a device, by UUID; None is unknown. A card that is not named has nobody on it.
    """

    shown: tuple[Device, ...] = attrs.field(factory=lambda: (cpu_device(),))
    held: dict[str, tuple[DeviceProcess, ...] | None] = attrs.field(factory=dict)
    used: dict[int, int] = attrs.field(factory=dict)
    """What processes hold of the host's memory, by pid; unknown for those that are not named."""
    others: dict[int, Program] = attrs.field(factory=dict)
    """Which processes numbers name now; one that is not named here has named the same one since boot."""
    ended: set[int] = attrs.field(factory=set)
    """Numbers that name no process."""
    is_machines: bool = True
    """Whether it is to be known at all which processes numbers name."""
    reads: int = attrs.field(default=0, init=False)
    _away: tuple[Condition, DriverFault] | None = attrs.field(default=None, init=False)
    _lost: dict[str, tuple[Condition, str]] = attrs.field(factory=dict, init=False)
    _version: str | None = attrs.field(default="580.00", init=False)
    _script: list[tuple[Device, ...]] = attrs.field(factory=list, init=False)

    async def devices(self) -> tuple[Device, ...]:
        """The next of the script, and the last of it from then on."""
        await trio.lowlevel.checkpoint()
        self.reads += 1
        if self._script:
            self.shown = self._script.pop(0)
        if self._away is None:
            return tuple(d.not_ready(*self._lost[d.uuid]) if d.uuid in self._lost else d for d in self.shown)
        condition, fault = self._away
        return tuple(d if d.is_cpu else d.not_ready(condition, fault.reason) for d in self.shown)

    async def processes(self) -> Mapping[str, tuple[DeviceProcess, ...] | None]:
        """What `held` says of each card; unknown where the driver or the card is away."""
        await trio.lowlevel.checkpoint()
        return {
            d.uuid: self._listed(d.uuid) if self._away is None and d.uuid not in self._lost else None
            for d in self.shown
            if not d.is_cpu
        }

    async def programs(self, pids: frozenset[int]) -> Mapping[int, Program] | None:
        """As it was made to be: every number names a process, save those that have ended."""
        await trio.lowlevel.checkpoint()
        return {pid: self._program(pid) for pid in pids - self.ended} if self.is_machines else None

    async def host_memory(self, groups: Mapping[str, frozenset[int]]) -> Mapping[str, int]:
        """What `used` says of each group together; nothing when it says nothing of one of it."""
        await trio.lowlevel.checkpoint()
        known = {name: pids for name, pids in groups.items() if pids <= self.used.keys()}
        return {name: sum(self.used[pid] for pid in pids) for name, pids in known.items()}

    @property
    def state(self) -> GpuState:
        """As the driver was made to be; none where no card is shown."""
        if all(device.is_cpu for device in self.shown):
            return GpuState("none")
        if self._away is None:
            return GpuState("ready", self._version)
        condition, fault = self._away
        if condition == "late":
            return GpuState("late", self._version, fault)
        return GpuState("lost", None, fault)

    def hold(self, uuid: str, *processes: DeviceProcess) -> None:
        """Have these run on a card from now on, and no other."""
        self.held[uuid] = processes

    def _listed(self, uuid: str) -> tuple[DeviceProcess, ...] | None:
        held = self.held.get(uuid, ())
        if held is None or not self.is_machines:
            return held
        return tuple(
            attrs.evolve(p, is_gone=True)
            if p.pid in self.ended
            else attrs.evolve(p, program=self._program(p.pid))
            for p in held
        )

    def _program(self, pid: int) -> Program:
        return self.others.get(pid) or Program(1, f"program-{pid}")

    def lose_driver(self) -> None:
        """Have the driver be gone."""
        self._away = ("lost", LOST)

    def delay_driver(self) -> None:
        """Have the driver not answer in time."""
        self._away = ("late", LATE)

    def bring_back(self) -> None:
        """Have the driver answer again, and every card with it."""
        self._away = None
        self._lost.clear()

    def lose(self, uuid: str, condition: Condition = "lost", reason: str = "it fell off the bus") -> None:
        """Have one card not be readable from now on."""
        self._lost[uuid] = (condition, reason)

    def then(self, *devices: Device) -> None:
        """Show these at a reading to come: each call is for one more."""
        self._script.append(devices)

    def put(self, device: Device) -> None:
        """Show this device in place of the one with its UUID from now on."""
        self.shown = tuple(device if one.uuid == device.uuid else one for one in self.shown)
