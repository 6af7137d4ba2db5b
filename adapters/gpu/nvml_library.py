"""The calls of NVIDIA's management library that the peer makes, with types: pynvml has none.

Every call blocks, and may for ever when a driver hangs. NVML's sentinels (all ones) and figures that cannot
be are None.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NewType

import attrs
import pynvml

Handle = NewType("Handle", object)
"""A card or an instance, as the library names it until it is closed."""

Kind = Literal["compute", "graphics"]

MAX_NAME: Final = 128
MAX_UUID: Final = 64
MAX_VERSION: Final = 64
MAX_PROCESSES: Final = 4096
"""On one device; what a driver lists beyond them is left out, and the list is then unknown."""
MAX_BYTES: Final = 1 << 50
"""A mebi-gigabyte: what is told as more than that is a sentinel or nonsense."""

NO_FUNCTION: Final[int] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
NO_LIBRARY: Final[int] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
NO_PERMISSION: Final[int] = pynvml.NVML_ERROR_NO_PERMISSION
NOT_FOUND: Final[int] = pynvml.NVML_ERROR_NOT_FOUND
NOT_LOADED: Final[int] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
NOT_SUPPORTED: Final[int] = pynvml.NVML_ERROR_NOT_SUPPORTED
RESET_REQUIRED: Final[int] = pynvml.NVML_ERROR_RESET_REQUIRED
UNINITIALIZED: Final[int] = pynvml.NVML_ERROR_UNINITIALIZED
VERSION_MISMATCH: Final[int] = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
OTHER_STRUCTURE: Final[int] = pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
GPU_IS_LOST: Final[int] = pynvml.NVML_ERROR_GPU_IS_LOST
NOT_TEXT: Final = -1
"""No code of NVML's: it answered with something that is no text where a text belongs."""

_ALL_ONES: Final = 0xFFFFFFFF
_COLDEST: Final = -60
_HOTTEST: Final = 250
_MOST_MILLIWATTS: Final = 100_000_000


class NvmlFailure(Exception):
    """Raised when a call did not give what it is for.

    Args:
        call: pynvml's name of it.
        code: NVML's number, or `NOT_TEXT`.
        words: what that number means, in the library's words.
    """

    def __init__(self, call: str, code: int, words: str) -> None:
        super().__init__(f"{call}: {words}")
        self.call = call
        self.code = code
        self.words = words


@attrs.frozen
class Memory:
    """Of one card or instance, in bytes."""

    total: int | None
    free: int | None


@attrs.frozen
class Use:
    """A program that the driver lists, once for each kind; `instance` is what it runs in, where told."""

    pid: int
    memory: int | None
    instance: "InstanceIds | None"


@attrs.frozen
class InstanceIds:
    """Which instance of a card: memory is a GPU instance's, and compute instances may share one."""

    gpu: int
    compute: int


