"""A door with a thousand keys and two hundred workloads against one with a key and a workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from actors.rules.grants import TENANT_SCOPES
from actors.state.keys import Grant
from tests.support.bench.bench import MIB, Bench, Door, Served
from tests.support.bench.child import Child
from tests.support.bench.figures import Goal, Line, Pairs, alternate, microseconds, ratio_line
from tests.support.bench.history import write_keys
from tests.support.bench.rates import Rate, load

KEYS = 1000
WORKLOADS = 200
GOAL = Goal("at most", 1.3)
_CONNECTIONS = 4
_AUTHENTICATIONS = 5000
_TENANTS_BYTES = 1 << 40
_SCRAPE = "text/plain;version=0.0.4"

_CAUSES = {
    "read": "a key is found by its digest, which costs the same however many there are",
    "refused": "a refusal tells what is left: all workloads are added up, and asked a few times a second",
    "taken": "beside its admission each job is told, and its actor started and ended, among the others",
    "own": "a tenant's scrape reads its own workloads alone, among everybody's",
    "all": "each workload has some thirty samples of its own, beside the devices' and the door's",
}


@attrs.frozen
class _Crowd:
    """A served peer with so many keys and workloads, and its tenant: a key with a share and a workload."""

    served: Served
    tenant: Door
    samples: int

    @property
    def door(self) -> Door:
        """The owner's way in."""
        return self.served.door


def measure(bench: Bench) -> list[Line]:
    """Authentication, admission and metrics, each by the processor time that it costs the server."""
    keys, workloads = bench.pick(KEYS, 20), bench.pick(WORKLOADS, 6)
    bench.say(f"{keys:,} keys and {workloads} workloads, and one of each")
    with _crowd(bench, keys, workloads) as many, _crowd(bench, 1, 1) as one, bench.client() as client:
        crowds = (one, many)
        against = f"among {keys:,} keys and {workloads} workloads, against one of each"
        return [
            _authentications(bench, crowds, against),
            *(
                _line(bench, client, crowds, f"{what} {against}", asked, _CAUSES[cause])
                for what, asked, cause in (
                    ("a small GET with a key", _read, "read"),
                    ("a deployment that is refused for want of room", _refused, "refused"),
                    ("a job that is taken, carried out and told", _taken, "taken"),
                    ("a tenant's scrape of its own workload", _scraped_by_tenant, "own"),
                )
            ),
            _scrapes(bench, client, crowds, against),
        ]


@contextmanager
def _crowd(bench: Bench, keys: int, workloads: int) -> Iterator[_Crowd]:
    data = bench.folder("crowd") / "data"
    with bench.served(data, partial(_write_tenants, keys)) as served:
        # The first of the tenants; where there is one key, the owner's has a tenant's work to itself.
        secret = (data.parent / "tenant").read_text()
        tenant = attrs.evolve(served.door, key=secret)
        _occupy(tenant, 1)
        _occupy(served.door, workloads - 1)
        yield _Crowd(served, tenant, _samples(served.door))


def _write_tenants(keys: int, data: Path) -> None:
    """Beside the owner's one key for all: a tenant that is measured, and the others."""
    first, *_ = write_keys(data, keys, Grant(TENANT_SCOPES, _TENANTS_BYTES))
    (data.parent / "tenant").write_text(first)


def _occupy(door: Door, workloads: int) -> None:
    """So many workloads that run: every other one a job."""
    deploy = {"model": "tiny", "engine": "llamacpp", "memory_bytes": MIB}
    job = {"image": "busybox", "command": ["sleep", "86400"], "memory_bytes": MIB}
    sent = [
        (door.send("RunJob", job), "JobStarted", "JobFailed")
        if number % 2
        else (door.send("DeployModel", deploy), "DeploymentReady", "DeploymentFailed")
        for number in range(workloads)
    ]
    for correlation, until, fails in sent:
        door.wait_for(correlation, until, fails=fails)


def _samples(door: Door) -> int:
    page = door.text("/metrics")
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


def _authentications(bench: Bench, crowds: Sequence[_Crowd], against: str) -> Line:
    count = bench.pick(_AUTHENTICATIONS, 100)

    def authenticate(crowd: _Crowd) -> float:
        answer = crowd.served.child.ask(do="authenticate", secret=crowd.tenant.key, count=count)
        seconds: float = answer["seconds"]
        return seconds / count

    base, ours = alternate(bench.pick(31, 2), *(partial(authenticate, crowd) for crowd in crowds))
    return ratio_line(
        f"a key is looked up {against}",
        Pairs(tuple(ours), tuple(base)),
        microseconds,
        GOAL,
        cause=_CAUSES["read"],
    )


def _line(bench: Bench, client: Child, crowds: Sequence[_Crowd], what: str, asked: Any, cause: str) -> Line:
    base, ours = _rounds(bench, client, crowds, asked)
    pairs = Pairs(tuple(rate.cpu for rate in ours), tuple(rate.cpu for rate in base))
    return ratio_line(what, pairs, microseconds, GOAL, cause=cause)


def _scrapes(bench: Bench, client: Child, crowds: Sequence[_Crowd], against: str) -> Line:
    """A collector reads everybody's, and so a longer page: what counts is what each sample costs."""
    base, ours = _rounds(bench, client, crowds, _scraped_by_all)
    one, many = crowds
    pairs = Pairs(
        tuple(rate.cpu / many.samples for rate in ours), tuple(rate.cpu / one.samples for rate in base)
    )
    what = (
        f"each sample of a scrape of everything, {many.samples:,} samples {against} ({one.samples} samples)"
    )
    return ratio_line(what, pairs, microseconds, GOAL, cause=_CAUSES["all"])


def _rounds(bench: Bench, client: Child, crowds: Sequence[_Crowd], asked: Any) -> list[list[Rate]]:
    seconds = bench.pick(4, 2) / 10
    rounds = [
        partial(_load, crowd.served, client, *asked(crowd), connections=_CONNECTIONS, seconds=seconds)
        for crowd in crowds
    ]
    return alternate(bench.pick(21, 2), *rounds)


def _load(served: Served, client: Child, question: bytes, status: int, **more: Any) -> Rate:
    """One round, and then the wait until everything that was asked for is over."""
    rate = load(served, client, question, status=status, **more)
    served.child.ask(do="release")
    return rate


def _read(crowd: _Crowd) -> tuple[bytes, int]:
    return crowd.tenant.request("GET", "/workflows"), 200


def _refused(crowd: _Crowd) -> tuple[bytes, int]:
    data = {"model": "tiny", "engine": "llamacpp", "memory_bytes": 1 << 45}
    return crowd.door.request("POST", "/commands", crowd.door.command("DeployModel", data)), 422


def _taken(crowd: _Crowd) -> tuple[bytes, int]:
    data = {"image": "busybox", "command": ["true"], "memory_bytes": MIB}
    return crowd.door.request("POST", "/commands", crowd.door.command("RunJob", data)), 201


def _scraped_by_tenant(crowd: _Crowd) -> tuple[bytes, int]:
    return crowd.tenant.request("GET", "/metrics", accept=_SCRAPE), 200


def _scraped_by_all(crowd: _Crowd) -> tuple[bytes, int]:
    return crowd.door.request("GET", "/metrics", accept=_SCRAPE), 200
