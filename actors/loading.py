"""A started engine until its model has answered: raced against its end and its bounds (F19, F20)."""

from collections.abc import Awaitable, Callable

import trio

from actors.house import House
from adapters.engine.port import Engine, EngineFault, Served
from adapters.runtime.port import Exit, Handle

PROGRESS_STEP_PCT = 5
"""Loading is told when it has moved this far: a fact for each percent would drown the others."""

LAST_WORDS_SECONDS = 2.0
"""How long an engine that stopped answering is given to be found dead, which explains more."""

TellLoading = Callable[[int | None], Awaitable[None]]
"""Tells that a model loads: None at first, then a percentage whenever it has moved."""


class ReadyTimeout(EngineFault):
    """Told when a started engine did not answer at all within its bound; never raised."""

    code = "READY_TIMEOUT"


class LoadTimeout(EngineFault):
    """Told when a model gave no answer within its bound; never raised."""

    code = "LOAD_TIMEOUT"


async def load(
    house: House, workload: str, engine: Engine, handle: Handle, tell: TellLoading
) -> Served | EngineFault | Exit:
    """What came first: the model's first answer, why there will be none, or the program's end.

    Until the engine answers at all it has `Bounds.ready`, from then on its model has `Bounds.load`.
    """
    outcome: list[Served | EngineFault | Exit] = []
    bounds = house.bounds

    with trio.move_on_after(bounds.ready) as bound:

        def begins_to_load() -> None:
            bound.deadline = trio.current_time() + bounds.load

        progress = _Progress(begins_to_load)
        async with trio.open_nursery() as nursery:

            def decide(result: Served | EngineFault | Exit) -> None:
                outcome.append(result)
                nursery.cancel_scope.cancel("decided")

            async def ask() -> None:
                try:
                    decide(await engine.make_ready(handle, progress.note))
                except EngineFault as fault:
                    with trio.move_on_after(LAST_WORDS_SECONDS):
                        decide(await house.runtime.wait(workload))
                    decide(fault)

            async def watch() -> None:
                decide(await house.runtime.wait(workload))

            async def show() -> None:
                await tell(None)
                told = 0
                while True:
                    told = await progress.wait_for(told + PROGRESS_STEP_PCT)
                    await tell(told)

            nursery.start_soon(ask)
            nursery.start_soon(watch)
            nursery.start_soon(show)
    if outcome:
        return outcome[0]
    if progress.has_begun:
        return LoadTimeout(
            f"its engine runs and the model gave no answer within {bounds.load:.0f} s",
            fix="deploy a smaller model; the owner of the machine may raise BEST_PEER_LOAD_SECONDS",
        )
    return ReadyTimeout(
        f"its engine was started and did not answer at all within {bounds.ready:.0f} s",
        fix="deploy it again, or a smaller model; the owner of the machine may raise BEST_PEER_READY_SECONDS",
    )


class _Progress:
    """The last percentage that an engine said; only the newest matters. The first is a sign of life."""

    def __init__(self, begins: Callable[[], None]) -> None:
        self._begins = begins
        self._percent = 0
        self._moved = trio.Event()
        self.has_begun = False

    def note(self, percent: int | None) -> None:
        """Never blocks; figures outside 0 to 100 are taken to the nearest."""
        if not self.has_begun:
            self.has_begun = True
            self._begins()
        if percent is not None:
            self._percent = min(100, max(0, percent))
            self._moved.set()

    async def wait_for(self, percent: int) -> int:
        while self._percent < percent:
            self._moved = trio.Event()
            await self._moved.wait()
        return self._percent
