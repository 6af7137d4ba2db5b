"""A driver that is not there, not answering, gone or back: each is a state of its own and blocks nobody."""

from collections.abc import Awaitable, Callable

import pynvml
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from adapters.gpu.nvml import AGAIN_SECONDS, START_SECONDS, NvmlGpu
from adapters.gpu.port import Device, DriverCondition, DriverUnavailable
from tests.support.nvml.driver import GIB, Gate, NvmlDriver, Process, card, delay, error, hang

PATIENCE = 3.0
REST = 30.0


def condition(gpu: NvmlGpu) -> DriverCondition:
    """The driver's."""
    return gpu.state.condition


def is_readable(gpu: NvmlGpu) -> bool:
    """Whether what was shown last came from the driver."""
    return gpu.state.is_readable


async def settled(gpu: NvmlGpu) -> None:
    """Wait until no thread is in the driver and everybody waits for the clock, or for nothing."""
    await wait_all_tasks_blocked()
    while gpu._running is not None:
        await gpu._running.ended.wait()
        await wait_all_tasks_blocked()


async def refusal(gpu: NvmlGpu, seconds: float, happens: Callable[[], Awaitable[None]]) -> DriverUnavailable:
    """How the wait for a driver ends while something happens."""
    refused: list[DriverUnavailable] = []

    async def wait() -> None:
        with pytest.raises(DriverUnavailable) as raised:
            await gpu.wait_for_driver(seconds)
        refused.append(raised.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await happens()
    return refused[0]


async def given_up(gpu: NvmlGpu, gate: Gate, clock: MockClock) -> tuple[Device, ...]:
    """The devices as somebody sees them who waited as long as one does for a call that hangs."""
    seen: list[tuple[Device, ...]] = []

    async def read() -> None:
        seen.append(await gpu.devices())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await gate.arrival()
        clock.jump(gpu.patience)
    return seen[0]


# At the start.


async def test_a_driver_that_answers_is_not_waited_for(nvml: NvmlDriver) -> None:
    gpu = NvmlGpu(patience=60)
    assert condition(gpu) == "unread"
    assert not is_readable(gpu)

    await gpu.wait_for_driver()

    assert condition(gpu) == "ready"
    assert is_readable(gpu)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "DRIVER_VERSION_MISMATCH"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "DRIVER_NO_PERMISSION"),
        (pynvml.NVML_ERROR_UNKNOWN, "DRIVER_FAILED"),
    ],
)
async def test_a_driver_that_cannot_be_asked_is_refused_with_what_to_do(
    nvml: NvmlDriver, code: int, named: str
) -> None:
    nvml.rules = [error("nvmlInitWithFlags", code)]
    nvml.write()
    gpu = NvmlGpu()

    with pytest.raises(DriverUnavailable) as refused:
        await gpu.wait_for_driver()

    assert refused.value.code == named
    assert refused.value.reason
    assert "BEST_PEER_GPU=none" in refused.value.fix
    assert condition(gpu) == "lost"
    assert gpu.state.fault == refused.value.fault
    assert not is_readable(gpu)
    assert await gpu.devices() == ()


async def test_a_machine_without_the_library_is_refused_with_what_to_do(nvml: NvmlDriver) -> None:
    (nvml.folder / "libnvidia-ml.so.1").unlink()

    with pytest.raises(DriverUnavailable) as refused:
        await NvmlGpu().wait_for_driver()

    assert refused.value.code == "DRIVER_LIBRARY_MISSING"
    assert "BEST_PEER_GPU=none" in refused.value.fix


async def test_a_driver_with_no_card_is_refused_and_found_once_it_has_one(nvml: NvmlDriver) -> None:
    nvml.cards = []
    nvml.write()
    gpu = NvmlGpu(patience=60)

    with pytest.raises(DriverUnavailable) as refused:
        await gpu.wait_for_driver()
    assert refused.value.code == "DRIVER_NO_CARD"

    nvml.cards = [card(0)]
    nvml.write()
    await gpu.wait_for_driver()
    assert [device.id for device in await gpu.devices()] == ["gpu-0"]


