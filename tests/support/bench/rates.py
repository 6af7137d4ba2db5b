"""How many requests a server answers, and what each costs it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import attrs

from tests.support.bench.bench import Served
from tests.support.bench.child import Child
from tests.support.bench.figures import Goal, Line, Pairs, microseconds, per_second, ratio_line


@attrs.frozen
class Rate:
    """Answers a second, and the processor time that the server's process used for each, in seconds."""

    rate: float
    cpu: float


def load(
    served: Served, client: Child, question: bytes, *, status: int, connections: int, seconds: float
) -> Rate:
    """Ask one question over and over for so long."""
    before = served.child.cpu()
    result = client.ask(
        do="load",
        port=served.door.port,
        connections=connections,
        questions=[question.decode("latin-1")],
        status=status,
        seconds=seconds,
    )
    cpu = served.child.cpu() - before
    return Rate(result["count"] / result["seconds"], cpu / result["count"])


def rate_line(
    what: str, ours: Sequence[Rate], base: Sequence[Rate], goal: Goal | None, *, cause: str = ""
) -> Line:
    """Ours against the baseline by answers a second; what it is by processor time stands beside."""
    by_cpu = Pairs(tuple(b.cpu for b in base), tuple(o.cpu for o in ours)).ratio
    pairs = Pairs(tuple(o.rate for o in ours), tuple(b.rate for b in base))
    line = ratio_line(what, pairs, per_second, goal, cause=cause)
    each = f"{microseconds(median(o.cpu for o in ours))} against {microseconds(median(b.cpu for b in base))}"
    return attrs.evolve(line, shown=f"{line.shown}; by processor time {by_cpu.text()}, {each}")
