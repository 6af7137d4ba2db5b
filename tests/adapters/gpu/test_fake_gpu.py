"""Made-up devices do what a test tells them, and the processor is there whatever they do."""

from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.gpu.port import DeviceProcess, Program


async def test_a_made_up_driver_that_does_not_answer_is_late() -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    gpu.delay_driver()

    card, cpu = await gpu.devices()

    assert (card.condition, cpu.condition) == ("late", "ready")
    assert gpu.state.condition == "late"
    assert gpu.state.driver_version is not None
    assert not gpu.state.is_readable


async def test_a_made_up_card_can_be_unreadable_and_come_back_as_it_was() -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    before = await gpu.devices()
    gpu.lose(cuda_device().uuid, "unreadable", "it says nothing")

    card, _ = await gpu.devices()

    assert (card.condition, card.condition_reason) == ("unreadable", "it says nothing")
    gpu.bring_back()
    assert await gpu.devices() == before


async def test_made_up_programs_are_held_where_they_were_put() -> None:
    first, second, third = cuda_device(0), cuda_device(1), cuda_device(2)
    gpu = FakeGpu((first, second, third, cpu_device()))
    gpu.hold(first.uuid, DeviceProcess(1, GIB, "both", 0.5))
    gpu.held[second.uuid] = None

    assert await gpu.processes() == {
        first.uuid: (DeviceProcess(1, GIB, "both", 0.5, Program(1, "program-1")),),
        second.uuid: None,
        third.uuid: (),
    }
    gpu.hold(first.uuid)
    assert (await gpu.processes())[first.uuid] == ()


async def test_made_up_numbers_name_processes_until_they_are_ended_or_used_again() -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    gpu.hold(cuda_device().uuid, *(DeviceProcess(pid, GIB, "compute") for pid in (1, 2, 3)))
    gpu.ended.add(2)
    gpu.others[3] = Program(9, "another")

    first, second, third = (await gpu.processes())[cuda_device().uuid] or ()

    assert (first.program, first.is_gone) == (Program(1, "program-1"), False)
    assert (second.program, second.is_gone) == (None, True)
    assert third.program == Program(9, "another")
    assert await gpu.programs(frozenset({1, 2, 3})) == {1: first.program, 3: third.program}

    gpu.is_machines = False
    assert await gpu.programs(frozenset({1})) is None
    assert [p.program for p in (await gpu.processes())[cuda_device().uuid] or ()] == [None] * 3
