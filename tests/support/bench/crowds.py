"""Ten thousand supervised actors against ten thousand bare Trio tasks with a channel each.

Each crowd lives in a process of its own: `python -m tests.support.bench.crowds KIND COUNT` is one.
"""

from __future__ import annotations

import gc
import sys
import time
from functools import partial
from typing import Any

import attrs
import trio
import trio.testing

from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Ask, Mailbox
from actors.kernel.workers import Worker, Workers
from tests.support.bench.bench import Bench
from tests.support.bench.child import Child
from tests.support.bench.control import resident_bytes, say
from tests.support.bench.figures import (
    Goal,
    Line,
    Pairs,
    alternate,
    kibibytes,
    microseconds,
    ratio_line,
)

CAPACITY = 16
_ASKS = 20_000
_MOST_SECONDS = 120
_CAUSES = {
    "spawn": "a worker has a specification, a mailbox and a cancel scope of its own",
    "memory": "a worker has a specification, a mailbox and a cancel scope of its own",
    "ask": "a mailbox remembers what is being handled, and a reply is an object of its own",
}


@attrs.define(slots=True)
class Question(Ask[int]):
    """Asks for a number back."""

    number: int


class Echo:
    """Answers each question."""

    async def run(self, inbox: Mailbox[Question]) -> None:
        """Until cancelled."""
        while True:
            question = await inbox.receive()
            question.reply.set(question.number)


@attrs.frozen
class _Crowd:
    """Seconds to spawn one until it waits, bytes of memory each, seconds for one question."""

    spawn: float
    memory: float
    ask: float


def measure(bench: Bench) -> list[Line]:
    """Spawn, memory and a question."""
    count = bench.pick(10_000, 500)
    bench.say(f"{count:,} actors")
    base, ours = alternate(
        bench.pick(7, 2), *(partial(_crowd, bench, kind, count) for kind in ("tasks", "actors"))
    )
    goal = Goal("at most", 2)
    figures = {
        "spawn": (f"spawning each of {count:,} actors until it waits, against a bare task", microseconds),
        "memory": (f"memory of each of {count:,} actors, against a bare task with its channel", kibibytes),
        "ask": ("a question to an actor and its answer, against a bare round trip", microseconds),
    }
    return [
        ratio_line(
            what,
            Pairs(tuple(getattr(o, name) for o in ours), tuple(getattr(b, name) for b in base)),
            unit,
            goal,
            cause=_CAUSES[name],
        )
        for name, (what, unit) in figures.items()
    ]


def _crowd(bench: Bench, kind: str, count: int) -> _Crowd:
    with Child.start(["tests.support.bench.crowds", kind, str(count)], bench.folder("crowd")) as child:
        answer = child.answer(_MOST_SECONDS)
    return _Crowd(answer["spawn"], answer["memory"], answer["ask"])


async def actors(count: int) -> dict[str, Any]:
    """Ours: a specification, a worker and a mailbox each."""
    workers = Workers()
    living: list[Worker] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(workers.run)
        before, begun = resident_bytes(), time.perf_counter()
        for number in range(count):
            living.append(workers.spawn(ChildSpec(f"actor {number}", make=Echo, capacity=CAPACITY)))
        await trio.testing.wait_all_tasks_blocked()
        spawn = time.perf_counter() - begun
        memory = resident_bytes() - before
        gc.freeze()
        begun = time.perf_counter()
        for number in range(_ASKS):
            question = Question(number)
            await living[number % count].mailbox.tell(question)
            assert await question.reply.wait() == number
        ask = time.perf_counter() - begun
        await workers.stop()
        nursery.cancel_scope.cancel()
    return {"spawn": spawn / count, "memory": memory / count, "ask": ask / _ASKS}


async def tasks(count: int) -> dict[str, Any]:
    """The baseline: a task that receives a number and an event to set."""
    inboxes: list[trio.MemorySendChannel[tuple[int, list[int], trio.Event]]] = []

    async def echo(inbox: trio.MemoryReceiveChannel[tuple[int, list[int], trio.Event]]) -> None:
        while True:
            number, answer, done = await inbox.receive()
            answer.append(number)
            done.set()

    async with trio.open_nursery() as nursery:
        before, begun = resident_bytes(), time.perf_counter()
        for _ in range(count):
            send, receive = trio.open_memory_channel[tuple[int, list[int], trio.Event]](CAPACITY)
            nursery.start_soon(echo, receive)
            inboxes.append(send)
        await trio.testing.wait_all_tasks_blocked()
        spawn = time.perf_counter() - begun
        memory = resident_bytes() - before
        gc.freeze()
        begun = time.perf_counter()
        for number in range(_ASKS):
            answer, done = list[int](), trio.Event()
            await inboxes[number % count].send((number, answer, done))
            await done.wait()
            assert answer == [number]
        ask = time.perf_counter() - begun
        nursery.cancel_scope.cancel()
    return {"spawn": spawn / count, "memory": memory / count, "ask": ask / _ASKS}


if __name__ == "__main__":
    say(trio.run({"actors": actors, "tasks": tasks}[sys.argv[1]], int(sys.argv[2])))
