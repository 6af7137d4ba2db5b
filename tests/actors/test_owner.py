"""The owner's watch: whose use makes a card busy, when it frees, and that nothing is told of it (F28)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing

from actors.available import available_now
from actors.house import House
from actors.kernel.mailbox import Mailbox
from actors.kernel.workers import Workers
from actors.looks import CardUse
from actors.messages.commands import Accepted, DeployModel
from actors.messages.envelope import EnvelopeEncoder
from actors.owner import UNKNOWN_SECONDS, OwnersWatch, _load
from actors.reports import Machine, hardware_state
from actors.rules.busy import Load, Thresholds
from actors.rules.refusal import Refusal
from actors.store import Store
from adapters.clock.fake import FakeClock
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device, mig_device
from adapters.gpu.port import DeviceProcess
from adapters.runtime.fake import FakeRuntime
from tests.support.houses import job, open_house

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

THRESHOLDS = Thresholds(2 * GIB, 0.3, busy_after_seconds=30, free_after_seconds=300)
FIRST, SECOND = cuda_device(0), cuda_device(1)
GAME = DeviceProcess(99, 6 * GIB, "both", 0.9)
DESKTOP = DeviceProcess(98, GIB // 2, "graphics", 0.4)


class NativeRuntime(FakeRuntime):
    """As an engine that is installed on the host: nobody can name its processes."""

    @property
    def name(self) -> str:
        return "native"


@attrs.define
class Watched:
    """A watch on a clock that the test moves; no disk, no threads.

    Each test asks for that clock itself, else it would run on another.
    """

    house: House
    gpu: FakeGpu
    runtime: FakeRuntime
    clock: MockClock

    async def reads(self, times: int) -> None:
        """Let it read so often."""
        for _ in range(times):
            await trio.testing.wait_all_tasks_blocked()
            self.clock.jump(THRESHOLDS.period_seconds)
        await trio.testing.wait_all_tasks_blocked()

    def is_busy(self, uuid: str = FIRST.uuid) -> bool:
        return not available_now(self.house, self.gpu.shown)[uuid].is_free

    def serve(self, workload: str, *pids: int, device: str = FIRST.uuid) -> None:
        """A deployment on a card, with these processes."""
        accepted = Accepted("c", "h", "c", "t", DeployModel("m", "ollama", GIB), workload, "gpu-0", device)
        self.house.store.world.accept(accepted)
        self.house.store.world.deployments[workload].reach("ready", "t")
        self.runtime.plant(workload)
        self.runtime.set_processes(workload, frozenset(pids))


@pytest.fixture
def made(tmp_path: Path, mock_clock: MockClock) -> Callable[..., Watched]:
    def make(runtime: FakeRuntime | None = None, *cards: object) -> Watched:
        gpu = FakeGpu((FIRST, SECOND, cpu_device()))
        clock, runtime = FakeClock(), runtime or FakeRuntime()
        store = Store(tmp_path, EnvelopeEncoder("urn:test", {}), clock)
        house = House(store, Workers(), clock, runtime, {}, gpu, busy=THRESHOLDS)
        return Watched(house, gpu, runtime, mock_clock)

    return make


@pytest.fixture
async def watched(made: Callable[..., Watched], nursery: trio.Nursery) -> Watched:
    return start(made(), nursery)


def start(watched: Watched, nursery: trio.Nursery) -> Watched:
    nursery.start_soon(OwnersWatch(watched.house, THRESHOLDS).run, Mailbox[object](0))
    return watched


async def test_a_card_is_busy_thirty_seconds_into_a_game_and_free_five_minutes_after(
    watched: Watched, mock_clock: MockClock
) -> None:
    watched.gpu.hold(FIRST.uuid, GAME, DESKTOP)
    await watched.reads(5)
    assert not watched.is_busy()
    await watched.reads(1)
    assert watched.is_busy()
    assert not watched.is_busy(SECOND.uuid)
    watched.gpu.hold(FIRST.uuid, DESKTOP)
    await watched.reads(60)
    assert watched.is_busy()
    await watched.reads(1)
    assert not watched.is_busy()


async def test_a_desktop_alone_stays_under(watched: Watched, mock_clock: MockClock) -> None:
    """pop-os/cosmic-comp#2153."""
    watched.gpu.put(attrs.evolve(FIRST, utilisation_ratio=0.97))
    watched.gpu.hold(FIRST.uuid, DESKTOP, attrs.evolve(DESKTOP, pid=97, memory_bytes=GIB // 4))
    await watched.reads(100)
    assert not watched.is_busy()


async def test_the_peers_own_programs_are_set_aside(watched: Watched, mock_clock: MockClock) -> None:
    watched.serve("dep-1", 7, 8)
    own = [DeviceProcess(pid, 8 * GIB, "compute", 0.5) for pid in (7, 8)]
    watched.gpu.hold(FIRST.uuid, *own, DESKTOP)
    await watched.reads(20)
    assert not watched.is_busy()
    watched.gpu.hold(FIRST.uuid, *own, DESKTOP, attrs.evolve(GAME, memory_bytes=3 * GIB))
    await watched.reads(7)
    assert watched.is_busy()


async def test_of_a_workload_whose_programs_are_not_to_be_told_nothing_is_concluded(
    watched: Watched, mock_clock: MockClock
) -> None:
    """They may be the peer's own, and may be the owner's: unknown counts neither way."""
    watched.gpu.hold(FIRST.uuid, GAME)
    watched.serve("dep-1")
    await watched.reads(20)
    assert not watched.is_busy()
    watched.serve("dep-1", 7)
    await watched.reads(8)
    assert watched.is_busy()
    watched.runtime.set_processes("dep-1", frozenset())
    await watched.reads(100)
    assert watched.is_busy()
    watched.gpu.hold(FIRST.uuid, DESKTOP)
    await watched.reads(62)
    assert not watched.is_busy(), "whoever's it is, it is too little to matter"


async def test_an_instance_is_judged_by_memory_since_its_utilisation_is_never_told(
    watched: Watched, mock_clock: MockClock
) -> None:
    """dask/distributed#8739."""
    instance = mig_device()
    watched.gpu.shown = (instance, cpu_device())
    watched.gpu.hold(instance.uuid, DeviceProcess(99, 3 * GIB, "compute", None))
    await watched.reads(8)
    assert watched.is_busy(instance.uuid)
    watched.gpu.hold(instance.uuid, DeviceProcess(99, GIB, "compute", None))
    await watched.reads(62)
    assert not watched.is_busy(instance.uuid)


async def test_a_card_that_a_native_engine_serves_on_is_not_read_while_it_does(
    made: Callable[..., Watched], nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    """Easily missed 9."""
    watched = start(made(NativeRuntime()), nursery)
    watched.serve("dep-1", 7)
    for card in (FIRST, SECOND):
        watched.gpu.hold(card.uuid, GAME)
    await watched.reads(20)
    assert not watched.is_busy()
    assert watched.is_busy(SECOND.uuid)
    del watched.house.store.world.deployments["dep-1"]
    await watched.reads(7)
    assert watched.is_busy()


async def test_while_the_driver_does_not_answer_everything_stays_as_it_was(
    watched: Watched, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    """However long: nothing is counted, and what was counted is not lost."""
    watched.gpu.hold(FIRST.uuid, GAME)
    await watched.reads(10)
    watched.gpu.hold(SECOND.uuid, GAME)
    await watched.reads(4)
    watched.gpu.delay_driver()
    await watched.reads(500)
    assert (watched.is_busy(), watched.is_busy(SECOND.uuid)) == (True, False)
    said = [record.getMessage() for record in caplog.records]
    assert [message.split(" has not been known")[0] for message in said] == [
        f"what runs on {FIRST.uuid}",
        f"what runs on {SECOND.uuid}",
    ]
    watched.gpu.bring_back()
    await watched.reads(3)
    assert not watched.is_busy(SECOND.uuid)
    await watched.reads(1)
    assert watched.is_busy(SECOND.uuid)


async def test_one_card_that_is_lost_hides_no_other(watched: Watched, mock_clock: MockClock) -> None:
    watched.gpu.lose(FIRST.uuid)
    watched.gpu.hold(SECOND.uuid, GAME)
    await watched.reads(8)
    assert (watched.is_busy(), watched.is_busy(SECOND.uuid)) == (False, True)


async def test_a_machine_that_stood_still_is_read_again_before_anything_changes(
    watched: Watched, mock_clock: MockClock
) -> None:
    watched.gpu.hold(FIRST.uuid, GAME)
    await watched.reads(2)
    watched.clock.jump(36_000)
    await trio.testing.wait_all_tasks_blocked()
    assert not watched.is_busy()
    await watched.reads(1)
    assert watched.is_busy()


async def test_wall_time_is_nothing_to_it(watched: Watched, mock_clock: MockClock) -> None:
    watched.gpu.hold(FIRST.uuid, GAME)
    clock = watched.house.clock
    assert isinstance(clock, FakeClock)
    for ms in (86_400_000, -172_800_000, 0, 1, 2):
        clock.advance(ms)
        await watched.reads(1)
    assert not watched.is_busy()
    await watched.reads(2)
    assert watched.is_busy()


async def test_nothing_anywhere_says_that_the_owner_uses_the_card(
    watched: Watched, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    """Easily missed 27: no fact and no log line, at any level; a client reads busy and nothing more."""
    caplog.set_level(logging.DEBUG)
    watched.gpu.hold(FIRST.uuid, GAME)
    await watched.reads(10)
    state = await hardware_state(Machine(watched.house), None, instance="p", version="1")
    assert [device["availability"] for device in state["devices"]] == [
        {"state": "busy"},
        {"state": "free"},
        {"state": "free"},
    ]
    assert watched.house.occupied.reasons() == {FIRST.uuid: "memory"}, "for the owner's eyes"
    watched.gpu.hold(FIRST.uuid)
    await watched.reads(70)
    assert not watched.is_busy()
    assert watched.house.occupied.reasons() == {}
    assert [record for record in caplog.records if record.name.startswith("best_peer")] == []
    assert watched.house.store.world.events_told == {}


async def test_a_program_of_which_the_driver_tells_nothing_is_told_by_no_line_either(
    watched: Watched, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    """A line whenever one runs would say when the owner is at the machine."""
    watched.gpu.hold(FIRST.uuid, DeviceProcess(99, None, "compute"))
    await watched.reads(50)
    assert [record for record in caplog.records if record.name.startswith("best_peer")] == []


@pytest.mark.parametrize("others", [(), (GAME,)])
async def test_that_a_workloads_programs_are_not_known_is_said_whoever_else_is_there(
    watched: Watched,
    caplog: pytest.LogCaptureFixture,
    mock_clock: MockClock,
    others: tuple[DeviceProcess, ...],
) -> None:
    watched.serve("dep-1")
    watched.gpu.hold(FIRST.uuid, *others)
    await watched.reads(50)
    said = [record.getMessage() for record in caplog.records]
    assert [message.split(" has not been known")[0] for message in said] == [f"what runs on {FIRST.uuid}"]


async def test_it_reads_as_often_as_it_is_told_to(
    made: Callable[..., Watched], nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    watched = made()
    seldom = attrs.evolve(THRESHOLDS, period_seconds=20.0)
    nursery.start_soon(OwnersWatch(watched.house, seldom).run, Mailbox[object](0))
    await watched.reads(1)
    before = watched.gpu.reads
    await watched.reads(2)
    assert watched.gpu.reads == before
    await watched.reads(1)
    assert watched.gpu.reads > before


async def test_what_is_unknown_for_a_moment_is_not_said(
    watched: Watched, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    watched.gpu.delay_driver()
    await watched.reads(int(UNKNOWN_SECONDS / THRESHOLDS.period_seconds) - 1)
    watched.gpu.bring_back()
    await watched.reads(2)
    watched.gpu.delay_driver()
    await watched.reads(3)
    assert [record for record in caplog.records if record.name.startswith("best_peer")] == []


async def test_what_is_unknown_again_after_it_was_known_is_said_again(
    watched: Watched, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    for _ in range(2):
        watched.gpu.delay_driver()
        await watched.reads(50)
        watched.gpu.bring_back()
        await watched.reads(2)
    said = [record.getMessage() for record in caplog.records if FIRST.uuid in record.getMessage()]
    assert len(said) == 2


def test_who_uses_the_card_for_certain_does_so_whatever_else_is_not_to_be_told() -> None:
    unsure = DeviceProcess(7, 8 * GIB, "compute")
    assert _load(CardUse((), (GAME,), (unsure,), (), frozenset()), THRESHOLDS) == Load(True, "memory")


async def test_what_it_learned_outlives_its_own_restart(
    made: Callable[..., Watched], nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    watched = made()
    watched.gpu.hold(FIRST.uuid, GAME)
    async with trio.open_nursery() as first:
        start(watched, first)
        await watched.reads(8)
        first.cancel_scope.cancel()
    assert watched.is_busy()
    start(watched, nursery)
    watched.gpu.hold(FIRST.uuid)
    await watched.reads(3)
    assert watched.is_busy()


async def test_a_busy_card_takes_no_work_and_what_runs_there_runs_on(tmp_path: Path) -> None:
    at_once = Thresholds(2 * GIB, 0.3, busy_after_seconds=0, free_after_seconds=0)
    gpu = FakeGpu((FIRST, cpu_device()))
    gpu.hold(FIRST.uuid, GAME)
    async with open_house(tmp_path, gpu=gpu, busy=at_once) as house:
        key = await house.key()
        await house.until(lambda: house.house.occupied.is_busy(FIRST.uuid))
        running = await house.ready(key)
        with pytest.raises(Refusal) as refused:
            await house.send(key, job(device="gpu-0", memory_bytes=GIB))
        assert refused.value.code == "DEVICE_BUSY"
        assert refused.value.details == {"device": "gpu-0"}
        assert running in house.store.world.deployments
        await house.check()
