"""What the queries answer: the machine's devices and models, read once for many who ask."""

from pathlib import Path

import attrs
import trio
import trio.testing

from actors.house import House
from actors.kernel.workers import Workers
from actors.messages.envelope import EnvelopeEncoder
from actors.reports import RECENT_SECONDS, Machine, hardware_state
from actors.state.keys import Grant, Key
from actors.store import Store
from adapters.clock.fake import FakeClock
from adapters.engine.fake import FakeEngine
from adapters.engine.port import Model
from adapters.gpu.fake import FakeGpu, cpu_device, cuda_device
from adapters.gpu.port import Device
from adapters.runtime.fake import FakeRuntime


def machine_of(folder: Path, gpu: FakeGpu) -> Machine:
    """A machine whose house is not even started: reports only read."""
    clock = FakeClock()
    return Machine(
        House(
            store=Store(folder, EnvelopeEncoder("urn:test", {}), clock),
            workers=Workers(),
            clock=clock,
            runtime=FakeRuntime(folder),
            engines={"llamacpp": FakeEngine()},
            gpu=gpu,
        )
    )


async def test_those_who_ask_at_the_same_time_share_one_reading(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    gpu = FakeGpu()
    machine = machine_of(tmp_path, gpu)
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(machine.read)
    assert gpu.reads == 1


async def test_those_who_wait_for_a_slow_driver_share_its_answer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Else each would be told in turn, the last after as many readings as there are askers."""

    class SlowGpu(FakeGpu):
        async def devices(self) -> tuple[Device, ...]:
            await trio.sleep(40 * RECENT_SECONDS)
            return await super().devices()

    gpu = SlowGpu()
    machine = machine_of(tmp_path, gpu)
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(machine.hardware)
    assert gpu.reads == 1


async def test_an_engine_that_lists_its_models_late_holds_up_no_reading_of_the_devices(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    class SilentEngine(FakeEngine):
        async def models(self) -> None:
            await trio.sleep_forever()

    gpu = FakeGpu()
    machine = machine_of(tmp_path, gpu)
    machine.house = attrs.evolve(machine.house, engines={"llamacpp": SilentEngine()})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine.read)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(RECENT_SECONDS)
        nursery.start_soon(machine.hardware)
        await trio.testing.wait_all_tasks_blocked()
        assert gpu.reads == 2
        nursery.cancel_scope.cancel("seen")


async def test_a_reading_of_the_devices_has_what_it_said_of_the_driver(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    machine = machine_of(tmp_path, gpu)
    hardware = await machine.hardware()
    assert (hardware.driver.is_readable, hardware.driver.driver_version) == (True, "580.00")
    gpu.lose_driver()
    assert await machine.hardware() is hardware  # as recent as that
    mock_clock.jump(RECENT_SECONDS)
    assert not (await machine.hardware()).driver.is_readable


async def test_a_reading_is_made_anew_once_it_is_not_recent(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    gpu = FakeGpu()
    machine = machine_of(tmp_path, gpu)
    await machine.read()
    gpu.put(attrs.evolve(cpu_device(), memory_free_bytes=7))
    mock_clock.jump(RECENT_SECONDS * 0.9)
    assert (await machine.read())[0].devices[0].memory_free_bytes != 7
    mock_clock.jump(RECENT_SECONDS * 0.2)
    assert (await machine.read())[0].devices[0].memory_free_bytes == 7


async def test_a_key_for_accelerators_alone_is_shown_no_processor(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, FakeGpu((cpu_device(), cuda_device())))
    narrow = Key("h-1", "agent", Grant(accelerators_only=True), 0)
    for key, shown in ((None, ["cpu", "gpu-0"]), (narrow, ["gpu-0"])):
        state = await hardware_state(machine, key, instance="p-1", version="1")
        assert [device["id"] for device in state["devices"]] == shown


async def test_an_engine_that_fetches_what_is_named_lists_no_models(tmp_path: Path) -> None:
    """Absent is not none: an agent may name what it likes."""
    model = Model("small", None, 9, 512, 7)
    machine = machine_of(tmp_path, FakeGpu())
    held = FakeEngine(held=(model,))
    machine.house = attrs.evolve(machine.house, engines={"llamacpp": held, "ollama": FakeEngine("ollama")})
    state = await hardware_state(machine, None, instance="p-1", version="1")
    assert [engine.get("models") for engine in state["engines"]] == [
        [{"model": "small", "digest": None, "bytes": 9, "least_memory_bytes": 7, "context_tokens": 512}],
        None,
    ]
