"""NVIDIA's cards through NVML, the driver's own library (F16, F17).

A driver may hang in any call, and a thread that hangs cannot be ended. So there is one thread at a time: who
waits for it gives up after a while and shows what is known, and no second one follows the first into a driver
that has not answered it.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import attrs
import outcome
import trio

from adapters.gpu.changes import Changes
from adapters.gpu.nvml_faults import NO_CARD, late_fault
from adapters.gpu.nvml_library import Library
from adapters.gpu.nvml_memory import Picture
from adapters.gpu.nvml_sweep import Processes, Sweep, read_devices, read_processes
from adapters.gpu.port import Device, DriverFault, DriverUnavailable, GpuState

PATIENCE_SECONDS: Final = 3.0
"""For one reading of all cards; sixteen take well under one second."""
START_SECONDS: Final = 60.0
"""For the first: without persistence mode the driver wakes every card for it."""
REST_SECONDS: Final = 30.0
"""A card that answered late is not asked for so long, so that the others can be. As often, a driver that
lacks a card is begun with anew: it counts its cards at no other time."""
AGAIN_SECONDS: Final = 1.0
"""Between two looks for a driver that is awaited."""

_Kind = Literal["devices", "processes"]
_READERS: Final[Mapping[_Kind, Callable[[Library, Sweep], None]]] = {
    "devices": read_devices,
    "processes": read_processes,
}


@attrs.define(eq=False)
class _Round:
    """One stay of the thread in the driver: each kind that was wanted, one after the other."""

    number: int
    began: float
    sweeps: dict[_Kind, Sweep]
    ended: trio.Event = attrs.field(factory=trio.Event)
    error: BaseException | None = None
    is_late: bool = False
    late_card: str | None = None

    def give_up(self) -> None:
        """Somebody waited in vain; what the thread is at now is what it hangs in."""
        if not self.is_late:
            self.is_late = True
            self.late_card = next((s.in_hand for s in self.sweeps.values() if not s.is_complete), None)


@attrs.define(eq=False)
class NvmlGpu:
    """The NVIDIA cards of this machine, MIG instances in place of their card, as `gpu-0` and `gpu-0/mig-1`.

    For one run of Trio's loop. Nothing is asked of the driver before the first reading.

    Args:
        patience: seconds that one reading may take.
        rest: see `REST_SECONDS`.
        readings: how often the driver was entered.
    """

    patience: float = PATIENCE_SECONDS
    rest: float = REST_SECONDS
    readings: int = attrs.field(default=0, init=False)
    _library: Library = attrs.field(factory=Library, init=False, repr=False)
    _picture: Picture = attrs.field(factory=Picture, init=False, repr=False)
    _changes: Changes = attrs.field(factory=Changes, init=False, repr=False)
    _running: _Round | None = attrs.field(default=None, init=False)
    _wanted: set[_Kind] = attrs.field(factory=set, init=False)
    # Until when each card is left alone, by UUID.
    _resting: dict[str, float] = attrs.field(factory=dict, init=False)
    _anew_from: float = attrs.field(default=0.0, init=False)

    @property
    def state(self) -> GpuState:
        """What the latest reading said of the driver."""
        return self._picture.state

    async def devices(self) -> tuple[Device, ...]:
        """Every card and instance, read now.

        One that was shown once and cannot be read stays, with its condition; a card with MIG on and no
        instances offers nothing.
        """
        sweep, late = await self._reading("devices", self.patience)
        devices = self._picture.devices(sweep, late)
        self._changes.note(devices, self.state, trio.current_time())
        return devices

    async def processes(self) -> Mapping[str, Processes]:
        """What runs on each, by UUID; None where the driver does not say all of it.

        A driver from before 510 says nothing that pynvml can ask for.
        """
        sweep, late = await self._reading("processes", self.patience)
        return self._picture.processes(sweep, late)

    async def programs(self, pids: frozenset[int]) -> None:  # noqa: ARG002
        """Not the driver's to know."""
        await trio.lowlevel.checkpoint()

    async def host_memory(self, groups: Mapping[str, frozenset[int]]) -> Mapping[str, int]:  # noqa: ARG002
        """Not the driver's to know."""
        await trio.lowlevel.checkpoint()
        return {}

    async def wait_for_driver(self, seconds: float = 0) -> None:
        """Wait until the driver answers and has a card; with 0 seconds, look once (BEST_PEER_DRIVER_WAIT).

        Raises:
            DriverUnavailable: it does not, with what is wrong and what to do.
        """
        deadline = trio.current_time() + seconds
        while True:
            sweep, late = await self._reading("devices", START_SECONDS)
            devices = self._picture.devices(sweep, late)
            fault = self.state.fault
            if fault is None:
                if sweep is not None and sweep.count:
                    self._changes.note(devices, self.state, trio.current_time())
                    return
                fault = NO_CARD
                self._anew_from = -math.inf
            if trio.current_time() + AGAIN_SECONDS > deadline:
                raise DriverUnavailable(fault)
            await trio.sleep(AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Let go of the driver, so that it can be unloaded; one that hangs keeps what it has."""
        with trio.move_on_after(self.patience, shield=True) as scope:
            while (current := self._running) is not None:
                # One that has had its time, also at a start that was broken off, is not waited for again.
                scope.deadline = min(scope.deadline, current.began + self.patience)
                await current.ended.wait()
            await trio.to_thread.run_sync(self._library.close, abandon_on_cancel=True)

    async def _reading(self, kind: _Kind, patience: float) -> tuple[Sweep | None, DriverFault]:
        """A reading that began after this call, and what is wrong if it is late.

        It is None where none could begin, and may go on where it is late.
        """
        before = self.readings
        self._wanted.add(kind)
        # Those who ask at the same moment share the round that the first of them starts after this.
        await trio.lowlevel.checkpoint()
        # Twice at most: a round in hand began too early, and the one after it has all that is wanted by then.
        while True:
            if self._running is None:
                # Again: one that began after the call may have ended already, and taken the wish with it.
                self._wanted.add(kind)
            current = self._running or self._start()
            # One that is late has had its time: then nobody waits.
            with trio.move_on_at(current.began + patience):
                await current.ended.wait()
            mine = current.sweeps.get(kind) if current.number > before else None
            if not current.ended.is_set():
                current.give_up()
                return mine, late_fault(patience, current.late_card)
            if current.error is not None:
                raise current.error
            if mine is not None:
                return mine, late_fault(patience, None)

    def _start(self) -> _Round:
        now = trio.current_time()
        self._resting = {uuid: until for uuid, until in self._resting.items() if until > now}
        resting = frozenset(self._resting)
        is_anew = self._picture.is_lacking and now >= self._anew_from
        if is_anew:
            self._anew_from = now + self.rest
        self.readings += 1
        wanted = {kind: Sweep(resting) for kind in _READERS if kind in self._wanted}
        self._wanted.clear()
        started = self._running = _Round(self.readings, now, wanted)
        trio.lowlevel.start_thread_soon(
            partial(self._work, started.sweeps, is_anew),
            partial(self._deliver, trio.lowlevel.current_trio_token(), started),
            name="nvml",
        )
        return started

    def _work(self, sweeps: Mapping[_Kind, Sweep], is_anew: bool) -> None:
        """What the thread does."""
        if is_anew:
            self._library.close()
        for kind, sweep in sweeps.items():
            _READERS[kind](self._library, sweep)

    def _deliver(self, token: trio.lowlevel.TrioToken, ended: _Round, result: outcome.Outcome[None]) -> None:
        """The last that the thread does; the loop may have ended long before."""
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(self._end, ended, result)

    def _end(self, ended: _Round, result: outcome.Outcome[None]) -> None:
        if isinstance(result, outcome.Error):
            ended.error = result.error
        if ended.late_card is not None:
            self._resting[ended.late_card] = trio.current_time() + self.rest
        self._running = None
        ended.ended.set()