async def test_a_card_that_only_needs_a_reset_does_not_keep_the_driver_away(nvml: NvmlDriver) -> None:
    nvml.cards[0].lose()
    nvml.write()
    gpu = NvmlGpu(patience=60)

    await gpu.wait_for_driver()

    assert gpu.state.unreadable == 1


async def test_a_driver_that_arrives_late_is_waited_for(nvml: NvmlDriver, mock_clock: MockClock) -> None:
    nvml.session = None
    nvml.write()
    gpu = NvmlGpu(patience=60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(gpu.wait_for_driver, 30)
        await settled(gpu)
        assert condition(gpu) == "lost"
        nvml.session = 1
        nvml.write()
        mock_clock.jump(AGAIN_SECONDS)

    assert condition(gpu) == "ready"


async def test_a_card_that_comes_after_its_driver_is_found_at_the_next_look(
    nvml: NvmlDriver, mock_clock: MockClock
) -> None:
    """A driver counts its cards at its start alone: each look of the wait begins it anew."""
    nvml.cards = []
    nvml.write()
    gpu = NvmlGpu(patience=60)
    found: list[bool] = []

    async def wait() -> None:
        await gpu.wait_for_driver(30)
        found.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for _ in range(3):
            await settled(gpu)
            mock_clock.jump(AGAIN_SECONDS)
        await settled(gpu)
        assert found == []
        nvml.cards = [card(0)]
        nvml.write()
        mock_clock.jump(AGAIN_SECONDS)
        await settled(gpu)
        assert found == [True]


async def test_a_driver_that_does_not_arrive_in_time_is_refused(
    nvml: NvmlDriver, mock_clock: MockClock
) -> None:
    nvml.session = None
    nvml.write()
    gpu = NvmlGpu(patience=60)

    async def look_again() -> None:
        await settled(gpu)
        mock_clock.jump(AGAIN_SECONDS)

    assert (await refusal(gpu, 1.5, look_again)).code == "DRIVER_NOT_LOADED"
    assert gpu.readings == 2


async def test_a_driver_that_hangs_at_the_start_is_refused_in_time(
    nvml: NvmlDriver, mock_clock: MockClock
) -> None:
    nvml.rules = [hang("nvmlInitWithFlags")]
    nvml.write()
    gpu = NvmlGpu(patience=60)

    with nvml.gate() as gate:

        async def give_up() -> None:
            assert await gate.arrival() == "nvmlInitWithFlags"
            mock_clock.jump(START_SECONDS)

        assert (await refusal(gpu, 0, give_up)).code == "DRIVER_LATE"
        assert condition(gpu) == "late"
        assert await gpu.devices() == ()
    await settled(gpu)
    assert (await gpu.devices())[0].is_ready


# While the peer runs.


async def test_a_driver_that_goes_and_comes_back_is_a_state(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    before = await gpu.devices()
    nvml.session = None
    nvml.write()

    gone = await gpu.devices()

    assert [(d.id, d.uuid, d.total_bytes) for d in gone] == [(d.id, d.uuid, d.total_bytes) for d in before]
    assert {d.condition for d in gone} == {"lost"}
    assert {d.memory_free_bytes for d in gone} == {None}
    assert {d.utilisation_ratio for d in gone} == {None}
    lost = gpu.state
    assert (lost.condition, lost.driver_version) == ("lost", None)
    assert lost.fault is not None
    assert lost.fault.code == "DRIVER_NOT_LOADED"
    assert gone[0].condition_reason == lost.fault.reason
    assert await gpu.processes() == {device.uuid: None for device in before}

    nvml.version = "590.1"
    nvml.reload()

    assert await gpu.devices() == before
    assert condition(gpu) == "ready"
    assert gpu.state.driver_version == "590.1"
    assert gpu.state.fault is None


async def test_a_driver_that_was_replaced_between_two_readings_is_not_noticed(nvml: NvmlDriver) -> None:
    gpu = NvmlGpu(patience=60)
    before = await gpu.devices()
    nvml.reload()

    assert await gpu.devices() == before


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, 18])
async def test_one_call_that_speaks_of_the_driver_hides_no_other_card(nvml: NvmlDriver, code: int) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].rules = [error("nvmlDeviceGetPowerUsage", code)]
    nvml.write()
    gpu = NvmlGpu(patience=60)

    first, second = await gpu.devices()

    # The driver was begun with anew and answers: so this is one figure's affair.
    assert first.power_watts is None
    assert (first.is_ready, second.is_ready) == (True, True)
    assert second.power_watts == 75.5
    assert condition(gpu) == "ready"