@attrs.define(eq=False)
class Library:
    """NVIDIA's library, in one thread at a time."""

    _is_open: bool = attrs.field(default=False, init=False)

    @property
    def is_open(self) -> bool:
        """Whether calls may be made."""
        return self._is_open

    def open(self) -> None:
        """Begin, when that has not been done; the library is looked for until it is found once."""
        if not self._is_open:
            _call(pynvml.nvmlInit)
            self._is_open = True

    def close(self) -> None:
        """End; handles are worth nothing from then on. What the library says to it does not matter."""
        if self._is_open:
            self._is_open = False
            try:
                _call(pynvml.nvmlShutdown)
            except NvmlFailure:
                # A driver that is gone has nothing to end.
                return

    def driver_version(self) -> str:
        """The driver's version."""
        return _text(pynvml.nvmlSystemGetDriverVersion, longest=MAX_VERSION)

    def cuda_version(self) -> str | None:
        """The newest CUDA that the driver offers, as 12.8."""
        number = int(_call(pynvml.nvmlSystemGetCudaDriverVersion_v2))
        return f"{number // 1000}.{number % 1000 // 10}" if 1000 <= number < 1_000_000 else None

    def count(self) -> int:
        """How many cards there are, those that cannot be asked counted in."""
        return int(_call(pynvml.nvmlDeviceGetCount))

    def card(self, index: int) -> Handle:
        """The card with this number; numbers change with every start of the driver."""
        return Handle(_call(pynvml.nvmlDeviceGetHandleByIndex, index))

    def uuid(self, device: Handle) -> str:
        """What a device is known by."""
        return _text(pynvml.nvmlDeviceGetUUID, device, longest=MAX_UUID)

    def name(self, device: Handle) -> str:
        """What its maker calls it."""
        return _text(pynvml.nvmlDeviceGetName, device, longest=MAX_NAME)

    def memory(self, device: Handle) -> Memory:
        """Its memory. The first version of the call: its total and free are those of the second."""
        info = _call(pynvml.nvmlDeviceGetMemoryInfo, device)
        total, free = _bytes(info.total), _bytes(info.free)
        # No card has none: a driver says that when it does not know.
        if total == 0:
            return Memory(None, None)
        return Memory(total, None if free is not None and total is not None and free > total else free)

    def temperature(self, device: Handle) -> float | None:
        """Degrees Celsius of the chip."""
        try:
            value = _call(pynvml.nvmlDeviceGetTemperatureV, device, pynvml.NVML_TEMPERATURE_GPU)
        except NvmlFailure as failure:
            if failure.code not in (NO_FUNCTION, OTHER_STRUCTURE):
                raise
            value = _call(pynvml.nvmlDeviceGetTemperature, device, pynvml.NVML_TEMPERATURE_GPU)
        # One call gives a signed number and the other does not; the sentinel is -1 in the first.
        return float(value) if _COLDEST <= value <= _HOTTEST and value != -1 else None

    def power(self, device: Handle) -> float | None:
        """Watts it draws."""
        value = int(_call(pynvml.nvmlDeviceGetPowerUsage, device))
        return value / 1000 if value <= _MOST_MILLIWATTS else None

    def energy(self, device: Handle) -> float | None:
        """Joules it used since the driver was loaded."""
        value = int(_call(pynvml.nvmlDeviceGetTotalEnergyConsumption, device))
        return value / 1000 if value < 1 << 63 else None

    def utilisation(self, device: Handle) -> float | None:
        """How much of the time something computed on it, 0 to 1."""
        value = int(_call(pynvml.nvmlDeviceGetUtilizationRates, device).gpu)
        return value / 100 if value <= 100 else None

    def is_split(self, card: Handle) -> bool:
        """Whether MIG is on."""
        try:
            return bool(_call(pynvml.nvmlDeviceGetMigMode, card)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
        except NvmlFailure as failure:
            if failure.code in (NOT_SUPPORTED, NO_FUNCTION):
                return False
            raise

    def slots(self, card: Handle) -> int:
        """How many instances a split card may have."""
        return int(_call(pynvml.nvmlDeviceGetMaxMigDeviceCount, card))

    def instance(self, card: Handle, slot: int) -> Handle | None:
        """The instance with this number; None where there is none."""
        try:
            return Handle(_call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, slot))
        except NvmlFailure as failure:
            if failure.code == NOT_FOUND:
                return None
            raise

    def instance_ids(self, instance: Handle) -> InstanceIds:
        """What its programs name it by."""
        return InstanceIds(
            int(_call(pynvml.nvmlDeviceGetGpuInstanceId, instance)),
            int(_call(pynvml.nvmlDeviceGetComputeInstanceId, instance)),
        )

    def uses(self, device: Handle, kind: Kind) -> list[Use]:
        """The programs that use a device for this."""
        listed: Sequence[Any]
        if kind == "compute":
            listed = _call(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, device)
        else:
            listed = _call(pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, device)
        if len(listed) > MAX_PROCESSES:
            raise NvmlFailure("nvmlDeviceGetRunningProcesses", NOT_TEXT, f"over {MAX_PROCESSES} programs")
        return [
            Use(
                int(one.pid),
                None if one.usedGpuMemory is None else _bytes(one.usedGpuMemory),
                None
                if _ALL_ONES in (one.gpuInstanceId, one.computeInstanceId)
                else InstanceIds(int(one.gpuInstanceId), int(one.computeInstanceId)),
            )
            for one in listed
        ]

    def shares(self, card: Handle, since_microseconds: int) -> dict[int, float]:
        """What each program used of a card's compute, 0 to 1, by pid: the latest figure since that wall time.

        A program that used none may be missing.
        """
        try:
            samples: Sequence[Any] = _call(pynvml.nvmlDeviceGetProcessUtilization, card, since_microseconds)
        except NvmlFailure as failure:
            # pynvml raises the driver's "fine" when there are no samples.
            if failure.code in (NOT_FOUND, pynvml.NVML_SUCCESS):
                return {}
            raise
        ordered = sorted(samples[:MAX_PROCESSES], key=lambda sample: int(sample.timeStamp))
        return {int(one.pid): one.smUtil / 100 for one in ordered if one.smUtil <= 100}


def _call(call: Callable[..., Any], *args: object) -> Any:
    try:
        return call(*args)
    except pynvml.NVMLError as problem:
        failure = NvmlFailure(call.__name__, int(problem.value), str(problem))
    except UnicodeDecodeError:
        failure = NvmlFailure(call.__name__, NOT_TEXT, "the answer is no text")
    # Out here, so that pynvml's is not kept with it: that one fails when it is compared with another error.
    raise failure


def _text(call: Callable[..., Any], *args: object, longest: int) -> str:
    text = str(_call(call, *args)).strip()
    if not text or len(text) > longest or not text.isprintable():
        raise NvmlFailure(call.__name__, NOT_TEXT, "the answer is no name")
    return text


def _bytes(number: int) -> int | None:
    return int(number) if 0 <= number <= MAX_BYTES else None
