"""A mailbox is bounded, outlives its reader, and owes an answer to everyone who asked."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.kernel.mailbox import ActorStopped, Ask, Mailbox, MailboxFull, Reply


@attrs.define
class Double(Ask[int]):
    number: int


async def test_it_takes_no_more_than_its_capacity() -> None:
    box = Mailbox[int](2)
    box.tell_nowait(1)
    box.tell_nowait(2)
    with pytest.raises(MailboxFull):
        box.tell_nowait(3)
    assert await box.receive() == 1
    box.tell_nowait(3)
    assert [await box.receive(), await box.receive()] == [2, 3]


async def test_a_full_one_makes_its_sender_wait_and_keeps_the_order() -> None:
    box = Mailbox[int](1)
    async with trio.open_nursery() as nursery:
        box.tell_nowait(1)
        nursery.start_soon(box.tell, 2)
        await wait_all_tasks_blocked()
        assert box.statistics().depth == 1
        assert [await box.receive(), await box.receive()] == [1, 2]


async def test_a_sender_that_gave_up_waiting_sent_nothing() -> None:
    box = Mailbox[int](1)
    box.tell_nowait(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await box.tell(2)
    assert await box.receive() == 1
    assert box.statistics().depth == 0


async def test_its_depth_and_peak_can_be_read() -> None:
    box = Mailbox[int](5)
    for number in range(4):
        box.tell_nowait(number)
    for _ in range(3):
        await box.receive()
    figures = box.statistics()
    assert (figures.depth, figures.peak, figures.capacity) == (1, 4, 5)


async def test_a_question_is_answered() -> None:
    box = Mailbox[Double](1)

    async def answer() -> None:
        question = await box.receive()
        question.reply.set(2 * question.number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        assert await box.ask(Double(21)) == 42


async def test_an_error_in_place_of_an_answer_reaches_the_asker() -> None:
    box = Mailbox[Double](1)

    async def answer() -> None:
        (await box.receive()).reply.fail(LookupError("no such number"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with pytest.raises(LookupError, match="no such number"):
            await box.ask(Double(1))


async def test_the_first_answer_stays() -> None:
    reply = Reply[int]()
    reply.set(1)
    reply.set(2)
    reply.fail(ValueError())
    assert await reply.wait() == 1


async def test_an_answer_nobody_waits_for_any_more_is_harmless() -> None:
    reply = Reply[int]()
    with trio.CancelScope() as scope:
        scope.cancel()
        await reply.wait()
    reply.set(1)
    assert await reply.wait() == 1


async def test_one_answer_wakes_all_that_wait_for_it() -> None:
    reply, got = Reply[str](), list[str]()

    async def wait() -> None:
        got.append(await reply.wait())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        reply.set("here")
    assert got == ["here"] * 3


async def test_an_answer_may_be_none() -> None:
    reply = Reply[None]()
    reply.set(None)
    assert reply.is_set
    await reply.wait()


async def test_closing_tells_everyone_who_asked_and_takes_no_more() -> None:
    box = Mailbox[Double](2)
    handled, queued, waiting = Double(1), Double(2), Double(3)
    box.tell_nowait(handled)
    assert await box.receive() is handled
    box.tell_nowait(queued)
    box.tell_nowait(Double(9))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.tell, waiting)  # does not fit yet
        await wait_all_tasks_blocked()
        box.close()
    for question in (handled, queued, waiting):
        with pytest.raises(ActorStopped):
            await question.reply.wait()
    with pytest.raises(ActorStopped):
        box.tell_nowait(Double(4))
    with pytest.raises(ActorStopped):
        await box.tell(Double(4))
    with pytest.raises(ActorStopped):
        await box.ask(Double(4))


async def test_a_question_answered_before_the_crash_keeps_its_answer() -> None:
    box = Mailbox[Double](1)
    question = Double(1)
    box.tell_nowait(question)
    (await box.receive()).reply.set(7)
    box.drop_current()
    assert await question.reply.wait() == 7


async def test_only_the_message_being_handled_is_dropped() -> None:
    box = Mailbox[Double](3)
    first, second = Double(1), Double(2)
    box.tell_nowait(first)
    box.tell_nowait(second)
    await box.receive()
    assert box.drop_current() is first
    assert box.drop_current() is None
    assert not second.reply.is_set
    assert await box.receive() is second


async def test_a_receiver_cancelled_while_it_waits_loses_no_message() -> None:
    box = Mailbox[int](1)
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            await box.receive()

        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    box.tell_nowait(1)
    assert await box.receive() == 1
