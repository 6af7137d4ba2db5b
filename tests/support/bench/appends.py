"""Acknowledged appends to the log against a loop in C that writes and syncs, on the same file system."""

from __future__ import annotations

import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from statistics import median

import trio

from actors.log.eventlog import EventLog
from actors.messages import events as e
from actors.messages.envelope import Fact
from actors.state.world import World
from adapters.clock.system import SystemClock
from tests.support.bench.bench import Bench
from tests.support.bench.figures import (
    Goal,
    Line,
    NotMeasured,
    Pairs,
    microseconds,
    per_second,
    ratio_line,
)
from tests.support.bench.history import HOLDER, encoder

_GOALS = {1: 0.35, 16: 4.0, 256: 20.0}
_ROUND_SECONDS = 0.6
_CAUSES = {
    1: "each append waits for two switches between the loop and the thread that syncs",
    16: (
        "the loop is busy, not the disk: a batch holds no more than the sixteen that wait, and each fact is "
        "encoded, indexed and folded, and its writer's task woken, between two syncs"
    ),
    256: (
        "the loop is busy, not the disk: two fifths of a fact's processor time wake its writer, the rest "
        "encodes, indexes and folds it; the goal was set on a log that did none of the last three"
    ),
}
_FACT = Fact(
    e.PromptAnswered("dep-0123456789abcdef01234567", "x" * 190, "tiny", 87, 40, "stop"),
    HOLDER,
    "01234567-89ab-cdef-0123-456789abcdef",
    "01234567-89ab-cdef-0123-456789abcdef",
)


def measure(bench: Bench) -> list[Line]:
    """With one writer, sixteen and 256, each waiting for its fact to be durable before it tells the next."""
    program = _compile(bench.folder("appendloop"))
    return trio.run(_lines, bench, program)


def _compile(folder: Path) -> Path:
    if shutil.which("gcc") is None:
        raise NotMeasured("gcc is needed for the baseline: apt-get install gcc libc6-dev")
    program = folder / "appendloop"
    source = Path(__file__).with_name("appendloop.c")
    subprocess.run(["gcc", "-O2", "-o", str(program), str(source)], check=True)
    return program


async def _lines(bench: Bench, program: Path) -> list[Line]:
    make = encoder()
    data = bench.folder("appends")
    size = len(make.line(_FACT, 1_000_000, time.time_ns() // 1_000_000)) + 1
    lines = []
    async with trio.open_nursery() as nursery:
        log = await EventLog.open(data, make, SystemClock(), World())
        await nursery.start(log.run)
        c_rate = partial(_c_loop, program, data / "baseline.jsonl", size)
        for writers, goal in _GOALS.items():
            bench.say(f"appends, writers: {writers}")
            base, ours, cpu = list[float](), list[float](), list[float]()
            for number in range(bench.pick(15, 2)):
                for what in (0, 1) if number % 2 else (1, 0):
                    if what:
                        rate, each = await _tell(log, writers, bench)
                        ours.append(rate)
                        cpu.append(each)
                    else:
                        # Not in a thread: nothing else may run meanwhile.
                        base.append(c_rate(bench.pick(2000, 200)))
            many = "writers" if writers > 1 else "writer"
            what_text = (
                f"acknowledged appends, {writers} {many}, {size} bytes a fact, "
                f"{microseconds(median(cpu))} of processor time each"
            )
            pairs, wanted = Pairs(tuple(ours), tuple(base)), Goal("at least", goal)
            lines.append(ratio_line(what_text, pairs, per_second, wanted, cause=_CAUSES[writers]))
        nursery.cancel_scope.cancel("measured")
    return lines


def _c_loop(program: Path, path: Path, size: int, count: int) -> float:
    done = subprocess.run(
        [str(program), str(path), str(size), str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    path.unlink(missing_ok=True)
    if done.returncode:
        raise NotMeasured(f"the C loop failed: {done.stderr.strip()}")
    return count / float(done.stdout)


async def _tell(log: EventLog, writers: int, bench: Bench) -> tuple[float, float]:
    """Facts a second, and processor seconds of this process for each."""
    told = 0
    begun, used = trio.current_time(), time.process_time()
    end = begun + (_ROUND_SECONDS / 10 if bench.quick else _ROUND_SECONDS)

    async def write() -> None:
        nonlocal told
        while trio.current_time() < end:
            await log.tell(_FACT)
            told += 1

    async with trio.open_nursery() as nursery:
        for _ in range(writers):
            nursery.start_soon(write)
    return told / (trio.current_time() - begun), (time.process_time() - used) / told
