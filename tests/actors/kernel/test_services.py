"""Services start in order, stop in reverse whoever asks, and one that fails takes those after it along."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.kernel.child import Backoff, Budget
from actors.kernel.services import Service, ServiceFailed, Services


class Crash(Exception):
    """What a service is told to fail with."""


@attrs.define
class Part:
    """A service that does as the test says, and writes down what becomes of it."""

    name: str
    story: list[str]
    start_seconds: float = 0
    start_crashes: int = 0
    end_seconds: float = 0
    is_deaf: bool = False
    _order: trio.Event = attrs.field(factory=trio.Event, init=False)
    _is_to_fail: bool = attrs.field(default=False, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._order, self._is_to_fail = trio.Event(), False
        try:
            await trio.sleep(self.start_seconds)
            if self.start_crashes:
                self.start_crashes -= 1
                self.story.append(f"{self.name} does not start")
                raise Crash(f"{self.name} at its start")
            self.story.append(f"{self.name} up")
            task_status.started()
            await self._order.wait()
            if self._is_to_fail:
                raise Crash(self.name)
            await trio.sleep(self.end_seconds)
            self.story.append(f"{self.name} went")
        except trio.Cancelled:
            self.story.append(f"{self.name} cut")
            raise

    async def stop(self) -> None:
        self.story.append(f"{self.name} asked")
        if not self.is_deaf:
            self._order.set()

    def fail(self) -> None:
        self.story.append(f"{self.name} fails")
        self._is_to_fail = True
        self._order.set()

    def end(self) -> None:
        self._order.set()

    def service(
        self,
        *,
        asked: bool = False,
        budget: Budget | None = None,
        backoff: Backoff | None = None,
        grace_seconds: float = 1.0,
    ) -> Service:
        return Service(
            self.name,
            self.run,
            self.stop if asked else None,
            budget or Budget(restarts=3, seconds=60.0),
            backoff or Backoff(first=1.0, most=8.0),
            grace_seconds,
        )


def three() -> tuple[list[str], Part, Part, Part]:
    story: list[str] = []
    return story, Part("log", story), Part("work", story), Part("door", story)


@asynccontextmanager
async def running(services: Sequence[Service]) -> AsyncIterator[Services]:
    """Serve in the test's block, and see that a stop ends it."""
    supervisor = Services(services)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        yield supervisor
        supervisor.stop()


def taken(story: list[str]) -> list[str]:
    told = story[:]
    story.clear()
    return told


async def test_they_start_in_order_and_stop_in_reverse(autojump_clock: MockClock) -> None:
    story, *parts = three()
    for part in parts:
        part.start_seconds = part.end_seconds = 0.5
    async with running([p.service(asked=True) for p in parts]):
        assert taken(story) == ["log up", "work up", "door up"]
    assert story == ["door asked", "door went", "work asked", "work went", "log asked", "log went"]


async def test_one_that_cannot_be_asked_is_cancelled_in_its_turn(autojump_clock: MockClock) -> None:
    story, *parts = three()
    async with running([p.service() for p in parts]):
        taken(story)
    assert story == ["door cut", "work cut", "log cut"]


async def test_one_that_does_not_end_within_its_grace_is_cancelled(autojump_clock: MockClock) -> None:
    story, log, work, _ = three()
    work.is_deaf = True
    async with running([log.service(), work.service(asked=True, grace_seconds=2.5)]):
        begun = trio.current_time()
    assert trio.current_time() - begun == pytest.approx(2.5)
    assert story[-3:] == ["work asked", "work cut", "log cut"]


async def test_one_that_ends_within_its_grace_is_not_waited_for_longer(autojump_clock: MockClock) -> None:
    _, log, *_ = three()
    log.end_seconds = 0.25
    async with running([log.service(asked=True, grace_seconds=100)]):
        begun = trio.current_time()
    assert trio.current_time() - begun == pytest.approx(0.25)


async def test_an_error_in_asking_one_to_stop_does_not_spare_those_before_it(
    autojump_clock: MockClock,
) -> None:
    story, log, work, _ = three()

    async def refuse() -> None:
        raise Crash("cannot stop")

    async with running([log.service(), Service("work", work.run, refuse)]):
        pass
    assert story == ["log up", "work up", "work cut", "log cut"]


