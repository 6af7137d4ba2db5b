"""Admission asks what the workloads use only where that decides: it costs more the more of them run (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from actors.rules.refusal import Refusal
from adapters.gpu.fake import FakeGpu, cpu_device
from adapters.runtime.fake import FakeRuntime
from tests.support.houses import MIB, deploy, open_house

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from adapters.gpu.port import Device


@attrs.define(eq=False)
class AskedRuntime(FakeRuntime):
    """Counts how often it is asked for everybody's processes."""

    asked: int = attrs.field(default=0, init=False)

    async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
        self.asked += 1
        return await super().all_processes(among)


@attrs.define(eq=False)
class SlowGpu(FakeGpu):
    """Its next reading waits until it is let go, and shows what there was before that."""

    gate: trio.Event | None = None

    async def devices(self) -> tuple[Device, ...]:
        found = await super().devices()
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate.wait()
        return found


def asked(runtime: FakeRuntime) -> int:
    assert isinstance(runtime, AskedRuntime)
    return runtime.asked


def half_used() -> Device:
    """A machine on which other programs hold half of the memory."""
    return attrs.evolve(cpu_device(1000 * MIB), memory_free_bytes=500 * MIB)


async def test_a_promise_that_fits_whatever_is_used_asks_nobody(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=FakeGpu((half_used(),)), make_runtime=AskedRuntime) as house:
        key = await house.key()
        await house.ready(key, 200 * MIB)
        await house.ready(key, 300 * MIB)
        assert asked(house.runtime) == 0


async def test_a_refusal_asks_so_that_what_it_says_is_left_is_true(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=FakeGpu((half_used(),)), make_runtime=AskedRuntime) as house:
        key = await house.key()
        with pytest.raises(Refusal):
            await house.submit(key, deploy(501 * MIB))
        assert asked(house.runtime) == 0, "nothing is promised yet that could be in use or not"
        deployment = await house.ready(key, 200 * MIB)
        house.runtime.set_processes(deployment, frozenset({7}))
        house.gpu.used = {7: 50 * MIB}
        with pytest.raises(Refusal) as refused:
            await house.submit(key, deploy(501 * MIB))
        assert refused.value.details["available_bytes"] == 350 * MIB
        assert asked(house.runtime) == 1


async def test_a_promise_that_depends_on_what_is_used_asks(tmp_path: Path) -> None:
    """The one that runs has 200 MiB still to take of what is free: 300 are left, not 500."""
    async with open_house(tmp_path, gpu=FakeGpu((half_used(),)), make_runtime=AskedRuntime) as house:
        key = await house.key()
        deployment = await house.ready(key, 200 * MIB)
        house.runtime.set_processes(deployment, frozenset({7}))
        house.gpu.used = {7: 0}
        with pytest.raises(Refusal) as refused:
            await house.submit(key, deploy(301 * MIB))
        assert refused.value.details["driver_bytes"] == 300 * MIB
        assert asked(house.runtime) == 1


async def test_what_a_refusal_just_told_admits_nothing(tmp_path: Path) -> None:
    """It used all that it was promised when that was told, and nothing since."""
    async with open_house(tmp_path, gpu=FakeGpu((half_used(),)), make_runtime=AskedRuntime) as house:
        key = await house.key()
        deployment = await house.ready(key, 200 * MIB)
        house.runtime.set_processes(deployment, frozenset({7}))
        house.gpu.used = {7: 200 * MIB}
        with pytest.raises(Refusal) as refused:
            await house.submit(key, deploy(501 * MIB))
        assert refused.value.details["driver_bytes"] == 500 * MIB
        house.gpu.used = {7: 0}
        with pytest.raises(Refusal) as refused:
            await house.submit(key, deploy(400 * MIB))
        assert refused.value.details["driver_bytes"] == 300 * MIB
        assert asked(house.runtime) == 2


async def test_what_others_were_promised_meanwhile_makes_it_ask(tmp_path: Path) -> None:
    """It was certain when the devices were read, and is not any more when it is admitted."""
    gpu = SlowGpu((half_used(),))
    async with open_house(tmp_path, gpu=gpu, make_runtime=AskedRuntime) as house:
        key = await house.key()
        gate = gpu.gate = trio.Event()
        refused: list[Refusal] = []

        async def late() -> None:
            try:
                await house.submit(key, deploy(400 * MIB))
            except Refusal as refusal:
                refused.append(refusal)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            await house.until(lambda: gpu.gate is None)
            deployment = await house.ready(key, 200 * MIB)
            house.runtime.set_processes(deployment, frozenset({7}))
            house.gpu.used = {7: 50 * MIB}
            assert asked(house.runtime) == 0
            gate.set()
        assert [each.details["driver_bytes"] for each in refused] == [350 * MIB]
        assert asked(house.runtime) == 1


async def test_what_starts_while_the_devices_are_read_has_taken_nothing_of_what_they_show(
    tmp_path: Path,
) -> None:
    """Nobody knows what it uses, and it was not there to be asked when the others were."""
    gpu = SlowGpu((half_used(),))
    async with open_house(tmp_path, gpu=gpu, make_runtime=AskedRuntime) as house:
        key = await house.key()
        deployment = await house.ready(key, 100 * MIB)
        house.runtime.set_processes(deployment, frozenset({7}))
        house.gpu.used = {7: 100 * MIB}
        first = gpu.gate = trio.Event()
        refused: list[Refusal] = []

        async def late() -> None:
            try:
                await house.submit(key, deploy(450 * MIB))
            except Refusal as refusal:
                refused.append(refusal)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            await house.until(lambda: gpu.gate is None)
            second = gpu.gate = trio.Event()
            first.set()
            await house.until(lambda: gpu.gate is None)
            await house.ready(key, 200 * MIB)
            await house.running(key, memory_bytes=100 * MIB, device="cpu")
            second.set()
        assert [each.details["driver_bytes"] for each in refused] == [200 * MIB]
