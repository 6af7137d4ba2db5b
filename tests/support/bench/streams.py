"""Event streams: what a delivered event costs, what a stream holds, many at once, and readers that stall."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

import attrs

from tests.support.bench.bench import MIB, Bench, Served
from tests.support.bench.child import Child
from tests.support.bench.figures import (
    Goal,
    Line,
    NotMeasured,
    Pairs,
    alternate,
    kibibytes,
    microseconds,
    ratio_line,
)

STREAMS = 100
BURST = 64
"""Facts told at once."""
FACT_BYTES = 640
_TAIL_PERIOD = 8192
"""Facts after which the log's tail in memory is as full as before."""
_DROP_SECONDS = 25
_CAUSE = (
    "a write of the door passes hypercorn's and h11's layers, which frame and copy it, and a shield with a "
    "deadline of its own"
)
_MANY_FACTS = 1024
"""What each of the many streams is sent, in bursts of a quarter."""


@attrs.frozen
class _Burst:
    """Processor seconds of the server for each delivered event, with telling it and without."""

    whole: float
    delivery: float


@attrs.frozen
class _Server:
    """What tells and delivers: the door, or the raw sockets."""

    child: Child
    client: Child
    port: int
    question: str


def measure(bench: Bench) -> list[Line]:
    """The cost first, then the many in a fresh process, so that its memory is theirs alone."""
    return [*_costs(bench), *_many(bench)]


def _costs(bench: Bench) -> list[Line]:
    bench.say(f"bursts to {STREAMS} streams")
    home = bench.folder("raw")
    with (
        bench.served() as served,
        Child.start(["tests.support.bench.rawstreams"], home) as raw_child,
        bench.client() as client,
        bench.client() as raw_client,
    ):
        ours = _Server(served.child, client, served.door.port, served.door.stream())
        raw = _Server(raw_child, raw_client, raw_child.answer()["port"], "GET / HTTP/1.1\r\n\r\n")
        bursts = bench.pick(20, 2)
        alone = median(_cpu_of_telling(ours, bursts) for _ in range(bench.pick(5, 2)))
        for one in (ours, raw):
            _open(one, STREAMS)
        base, cost = alternate(
            bench.pick(11, 2),
            partial(_burst, raw, bursts, 0.0),
            partial(_burst, ours, bursts, alone),
        )
        singles = bench.pick(100, 10)
        lone_base, lone = alternate(
            bench.pick(5, 1), partial(_singles, raw, singles), partial(_singles, ours, singles)
        )
    return [
        ratio_line(
            f"processor time for each delivered event: bursts of {BURST} facts to {STREAMS} streams, "
            "telling them included, against raw Trio sockets",
            Pairs(tuple(c.whole for c in cost), tuple(b.whole for b in base)),
            microseconds,
            Goal("at most", 2),
            cause=_CAUSE,
        ),
        ratio_line(
            "the same without what telling costs when nobody listens",
            Pairs(tuple(c.delivery for c in cost), tuple(b.whole for b in base)),
            microseconds,
            None,
        ),
        ratio_line(
            f"the same for single facts, 50 a second, to {STREAMS} streams, telling included",
            Pairs(tuple(lone), tuple(lone_base)),
            microseconds,
            None,
        ),
    ]


def _open(server: _Server, count: int, *, stalled: bool = False) -> None:
    server.client.ask(do="open", port=server.port, count=count, question=server.question, stalled=stalled)


def _cpu_of_telling(server: _Server, bursts: int) -> float:
    before = server.child.cpu()
    server.child.ask(do="tell", facts=BURST, times=bursts)
    return server.child.cpu() - before


def _burst(server: _Server, bursts: int, alone: float) -> _Burst:
    before = server.child.cpu()
    for _ in range(bursts):
        _deliver(server, BURST)
    cpu = server.child.cpu() - before
    delivered = bursts * BURST * STREAMS
    return _Burst(cpu / delivered, (cpu - alone) / delivered)


