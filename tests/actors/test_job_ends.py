"""Ends of a job that meet: a stop-job, a key taken back, an end by itself, a slow or full disk (F13, F25).

Whatever comes together, each command completes once, no fact is told twice, and what was reserved comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors.ending import REVOKED
from actors.messages.times import time_text
from actors.rules.refusal import Refusal
from adapters.gpu.fake import GIB
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Exit, NotEnded
from tests.support.houses import MIB, Disk, Household, job, open_house

if TYPE_CHECKING:
    from pathlib import Path

PHASES = ("pulling", "starting", "running")


async def at_rest(house: Household) -> None:
    """Everything has completed, adds up, and has come back."""
    await house.check()
    assert house.store.world.jobs == {}
    assert house.store.world.promised == {}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_stop_is_carried_out_in_every_phase_and_told_under_both_correlations(
    tmp_path: Path, phase: str
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, phase, memory_bytes=MIB)
        stop = await house.stop_job(key, name)
        assert house.store.world.jobs[name].phase == "ending"
        await house.completed(run, stop)
        await at_rest(house)
        own, (by_stop,) = (await house.facts(run))[-1], await house.facts(stop)
        assert own["type"] == by_stop["type"] == "JobStopped"
        assert own["correlationid"] != by_stop["correlationid"]
        assert ("reason" in own["data"], "output" in own["data"]) == (phase != "running", phase == "running")
        assert "reason" not in by_stop["data"]
        assert house.runtime.starts == [] or phase == "running"


@pytest.mark.parametrize("phase", PHASES)
async def test_one_correlation_is_told_once_and_both_commands_complete(tmp_path: Path, phase: str) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, phase)
        stop = await house.stop_job(key, name, correlation=run)
        await house.completed(run, stop)
        await at_rest(house)
        stopped = [f for f in await house.facts() if f["type"] == "JobStopped"]
        assert [(f["causationid"], f["correlationid"]) for f in stopped] == [(stop, run)]
    async with open_house(tmp_path) as again:
        await again.at_rest()
        assert (await again.types()).count("JobStopped") == 1


@pytest.mark.parametrize("phase", PHASES)
async def test_a_key_taken_back_ends_its_jobs_in_every_phase(tmp_path: Path, phase: str) -> None:
    async with open_house(tmp_path) as house:
        key, other = await house.key(memory_bytes=GIB), await house.key("other")
        run, _ = await house.job_in(key, phase, memory_bytes=MIB)
        await house.revoke(key)
        fact = await house.told("JobStopped", causation=run)
        assert fact["data"]["reason"] == REVOKED
        await house.until(lambda: not house.store.ring.ending())
        await at_rest(house)
        assert other.is_open(house.clock.now_ms())


async def test_a_key_taken_back_and_left_running_leaves_its_jobs(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        name = await house.running(key)
        await house.registrar.revoke(key.holder, ends_work=False)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert house.store.world.jobs[name].phase == "running"
        house.runtime.end(name, 0)
        await house.told("JobFinished")
        await at_rest(house)


async def test_a_stop_tells_the_last_lines(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        house.runtime.write(name, "one\ntwo\n")
        await house.completed(await house.stop_job(key, name))
        assert (await house.facts(run))[-1]["data"]["output"] == ["one", "two"]


async def test_a_holder_is_told_when_another_key_stops_its_job(tmp_path: Path) -> None:
    """Each reads its own fact."""
    async with open_house(tmp_path) as house:
        holder, everybodys = await house.key(scopes=("jobs",)), await house.key("owner")
        run, name = await house.job_in(holder, "running")
        stop = await house.stop_job(everybodys, name)
        await house.completed(stop)
        await at_rest(house)
        own, (by_stop,) = (await house.facts(run))[-1], await house.facts(stop)
        assert own["holder"] == holder.holder
        assert "everybody's" in own["data"]["reason"]
        assert by_stop["holder"] == everybodys.holder


async def test_a_second_stop_is_refused_while_the_first_is_under_way(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        house.runtime.make_stubborn(name)
        stop = await house.stop_job(key, name)
        with pytest.raises(Refusal) as refused:
            await house.stop_job(key, name)
        assert refused.value.code == "JOB_ENDING"
        house.runtime.end(name, 0)
        await house.completed(run, stop)
        await at_rest(house)


class Slow(FakeRuntime):
    """Is slow to notice that what it waits for has ended."""

    waits = 0

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.go = trio.Event()

    async def wait(self, workload: str) -> Exit:
        is_late = self.is_running(workload)
        self.waits += is_late
        ended = await super().wait(workload)
        if is_late:
            await self.go.wait()
        return ended


async def test_a_job_that_was_over_before_its_stop_finished(tmp_path: Path) -> None:
    """Its end is known to lie before; whoever stops it is told that there was nothing to stop."""
    async with open_house(tmp_path, make_runtime=Slow) as house:
        assert isinstance(house.runtime, Slow)
        key = await house.key()
        run, name = await house.job_in(key, "running")
        await house.until(lambda: house.runtime.waits > 0)  # type: ignore[attr-defined]
        house.runtime.end(name, 5, ended_at=time_text(house.clock.now_ms() - 1))
        stop = await house.stop_job(key, name)
        await house.completed(stop)
        await at_rest(house)
        assert (await house.facts(run))[-1]["data"]["exit_code"] == 5
        (fact,) = await house.facts(stop)
        assert (fact["type"], fact["data"]["code"]) == ("CommandFailed", "JOB_ENDED")


async def test_a_stop_while_its_end_is_being_told_completes_once(tmp_path: Path, disk: Disk) -> None:
    """The job has finished and that is on its way to the disk when the stop is accepted."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        disk.hold("events")
        house.runtime.end(name, 0)
        await house.until(lambda: bool(house.store.events._journal._limiter.borrowed_tokens))
        stop = await house.stop_job(key, name)
        disk.release("events")
        await house.completed(run, stop)
        await at_rest(house)
        assert (await house.types())[-2:] == ["JobFinished", "CommandFailed"]


