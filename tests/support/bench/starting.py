"""From nothing to a served manifest against importing the server's libraries; and what an idle peer uses."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from tests.support.bench.bench import MIB, Bench, Door
from tests.support.bench.child import ROOT, Child, cpu_seconds, plain_environment
from tests.support.bench.figures import Goal, Line, NotMeasured, Pairs, alternate, ratio_line, seconds
from tests.support.bench.history import write_key

WORKLOADS = 200
STREAMS = 100
_PORT = re.compile(r"http://127\.0\.0\.1:([0-9]+)")
_START_SECONDS = 30
_CAUSES = {
    "start": "beside the server's libraries the validator, the certificates' and the settings' are loaded",
    "idle": "each stream gets a comment every fifteen seconds, and each engine is looked at",
}


def measure(bench: Bench) -> list[Line]:
    """Starts of a peer that has been started before, and then one that is left alone."""
    return [_start_line(bench), _idle_line(bench)]


def _start_line(bench: Bench) -> Line:
    bench.say("starts")
    data = bench.folder("starts") / "data"
    timed = (partial(_import, bench), partial(_start, bench, data))
    for once in timed:
        once()  # bytecode is written, and the data folder made
    base, ours = alternate(bench.pick(15, 2), *timed)
    return ratio_line(
        "from starting `best-peer` to a served manifest, against `python -c 'import quart_trio, hypercorn'`",
        Pairs(tuple(ours), tuple(base)),
        seconds,
        Goal("at most", 2),
        cause=_CAUSES["start"],
    )


def _import(bench: Bench) -> float:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import quart_trio, hypercorn"],
        cwd=ROOT,
        env=plain_environment(bench.scratch),
        check=True,
        timeout=_START_SECONDS,
    )
    return time.perf_counter() - begun


def _start(bench: Bench, data: Path) -> float:
    begun = time.perf_counter()
    with _program(bench, data) as (_, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_SECONDS)
        connection.request("GET", "/.well-known/best")
        if connection.getresponse().status != 200:
            raise NotMeasured("the manifest was not served")
        took = time.perf_counter() - begun
        connection.close()
    return took


@contextmanager
def _program(bench: Bench, data: Path) -> Iterator[tuple[Child, int]]:
    """The installed program itself; its port, once it says that it serves."""
    environment = plain_environment(
        bench.scratch,
        BEST_PEER_DATA=str(data),
        BEST_PEER_GPU="none",
        BEST_PEER_RUNTIME="fake",
        BEST_PEER_LISTEN="127.0.0.1:0",
    )
    program = Path(sys.executable).with_name("best-peer")
    with Child.start([str(program)], data.parent, environment=environment) as child:
        said = child.line(_START_SECONDS)
        found = _PORT.search(said)
        if found is None:
            raise NotMeasured(f"the peer said {said!r}")
        yield child, int(found[1])


def _idle_line(bench: Bench) -> Line:
    workloads, streams = bench.pick(WORKLOADS, 10), bench.pick(STREAMS, 5)
    bench.say(f"{workloads} workloads and {streams} streams, idle")
    data = bench.folder("idle") / "data"
    key = write_key(data)
    with _program(bench, data) as (child, port), bench.client() as client:
        door = Door(port, key)
        order = {"model": "tiny", "engine": "llamacpp", "memory_bytes": MIB}
        for correlation in [door.send("DeployModel", order) for _ in range(workloads)]:
            door.wait_for(correlation, "DeploymentReady", fails="DeploymentFailed")
        client.ask(do="open", port=port, count=streams, question=door.stream())
        pause = bench.pick(10, 1)
        time.sleep(min(2, pause))
        shares = []
        for _ in range(bench.pick(4, 1)):
            before, begun = cpu_seconds(child.pid), time.monotonic()
            time.sleep(pause)
            shares.append((cpu_seconds(child.pid) - before) / (time.monotonic() - begun) * 100)
        client.ask(do="close")
    share = median(shares)
    return Line(
        f"processor time of an idle peer with {workloads} workloads and {streams} streams, of one core",
        f"{share:.2f} %",
        "",
        share,
        f"{share:.2f} % ({min(shares):.2f} to {max(shares):.2f})",
        Goal("under", 1, "%"),
        _CAUSES["idle"],
    )