def _singles(server: _Server, facts: int) -> float:
    before = server.child.cpu()
    last = server.child.ask(do="tell", facts=1, times=facts, pause=0.02)["last"]
    _wait(server.client, last, facts)
    return (server.child.cpu() - before) / (facts * STREAMS)


def _deliver(server: _Server, facts: int, times: int = 1) -> None:
    last = server.child.ask(do="tell", facts=facts, times=times)["last"]
    _wait(server.client, last, facts * times)


def _wait(client: Child, last: str, events: int) -> None:
    client.ask(do="await", marker=f"id: {last}\n", events=events, within=50)


def _many(bench: Bench) -> list[Line]:
    count = bench.pick(1000, 50)
    bench.say(f"{count} streams at once")
    with bench.served() as served, bench.client() as client:
        server = _Server(served.child, client, served.door.port, served.door.stream())
        # Fills the tail of the log in memory, which would else be counted as the streams'.
        served.child.ask(do="tell", facts=512, times=2 * _TAIL_PERIOD // 512)
        empty = served.child.memory()
        _open(server, count)
        idle = served.child.memory()
        for _ in range(4):
            _deliver(server, _MANY_FACTS // 4)
        used = served.child.memory()
        figures = served.child.ask(do="server")
        if figures["crashed"] or figures["open"] != count:
            raise NotMeasured(f"of {count} streams {figures['open']} are open, {figures['crashed']} crashed")
        client.ask(do="close")
        each, each_used = (idle - empty) / count, (used - empty) / count
        return [
            Line(
                f"memory for each of {count:,} open streams, before the first fact; behind it after "
                f"{_MANY_FACTS:,} facts",
                f"{kibibytes(each)}; {kibibytes(each_used)}",
                "",
                max(each, each_used) / 1024,
                f"{max(each, each_used) / 1024:.1f} KiB",
                Goal("at most", 40, "KiB"),
            ),
            Line(
                f"{count:,} streams: each got each of {_MANY_FACTS:,} facts once",
                "no failure",
                "",
                0,
                "0 failed",
                Goal("at most", 0, "failed"),
            ),
            _stalled(bench, served, server),
        ]


def _stalled(bench: Bench, served: Served, server: _Server) -> Line:
    """What readers that take nothing cost while facts go by, until the server cuts them off."""
    bench.say("readers that stall")
    _open(server, STREAMS, stalled=True)
    # Each holds one batch from here on, and its socket's buffers are full.
    served.child.ask(do="tell", facts=512, times=_TAIL_PERIOD // 512)
    held = served.child.memory()
    periods = bench.pick(3, 1)
    served.child.ask(do="tell", facts=512, times=periods * _TAIL_PERIOD // 512)
    after = served.child.memory()
    statistics: dict[str, Any] = served.child.ask(do="server")
    if statistics["dropped_slow_readers"]:
        raise NotMeasured("telling took so long that readers were cut off before it was done")
    dropped = _wait_until_dropped(served.child)
    server.client.ask(do="close")
    waited = periods * _TAIL_PERIOD * FACT_BYTES * STREAMS / MIB
    growth = (after - held) / STREAMS
    return Line(
        f"growth for each of {STREAMS} stalled readers while {waited:,.0f} MiB went by untaken; "
        f"cut off {dropped:.0f} s later",
        kibibytes(growth),
        "",
        growth / 1024,
        f"{growth / 1024:.1f} KiB",
        # The index and the log's tail grow by some bytes a fact, whoever reads.
        Goal("under", 16, "KiB"),
    )


def _wait_until_dropped(child: Child) -> float:
    begun = time.monotonic()
    while time.monotonic() - begun < _DROP_SECONDS:
        if child.ask(do="server")["dropped_slow_readers"] >= STREAMS:
            return time.monotonic() - begun
        time.sleep(0.2)
    raise NotMeasured(f"stalled readers were not cut off within {_DROP_SECONDS} s")
