"""Who is on a card: every program once, and a list that may lack somebody is no list."""

import time

import pynvml
import pytest

from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.port import DeviceProcess
from tests.support.nvml.driver import GIB, UNKNOWN, Instance, NvmlDriver, Process, card, error

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"


async def test_programs_are_listed_with_what_they_hold(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].processes = [Process(7, 3 * GIB), Process(8, UNKNOWN), Process(9, GIB, "graphics")]
    nvml.write()

    processes = await NvmlGpu(patience=60).processes()

    assert processes == {
        nvml.cards[0].uuid: (
            DeviceProcess(7, 3 * GIB, "compute"),
            DeviceProcess(8, None, "compute"),
            DeviceProcess(9, GIB, "graphics"),
        ),
        # Nobody is known to be here, which is not the same as unknown.
        nvml.cards[1].uuid: (),
    }


async def test_a_program_that_draws_and_computes_is_one(nvml: NvmlDriver) -> None:
    nvml.cards[0].processes = [
        Process(7, 3 * GIB),
        Process(7, 3 * GIB, "graphics"),
        Process(8, UNKNOWN),
        Process(8, GIB, "graphics"),
    ]
    nvml.write()

    (listed,) = (await NvmlGpu(patience=60).processes()).values()

    # The driver tells all its memory in either list.
    assert listed == (DeviceProcess(7, 3 * GIB, "both"), DeviceProcess(8, GIB, "both"))


async def test_what_a_program_computes_is_of_the_last_seconds(nvml: NvmlDriver) -> None:
    now = time.time_ns() // 1000
    nvml.cards[0].processes = [Process(7, GIB), Process(8, GIB), Process(9, GIB)]
    nvml.cards[0].samples = [
        (7, now + 2_000_000, 80),
        (7, now + 1_000_000, 30),
        (8, now - 3_600_000_000, 90),
        (9, now + 1_000_000, UNKNOWN),
    ]
    nvml.write()

    (listed,) = (await NvmlGpu(patience=60).processes()).values()

    assert listed is not None
    assert [one.utilisation_ratio for one in listed] == [0.8, None, None]


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, False),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, False),
        (pynvml.NVML_ERROR_NO_PERMISSION, False),
        (pynvml.NVML_ERROR_NOT_FOUND, False),
        (pynvml.NVML_ERROR_INSUFFICIENT_SIZE, True),
        (pynvml.NVML_ERROR_TIMEOUT, True),
        (pynvml.NVML_ERROR_UNKNOWN, True),
    ],
)
async def test_a_utilisation_that_could_not_be_read_is_not_one_that_is_never_told(
    nvml: NvmlDriver, code: int, failed: bool
) -> None:
    nvml.cards[0].processes = [Process(7, GIB)]
    nvml.cards[0].rules = [error("nvmlDeviceGetProcessUtilization", code)]
    nvml.write()

    assert await NvmlGpu(patience=60).processes() == {
        nvml.cards[0].uuid: (DeviceProcess(7, GIB, "compute", utilisation_failed=failed),)
    }


@pytest.mark.parametrize("call", [COMPUTE, GRAPHICS])
@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    ],
)
async def test_a_list_that_fails_is_unknown_and_hides_no_other(
    nvml: NvmlDriver, call: str, code: int
) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].processes = [Process(7, GIB)]
    nvml.cards[0].rules = [error(call, code)]
    nvml.cards[1].processes = [Process(8, GIB)]
    nvml.write()

    assert await NvmlGpu(patience=60).processes() == {
        nvml.cards[0].uuid: None,
        nvml.cards[1].uuid: (DeviceProcess(8, GIB, "compute"),),
    }


async def test_a_card_that_cannot_draw_has_nobody_who_does(nvml: NvmlDriver) -> None:
    nvml.cards[0].processes = [Process(7, GIB)]
    nvml.cards[0].rules = [error(GRAPHICS, pynvml.NVML_ERROR_NOT_SUPPORTED)]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    assert await gpu.processes() == {nvml.cards[0].uuid: (DeviceProcess(7, GIB, "compute"),)}

    # One that does not say who computes on it may have somebody who does.
    nvml.cards[0].rules = [error(COMPUTE, pynvml.NVML_ERROR_NOT_SUPPORTED)]
    nvml.write()
    assert await gpu.processes() == {nvml.cards[0].uuid: None}


async def test_programs_are_their_instances_own(nvml: NvmlDriver) -> None:
    everybody = [Process(7, GIB, parts=(1, 0)), Process(8, GIB, parts=(2, 0)), Process(9, GIB)]
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [
        Instance("MIG-a", 0, ids=(1, 0), processes=everybody),
        Instance("MIG-b", 1, ids=(2, 0), processes=everybody[1:2]),
    ]
    nvml.write()

    processes = await NvmlGpu(patience=60).processes()

    # A driver that lists the whole card's for each says by the ids whose they are.
    assert processes == {
        "MIG-a": (DeviceProcess(7, GIB, "compute"), DeviceProcess(9, GIB, "compute")),
        "MIG-b": (DeviceProcess(8, GIB, "compute"),),
    }


async def test_a_card_that_is_lost_has_an_unknown_list(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    await gpu.devices()
    nvml.cards[0].lose()
    nvml.write()

    assert await gpu.processes() == {nvml.cards[0].uuid: None, nvml.cards[1].uuid: ()}


async def test_more_programs_than_are_listed_are_unknown(nvml: NvmlDriver) -> None:
    # A card of which nobody can say who is on it, not one that has the first few.
    nvml.cards[0].processes = [Process(pid, 1) for pid in range(1, 4200)]
    nvml.write()

    assert await NvmlGpu(patience=60).processes() == {nvml.cards[0].uuid: None}
