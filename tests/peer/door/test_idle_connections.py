"""A thousand connections that wait cost memory alone, and go when their time is over or at the stop (F35)."""

from __future__ import annotations

import gc
import resource
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing

from peer.door.limits import Limits
from tests.support.doorapps import ok
from tests.support.rawhttp import GET, Door, Pki, Wire, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from trio.testing import MockClock

WANTED, ENOUGH = 1000, 500
TLS, SILENT = 40, 100
"""Of them, those who asked over TLS (as many more shook hands alone), and those who said nothing."""
KIB_EACH = 64
"""What one may cost, its client's end in this process counted as well: a sixteenth of a gibibyte for all."""
LIMITS = Limits()


@pytest.fixture
def many() -> Iterator[int]:
    """How many connections this process may hold both ends of."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A server takes half of the descriptors, and its clients are here as well.
    fit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, (hard - 100) // 2)
    assert fit >= ENOUGH, f"this system gives a process {hard} descriptors, too few for the test"
    yield fit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Steps(trio.abc.Instrument):
    """Counts how often any task but its maker's runs."""

    def __init__(self) -> None:
        self.count = 0
        self._mine = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self._mine:
            self.count += 1


@attrs.define
class Crowd:
    """Clients that asked once, or said nothing yet, and wait until the door lets them go."""

    nursery: trio.Nursery
    wires: list[Wire] = attrs.field(factory=list)

    async def join(self, door: Door, count: int, *, speaks: bool) -> None:
        """More of them; returns when all are connected and have their answer."""
        turn = trio.CapacityLimiter(50)
        async with trio.open_nursery() as joining:
            for _ in range(count):
                joining.start_soon(self.nursery.start, self._one, door, speaks, turn)

    async def _one(
        self, door: Door, speaks: bool, turn: trio.CapacityLimiter, *, task_status: trio.TaskStatus[None]
    ) -> None:
        async with door.dial() as wire:
            if speaks:
                async with turn:
                    await wire.send(GET)
                    assert (await wire.answer()).status == 200
                    self.wires.append(wire)
            task_status.started()
            await trio.sleep_forever()


@asynccontextmanager
async def crowded(many: int, pki: Pki) -> AsyncIterator[tuple[Crowd, Door, Door]]:
    """A plain door and one over TLS, with as many clients as that, who wait."""
    async with (
        serving(ok, limits=LIMITS) as plain,
        serving(ok, pki=pki, limits=LIMITS) as tls,
        trio.open_nursery() as nursery,
    ):
        crowd = Crowd(nursery)
        for door, count, speaks in (
            (plain, many - 2 * TLS - SILENT, True),
            (plain, SILENT, False),
            (tls, TLS, True),
            (tls, TLS, False),
        ):
            await crowd.join(door, count, speaks=speaks)
        await opens(plain, many - 2 * TLS)
        yield crowd, plain, tls
        nursery.cancel_scope.cancel()


async def opens(door: Door, count: int) -> None:
    """Wait until a door has so many connections, and has done what it does about it."""
    for _ in range(2000):  # the clock stands still, so this is what bounds it
        await trio.testing.wait_all_tasks_blocked(0.01)
        if door.server.statistics().open == count:
            return
    assert door.server.statistics().open == count


def resident() -> int:
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def test_a_thousand_that_wait_cost_memory_and_no_time(
    many: int, some_pki: Pki, mock_clock: MockClock
) -> None:
    gc.collect()
    before = resident()
    async with crowded(many, some_pki) as (crowd, plain, tls):
        assert resident() - before < many * KIB_EACH * 1024
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        mock_clock.jump(LIMITS.header_seconds - 0.1)
        await trio.testing.wait_all_tasks_blocked()
        assert steps.count == 0, "somebody woke, though nobody's time was over"
        for door in (plain, tls):
            assert (await door.get()).status == 200
        # Whoever said nothing has had the time of a head; whoever asked has the time between two requests.
        mock_clock.jump(0.2)
        await opens(plain, many - 2 * TLS - SILENT)
        await opens(tls, TLS)
        for wire in crowd.wires[0], crowd.wires[-1]:
            await wire.send(GET)
            assert (await wire.answer()).status == 200
        await trio.testing.wait_all_tasks_blocked(0.01)  # until the door has done with them
        steps.count = 0
        mock_clock.jump(LIMITS.keep_alive_seconds - LIMITS.header_seconds - 0.2)
        await trio.testing.wait_all_tasks_blocked()
        assert steps.count == 0
        mock_clock.jump(0.2)
        for door in (plain, tls):
            await opens(door, 1)  # of one who asked again
        trio.lowlevel.remove_instrument(steps)


async def test_a_thousand_that_wait_do_not_hold_up_the_stop(
    many: int, some_pki: Pki, mock_clock: MockClock
) -> None:
    async with crowded(many, some_pki) as (_, plain, tls):
        for door in (plain, tls):
            door.server.stop()
        # The clock stands still, so that nobody can be waiting for the grace to pass.
        for door in (plain, tls):
            await opens(door, 0)
