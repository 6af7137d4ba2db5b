"""Pages of a long log against the same pages of a short one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import attrs
import trio

from actors.log.eventlog import EventLog
from actors.log.index import EventQuery
from actors.rules.visibility import Reader
from actors.state.world import World
from adapters.clock.system import SystemClock
from tests.support.bench.bench import Bench, Served
from tests.support.bench.child import Child
from tests.support.bench.figures import Goal, Line, Pairs, alternate, milliseconds, ratio_line
from tests.support.bench.history import BLOCK, CONVERSATION, HOLDER, History, encoder

PAGE = 100
_READER = Reader(HOLDER, sees_all=True)
_GOAL = Goal("at most", 1.2)
_CAUSES = {
    "by correlation": (
        "a page is a hundred reads at places that differ each time, in files and in sorted arrays of 20 MB: "
        "the processor's caches hold the short log whole"
    ),
    "filtered by type": "one binary search more for each run of rows",
    "the first": "the same files are read whatever the log's length: what differs is the machine's noise",
}


@attrs.frozen
class _Kind:
    """One kind of page: its query, and the query string that means the same."""

    query: EventQuery
    text: str


def measure(bench: Bench) -> list[Line]:
    """Through the log itself, and through the door at one connection."""
    short, long = bench.history(BLOCK), bench.million()
    bench.say("pages")
    return [*trio.run(_log_lines, bench, short, long), *_door_lines(bench, short, long)]


def _kinds(history: History) -> dict[str, list[_Kind]]:
    """The pages asked of a log; of the long one other conversations each time, as agents would."""
    step = max(1, len(history.conversations) // 97)
    conversations = history.conversations[::step]
    return {
        "by correlation": [
            _Kind(EventQuery(_READER, correlation=c), f"?correlationId={c}&limit={PAGE}")
            for c in conversations
        ],
        "filtered by type": [
            _Kind(EventQuery(_READER, type=CONVERSATION), f"?type={CONVERSATION}&limit={PAGE}")
        ],
        "the first": [_Kind(EventQuery(_READER), f"?limit={PAGE}")],
    }


async def _log_lines(bench: Bench, short: History, long: History) -> list[Line]:
    logs = [await EventLog.open(history.data, encoder(), SystemClock(), World()) for history in (short, long)]
    lines = []
    for name in _CAUSES:
        walks = [_endless(_kinds(history)[name]) for history in (short, long)]
        timed = [partial(_mean_page, bench, log, walk) for log, walk in zip(logs, walks, strict=True)]
        base, ours = list[float](), list[float]()
        for number in range(bench.pick(21, 3)):
            for at in (0, 1) if number % 2 else (1, 0):
                (base, ours)[at].append(await timed[at]())
        lines.append(_line(f"a page of {PAGE} {name}, from the log", ours, base, long, name))
    return lines


async def _mean_page(bench: Bench, log: EventLog, walk: Iterator[_Kind]) -> float:
    times = bench.pick(40, 5)
    begun = time.perf_counter()
    for _ in range(times):
        page = await log.page(next(walk).query, None, PAGE)
        assert len(page.lines) == PAGE
    return (time.perf_counter() - begun) / times


def _door_lines(bench: Bench, short: History, long: History) -> list[Line]:
    with ExitStack() as stack:
        served = [stack.enter_context(bench.served(history.data)) for history in (short, long)]
        client = stack.enter_context(bench.client())
        lines = []
        for name in _CAUSES:
            timed: list[Callable[[], float]] = [
                partial(_median_page, bench, client, one, _kinds(history)[name])
                for one, history in zip(served, (short, long), strict=True)
            ]
            base, ours = alternate(bench.pick(11, 2), *timed)
            lines.append(_line(f"a page of {PAGE} {name}, through the door", ours, base, long, name))
        return lines


def _median_page(bench: Bench, client: Child, served: Served, kinds: list[_Kind]) -> float:
    result = client.ask(
        do="load",
        port=served.door.port,
        connections=1,
        questions=[served.door.request("GET", f"/events{kind.text}").decode() for kind in kinds],
        status=200,
        count=bench.pick(200, 10),
    )
    took: float = result["median"]
    return took


def _line(what: str, ours: list[float], base: list[float], long: History, name: str) -> Line:
    what = f"{what}: {long.facts:,} facts against {BLOCK:,}"
    return ratio_line(what, Pairs(tuple(ours), tuple(base)), milliseconds, _GOAL, cause=_CAUSES[name])


def _endless(kinds: list[_Kind]) -> Iterator[_Kind]:
    while True:
        yield from kinds
