"""The vendor-neutral picture of a machine's devices.

A figure that the driver did not give is `None`, which means unknown: never zero, never fine
(rule 8 of the house).
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import attrs

ApiName = Literal["cuda", "rocm", "oneapi", "metal", "vulkan", "cpu"]
Slicing = Literal["none", "mig"]
Condition = Literal["ready", "late", "lost", "unreadable"]
"""How the latest reading of a device went.

ready: it answered; single figures may still be unknown.
late: it did not answer in time, or what is asked before it did not.
lost: it is gone, or its driver is: it fell off the bus, needs a reset, is no longer listed.
unreadable: the driver answers and does not say what it is.
"""

DriverCondition = Literal["none", "unread", "ready", "late", "lost"]
"""How the latest reading of a driver went.

none: no driver is asked, this machine serves on its CPU alone.
unread: nothing was read yet.
ready: it answered, whatever it said of single devices.
late: it did not answer in time, or has not returned from an earlier question.
lost: it cannot be asked at all: `GpuState.fault` says why.
"""

ProcessKind = Literal["compute", "graphics", "both"]


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

    `memory_total_bytes` is a number to reckon with, and 0 where the driver does not say
    (`is_total_known`): nothing can be promised of it then. What is shown to anybody is `total_bytes`.

    A device whose `condition` is not `ready` is shown as it was when it last was, with every figure that
    changes unknown and `condition_reason` in words for people; it takes no new work.
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
    is_total_known: bool = True
    condition: Condition = "ready"
    condition_reason: str | None = None

    def offers(self, apis: frozenset[ApiName]) -> bool:
        """Whether any API of `apis` runs here."""
        return any(offered.api in apis for offered in self.apis)

    @property
    def is_cpu(self) -> bool:
        """Whether this is the host's processor and not an accelerator."""
        return all(offered.api == "cpu" for offered in self.apis)

    @property
    def is_ready(self) -> bool:
        """Whether it may take new work, as far as its driver is concerned."""
        return self.condition == "ready"

    @property
    def total_bytes(self) -> int | None:
        """All its memory; None where the driver does not say."""
        return self.memory_total_bytes if self.is_total_known else None

    def not_ready(self, condition: Condition, reason: str) -> "Device":
        """The same device, known of and not read: what changes is unknown."""
        return attrs.evolve(
            self,
            condition=condition,
            condition_reason=reason,
            memory_free_bytes=None,
            temperature_celsius=None,
            power_watts=None,
            utilisation_ratio=None,
            energy_joules=None,
        )


@attrs.frozen
class Program:
    """Which process a number names now.

    Args:
        started: when it started, in ticks since boot: a number is used again, a number with its start is not.
        name: what the kernel calls it, for the owner's eyes; None where that is not to be known.
    """

    started: int
    name: str | None = None


@attrs.frozen
class DeviceProcess:
    """A program that the driver sees on a device.

    Args:
        pid: as the driver names it, in the host's own numbers.
        memory_bytes: what it holds of the device; None where the driver does not say.
        kind: what it uses the device for; a program that does both is one, and its memory is told once.
        utilisation_ratio: what it used of the device's compute in the last seconds, 0 to 1; None where the
            driver does not say, as for every program on a MIG instance.
        utilisation_failed: it says that as a rule, and failed to when it was asked: it may be any.
        program: which process the number named when the driver was asked; None where that is not to be known.
        is_gone: no process of that number lives, or only one that is younger than the driver's answer: what
            the driver still lists is being given back, or is stuck.
    """

    pid: int
    memory_bytes: int | None
    kind: ProcessKind
    utilisation_ratio: float | None = None
    program: Program | None = None
    is_gone: bool = False
    utilisation_failed: bool = False


@attrs.frozen
class DriverFault:
    """Why a driver cannot be asked: a stable code, and in words what happened and what to do."""

    code: str
    reason: str
    fix: str


class DriverUnavailable(Exception):
    """Raised when the driver that the peer was told to read cannot be asked (F17)."""

    def __init__(self, fault: DriverFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault
        self.code = fault.code
        self.reason = fault.reason
        self.fix = fault.fix


@attrs.frozen
class GpuState:
    """What the latest reading said of the driver itself.

    Args:
        condition: see `DriverCondition`.
        driver_version: as the driver says it; None where it does not, or could not be asked.
        fault: what is wrong with it, when it is late or lost.
        unreadable: cards and instances that the driver counts and does not name, so that no device stands
            for them.
    """

    condition: DriverCondition
    driver_version: str | None = None
    fault: DriverFault | None = None
    unreadable: int = 0

    @property
    def is_readable(self) -> bool:
        """Whether what was shown last came from the driver (F36, `best_peer_hardware_readable`)."""
        return self.condition in ("none", "ready")


class Gpu(Protocol):
    """Reads the devices of this machine, accelerators first, the host's CPU last."""

    async def devices(self) -> tuple[Device, ...]:
        """Read every device now. One bad reading never hides the others, and none of them raises.

        A device that was shown once and cannot be read stays, with its `condition`.
        """
        ...

    async def processes(self) -> Mapping[str, tuple[DeviceProcess, ...] | None]:
        """Read what runs on every accelerator now, by the device's UUID.

        None is unknown: the driver did not say, or not all of it. An empty tuple is nobody.
        """
        ...

    async def programs(self, pids: frozenset[int]) -> Mapping[int, Program] | None:
        """Which processes of the host these numbers name now; one that names none is left out.

        None where the system does not say, or numbers processes in another way than its drivers do.
        """
        ...

    async def host_memory(self, groups: Mapping[str, frozenset[int]]) -> Mapping[str, int]:
        """Host memory that each group of processes holds now and cannot be taken back, in bytes.

        A group of which it is not known is left out. Processes that have ended meanwhile hold none.
        """
        ...

    @property
    def state(self) -> GpuState:
        """What the latest reading, of whichever kind, said of the driver."""
        ...