async def test_a_slow_driver_is_only_slow(nvml: NvmlDriver) -> None:
    nvml.rules = [delay("nvmlDeviceGetName", 1)]
    nvml.write()
    gpu = NvmlGpu(patience=60)

    assert (await gpu.devices())[0].is_ready


async def test_a_call_that_hangs_blocks_nobody(nvml: NvmlDriver, mock_clock: MockClock) -> None:
    nvml.cards = [card(0), card(1), card(2)]
    nvml.write()
    gpu = NvmlGpu(PATIENCE, REST)
    before = await gpu.devices()
    nvml.cards[1].rules = [hang("nvmlDeviceGetPowerUsage")]
    nvml.write()

    with nvml.gate() as gate:
        late = await given_up(gpu, gate, mock_clock)

        # What was read before it is true, and what comes after it unknown.
        assert [device.condition for device in late] == ["ready", "late", "late"]
        assert late[0] == before[0]
        assert [device.memory_free_bytes for device in late[1:]] == [None, None]
        assert [device.total_bytes for device in late] == [140 * GIB] * 3
        assert condition(gpu) == "late"
        assert gpu.state.fault is not None
        assert gpu.state.fault.code == "DRIVER_LATE"
        assert nvml.cards[1].uuid in gpu.state.fault.reason

        # Nobody follows it into a driver that has not answered, and nobody waits for it again: the clock
        # stands still here.
        again = await gpu.devices()
        assert {device.condition for device in again} == {"late"}
        assert await gpu.processes() == {device.uuid: None for device in before}
        assert gate.arrivals() == []

    nvml.cards[1].rules = []
    nvml.write()
    await settled(gpu)
    # A card that answered late is left alone for a while, so that the others can be read.
    assert [device.condition for device in await gpu.devices()] == ["ready", "late", "ready"]
    assert condition(gpu) == "ready"
    mock_clock.jump(REST + 1)
    assert await gpu.devices() == before


async def test_a_card_that_always_answers_late_leaves_the_others_alone(
    nvml: NvmlDriver, mock_clock: MockClock
) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.write()
    gpu = NvmlGpu(PATIENCE, REST)
    await gpu.devices()
    nvml.cards[0].rules = [hang("nvmlDeviceGetPowerUsage")]
    nvml.write()
    with nvml.gate() as gate:
        for _ in range(2):
            gate.close()
            assert [d.condition for d in await given_up(gpu, gate, mock_clock)] == ["late", "late"]
            gate.open()
            await settled(gpu)
            for _ in range(3):
                assert [d.condition for d in await gpu.devices()] == ["late", "ready"]
                assert (await gpu.processes())[nvml.cards[1].uuid] == ()
            mock_clock.jump(REST + 1)


async def test_a_list_of_programs_that_hangs_hides_no_figures(
    nvml: NvmlDriver, mock_clock: MockClock
) -> None:
    nvml.cards[0].rules = [hang("nvmlDeviceGetComputeRunningProcesses")]
    nvml.write()
    gpu = NvmlGpu(PATIENCE, REST)
    (before,) = await gpu.devices()
    listed: list[object] = []

    async def read() -> None:
        listed.append(await gpu.processes())

    with nvml.gate() as gate:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await gate.arrival()
            mock_clock.jump(PATIENCE)
        assert listed == [{before.uuid: None}]
        assert condition(gpu) == "late"
    await gpu.aclose()


