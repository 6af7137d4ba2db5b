"""The tests' NVIDIA driver is laid out as pynvml expects it, and as a child process finds it."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pynvml
import pytest

from tests.support.nvml.driver import GIB, UNKNOWN, Instance, NvmlDriver, Process, card, error
from tests.support.nvml.library import SOURCE, compiled

ASK = """
import pynvml
pynvml.nvmlInit()
print(pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount())
card = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetUUID(card), pynvml.nvmlDeviceGetMemoryInfo(card).free)
pynvml.nvmlShutdown()
"""


@pytest.fixture
def library(nvml: NvmlDriver) -> ctypes.CDLL:
    return ctypes.CDLL(str(nvml.folder / "libnvidia-ml.so.1"))


def test_the_structures_are_pynvmls(library: ctypes.CDLL) -> None:
    structures = [
        pynvml.c_nvmlMemory_t,
        pynvml.c_nvmlMemory_v2_t,
        pynvml.c_nvmlTemperature_v1_t,
        pynvml.c_nvmlUtilization_t,
        pynvml.c_nvmlProcessInfo_v3_t,
        pynvml.c_nvmlProcessUtilizationSample_t,
    ]
    sizes = (ctypes.c_size_t * len(structures)).in_dll(library, "stub_sizes")

    assert list(sizes) == [ctypes.sizeof(one) for one in structures]
    assert pynvml.nvmlMemory_v2 == ctypes.sizeof(pynvml.c_nvmlMemory_v2_t) | 2 << 24
    assert pynvml.nvmlTemperature_v1 == ctypes.sizeof(pynvml.c_nvmlTemperature_v1_t) | 1 << 24


def test_each_version_of_a_structure_says_the_same(nvml: NvmlDriver) -> None:
    nvml.cards[0].memory = (1003 * GIB, 501 * GIB, 400 * GIB, 102 * GIB)
    nvml.write()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    first = pynvml.nvmlDeviceGetMemoryInfo(handle)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)

    assert (first.total, first.free) == (second.total, second.free) == (1003 * GIB, 501 * GIB)
    assert first.used == second.used + second.reserved == 502 * GIB
    assert pynvml.nvmlDeviceGetTemperature(handle, 0) == pynvml.nvmlDeviceGetTemperatureV(handle, 0) == 41


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetTemperatureV"])
def test_a_structure_of_another_version_is_refused(nvml: NvmlDriver, call: str) -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    structure: Any
    if call == "nvmlDeviceGetMemoryInfo":
        structure = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2 + 8)
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryInfo_v2")
    else:
        structure = pynvml.c_nvmlTemperature_v1_t(version=pynvml.nvmlTemperature_v1 + 4)
        function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetTemperatureV")

    assert function(handle, ctypes.byref(structure)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_a_driver_of_older_days_lacks_what_it_had_not(nvml_cache: Path, nvml: NvmlDriver) -> None:
    folder = nvml.folder.parent / "older"
    folder.mkdir()
    older = NvmlDriver(folder, compiled(nvml_cache, "r470"))
    there = ctypes.CDLL(str(folder / "libnvidia-ml.so.1"))

    for name in (
        "MemoryInfo_v2",
        "TemperatureV",
        "ComputeRunningProcesses_v3",
        "GraphicsRunningProcesses_v3",
    ):
        assert not hasattr(there, f"nvmlDeviceGet{name}")
    for name in ("MemoryInfo", "Temperature", "ComputeRunningProcesses_v2", "GraphicsRunningProcesses_v2"):
        assert hasattr(there, f"nvmlDeviceGet{name}")
    assert older.library != nvml.library


def test_it_is_compiled_once(nvml_cache: Path, nvml_library: Path) -> None:
    before = nvml_library.stat()

    assert compiled(nvml_cache) == nvml_library
    assert nvml_library.stat() == before


def test_a_child_process_finds_it_by_its_library_path(nvml: NvmlDriver) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(nvml.folder)}

    asked = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True, timeout=60
    )

    assert asked.stdout.splitlines() == ["580.65.06 1", f"{nvml.cards[0].uuid} {100 * GIB}"]


def test_what_is_not_said_is_not_supported_and_minus_one_is_the_sentinel(nvml: NvmlDriver) -> None:
    nvml.cards[0].power = None
    nvml.cards[0].energy = UNKNOWN
    nvml.write()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    with pytest.raises(pynvml.NVMLError) as refused:
        pynvml.nvmlDeviceGetPowerUsage(handle)
    assert refused.value.value == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == 2**64 - 1


def test_a_driver_that_went_and_came_back_wants_to_be_initialised_again(nvml: NvmlDriver) -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    nvml.session = None
    nvml.write()
    assert _code(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    nvml.reload()
    assert _code(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED

    pynvml.nvmlShutdown()
    pynvml.nvmlInit()

    assert pynvml.nvmlDeviceGetCount() == 1
    # What was a handle before is none now.
    assert _code(pynvml.nvmlDeviceGetName, handle) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_cards_are_counted_at_the_start_alone(nvml: NvmlDriver) -> None:
    pynvml.nvmlInit()
    nvml.cards = [card(1)]
    nvml.write()

    assert pynvml.nvmlDeviceGetCount() == 1
    assert _code(pynvml.nvmlDeviceGetHandleByIndex, 0) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_instances_are_found_by_their_slot(nvml: NvmlDriver) -> None:
    nvml.cards[0].mig = (1, 3)
    nvml.cards[0].instances = [Instance("MIG-b", slot=2, ids=(5, 1))]
    nvml.write()
    pynvml.nvmlInit()
    parent = pynvml.nvmlDeviceGetHandleByIndex(0)

    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(parent) == 3
    assert _code(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, 0) == pynvml.NVML_ERROR_NOT_FOUND
    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 2)
    assert pynvml.nvmlDeviceGetUUID(instance) == "MIG-b"
    assert pynvml.nvmlDeviceGetGpuInstanceId(instance) == 5
    assert pynvml.nvmlDeviceGetComputeInstanceId(instance) == 1
    # Its card's figures are not its own.
    assert _code(pynvml.nvmlDeviceGetPowerUsage, instance) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_processes_are_listed_by_kind_however_many(nvml: NvmlDriver) -> None:
    nvml.cards[0].processes = [Process(n, n * GIB) for n in range(1, 40)]
    nvml.cards[0].processes.append(Process(77, UNKNOWN, "graphics"))
    nvml.write()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    listed = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)

    assert [(one.pid, one.usedGpuMemory) for one in listed] == [(n, n * GIB) for n in range(1, 40)]
    drawn = pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle)
    assert [(one.pid, one.usedGpuMemory) for one in drawn] == [(77, None)]


def test_samples_are_those_since_a_time(nvml: NvmlDriver) -> None:
    nvml.cards[0].samples = [(1, 1000, 40), (2, 2000, 60)]
    nvml.write()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    samples = pynvml.nvmlDeviceGetProcessUtilization(handle, 1000)

    assert [(one.pid, one.timeStamp, one.smUtil) for one in samples] == [(2, 2000, 60)]
    assert _code(pynvml.nvmlDeviceGetProcessUtilization, handle, 2000) == pynvml.NVML_ERROR_NOT_FOUND


@pytest.mark.parametrize("code", [3, 4, 7, 9, 15, 16, 18, 999])
def test_any_call_can_be_told_to_fail(nvml: NvmlDriver, code: int) -> None:
    nvml.cards.append(attrs.evolve(card(1), rules=[error("nvmlDeviceGetName", code)]))
    nvml.write()
    pynvml.nvmlInit()

    assert _code(pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetHandleByIndex(1)) == code
    assert pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA H200"
    nvml.rules = [error("*", code)]
    nvml.write()
    assert _code(pynvml.nvmlDeviceGetCount) == code


def test_every_function_is_one_that_pynvml_asks_for() -> None:
    asked = Path(pynvml.__file__).read_text()
    # The older versions of these are what a driver of older days has in their place.
    older = {"nvmlDeviceGetGraphicsRunningProcesses_v2"}
    offered = {
        line.split("(")[0].split()[-1].lstrip("*")
        for line in SOURCE.read_text().splitlines()
        if line.startswith(("int nvml", "const char *nvml"))
    }

    assert {name for name in offered - older if f'"{name}"' not in asked} == set()


def _code(call: Any, *args: object) -> int:
    with pytest.raises(pynvml.NVMLError) as refused:
        call(*args)
    return int(refused.value.value)
