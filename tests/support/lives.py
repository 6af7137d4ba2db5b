"""A house through all its lives, driven step by step by plain code: restarts, crashes, and a watch.

The house lives on a Trio loop in a thread of its own, so that a test that is no coroutine, a Hypothesis state
machine for one, may do a step, look, and do the next.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs
import trio

from tests.support.houses import HANG, Household, open_house

if TYPE_CHECKING:
    from actors.state.workloads import Workload
    from adapters.clock.fake import FakeClock
    from adapters.engine.fake import FakeEngine
    from adapters.gpu.fake import FakeGpu

T = TypeVar("T")


@attrs.define(eq=False)
class Watch(trio.abc.Instrument):
    """Adds up what is promised after every step of every task, and remembers the first sum that is wrong.

    Args:
        totals: the memory of each device, by UUID.
    """

    totals: dict[str, int]
    house: Household | None = None
    wrong: str | None = None
    steps: int = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Called by Trio: what any other task could see from here on."""
        if self.house is not None and self.wrong is None:
            self.steps += 1
            self.wrong = self.look(self.house)

    def look(self, house: Household) -> str | None:
        """What is wrong with the fold of a house; None when every sum is as it should be."""
        world, ring = house.store.world, house.store.ring
        living: list[Workload] = [*world.deployments.values(), *world.jobs.values()]
        promised = Counter[str]()
        held = Counter[str]()
        for workload in living:
            if workload.device_uuid and workload.memory_bytes:
                promised[workload.device_uuid] += workload.memory_bytes
                held[workload.holder] += workload.memory_bytes
        if world.promised != dict(promised):
            return f"{world.promised} is promised, and what lives was promised {dict(promised)}"
        for uuid, sum_bytes in promised.items():
            if sum_bytes > self.totals[uuid]:
                return f"{sum_bytes} bytes are promised on {uuid}, which has {self.totals[uuid]}"
        for key in ring.all():
            holding, grant = world.holding(key.holder), key.grant
            deployments = {d.id for d in world.deployments.values() if d.holder == key.holder}
            jobs = {j.id for j in world.jobs.values() if j.holder == key.holder}
            if (holding.deployments, holding.jobs) != (deployments, jobs):
                return f"{key.holder} is counted {holding} and has {deployments} and {jobs}"
            if holding.memory_bytes != held[key.holder]:
                return f"{key.holder} is counted {holding.memory_bytes} bytes and holds {held[key.holder]}"
            for what, most, count in (
                ("bytes", grant.memory_bytes, holding.memory_bytes),
                ("deployments", grant.deployments, len(deployments)),
                ("jobs", grant.jobs, len(jobs)),
            ):
                if most is not None and count > most:
                    return f"{key.holder} has {count} {what} and was granted {most}"
        return None


@attrs.define(eq=False)
class Lives:
    """One house, life after life. Use as a context manager.

    Args:
        scratch: where its folders lie, one after each crash.
        gpu: its devices, which outlive it.
        clock: its wall clock.
        engine: the name of its one engine.
    """

    scratch: Path
    gpu: FakeGpu
    clock: FakeClock
    engine: str = "ollama"
    watch: Watch = attrs.field(init=False)
    _folder: Path = attrs.field(init=False)
    _crashes: int = 0
    _token: trio.lowlevel.TrioToken | None = None
    _nursery: trio.Nursery | None = None
    _thread: threading.Thread | None = None
    _leave: trio.Event = attrs.field(factory=trio.Event)
    _gone: trio.Event = attrs.field(factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _accepted: dict[str, str] = attrs.field(factory=dict)
    _broke: BaseException | None = None

    def __attrs_post_init__(self) -> None:
        """Nothing is there yet."""
        self.watch = Watch({d.uuid: d.memory_total_bytes or 0 for d in self.gpu.shown})
        self._folder = self.scratch / "life-0"
        self._folder.mkdir()

    @property
    def house(self) -> Household:
        """The house as it lives now."""
        assert self.watch.house is not None
        return self.watch.house

    def __enter__(self) -> Self:
        """Start the loop, and the first life."""
        ready = threading.Event()

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                self._token, self._nursery = trio.lowlevel.current_trio_token(), nursery
                ready.set()
                await trio.sleep_forever()

        def loop() -> None:
            try:
                trio.run(main, instruments=[self.watch])
            except BaseException as broke:  # noqa: BLE001 - told to the test, in its own thread
                self._broke = broke
                ready.set()

        self._thread = threading.Thread(target=loop, name="the house's loop", daemon=True)
        self._thread.start()
        assert ready.wait(HANG)
        self.do(self._begin)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the life and the loop."""
        self.do(self._end)
        nursery = self._nursery
        assert nursery is not None
        assert self._thread is not None
        trio.from_thread.run_sync(nursery.cancel_scope.cancel, trio_token=self._token)
        self._thread.join(HANG)
        if self._broke is not None:
            raise self._broke

    def do(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run one step on the house's loop, and look what became of the sums meanwhile."""

        async def bounded() -> T:
            with trio.fail_after(4 * HANG):
                return await step()

        try:
            result = trio.from_thread.run(bounded, trio_token=self._token)
        except trio.RunFinishedError:
            raise AssertionError("the house ended by itself") from self._broke
        assert self.watch.wrong is None, self.watch.wrong
        return result

    async def settle(self) -> None:
        """Wait until nothing is under way and nothing is about to be, and see that all is as it was told."""
        house = self.house

        def is_calm() -> bool:
            world = house.store.world
            living = (*world.deployments, *world.jobs)
            return not house.store.ring.ending() and all(house.runtime.is_running(name) for name in living)

        await house.at_rest()
        while not is_calm():
            await house.until(is_calm)
            await house.at_rest()
        await house.check()

    def restart(self) -> None:
        """Stop as a signal would, and start again."""

        async def again() -> None:
            await self._end()
            await self._begin()

        self.do(again)

    def crash(self) -> None:
        """Die at once: what the files hold at this moment is all that the next life knows."""

        async def again() -> None:
            self._crashes += 1
            folder = self.scratch / f"life-{self._crashes}"
            shutil.copytree(self._folder, folder)
            self._remember()
            self._scope.cancel()
            await self._gone.wait()
            self._folder = folder
            await self._begin()

        self.do(again)

    async def _begin(self) -> None:
        assert self._nursery is not None
        self._leave, self._gone, self._scope = trio.Event(), trio.Event(), trio.CancelScope()
        self.watch.house = await self._nursery.start(self._live)
        self.house.accepted.update(self._accepted)

    async def _end(self) -> None:
        self._remember()
        self._leave.set()
        await self._gone.wait()

    def _remember(self) -> None:
        self._accepted = dict(self.house.accepted)
        self.watch.house = None

    async def _live(self, task_status: trio.TaskStatus[Household]) -> None:
        def engines(fake: FakeEngine) -> dict[str, Any]:
            fake.name = self.engine  # type: ignore[assignment]
            return {self.engine: fake}

        try:
            with self._scope:
                async with open_house(
                    self._folder,
                    clock=self.clock,
                    gpu=self.gpu,
                    engines=engines,
                    commands_per_minute=1_000_000,
                ) as house:
                    task_status.started(house)
                    await self._leave.wait()
        finally:
            self._gone.set()