async def test_a_stop_while_its_start_is_being_told_stops_a_job_that_started(
    tmp_path: Path, disk: Disk
) -> None:
    """What was told is not followed by its contrary."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "starting")
        disk.hold("events")
        assert house.runtime._gate is not None
        house.runtime._gate.set()
        await house.until(lambda: bool(house.store.events._journal._limiter.borrowed_tokens))
        stop = await house.stop_job(key, name)
        disk.release("events")
        await house.completed(run, stop)
        await at_rest(house)
        assert (await house.types(run))[-2:] == ["JobStarted", "JobStopped"]
        assert "reason" not in (await house.facts(run))[-1]["data"]


async def test_a_stop_is_not_completed_before_it_is_durable(tmp_path: Path, disk: Disk) -> None:
    """Its job ends by itself meanwhile: no power cut may take back a command whose end was told."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        name = await house.running(key)
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.stop_job, key, name)
            await house.until(lambda: house.store.world.jobs[name].phase == "ending")
            house.runtime.end(name, 1)
            await house.told("JobFinished")
            await house.until(lambda: name not in house.store.world.jobs)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert "CommandFailed" not in await house.types()
            disk.release("accepted.jsonl")
        await at_rest(house)
        assert (await house.types())[-1] == "CommandFailed"


async def test_a_stop_that_was_not_kept_leaves_the_job_as_it_was(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        name = await house.running(key)
        disk.full.add("accepted.jsonl")
        with pytest.raises(Refusal) as refused:
            await house.stop_job(key, name)
        assert refused.value.code == "NO_ROOM"
        assert house.store.world.jobs[name].phase == "running"
        disk.full.clear()
        house.runtime.end(name, 0)
        await house.told("JobFinished")
        await at_rest(house)
        assert "JobStopped" not in await house.types()


async def test_a_run_that_was_not_kept_leaves_nothing(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=GIB, jobs=1)
        disk.full.add("accepted.jsonl")
        with pytest.raises(Refusal) as refused:
            await house.send(key, job(memory_bytes=MIB))
        assert refused.value.code == "NO_ROOM"
        world = house.store.world
        assert (world.promised, world.jobs, world.unfinished) == ({}, {}, {})
        assert house.runtime.starts == []
        assert await house.facts() == []
        disk.full.clear()
        await house.running(key, memory_bytes=MIB)
        await house.check()


async def test_an_end_that_must_be_told_waits_for_room(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        disk.full.add("events")
        house.runtime.end(name, 9)
        await house.until(lambda: disk.refusals > 3)
        assert name in house.store.world.jobs
        disk.full.clear()
        assert (await house.told("JobFinished", causation=run))["data"]["exit_code"] == 9
        await at_rest(house)


async def test_a_stop_and_a_revoke_together_end_it_once(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        house.runtime.make_stubborn(name)
        stop = await house.stop_job(key, name)
        await house.revoke(key)
        house.runtime.end(name, 0)
        await house.completed(run, stop)
        await house.until(lambda: not house.store.ring.ending())
        await at_rest(house)


async def test_a_revoke_and_then_an_owners_stop_complete_both(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key, owner = await house.key(scopes=("jobs",)), await house.key("owner")
        run, name = await house.job_in(key, "running")
        house.runtime.make_stubborn(name)
        await house.revoke(key)
        stop = await house.stop_job(owner, name)
        house.runtime.end(name, 0)
        await house.completed(run, stop)
        await house.until(lambda: not house.store.ring.ending())
        await at_rest(house)
        assert (await house.facts(run))[-1]["data"]["reason"] == REVOKED


class Unkillable(FakeRuntime):
    """Its programs survive being killed, until it is told to let go."""

    refusals = 0
    lets_go = False

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        if not self.lets_go:
            self.refusals += 1
            raise NotEnded(f"{workload} is still there")
        await super().stop(workload, grace_seconds=grace_seconds)


async def test_a_wish_to_stop_is_kept_until_the_container_is_gone(tmp_path: Path) -> None:
    """Easily missed 20: its memory stays promised until then; gpustack/gpustack#2935."""
    async with open_house(tmp_path, make_runtime=Unkillable) as house:
        assert isinstance(house.runtime, Unkillable)
        key = await house.key()
        _, name = await house.job_in(key, "running", memory_bytes=MIB)
        stop = await house.stop_job(key, name)
        await house.until(lambda: house.runtime.refusals > 3)  # type: ignore[attr-defined]
        assert house.store.world.promised == {"cpu": MIB}
        house.runtime.lets_go = True
        await house.completed(stop)
        await at_rest(house)


async def test_a_stop_while_the_engine_is_away_is_carried_out_once_it_is_back(tmp_path: Path) -> None:
    """gpustack/gpustack#2935, between a peer and its engine: it ran on once that was back."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        come_back = house.runtime.go_away()
        stop = await house.stop_job(key, name)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert "JobStopped" not in await house.types()
        come_back()
        await house.completed(run, stop)
        await at_rest(house)
        assert await house.types(stop) == ["JobStopped"]
