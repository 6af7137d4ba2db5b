"""What the driver lists is known by number and start: a number that was used again is nobody's."""

from collections.abc import Mapping

import attrs

from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.gpu.host import boot_ticks
from adapters.gpu.joined import JoinedGpu
from adapters.gpu.port import Device, DeviceProcess, Program

CARD = cuda_device().uuid


@attrs.define
class Host(FakeGpu):
    """A processor, and what numbers name on it."""

    names: Mapping[int, Program] | None = None

    async def programs(self, pids: frozenset[int]) -> Mapping[int, Program] | None:
        if self.names is None:
            return None
        return {pid: self.names[pid] for pid in pids if pid in self.names}


@attrs.define
class Cards(FakeGpu):
    """Cards alone, whose driver knows numbers and nothing else."""

    shown: tuple[Device, ...] = (cuda_device(),)
    is_machines: bool = False


def joined(names: Mapping[int, Program] | None, *pids: int) -> JoinedGpu:
    cards = Cards()
    cards.hold(CARD, *(DeviceProcess(pid, GIB, "compute") for pid in pids))
    return JoinedGpu(cards, Host((cpu_device(),), names=names))


async def test_a_program_bears_its_start_and_its_name() -> None:
    listed = await joined({7: Program(5, "worker")}, 7).processes()
    assert listed == {CARD: (DeviceProcess(7, GIB, "compute", program=Program(5, "worker")),)}


async def test_one_that_has_ended_or_is_younger_than_the_answer_is_gone() -> None:
    younger = Program(boot_ticks() + 1_000_000, "another")
    listed = (await joined({8: younger}, 7, 8).processes())[CARD]
    assert listed is not None
    assert [(one.pid, one.is_gone, one.program) for one in listed] == [(7, True, None), (8, True, None)]


async def test_where_numbers_tell_nothing_nobody_is_gone() -> None:
    assert await joined(None, 7).processes() == {CARD: (DeviceProcess(7, GIB, "compute"),)}


async def test_an_unknown_list_stays_unknown_and_the_processor_has_none() -> None:
    gpu = joined({}, 7)
    assert isinstance(gpu.cards, FakeGpu)
    gpu.cards.held[CARD] = None
    assert await gpu.processes() == {CARD: None}
    assert await gpu.programs(frozenset({7})) == {}
