"""What every reader of devices promises, kept by the real ones and by the fake."""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device, mig_device
from adapters.gpu.host import HostGpu
from adapters.gpu.joined import JoinedGpu
from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.port import DeviceProcess, Gpu
from tests.support.nvml.driver import Instance, NvmlDriver, Process, card

FIGURES = (
    "memory_free_bytes",
    "temperature_celsius",
    "power_watts",
    "utilisation_ratio",
    "energy_joules",
)


def _nothing() -> None:
    pass


@attrs.frozen
class Machine:
    """Two cards, the second cut into one instance, and what becomes of their driver; or a processor alone."""

    gpu: Gpu
    has_cards: bool = True
    has_cpu: bool = True
    lose_driver: Callable[[], None] = _nothing
    bring_back: Callable[[], None] = _nothing
    lose_first: Callable[[], None] = _nothing


def _nvml(driver: NvmlDriver) -> Machine:
    driver.cards = [card(0), card(1)]
    driver.cards[0].processes = [Process(os.getpid(), GIB)]
    driver.cards[1].mig = (1, 7)
    driver.cards[1].instances = [Instance("MIG-a")]
    driver.write()

    def lose_driver() -> None:
        driver.session = None
        driver.write()

    def bring_back() -> None:
        driver.cards[0].rules.clear()
        driver.reload()

    def lose_first() -> None:
        driver.cards[0].lose()
        driver.write()

    return Machine(NvmlGpu(patience=60), True, False, lose_driver, bring_back, lose_first)


def _fake() -> Machine:
    gpu = FakeGpu((cuda_device(0), mig_device(1), cpu_device()))
    gpu.hold(cuda_device(0).uuid, DeviceProcess(os.getpid(), GIB, "compute"))
    return Machine(gpu, True, True, gpu.lose_driver, gpu.bring_back, lambda: gpu.lose(cuda_device(0).uuid))


@pytest.fixture(params=["nvml", "joined", "fake", "fake cpu", "host"])
def machine(request: pytest.FixtureRequest, nvml: NvmlDriver, tmp_path: Path) -> Machine:
    kind: str = request.param
    if kind == "nvml":
        return _nvml(nvml)
    if kind == "joined":
        cards = _nvml(nvml)
        return attrs.evolve(cards, gpu=JoinedGpu(cards.gpu, HostGpu()), has_cpu=True)
    if kind == "fake":
        return _fake()
    return Machine(FakeGpu() if kind == "fake cpu" else HostGpu(), has_cards=False)


async def test_accelerators_come_first_and_the_processor_last(machine: Machine) -> None:
    devices = await machine.gpu.devices()

    assert [device.is_cpu for device in devices] == [False] * 2 * machine.has_cards + [True] * machine.has_cpu
    assert all(device.is_ready for device in devices)
    assert [d.slicing for d in devices if not d.is_cpu] == ["none", "mig"] * machine.has_cards
    assert len({device.id for device in devices}) == len({device.uuid for device in devices}) == len(devices)


async def test_figures_are_in_their_bounds_or_unknown(machine: Machine) -> None:
    for device in await machine.gpu.devices():
        assert device.total_bytes is not None
        assert device.total_bytes > 0
        free = device.memory_free_bytes
        assert free is None or 0 <= free <= device.total_bytes
        assert device.utilisation_ratio is None or 0 <= device.utilisation_ratio <= 1


async def test_programs_are_told_of_every_accelerator_and_of_no_processor(machine: Machine) -> None:
    devices = await machine.gpu.devices()

    processes = await machine.gpu.processes()

    assert set(processes) == {device.uuid for device in devices if not device.is_cpu}
    if machine.has_cards:
        first, second = (processes[device.uuid] for device in devices[:2])
        assert first is not None
        assert [attrs.evolve(p, program=None) for p in first] == [DeviceProcess(os.getpid(), GIB, "compute")]
        assert second == ()


async def test_a_program_is_told_by_its_number_and_its_start_or_not_at_all(machine: Machine) -> None:
    pid = os.getpid()
    programs = await machine.gpu.programs(frozenset({pid}))

    listed = [one for found in (await machine.gpu.processes()).values() for one in found or ()]
    for one in listed:
        assert not one.is_gone
        assert one.program == (None if programs is None else programs[pid])


async def test_a_driver_is_told_of_where_there_is_one(machine: Machine) -> None:
    await machine.gpu.devices()

    state = machine.gpu.state

    assert state.condition == ("ready" if machine.has_cards else "none")
    assert (state.driver_version is not None) == machine.has_cards
    assert state.is_readable


async def test_a_lost_driver_leaves_its_cards_known_and_unknown_what_changes(machine: Machine) -> None:
    before = await machine.gpu.devices()
    machine.lose_driver()

    after = await machine.gpu.devices()

    assert [(d.id, d.uuid, d.total_bytes) for d in after] == [(d.id, d.uuid, d.total_bytes) for d in before]
    for device in after:
        if not device.is_cpu:
            assert device.condition == "lost"
            assert device.condition_reason
            assert [getattr(device, name) for name in FIGURES] == [None] * 5
        else:
            assert device.is_ready
    assert set((await machine.gpu.processes()).values()) <= {None}
    state = machine.gpu.state
    assert state.is_readable is not machine.has_cards
    if machine.has_cards:
        assert state.condition == "lost"
        assert state.fault is not None
        assert state.fault.fix

    machine.bring_back()
    returned = await machine.gpu.devices()
    assert [(d.uuid, d.is_ready) for d in returned] == [(d.uuid, True) for d in before]
    assert machine.gpu.state.is_readable


async def test_a_lost_card_hides_no_other(machine: Machine) -> None:
    before = await machine.gpu.devices()
    machine.lose_first()

    after = await machine.gpu.devices()

    assert [device.uuid for device in after] == [device.uuid for device in before]
    if machine.has_cards:
        assert after[0].condition == "lost"
        assert after[0].memory_free_bytes is None
        assert after[1] == before[1]
        assert (await machine.gpu.processes())[after[0].uuid] is None
        assert (await machine.gpu.processes())[after[1].uuid] == ()
    assert machine.gpu.state.is_readable

    machine.bring_back()
    assert all(device.is_ready for device in await machine.gpu.devices())