async def test_a_failed_one_and_all_after_it_start_again_and_none_before(autojump_clock: MockClock) -> None:
    story, *parts = three()
    async with running([p.service() for p in parts]) as services:
        taken(story)
        parts[1].fail()
        await trio.sleep(0.5)
        assert taken(story) == ["work fails", "door cut"]
        await trio.sleep(1)
        assert taken(story) == ["work up", "door up"]
        assert services.restarts() == {"log": 0, "work": 1, "door": 0}


async def test_the_first_ones_failure_restarts_everything(autojump_clock: MockClock) -> None:
    story, *parts = three()
    async with running([p.service() for p in parts]):
        taken(story)
        parts[0].fail()
        await trio.sleep(5)
        assert taken(story) == ["log fails", "door cut", "work cut", "log up", "work up", "door up"]


async def test_one_that_returns_though_nobody_asked_has_failed(autojump_clock: MockClock) -> None:
    story, log, *_ = three()
    async with running([log.service()]) as services:
        log.end()
        await trio.sleep(5)
        assert story == ["log up", "log went", "log up"]
        assert services.restarts() == {"log": 1}


async def test_two_that_fail_at_once_are_both_started_again(autojump_clock: MockClock) -> None:
    story, *parts = three()
    async with running([p.service() for p in parts]) as services:
        taken(story)
        parts[2].fail()
        parts[0].fail()
        await trio.sleep(10)
        assert story[-3:] == ["log up", "work up", "door up"]
        assert services.restarts()["log"] == 1


async def test_a_spent_budget_stops_all_in_order_and_names_the_one(autojump_clock: MockClock) -> None:
    story, *parts = three()
    services = Services([p.service(budget=Budget(2, 60)) for p in parts])

    async def trouble() -> None:
        for _ in range(3):
            parts[1].fail()
            await trio.sleep(10)

    with pytest.raises(ServiceFailed, match="work failed and could not be restarted") as failed:
        await until_they_fail(services, trouble)
    assert failed.value.service == "work"
    assert isinstance(failed.value.cause, Crash)
    assert story[-3:] == ["work fails", "door cut", "log cut"]


async def test_a_restart_that_fails_spends_the_budget_too(autojump_clock: MockClock) -> None:
    story, log, work, _ = three()
    services = Services([log.service(), work.service(budget=Budget(3, 600))])

    async def trouble() -> None:
        work.start_crashes = 99
        work.fail()
        await trio.sleep(100)

    with pytest.raises(ServiceFailed, match="work"):
        await until_they_fail(services, trouble)
    assert services.restarts() == {"log": 0, "work": 3}
    assert story[2:] == ["work fails", *["work does not start"] * 3, "log cut"]


async def test_a_restart_that_fails_waits_longer_each_time(autojump_clock: MockClock) -> None:
    story, log, *_ = three()
    async with running([log.service(backoff=Backoff(first=1.0), budget=Budget(5, 600))]):
        log.start_crashes = 2
        log.fail()
        for waits, told in ((1, "log does not start"), (2, "log does not start"), (4, "log up")):
            await trio.sleep(waits - 0.25)
            before = len(story)
            await trio.sleep(0.25 + 0.01)
            assert story[before:] == [told]


async def test_a_later_one_that_fails_to_restart_is_the_one_that_is_charged(
    autojump_clock: MockClock,
) -> None:
    story, *parts = three()
    async with running([p.service() for p in parts]) as services:
        parts[2].start_crashes = 1
        parts[1].fail()
        await trio.sleep(20)
        assert services.restarts() == {"log": 0, "work": 1, "door": 1}
        assert story[-3:] == ["work up", "door does not start", "door up"]


async def test_the_failure_of_an_earlier_one_in_anothers_back_off_is_not_charged_to_the_other(
    autojump_clock: MockClock,
) -> None:
    story, log, work, _ = three()
    slow = Backoff(first=50, most=50)
    async with running([log.service(), work.service(backoff=slow, budget=Budget(1, 600))]) as services:
        work.fail()
        await trio.sleep(10)
        log.fail()
        await trio.sleep(10)
        assert story[-2:] == ["log up", "work up"]
        assert services.restarts() == {"log": 1, "work": 1}


