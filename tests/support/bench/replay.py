"""A restart over a long log against a loop that only parses its lines.

Each is measured in a process of its own, which ends: what one leaves in memory is not the other's.
`python -m tests.support.bench.replay KIND DATA` is such a process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import orjson
import trio

from actors.log.eventlog import EventLog
from actors.state.world import World
from actors.store import Store
from adapters.clock.system import SystemClock
from tests.support.bench.bench import Bench
from tests.support.bench.child import Child
from tests.support.bench.control import resident_bytes, say
from tests.support.bench.figures import Goal, Line, Pairs, Spread, alternate, ratio_line, seconds
from tests.support.bench.history import History, encoder

_MOST_SECONDS = 300
_CAUSES = {
    "facts": (
        "a fact is decoded, indexed and folded by Python calls of its own, which cost more than orjson's "
        "whole parse of its line"
    ),
    "memory": "rows, offsets and hashes are arrays; what is more is what they have grown in advance",
}


@attrs.frozen
class _Run:
    """Facts a second, and the memory that stayed."""

    seconds: float
    memory: int


def measure(bench: Bench) -> list[Line]:
    """The log alone, then all of a door's store: the log, the accepted commands, the keys."""
    history = bench.million()
    bench.say(f"restart over {history.facts:,} facts")
    rounds = bench.pick(5, 2)
    runs = partial(_run, bench, history)
    parse, facts, parse_all, store = alternate(
        rounds, *(partial(runs, kind) for kind in ("parse", "facts", "parse-all", "store"))
    )
    memory = Spread.of([run.memory / history.facts for run in facts])
    memory_all = Spread.of([run.memory / history.facts for run in store])
    return [
        _speed_line(
            f"opening the log, indexing and folding {history.facts:,} facts "
            f"({history.size_bytes // history.facts} bytes each), against parsing them with orjson",
            facts,
            parse,
            Goal("at least", 0.8),
            _CAUSES["facts"],
        ),
        Line(
            "memory that each fact costs after it",
            f"{memory.middle:.1f} B",
            "",
            memory.middle,
            f"{memory.text(1)} B",
            Goal("at most", 64, "B"),
            _CAUSES["memory"],
        ),
        _speed_line(
            f"the whole store, with the {history.commands:,} commands those facts completed, "
            "against parsing both files",
            store,
            parse_all,
            None,
            "",
        ),
        Line(
            "memory of the whole store for each fact",
            f"{memory_all.middle:.1f} B",
            "",
            memory_all.middle,
            f"{memory_all.text(1)} B",
        ),
    ]


def _speed_line(what: str, ours: list[_Run], base: list[_Run], goal: Goal | None, cause: str) -> Line:
    # The ratio is one of speeds, the figures beside it are times.
    speeds = Pairs(tuple(1 / o.seconds for o in ours), tuple(1 / b.seconds for b in base))
    return ratio_line(what, speeds, lambda speed: seconds(1 / speed), goal, cause=cause)


def _run(bench: Bench, history: History, kind: str) -> _Run:
    arguments = ["tests.support.bench.replay", kind, str(history.data)]
    with Child.start(arguments, bench.folder("replay")) as child:
        answer = child.answer(_MOST_SECONDS)
    return _Run(answer["seconds"], answer["memory"])


def parse(paths: Iterable[Path]) -> int:
    """Parse every line of some files; how many there were."""
    count = 0
    loads = orjson.loads
    for path in paths:
        with path.open("rb", buffering=1 << 20) as file:
            for line in file:
                loads(line)
                count += 1
    return count


async def open_log(data: Path) -> EventLog:
    """The log with its index and its fold."""
    return await EventLog.open(data, encoder(), SystemClock(), World())


async def open_store(data: Path) -> Store:
    """All that a door keeps, read as at its start."""
    store = Store(data, encoder(), SystemClock())
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        nursery.cancel_scope.cancel()
    return store


def main(kind: str, folder: str) -> None:
    """Measure once and say so."""
    data = Path(folder)
    events = sorted((data / "events").iterdir())
    encoder()  # what is loaded and made for it is not the log's
    before, begun = resident_bytes(), time.perf_counter()
    kept: Any = None
    if kind == "parse":
        kept = parse(events)
    elif kind == "parse-all":
        kept = parse([*events, data / "accepted.jsonl"])
    elif kind == "facts":
        kept = trio.run(open_log, data)
    else:
        kept = trio.run(open_store, data)
    took = time.perf_counter() - begun
    say({"seconds": took, "memory": resident_bytes() - before})
    del kept


if __name__ == "__main__":
    main(*sys.argv[1:])
