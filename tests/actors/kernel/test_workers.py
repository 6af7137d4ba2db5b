"""The supervisor of the many restarts each worker alone, within its budget, and stops all in one grace."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.kernel.child import Backoff, Budget, ChildSpec, Restart
from actors.kernel.mailbox import ActorStopped, Ask, Mailbox
from actors.kernel.workers import Worker, Workers


@attrs.define
class Question(Ask[str]):
    text: str


@attrs.frozen
class Act:
    """An actor that is one function."""

    body: Callable[[Mailbox[Any]], Awaitable[None]]

    async def run(self, inbox: Mailbox[Any]) -> None:
        await self.body(inbox)


def spec(name: str, body: Callable[[Mailbox[Any]], Awaitable[None]], **options: Any) -> ChildSpec:
    return ChildSpec(name, lambda: Act(body), **options)


@asynccontextmanager
async def running(workers: Workers) -> AsyncIterator[Workers]:
    async with trio.open_nursery() as nursery:
        await nursery.start(workers.run)
        yield workers
        nursery.cancel_scope.cancel()


async def forever(inbox: Mailbox[Any]) -> None:
    await trio.sleep_forever()


async def answer(inbox: Mailbox[Any]) -> None:
    """Answers each question with its text; crashes over 'crash', ends at 'end', forgets 'forget'."""
    while True:
        question = await inbox.receive()
        match question.text:
            case "crash":
                raise ValueError("over that question")
            case "end":
                return
            case "forget":
                continue
            case text:
                question.reply.set(text)


class Flaky:
    """Crashes so many times, then lives."""

    def __init__(self, crashes: int) -> None:
        self.left = crashes
        self.starts: list[float] = []

    async def body(self, inbox: Mailbox[Any]) -> None:
        self.starts.append(trio.current_time())
        if self.left:
            self.left -= 1
            raise ValueError("flaky")
        await trio.sleep_forever()


async def test_a_crash_loses_the_message_being_handled_and_no_other(autojump_clock: MockClock) -> None:
    async with running(Workers()) as workers:
        box = workers.spawn(spec("it", answer)).mailbox
        poison, later = Question("crash"), Question("fine")
        box.tell_nowait(poison)
        box.tell_nowait(later)
        with pytest.raises(ActorStopped):
            await poison.reply.wait()
        assert await later.reply.wait() == "fine"
        assert await box.ask(Question("and after")) == "and after"


async def test_an_asker_is_told_when_the_actor_ends_with_the_question_unanswered(
    autojump_clock: MockClock,
) -> None:
    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", answer))
        questions = [Question("end"), Question("queued")]
        for question in questions:
            worker.mailbox.tell_nowait(question)
        for question in questions:
            with pytest.raises(ActorStopped):
                await question.reply.wait()
        await worker.wait_ended()
        with pytest.raises(ActorStopped):
            await worker.mailbox.tell(Question("too late"))
        assert workers.get("it") is None


async def test_a_sender_waiting_at_a_full_mailbox_is_told_when_the_actor_ends(
    autojump_clock: MockClock,
) -> None:
    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", forever, capacity=1))
        worker.mailbox.tell_nowait(Question("fills it"))
        told = trio.Event()

        async def send() -> None:
            # What was sent at the last moment may count as sent; its answer then says the same.
            with pytest.raises(ActorStopped):
                await worker.mailbox.ask(Question("waits"))
            told.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await wait_all_tasks_blocked()
            worker.cancel("the test ends it")
            await told.wait()


@pytest.mark.parametrize(
    ("restart", "starts"), [(Restart.PERMANENT, 2), (Restart.TRANSIENT, 1), (Restart.TEMPORARY, 1)]
)
async def test_after_an_ordinary_end_only_a_permanent_worker_starts_again(
    autojump_clock: MockClock, restart: Restart, starts: int
) -> None:
    begun = []

    async def once(inbox: Mailbox[Any]) -> None:
        begun.append(1)
        if len(begun) > 1:
            await trio.sleep_forever()

    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", once, restart=restart))
        await trio.sleep(10)
        assert len(begun) == starts
        assert (workers.get("it") is worker) == (starts == 2)


@pytest.mark.parametrize(
    ("restart", "starts"), [(Restart.PERMANENT, 2), (Restart.TRANSIENT, 2), (Restart.TEMPORARY, 1)]
)
async def test_after_a_crash_every_worker_but_a_temporary_one_starts_again(
    autojump_clock: MockClock, restart: Restart, starts: int
) -> None:
    flaky, given_up = Flaky(1), list[BaseException]()

    async def exhausted(crash: BaseException) -> None:
        given_up.append(crash)

    async with running(Workers()) as workers:
        workers.spawn(spec("it", flaky.body, restart=restart, exhausted=exhausted))
        await trio.sleep(10)
        assert len(flaky.starts) == starts
        assert len(given_up) == (0 if starts == 2 else 1)


async def test_restarts_wait_longer_each_time(autojump_clock: MockClock) -> None:
    flaky = Flaky(4)
    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", flaky.body, backoff=Backoff(first=1.0, most=4.0)))
        await trio.sleep(30)
        waits = [b - a for a, b in zip(flaky.starts, flaky.starts[1:], strict=False)]
        assert waits == [1.0, 2.0, 4.0, 4.0]
        assert worker.statistics().restarts == 4


async def test_a_spent_budget_ends_this_workers_work_and_touches_no_other(autojump_clock: MockClock) -> None:
    ended, steady = list[str](), Flaky(0)

    async def exhausted(crash: BaseException) -> None:
        ended.append(str(crash))

    async with running(Workers()) as workers:
        workers.spawn(spec("steady", steady.body))
        bad = workers.spawn(spec("bad", Flaky(99).body, budget=Budget(2, 60), exhausted=exhausted))
        await bad.wait_ended()
        assert ended == ["flaky"]
        assert bad.statistics().restarts == 2
        assert workers.get("bad") is None
        assert workers.get("steady") is not None
        assert len(steady.starts) == 1
        # A new one of that name begins with a budget of its own.
        assert workers.spawn(spec("bad", forever)).statistics().restarts == 0


async def test_an_asker_need_not_wait_for_the_end_of_work_that_is_given_up(autojump_clock: MockClock) -> None:
    async def exhausted(crash: BaseException) -> None:
        await trio.sleep_forever()  # a full disk, say

    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", answer, restart=Restart.TEMPORARY, exhausted=exhausted))
        questions = [Question("crash"), Question("queued")]
        for question in questions:
            worker.mailbox.tell_nowait(question)
        with trio.fail_after(5):
            for question in questions:
                with pytest.raises(ActorStopped):
                    await question.reply.wait()


async def test_a_failure_to_end_the_work_is_said_and_harms_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def exhausted(crash: BaseException) -> None:
        raise RuntimeError("cannot tell it")

    async with running(Workers()) as workers:
        workers.spawn(spec("steady", forever))
        bad = workers.spawn(spec("bad", Flaky(9).body, restart=Restart.TEMPORARY, exhausted=exhausted))
        await bad.wait_ended()
        assert workers.get("steady") is not None
    assert any(r.levelno == logging.CRITICAL and "bad" in r.getMessage() for r in caplog.records)


async def test_a_crash_while_it_is_made_counts_like_any_other(autojump_clock: MockClock) -> None:
    made = []

    def make() -> Act:
        made.append(1)
        if len(made) < 3:
            raise ValueError("cannot be made")
        return Act(forever)

    async with running(Workers()) as workers:
        worker = workers.spawn(ChildSpec("it", make))
        await trio.sleep(10)
        assert len(made) == 3
        assert worker.statistics().restarts == 2


async def test_a_group_of_errors_is_a_crash_like_any_other(autojump_clock: MockClock) -> None:
    starts = []

    async def body(inbox: Mailbox[Any]) -> None:
        starts.append(1)
        if len(starts) == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise ValueError("beside a task that has to be cancelled")
        await trio.sleep_forever()

    async with running(Workers()) as workers:
        workers.spawn(spec("it", body))
        await trio.sleep(10)
        assert len(starts) == 2


async def test_a_name_belongs_to_one_living_worker(autojump_clock: MockClock) -> None:
    async with running(Workers()) as workers:
        first = workers.spawn(spec("it", forever))
        assert workers.spawn(spec("it", forever)) is first
        assert workers.get("it") is first
        assert workers.get("other") is None
        assert len(workers) == 1
        first.cancel("the test ends it")
        await first.wait_ended()
        assert workers.spawn(spec("it", forever)) is not first


async def test_a_cancelled_worker_is_not_restarted(autojump_clock: MockClock) -> None:
    flaky = Flaky(0)
    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", flaky.body, restart=Restart.PERMANENT))
        await wait_all_tasks_blocked()
        worker.cancel("the test ends it")
        await worker.wait_ended()
        await trio.sleep(10)
        assert len(flaky.starts) == 1
        assert len(workers) == 0


async def test_a_worker_cancelled_in_its_back_off_ends_at_once(autojump_clock: MockClock) -> None:
    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", Flaky(9).body, backoff=Backoff(first=3600, most=3600)))
        await trio.sleep(1)
        worker.cancel("the test ends it")
        before = trio.current_time()
        await worker.wait_ended()
        assert trio.current_time() == before


async def test_a_worker_cancelled_before_its_first_step_never_begins(autojump_clock: MockClock) -> None:
    flaky = Flaky(0)
    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", flaky.body))
        worker.cancel("at once")
        await worker.wait_ended()
        assert flaky.starts == []


async def test_waiting_for_one_that_has_ended_returns(autojump_clock: MockClock) -> None:
    async def nothing(inbox: Mailbox[Any]) -> None:
        return

    async with running(Workers()) as workers:
        worker = workers.spawn(spec("it", nothing))
        await trio.sleep(1)
        with trio.fail_after(1):
            await worker.wait_ended()


async def test_a_crash_in_the_clean_up_of_a_cancelled_worker_harms_nobody(autojump_clock: MockClock) -> None:
    async def body(inbox: Mailbox[Any]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it cleaned up")

    async with running(Workers()) as workers:
        workers.spawn(spec("steady", forever))
        worker = workers.spawn(spec("it", body, restart=Restart.PERMANENT))
        await wait_all_tasks_blocked()
        worker.cancel("the test ends it")
        await worker.wait_ended()
        assert workers.get("steady") is not None


async def test_stopping_waits_for_clean_up_within_one_grace_for_all(autojump_clock: MockClock) -> None:
    cleaned = []

    def cleaning(seconds: float) -> Callable[[Mailbox[Any]], Awaitable[None]]:
        async def body(inbox: Mailbox[Any]) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(seconds)
                    cleaned.append(seconds)

        return body

    workers = Workers()
    async with trio.open_nursery() as nursery:
        await nursery.start(workers.run)
        for number in range(20):
            workers.spawn(spec(f"quick {number}", cleaning(0.5), grace_seconds=1.0))
        for number in range(20):
            workers.spawn(spec(f"slow {number}", cleaning(60), grace_seconds=1.0))
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        await workers.stop()
        assert trio.current_time() - begun == pytest.approx(1.0)
        assert cleaned == [0.5] * 20


async def test_stopping_many_that_end_at_once_takes_no_time(autojump_clock: MockClock) -> None:
    workers = Workers()
    async with trio.open_nursery() as nursery:
        await nursery.start(workers.run)
        for number in range(50):
            workers.spawn(spec(str(number), forever, grace_seconds=5))
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        await workers.stop()
        assert trio.current_time() == begun
    assert len(workers) == 0


async def test_the_nursery_ends_once_it_was_stopped_and_takes_no_more(autojump_clock: MockClock) -> None:
    workers = Workers()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            await nursery.start(workers.run)
            workers.spawn(spec("it", forever))
            await workers.stop()
            with pytest.raises(RuntimeError, match="takes no workers"):
                workers.spawn(spec("late", forever))
    with pytest.raises(RuntimeError, match="takes no workers"):
        workers.spawn(spec("later", forever))


async def test_it_can_run_again_after_it_was_stopped(autojump_clock: MockClock) -> None:
    workers = Workers()
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            await nursery.start(workers.run)
            workers.spawn(spec("it", forever))
            await workers.stop()


async def test_an_end_from_outside_answers_what_waits_in_every_mailbox(autojump_clock: MockClock) -> None:
    workers, question = Workers(), Question("unanswered")
    async with trio.open_nursery() as nursery:
        await nursery.start(workers.run)
        worker: Worker = workers.spawn(spec("it", forever))
        worker.mailbox.tell_nowait(question)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(ActorStopped):
        await question.reply.wait()
    assert len(workers) == 0


async def test_the_figures_of_every_worker_can_be_read(autojump_clock: MockClock) -> None:
    async with running(Workers()) as workers:
        workers.spawn(spec("a", forever, capacity=3)).mailbox.tell_nowait(1)
        workers.spawn(spec("b", Flaky(1).body))
        await trio.sleep(5)
        a, b = workers.statistics()
        assert (a.name, a.restarts, a.mailbox.depth, a.mailbox.capacity) == ("a", 0, 1, 3)
        assert (b.name, b.restarts) == ("b", 1)