async def test_who_asks_while_a_reading_is_in_hand_is_told_of_a_later_one(nvml: NvmlDriver) -> None:
    """Or a promise could be given on a figure that is older than the question."""
    nvml.cards = [card(0), card(1)]
    nvml.cards[1].rules = [hang("nvmlDeviceGetName")]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    seen: list[int | None] = []

    async def read() -> None:
        seen.append((await gpu.devices())[0].memory_free_bytes)

    with nvml.gate() as gate:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await gate.arrival()
            nvml.cards[0].memory = (140 * GIB, GIB, 139 * GIB, 0)
            nvml.cards[1].rules = []
            nvml.write()
            for _ in range(20):
                nursery.start_soon(read)
            await wait_all_tasks_blocked()
            gate.open()
    assert seen == [100 * GIB, *[GIB] * 20]
    # Those who waited together were answered by one reading.
    assert gpu.readings == 2


async def test_one_who_leaves_takes_no_reading_from_the_others(nvml: NvmlDriver) -> None:
    nvml.rules = [hang("nvmlDeviceGetName")]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    seen: list[tuple[Device, ...]] = []
    leaves = trio.CancelScope()

    async def read() -> None:
        seen.append(await gpu.devices())

    async def leave() -> None:
        with leaves:
            await gpu.devices()

    with nvml.gate() as gate:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            await gate.arrival()
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            leaves.cancel()
            gate.open()
    assert [device.is_ready for device in seen[0]] == [True]


async def test_closing_lets_the_driver_go(nvml: NvmlDriver) -> None:
    gpu = NvmlGpu(patience=60)
    nvml.cards[0].processes = [Process(1, 1)]
    nvml.write()
    await gpu.processes()

    await gpu.aclose()

    with pytest.raises(pynvml.NVMLError) as refused:
        pynvml.nvmlShutdown()
    assert refused.value.value == pynvml.NVML_ERROR_UNINITIALIZED
    # Asked again, it begins again.
    assert (await gpu.devices())[0].is_ready


async def test_closing_does_not_wait_for_ever(nvml: NvmlDriver, mock_clock: MockClock) -> None:
    nvml.rules = [hang("nvmlDeviceGetName")]
    nvml.write()
    gpu = NvmlGpu(PATIENCE, REST)
    with nvml.gate() as gate:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gpu.devices)
            await gate.arrival()
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gpu.aclose)
            await wait_all_tasks_blocked()
            mock_clock.jump(PATIENCE)
    await gpu.aclose()


async def test_closing_waits_for_no_driver_that_had_its_time_at_a_start_broken_off(
    nvml: NvmlDriver, mock_clock: MockClock
) -> None:
    nvml.rules = [hang("nvmlDeviceGetName")]
    nvml.write()
    gpu = NvmlGpu(PATIENCE, REST)
    with nvml.gate() as gate:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(gpu.wait_for_driver)
            await gate.arrival()
            mock_clock.jump(PATIENCE)
            nursery.cancel_scope.cancel()
        await gpu.aclose()
    while condition(gpu) != "ready":
        await gpu.devices()
    await gpu.aclose()


async def test_closing_waits_for_no_driver_that_was_late(nvml: NvmlDriver, mock_clock: MockClock) -> None:
    """A peer is asked to stop and has five seconds; a driver that hangs has had its time."""
    nvml.rules = [hang("nvmlDeviceGetName")]
    nvml.write()
    gpu = NvmlGpu(PATIENCE, REST)
    with nvml.gate() as gate:
        await given_up(gpu, gate, mock_clock)
        await gpu.aclose()
        assert condition(gpu) == "late"
    while condition(gpu) == "late":
        await gpu.devices()
    await gpu.aclose()
