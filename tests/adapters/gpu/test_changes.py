"""The owner's log says when a driver or a card goes and when it is back, and not at every reading."""

import pytest

from adapters.gpu.changes import QUIET_SECONDS, Changes
from adapters.gpu.fake import LOST, cpu_device, cuda_device
from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.port import Device, GpuState
from tests.support.nvml.driver import NvmlDriver

READY = GpuState("ready", "580")
GONE = GpuState("lost", None, LOST)
CARD, OTHER = cuda_device(0), cuda_device(1)
LOST_CARD = CARD.not_ready("lost", "it fell off the bus")


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "best_peer")


@pytest.fixture
def changes() -> Changes:
    return Changes()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said since this was asked last."""
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


def note(changes: Changes, now: float, *devices: Device, state: GpuState = READY) -> None:
    changes.note((*devices, cpu_device()), state, now)


def test_nothing_is_said_of_a_machine_that_is_well(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(3):
        note(changes, now, CARD, OTHER)
    assert lines(caplog) == []


def test_a_card_that_goes_is_said_once_with_the_reason_and_once_when_it_is_back(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    note(changes, 0, LOST_CARD, OTHER)
    note(changes, 5, LOST_CARD, OTHER)
    assert lines(caplog) == [f"gpu-0 ({CARD.uuid}) takes no new work: it fell off the bus"]
    note(changes, QUIET_SECONDS, CARD, OTHER)
    note(changes, QUIET_SECONDS + 5, CARD, OTHER)
    assert lines(caplog) == [f"gpu-0 ({CARD.uuid}) can be used again"]


def test_a_driver_that_goes_is_said_for_all_its_cards(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    gone = [card.not_ready("lost", LOST.reason) for card in (CARD, OTHER)]
    note(changes, 0, CARD, OTHER)
    note(changes, 0, *gone, state=GONE)
    (line,) = lines(caplog)
    assert LOST.reason in line
    assert LOST.fix in line
    note(changes, QUIET_SECONDS, CARD, OTHER)
    assert lines(caplog) == ["the NVIDIA driver answers again"]


def test_nothing_is_said_of_a_driver_that_never_answered(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    note(changes, 0, state=GONE)
    note(changes, 1, CARD)
    assert lines(caplog) == []
    note(changes, 2, state=GONE)
    assert len(lines(caplog)) == 1


def test_what_comes_and_goes_is_said_once_a_minute_as_it_is_then(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(int(QUIET_SECONDS)):
        note(changes, now, LOST_CARD if now % 2 == 0 else CARD)
    assert len(lines(caplog)) == 1
    note(changes, QUIET_SECONDS, CARD)
    assert lines(caplog) == [f"gpu-0 ({CARD.uuid}) can be used again"]


def test_a_card_that_is_not_there_any_more_is_forgotten(
    changes: Changes, caplog: pytest.LogCaptureFixture
) -> None:
    note(changes, 0, LOST_CARD)
    note(changes, 1)
    assert len(changes._said) == 2
    lines(caplog)


async def test_the_real_reader_says_what_happens_to_its_driver(
    nvml: NvmlDriver, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = NvmlGpu(patience=60)
    await gpu.devices()
    nvml.session = None
    nvml.write()
    await gpu.devices()
    await gpu.devices()
    (line,) = lines(caplog)
    assert line.startswith("the NVIDIA driver is installed and not loaded; cards take no new work")


async def test_a_driver_that_answered_at_the_start_is_known(
    nvml: NvmlDriver, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = NvmlGpu(patience=60)
    await gpu.wait_for_driver()
    nvml.session = None
    nvml.write()
    await gpu.devices()
    assert len(lines(caplog)) == 1
    await gpu.aclose()
