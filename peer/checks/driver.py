"""The cards and their driver (F17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.nvml_faults import NO_CARD
from peer.checks.line import ok, problem, warning
from peer.units import describe_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.gpu.port import Device, Gpu, GpuState
    from peer.checks.line import Line

SUBJECT: Final = "driver"
DRIVER_SECONDS: Final = 20.0
"""For the driver's answer: without persistence mode it wakes every card first, which takes some seconds."""
LOOK_SECONDS: Final = DRIVER_SECONDS + 10
"""A driver that hangs is told by the reading itself, with what to do; this is for the case that it is not."""
CLOSE_SECONDS: Final = 1.0


def no_driver_wanted() -> tuple[Line, ...]:
    """What there is to say under ``BEST_PEER_GPU=none``."""
    return (ok(SUBJECT, "BEST_PEER_GPU=none: no card is looked for, this machine serves on its CPU"),)


async def look() -> tuple[Line, ...]:
    """Ask NVIDIA's driver once."""
    gpu = NvmlGpu(patience=DRIVER_SECONDS)
    try:
        return await read(gpu)
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await gpu.aclose()


async def read(gpu: Gpu) -> tuple[Line, ...]:
    """What a reading of the cards says."""
    devices = await gpu.devices()
    return judge(devices, gpu.state)


def judge(devices: Sequence[Device], state: GpuState) -> tuple[Line, ...]:
    """The lines for what a driver said of itself and of its cards.

    Args:
        devices: its cards and MIG instances, the host's CPU not among them.
        state: what the reading said of the driver.
    """
    if state.fault is not None:
        return (problem(SUBJECT, state.fault.reason, state.fault.fix),)
    if not devices and not state.unreadable:
        return (
            problem(
                SUBJECT,
                f"{NO_CARD.reason} that can be used",
                f"{NO_CARD.fix}. A card with MIG mode on offers nothing until it has instances "
                "(nvidia-smi mig -lgi)",
            ),
        )
    version = state.driver_version or "of unknown version"
    lines = [ok(SUBJECT, f"NVIDIA driver {version}{_cuda(devices)} answers, {_counted(len(devices))}")]
    lines += [_device(device) for device in devices]
    if state.unreadable:
        lines.append(
            warning(
                SUBJECT,
                f"the driver counts {state.unreadable} more that it does not name",
                "see nvidia-smi -L and dmesg (lines with Xid); the peer serves on the others meanwhile",
            )
        )
    return tuple(lines)


def _device(device: Device) -> Line:
    name = f"{device.id}: {device.name}"
    if not device.is_ready:
        reason = device.condition_reason or f"its last reading was {device.condition}"
        return problem(
            SUBJECT, f"{name} cannot be used: {reason}", "mend that; the other devices are served meanwhile"
        )
    if device.total_bytes is None:
        return warning(
            SUBJECT,
            f"{name}: the driver does not say how much memory it has, so nothing can be promised of it",
            "nothing can be done about it where the card shares the host's memory; else update the driver",
        )
    free = "" if device.memory_free_bytes is None else f", {describe_size(device.memory_free_bytes)} free"
    return ok(SUBJECT, f"{name}, {describe_size(device.total_bytes)}{free}")


def _cuda(devices: Sequence[Device]) -> str:
    versions = (api.version for device in devices for api in device.apis if api.api == "cuda")
    version = next((each for each in versions if each), None)
    return "" if version is None else f" (CUDA {version})"


def _counted(number: int) -> str:
    return "1 device" if number == 1 else f"{number} devices"
