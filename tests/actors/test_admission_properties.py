"""Whatever happens in whatever order, promises fit what there is, and everything comes back (F12, F13, F18).

The real desk, fold, log and actors, over fakes that fail, fill up, hold up and crash as Hypothesis says. Sums
are looked at after every step of every task. `PROPERTY_EXAMPLES=500` tries that many and other ones.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trio.testing import wait_all_tasks_blocked

from actors.messages.commands import (
    Command,
    DeployModel,
    PullImage,
    RevokeAgent,
    RunJob,
    StopJob,
    UndeployModel,
)
from actors.rules.refusal import Refusal
from actors.state.keys import Grant, Issued, Key
from adapters.clock.fake import FakeClock
from adapters.engine.port import EngineUnreachable
from adapters.gpu.fake import FakeGpu, cpu_device, cuda_device
from adapters.runtime.port import StartFailed
from tests.support.houses import MIB, Disk, disk_under
from tests.support.lives import Lives

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.state.workloads import Workload
    from adapters.gpu.port import Device

UNIT: Final = 64 * MIB
CPU, CARD = cpu_device(8 * UNIT), cuda_device(0, 6 * UNIT)
EXAMPLES: Final = int(os.environ.get("PROPERTY_EXAMPLES", "0"))

Behaviour = Literal["fine", "full", "broken", "slow"]
BREAKS: Final = 3
"""How often the log may fail in one life: past it the peer ends."""
REFUSED: Final = frozenset(
    {
        "SHARE_EXCEEDED",
        "DEPLOYMENTS_EXCEEDED",
        "JOBS_EXCEEDED",
        "INSUFFICIENT_MEMORY",
        "ACCELERATORS_ONLY",
        "JOB_NEEDS_DEVICE",
        "UNAUTHORIZED",
        "NO_ROOM",
        "LOG_UNAVAILABLE",
    }
)
"""What an order here may be refused with; another code would be a mistake of the test or of the product."""
GONE: Final = frozenset({"UNKNOWN_DEPLOYMENT", "UNKNOWN_JOB", "DEPLOYMENT_ENDING", "JOB_ENDING"})


def expected(refusal: Refusal, codes: Collection[str]) -> None:
    """A refusal that may come."""
    assert refusal.code in codes, refusal


@attrs.define(eq=False)
class GatedGpu(FakeGpu):
    """Devices that nobody reads until the gate is opened: whoever asks together is told together."""

    gate: trio.Event | None = None

    async def devices(self) -> tuple[Device, ...]:
        if self.gate is not None:
            await self.gate.wait()
        return await super().devices()


@attrs.frozen
class Order:
    """A deployment or a job that somebody orders.

    Args:
        key: whose, by its number among the keys there are.
        size: in units of memory; a job without one asks for none.
        device: by name, or any.
        leaves: its sender is gone before it is admitted, or before it is told.
    """

    key: int
    is_job: bool
    size: int | None
    device: str | None
    leaves: Literal["never", "early", "late"]

    def body(self) -> Command:
        """The command."""
        memory_bytes = None if self.size is None else self.size * UNIT
        if self.is_job:
            return RunJob("busybox", memory_bytes=memory_bytes, device=self.device)
        return DeployModel("small", "ollama", memory_bytes or UNIT, device=self.device)


ORDERS = st.builds(
    Order,
    key=st.integers(0, 5),
    is_job=st.booleans(),
    size=st.integers(1, 5) | st.none(),
    device=st.sampled_from([None, None, CPU.id, CARD.id]),
    leaves=st.sampled_from(["never", "never", "never", "early", "late"]),
)
UNITS = st.none() | st.integers(1, 9)
FEW = st.none() | st.integers(0, 3)


class Admissions(RuleBasedStateMachine):
    """Orders, ends, failures, cancels, revokes, expiries, full and broken disks, restarts and crashes."""

    @initialize()
    def begin(self) -> None:
        self.patches = ExitStack()
        self.disk = self._patched()
        self.scratch = Path(tempfile.mkdtemp(prefix="best-peer-lives-"))
        self.gpu = GatedGpu((CARD, CPU))
        self.clock = FakeClock()
        self.lives = self.patches.enter_context(Lives(self.scratch, self.gpu, self.clock))
        self.keys: list[Key] = []
        self.number = 0
        self.held = False
        self.breaks = 0
        for share, count in ((None, None), (4, None), (None, 1)):
            self.new_key(share, deployments=count, jobs=count, accelerators_only=False, expires=False)

    def _patched(self) -> Disk:
        patch = pytest.MonkeyPatch()
        self.patches.callback(patch.undo)
        for name in (
            "actors.ending.RETRY_SECONDS",
            "actors.revoker.RETRY_SECONDS",
            "actors.tree.ROOM_RETRY_SECONDS",
            "actors.log.eventlog.ROOM_RETRY_SECONDS",
        ):
            patch.setattr(name, 0.005)
        patch.setattr("actors.loading.LAST_WORDS_SECONDS", 0.01)
        patch.setattr("actors.image.PACE_SECONDS", 0.0)
        return disk_under(patch)

    @rule(share=UNITS, deployments=FEW, jobs=FEW, accelerators_only=st.booleans(), expires=st.booleans())
    def new_key(
        self,
        share: int | None,
        deployments: int | None,
        jobs: int | None,
        accelerators_only: bool,
        expires: bool,
    ) -> None:
        """The first may do everything; the others what they are given."""
        self.number += 1
        grant = Grant(
            memory_bytes=None if share is None else share * UNIT,
            deployments=deployments,
            jobs=jobs,
            accelerators_only=accelerators_only,
        )
        now = self.clock.now_ms()
        key = Key(f"h-{self.number}", "agent", grant, now, expires_ms=now + 60_000 if expires else None)
        record = Issued(key=key, digest=f"digest-{self.number}", device_digest="")
        self.lives.do(partial(self.lives.house.store.keys.append, record))
        self.keys.append(key)

    @rule(
        orders=st.lists(ORDERS, min_size=1, max_size=5),
        one_key=st.booleans(),
        disk=st.sampled_from(["fine", "fine", "fine", "slow"]),
    )
    def order_together(self, orders: list[Order], one_key: bool, disk: Behaviour) -> None:
        """All are made ready before the first is admitted; some senders leave."""
        if one_key:
            orders = [attrs.evolve(order, key=orders[0].key) for order in orders]
        self._order(orders, disk)

    @rule(orders=st.lists(ORDERS, min_size=1, max_size=4), disk=st.sampled_from(["full", "broken"]))
    def order_on_a_bad_disk(self, orders: list[Order], disk: Behaviour) -> None:
        """What the disk does not keep was never ordered."""
        if disk == "broken" and self.breaks == BREAKS:
            self.crash()
        self.breaks += disk == "broken"
        self._order(orders, disk)

    def _order(self, orders: list[Order], disk: Behaviour) -> None:
        async def together() -> None:
            gate = self.gpu.gate = trio.Event()
            leavers: dict[str, list[trio.CancelScope]] = {"never": [], "early": [], "late": []}
            async with trio.open_nursery() as nursery:
                for order in orders:
                    scope = trio.CancelScope()
                    leavers[order.leaves].append(scope)
                    nursery.start_soon(self._send, order, scope)
                await wait_all_tasks_blocked()
                self._go_bad(disk)
                for scope in leavers["early"]:
                    scope.cancel()
                gate.set()
                self.gpu.gate = None
                await wait_all_tasks_blocked()
                for scope in leavers["late"]:
                    scope.cancel()
                await trio.lowlevel.checkpoint()
                if disk == "slow":
                    self.disk.release("accepted.jsonl")
            self.disk.full.clear()
            self.disk.broken.clear()
            if disk == "broken":
                await self._submit(PullImage("busybox"))

        self.lives.do(together)

    async def _submit(self, body: Command) -> None:
        """A command of the first key, sent again while the log starts again."""
        self.number += 1
        while True:
            try:
                await self.lives.house.submit(self.keys[0], body, identifier=f"sure-{self.number}")
            except Refusal as refusal:
                if refusal.code != "LOG_UNAVAILABLE":
                    raise
                await trio.sleep(0.001)
            else:
                return

    def _go_bad(self, disk: Behaviour) -> None:
        if disk == "full":
            self.disk.full.add("accepted.jsonl")
        elif disk == "broken":
            self.disk.broken.append("accepted.jsonl")
        elif disk == "slow":
            self.disk.hold("accepted.jsonl")

    async def _send(self, order: Order, scope: trio.CancelScope) -> None:
        key = self.keys[order.key % len(self.keys)]
        self.number += 1
        with scope:
            try:
                await self.lives.house.submit(key, order.body(), identifier=f"order-{self.number}")
            except Refusal as refusal:
                expected(refusal, REFUSED)

    def _living(self) -> list[Workload]:
        world = self.lives.house.store.world
        living: list[Workload] = [*world.deployments.values(), *world.jobs.values()]
        return [workload for workload in living if workload.phase != "ending"]

    @rule(chosen=st.lists(st.integers(0, 30), min_size=1, max_size=3))
    def end_by_command(self, chosen: list[int]) -> None:
        """Undeploys and stops, by a key that may do everything."""

        async def end() -> None:
            for number in chosen:
                living = self._living()
                if living:
                    await self._end(living[number % len(living)].id)

        self.lives.do(end)

    async def _end(self, workload: str) -> None:
        body = UndeployModel(workload) if workload.startswith("dep-") else StopJob(workload)
        try:
            await self._submit(body)
        except Refusal as refusal:
            expected(refusal, GONE)

    @rule(number=st.integers(0, 30), code=st.sampled_from([0, 1, 137]), out_of_memory=st.booleans())
    def program_ends(self, number: int, code: int, out_of_memory: bool) -> None:
        """By itself, whatever it was."""

        async def end() -> None:
            runtime = self.lives.house.runtime
            running = await runtime.running()
            if running:
                runtime.end(running[number % len(running)], code, out_of_memory=out_of_memory)

        self.lives.do(end)

    @rule(what=st.sampled_from(["start", "load"]))
    def next_one_fails(self, what: str) -> None:
        house = self.lives.house
        if what == "start":
            house.runtime.fail_next_start(StartFailed("it does not start", fix="none"))
        else:
            house.engine.fail_next_load(EngineUnreachable("it does not load", fix="none"))

    @rule(what=st.sampled_from(["starts", "loads"]))
    def hold_up(self, what: str) -> None:
        """From here on workloads stay where they are, until they are let go or their peer dies."""

        async def hold() -> None:
            self._let_go()
            house = self.lives.house
            self.release = house.runtime.hold_starts() if what == "starts" else house.engine.hold_loads()
            self.held = True

        self.lives.do(hold)

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self) -> None:
        async def release() -> None:
            self._let_go()

        self.lives.do(release)

    def _let_go(self) -> None:
        if self.held:
            self.release.set()
            self.held = False

    @precondition(lambda self: len(self.keys) > 1)
    @rule(number=st.integers(0, 30), how=st.sampled_from(["revoked", "kept running", "given back"]))
    def key_ends(self, number: int, how: str) -> None:
        """Never the first."""
        key = self.keys[1 + number % (len(self.keys) - 1)]

        async def end() -> None:
            try:
                if how == "given back":
                    await self.lives.house.submit(key, RevokeAgent())
                else:
                    await self.lives.house.registrar.revoke(key.holder, ends_work=how == "revoked")
            except Refusal as refusal:
                expected(refusal, {"UNKNOWN_KEY", "UNAUTHORIZED", "LOG_UNAVAILABLE"})

        self.lives.do(end)

    @rule()
    def time_passes(self) -> None:
        """Past the end of every key that has one."""
        self.clock.advance(61_000)

    @rule()
    def all_settles(self) -> None:
        """Nothing is under way: what is left on each device is there to be had, and not one byte more."""

        async def settle() -> None:
            self._let_go()
            await self.lives.settle()
            await self._fill()

        self.lives.do(settle)

    async def _fill(self) -> None:
        house = self.lives.house
        for device in (CARD, CPU):
            left = (device.memory_total_bytes or 0) - house.store.world.promised.get(device.uuid, 0)
            if left:
                await self._submit(RunJob("busybox", memory_bytes=left, device=device.id))
            with pytest.raises(Refusal) as refused:
                await house.submit(self.keys[0], RunJob("busybox", memory_bytes=1, device=device.id))
            assert refused.value.code == "INSUFFICIENT_MEMORY"

    @rule()
    def restart(self) -> None:
        self.held, self.breaks = False, 0
        self.lives.restart()

    @rule()
    def crash(self) -> None:
        """At whatever is going on."""
        self.held, self.breaks = False, 0
        self.lives.crash()

    def teardown(self) -> None:
        """End everything: nothing is promised, held or counted, and a stranger may have the whole machine."""
        if not hasattr(self, "patches"):
            return
        try:
            self.lives.do(self._all_comes_back)
        finally:
            self.patches.close()
            shutil.rmtree(self.scratch, ignore_errors=True)

    async def _all_comes_back(self) -> None:
        self._let_go()
        house = self.lives.house
        await self.lives.settle()
        for workload in self._living():
            await self._end(workload.id)
        await self.lives.settle()
        world = house.store.world
        assert (world.deployments, world.jobs, world.promised) == ({}, {}, {})
        assert world._promises._holdings == {}
        await self._fill()


def test_promises_hold_and_come_back_whatever_happens() -> None:
    run_state_machine_as_test(
        Admissions,
        settings=settings(
            max_examples=EXAMPLES or 20,
            stateful_step_count=30,
            derandomize=not EXAMPLES,
            deadline=None,
            database=None,
            # Threads and a scheduler that shuffles its tasks make no two runs alike: shrinking has no hold.
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
