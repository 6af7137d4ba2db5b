"""Whatever a driver says, and in whatever order: no reading raises, and nothing unknown becomes a number."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import pynvml
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.port import Device, DeviceProcess
from tests.support.nvml.driver import GIB, UNKNOWN, Card, Instance, NvmlDriver, Process, error

CODES = st.sampled_from(
    [
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN,
        12345,
    ]
)
DEVICE_CALLS = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetProcessUtilization",
    "*",
)
DRIVER_CALLS = (
    *DEVICE_CALLS,
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlDeviceGetCount",
)
T = TypeVar("T")


def _made(of: Callable[..., T], **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    # What st.builds does, but for its report of a failure, which with so many parts takes hours.
    return st.fixed_dictionaries(parts).map(lambda given: of(**given))


# No figure is 0, so that a 0 that is seen was made up.
FIGURE = st.one_of(st.none(), st.just(UNKNOWN), st.integers(1, 100))
BYTES = st.one_of(st.just(UNKNOWN), st.integers(1, 140 * GIB))
MEMORY = st.one_of(st.none(), st.tuples(BYTES, BYTES, BYTES, st.just(0)))
NAMES = st.one_of(st.none(), st.sampled_from(["NVIDIA H200", "", "\udcff", "a\tb"]))
PIDS = st.integers(1, 6)
PARTS = st.sampled_from([(UNKNOWN, UNKNOWN), (1, 0), (2, 0)])
PROCESSES = st.lists(
    _made(Process, pid=PIDS, memory=BYTES, kind=st.sampled_from(["compute", "graphics"]), parts=PARTS),
    max_size=6,
)


def _rules(calls: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    rule = _made(error, call=st.sampled_from(calls), code=CODES)
    return st.one_of(st.just([]), st.just([]), st.lists(rule, max_size=2))


INSTANCES = _made(
    Instance,
    uuid=st.just(""),
    slot=st.integers(0, 3),
    name=NAMES,
    memory=MEMORY,
    ids=st.one_of(st.none(), st.sampled_from([(1, 0), (1, 1), (2, 0)])),
    processes=PROCESSES,
    rules=_rules(DEVICE_CALLS),
)
CARDS = _made(
    Card,
    uuid=st.sampled_from([f"GPU-{n}" for n in range(4)]),
    name=NAMES,
    memory=MEMORY,
    temperature=FIGURE,
    power=FIGURE,
    energy=FIGURE,
    utilisation=st.one_of(st.none(), st.tuples(st.one_of(st.just(UNKNOWN), st.integers(1, 100)), st.just(1))),
    mig=st.one_of(st.none(), st.just((0, 7)), st.just((1, 4)), st.just((1, UNKNOWN)), st.just((UNKNOWN, 0))),
    instances=st.lists(INSTANCES, max_size=2, unique_by=lambda one: one.slot),
    processes=PROCESSES,
    samples=st.lists(
        st.tuples(PIDS, st.sampled_from([UNKNOWN, 1, 2**62]), FIGURE.map(lambda f: f or 1)), max_size=3
    ),
    rules=_rules(DEVICE_CALLS),
)


@attrs.frozen
class Script:
    """One moment of a driver."""

    session: int | None
    cards: list[Card]
    rules: list[str]
    version: str | None
    cuda: int | None


SCRIPTS = _made(
    Script,
    session=st.sampled_from([1, 1, 1, 2, 3, None]),
    cards=st.lists(CARDS, max_size=3, unique_by=lambda one: one.uuid),
    rules=_rules(DRIVER_CALLS),
    version=st.one_of(st.just("580.1"), st.none()),
    cuda=st.sampled_from([13_000, UNKNOWN, 0, None]),
)


@given(scripts=st.lists(SCRIPTS, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_script_raises_or_makes_a_number_of_what_is_unknown(
    nvml: NvmlDriver, scripts: list[Script]
) -> None:
    async def play() -> None:
        gpu = NvmlGpu(patience=60)
        shown: set[str] = set()
        try:
            for script in scripts:
                nvml.session, nvml.version, nvml.cuda = script.session, script.version, script.cuda
                nvml.cards, nvml.rules = script.cards, script.rules
                for one in script.cards:
                    for instance in one.instances:
                        instance.uuid = f"MIG-{one.uuid}-{instance.slot}"
                nvml.write()
                _check_processes(await gpu.processes(), script)
                devices = await gpu.devices()
                _check(devices, script)
                # What was shown once is shown for ever, or in parts.
                split = {one.uuid for one in script.cards if one.mig is not None and one.mig[0] == 1}
                shown -= split
                assert shown <= {device.uuid for device in devices}
                shown |= {device.uuid for device in devices if device.slicing == "none"}
                if script is scripts[0] and gpu.state.condition == "ready":
                    # And what never was is counted: by the first reading, the driver lists all it has.
                    unknown = {one.uuid for one in script.cards} - split - shown
                    assert len(unknown) <= gpu.state.unreadable
        finally:
            await gpu.aclose()

    trio.run(play)


def _check(devices: tuple[Device, ...], script: Script) -> None:
    assert len({device.id for device in devices}) == len({device.uuid for device in devices}) == len(devices)
    cards = {one.uuid: one for one in script.cards}
    instances = {one.uuid: one for card in script.cards for one in card.instances}
    for device in devices:
        assert device.name
        assert device.total_bytes != 0
        assert (device.condition_reason is None) == device.is_ready
        figures = {
            "temperature": device.temperature_celsius,
            "power": device.power_watts,
            "energy": device.energy_joules,
            "utilisation": device.utilisation_ratio,
        }
        if not device.is_ready or device.slicing == "mig":
            assert set(figures.values()) == {None}
        if not device.is_ready:
            assert device.memory_free_bytes is None
            continue
        told = instances[device.uuid] if device.slicing == "mig" else cards[device.uuid]
        _check_memory(device, told)
        if isinstance(told, Card):
            _check_figures(figures, told)
            # A card that fails in nothing is told in full.
            if not told.rules and not script.rules:
                assert figures == _figures(told)


def _figures(card: Card) -> dict[str, float | None]:
    def of(value: int | None, unit: int) -> float | None:
        return None if value in (None, UNKNOWN) else value / unit

    return {
        "temperature": of(card.temperature, 1),
        "power": of(card.power, 1000),
        "energy": of(card.energy, 1000),
        "utilisation": of(card.utilisation and card.utilisation[0], 100),
    }


def _check_figures(figures: Mapping[str, float | None], card: Card) -> None:
    for name, expected in _figures(card).items():
        assert figures[name] in (None, expected)


def _check_memory(device: Device, told: Card | Instance) -> None:
    total, free = (told.memory or (UNKNOWN, UNKNOWN))[:2]
    assert device.total_bytes in (None, total)
    assert device.memory_free_bytes in (None, free)
    assert UNKNOWN not in (device.total_bytes, device.memory_free_bytes)
    if device.total_bytes is not None and device.memory_free_bytes is not None:
        assert device.memory_free_bytes <= device.total_bytes


def _check_processes(processes: Mapping[str, tuple[DeviceProcess, ...] | None], script: Script) -> None:
    told = {card.uuid: {process.pid for process in card.processes} for card in script.cards}
    for instance in (one for card in script.cards for one in card.instances):
        told.setdefault(instance.uuid, set()).update(process.pid for process in instance.processes)
    for uuid, listed in processes.items():
        if listed is None:
            continue
        assert len({one.pid for one in listed}) == len(listed)
        assert {one.pid for one in listed} <= told[uuid]
        for one in listed:
            assert one.memory_bytes != 0
            assert one.utilisation_ratio != 0