async def test_one_that_cannot_start_because_an_earlier_one_failed_is_not_charged(
    autojump_clock: MockClock,
) -> None:
    story, log, work, _ = three()
    trouble: list[Callable[[], None]] = []

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        if trouble:
            trouble.pop()()
            try:
                await wait_all_tasks_blocked()
            finally:
                raise Crash("it misses the log even as it is told to give up")
        await work.run(task_status=task_status)

    services = [log.service(), Service("work", start, budget=Budget(1, 600))]
    async with running(services) as supervisor:
        trouble.append(log.fail)
        work.fail()
        await trio.sleep(20)
        assert story[-2:] == ["log up", "work up"]
        assert supervisor.restarts() == {"log": 1, "work": 1}


async def test_a_start_is_given_up_when_what_it_relies_on_fails(autojump_clock: MockClock) -> None:
    story, log, work, _ = three()
    async with running([log.service(), work.service()]) as services:
        work.start_seconds = 1000
        work.fail()
        await trio.sleep(5)
        work.start_seconds = 0
        log.fail()
        await trio.sleep(5)
        assert story[-3:] == ["work cut", "log up", "work up"]
        assert services.restarts() == {"log": 1, "work": 1}


async def test_a_first_start_that_fails_reaches_the_caller_after_the_others_stopped(
    autojump_clock: MockClock,
) -> None:
    story, *parts = three()
    parts[2].start_crashes = 1
    with pytest.raises(Crash, match="door at its start"):
        await Services([p.service() for p in parts]).run()
    assert story == ["log up", "work up", "door does not start", "work cut", "log cut"]


async def test_a_stop_in_a_back_off_is_obeyed_at_once(autojump_clock: MockClock) -> None:
    story, *parts = three()
    slow = Backoff(first=3600, most=3600)
    async with running([p.service(backoff=slow) for p in parts]):
        parts[1].fail()
        await trio.sleep(1)
        begun = trio.current_time()
    assert trio.current_time() == begun
    assert story[-1] == "log cut"
    assert story.count("work up") == 1


async def test_a_stop_while_one_starts_is_obeyed_at_once(autojump_clock: MockClock) -> None:
    story, log, work, _ = three()
    work.start_seconds = 3600
    services = Services([log.service(), work.service()])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(services.run)
        await trio.sleep(1)
        begun = trio.current_time()
        services.stop()
    assert trio.current_time() == begun
    assert story == ["log up", "work cut", "log cut"]


async def test_a_stop_before_the_start_starts_nothing(autojump_clock: MockClock) -> None:
    story, *parts = three()
    services = Services([p.service() for p in parts])
    services.stop()
    async with trio.open_nursery() as nursery:
        await nursery.start(services.run)
    assert story == []


async def test_a_cancel_from_outside_keeps_the_order_and_the_graces(autojump_clock: MockClock) -> None:
    story, *parts = three()
    for part in parts:
        part.end_seconds = 0.5
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(Services([p.service(asked=True) for p in parts]).run)
            taken(story)
            scope.cancel()
    assert scope.cancelled_caught
    assert story == ["door asked", "door went", "work asked", "work went", "log asked", "log went"]


async def test_a_cancel_from_outside_while_one_starts_keeps_the_order(autojump_clock: MockClock) -> None:
    story, log, work, _ = three()
    work.start_seconds = 3600
    with trio.move_on_after(1) as scope:
        await Services([log.service(), work.service()]).run()
    assert scope.cancelled_caught
    assert story == ["log up", "work cut", "log cut"]


async def test_nothing_is_announced_before_all_are_up(autojump_clock: MockClock) -> None:
    story, log, work, _ = three()
    work.start_seconds = 5
    services = Services([log.service(), work.service()])
    async with trio.open_nursery() as nursery:

        async def fail_the_log() -> None:
            await trio.sleep(1)
            log.fail()

        nursery.start_soon(fail_the_log)
        await nursery.start(services.run)
        assert story[-2:] == ["log up", "work up"]
        assert services.restarts() == {"log": 1, "work": 0}
        services.stop()


async def until_they_fail(services: Services, then: Callable[[], Awaitable[None]]) -> None:
    """Serve while `then` makes trouble; what the services raise comes out bare."""
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(services.run)
            await then()
    except BaseExceptionGroup as group:
        (error,) = group.exceptions
        raise error from None
