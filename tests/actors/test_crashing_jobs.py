"""Jobs whose actor crashes at any call to the outside: rebuilt, or given up with a told fact."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pytest
import trio

from actors.kernel.child import Backoff
from actors.log.eventlog import EventLog
from actors.rules.refusal import Refusal
from adapters.gpu.fake import GIB
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Exit
from tests.support.breaks import Breaks, Bug, house_with
from tests.support.houses import MIB, Disk, Household, job, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from actors.messages.envelope import Fact


@pytest.fixture(autouse=True)
def restarts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "seconds", lambda self, attempt: 0.001)


async def lead_a_life(house: Household) -> None:
    """A job that ends by itself and one that is stopped, each as soon as it may be."""
    key = await house.key(memory_bytes=GIB)
    names = []
    for _ in range(2):
        try:
            run = await house.send(key, job(memory_bytes=MIB))
        except (Bug, ExceptionGroup):
            break  # the sender is told that the peer failed over it; nothing was accepted
        await house.until(lambda run=run: run not in house.store.world.unfinished)  # type: ignore[misc]
        names += [j.id for j in house.store.world.jobs.values() if j.command == run]
    if names and house.runtime.is_running(names[0]):
        house.runtime.end(names[0], 3)
    for name in names[1:]:
        with contextlib.suppress(Refusal):  # it ended meanwhile
            await house.stop_job(key, name)
    await house.until(lambda: not house.store.world.jobs)


async def test_a_life_makes_the_calls_that_are_broken_below(tmp_path: Path) -> None:
    breaks = Breaks()
    async with house_with(breaks, tmp_path) as house:
        await lead_a_life(house)
        await house.check()
    expected = {"find", "wait", "devices", "start", "stop", "discard", "kept", "running"}
    assert set(breaks.calls) >= expected
    assert len(breaks.calls) < 30


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("at", range(24))
async def test_a_crash_at_any_one_call_loses_nothing_and_tells_nothing_twice(
    tmp_path: Path, at: int, *, after: bool
) -> None:
    async with house_with(Breaks(at=at, after=after), tmp_path) as house:
        await lead_a_life(house)
        await house.check()
        assert house.store.world.promised == {}
        assert len(house.runtime.starts) <= 2, "what was started is not started again"


@pytest.mark.parametrize("phase", ["pulling", "running"])
@pytest.mark.parametrize("method", ["find", "wait", "devices", "start", "stop", "discard"])
async def test_a_call_that_always_fails_ends_the_job_with_a_told_fact(
    tmp_path: Path, method: str, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Past its budget: every command completes, and what was reserved comes back."""
    caplog.set_level(logging.CRITICAL + 1)
    breaks = Breaks()
    async with house_with(breaks, tmp_path) as house:
        key = await house.key(memory_bytes=GIB)
        run, name = await house.job_in(key, phase, memory_bytes=MIB)
        breaks.always = method
        if house.pull is not None:
            house.pull.release()
        await house.completed(run)
        if name in house.store.world.jobs:
            if phase == "running" and method == "wait":
                house.runtime.end(name, 0)
            await house.completed(await house.stop_job(key, name))
        await house.until(lambda: not house.store.world.jobs)
        assert house.store.world.promised == {}
        assert house.store.world.holding(key.holder).jobs == set()
        breaks.always = None
        await house.until(lambda: not house.runtime.is_running(name))
        await house.check(removed=method != "discard")


async def test_a_job_that_is_given_up_says_so_and_completes_its_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    breaks = Breaks()
    async with house_with(breaks, tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        breaks.always = "stop"
        stop = await house.stop_job(key, name)
        await house.completed(stop)
        fact = (await house.facts(run))[-1]
        assert (fact["type"], fact["data"]["code"]) == ("JobFailed", "INTERNAL")
        assert fact["data"]["reason"].endswith(": Bug")
        assert (await house.facts(stop))[0]["data"]["code"] == "JOB_ENDED"
        breaks.always = None
        await house.until(lambda: not house.runtime.is_running(name))
        await house.check()


class Interruptible(FakeRuntime):
    """Its waiting raises when it is told to."""

    waiting: trio.CancelScope | None = None

    async def wait(self, workload: str) -> Exit:
        with trio.CancelScope() as self.waiting:
            return await super().wait(workload)
        raise Bug("wait")


async def test_a_stop_not_yet_durable_does_not_end_what_a_crash_rebuilds(tmp_path: Path, disk: Disk) -> None:
    """The actor is rebuilt while a stop-job waits for the disk, which then has no room for it."""
    async with open_house(tmp_path, make_runtime=Interruptible) as house:
        runtime = house.runtime
        assert isinstance(runtime, Interruptible)
        key = await house.key()
        _, name = await house.job_in(key, "running")
        await house.until(lambda: runtime.waiting is not None)
        disk.hold("accepted.jsonl")
        disk.full.add("accepted.jsonl")

        async def refused() -> None:
            with pytest.raises(Refusal):
                await house.stop_job(key, name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await house.until(lambda: house.store.world.jobs[name].phase == "ending")
            before = runtime.waiting
            assert before is not None
            before.cancel()
            await house.until(lambda: house.house.workers.get(name).statistics().restarts == 1)  # type: ignore[union-attr]
            await trio.testing.wait_all_tasks_blocked(0.01)
            disk.release("accepted.jsonl")
        disk.full.clear()
        await house.until(lambda: runtime.waiting is not before)
        assert runtime.is_running(name)
        runtime.end(name, 0)
        await house.told("JobFinished")
        await house.check()


async def test_a_crash_between_a_jobs_end_and_that_of_its_stop_leaves_neither(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, crashes = EventLog.tell, [Bug("tell")]

    async def breaking(log: EventLog, *facts: Fact) -> None:
        if crashes and facts[0].type == "CommandFailed":
            raise crashes.pop()
        await tell(log, *facts)

    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "running")
        monkeypatch.setattr(EventLog, "tell", breaking)
        disk.hold("events")
        house.runtime.end(name, 0)
        await house.until(lambda: bool(house.store.events._journal._limiter.borrowed_tokens))
        stop = await house.stop_job(key, name)
        disk.release("events")
        await house.completed(stop)
        assert crashes == []
        assert await house.types(stop) == ["CommandFailed"]
        await house.check()


async def test_a_log_that_fails_restarts_the_jobs_after_it(tmp_path: Path, disk: Disk) -> None:
    """Nobody knows what was stored: it is read again, and what runs is waited for on."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "running")
        world = house.store.world
        disk.broken.append("events")
        house.runtime.end(name, 1)
        await house.until(lambda: house.store.world is not world)
        await house.until(lambda: len(house.house.workers) > 0)
        await house.told("JobFinished")
        await house.check()
        assert (await house.types()).count("JobFinished") == 1
