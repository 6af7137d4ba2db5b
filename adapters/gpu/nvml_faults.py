"""What NVIDIA's driver may be found to be, and what a person does about it (F17)."""

from collections.abc import Mapping
from typing import Final

from adapters.gpu.nvml_library import (
    GPU_IS_LOST,
    NO_LIBRARY,
    NO_PERMISSION,
    NOT_LOADED,
    RESET_REQUIRED,
    VERSION_MISMATCH,
    NvmlFailure,
)
from adapters.gpu.port import DriverFault

OR_NONE: Final = "or set BEST_PEER_GPU=none to serve on this machine's CPU alone"

NO_CARD: Final = DriverFault(
    "DRIVER_NO_CARD",
    "the NVIDIA driver answers and lists no card",
    f"see whether nvidia-smi -L lists one and whether this user or container is given it, {OR_NONE}",
)

_FAULTS: Final[Mapping[int, DriverFault]] = {
    NO_LIBRARY: DriverFault(
        "DRIVER_LIBRARY_MISSING",
        "this machine has no libnvidia-ml.so.1, the NVIDIA driver's own library",
        f"install the NVIDIA driver (in a container, hand its utility capability over), {OR_NONE}",
    ),
    NOT_LOADED: DriverFault(
        "DRIVER_NOT_LOADED",
        "the NVIDIA driver is installed and not loaded",
        "load it (sudo modprobe nvidia; see dmesg if that fails), set BEST_PEER_DRIVER_WAIT to wait for it "
        f"at boot, {OR_NONE}",
    ),
    VERSION_MISMATCH: DriverFault(
        "DRIVER_VERSION_MISMATCH",
        "the NVIDIA driver that is loaded and its library are of different versions, as after an update",
        f"restart the machine, or load the new driver and restart best-peer, {OR_NONE}",
    ),
    NO_PERMISSION: DriverFault(
        "DRIVER_NO_PERMISSION",
        "this user may not ask the NVIDIA driver",
        "give the user that runs best-peer the device files /dev/nvidia* (often the group video or render), "
        f"{OR_NONE}",
    ),
}


def fault_of(failure: NvmlFailure) -> DriverFault:
    """Why a driver cannot be asked."""
    return _FAULTS.get(failure.code) or DriverFault(
        "DRIVER_FAILED",
        f"the NVIDIA driver failed: {failure.words} ({failure.call}, code {failure.code})",
        f"see nvidia-smi and dmesg (lines with Xid), restart the driver or the machine, {OR_NONE}",
    )


def late_fault(seconds: float, card: str | None) -> DriverFault:
    """A driver that did not answer in time, and the card it was asked about, where it was one."""
    about = "" if card is None else f" about {card}"
    return DriverFault(
        "DRIVER_LATE",
        f"the NVIDIA driver did not answer{about} within {seconds:g} seconds",
        "see whether nvidia-smi answers, and dmesg (lines with Xid): a driver that hangs needs a restart "
        f"of the machine. Turn persistence mode on if it is only slow, {OR_NONE}",
    )


def card_reason(failure: NvmlFailure) -> str:
    """Why one card cannot be read, for people."""
    if failure.code == GPU_IS_LOST:
        return "the driver lost the card: see dmesg (lines with Xid); it may need a restart of the machine"
    if failure.code == RESET_REQUIRED:
        return "the card needs a reset (sudo nvidia-smi -r) or a restart of the machine"
    if failure.code == NO_PERMISSION:
        return "this user may not ask the driver about the card"
    return f"the driver does not say what it is: {failure.words} ({failure.call}, code {failure.code})"
