"""Small GETs against one that does nothing, on the same server."""

from __future__ import annotations

from functools import partial

from tests.support.bench.bench import Bench
from tests.support.bench.figures import Goal, Line, alternate
from tests.support.bench.rates import load, rate_line
from tests.support.bench.served import NOTHING

CONNECTIONS = 16
_KEY = "a key is looked up by its digest, and the path is found among some thirty"
_READS = {
    "the manifest": ("/.well-known/best", "its path is found among some thirty"),
    "the commands catalogue": ("/commands", _KEY),
    "a schema document": ("/commands/deploy-model/1.0", _KEY),
    "`get-hardware-state`": (
        "/queries/get-hardware-state",
        "it is made anew for each who asks, and devices and models are read four times a second",
    ),
}


def measure(bench: Bench) -> list[Line]:
    """Each read against the same baseline."""
    with bench.served() as served, bench.client() as client:
        bench.say("small GETs")
        get = partial(
            load, served, client, status=200, connections=CONNECTIONS, seconds=bench.pick(3, 2) / 10
        )
        paths = [NOTHING, *(path for path, _ in _READS.values())]
        asked = [partial(get, served.door.request("GET", path)) for path in paths]
        base, *reads = alternate(bench.pick(31, 2), *asked)
    goal = Goal("at least", 0.85)
    return [
        rate_line(f"GET of {name} at {CONNECTIONS} connections", ours, base, goal, cause=cause)
        for (name, (_, cause)), ours in zip(_READS.items(), reads, strict=True)
    ]
