"""A workload's end gives its promise back when the driver says so, or past a bound, which is told (F18)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from actors.attribution import attribution
from actors.house import Bounds
from actors.kernel.child import Backoff
from actors.looks import CardUse, Seen
from actors.release import _still
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.gpu.port import DeviceProcess, Program
from tests.support.breaks import Breaks
from tests.support.houses import HANG, MIB, Household, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from adapters.engine.fake import FakeEngine
    from adapters.engine.port import Engine

FREE = 8 * GIB - 512 * MIB
"""With nobody on it: a driver keeps some for itself."""
CARD = attrs.evolve(cuda_device(memory_bytes=8 * GIB), memory_free_bytes=FREE)
OWN = DeviceProcess(7, 4 * GIB, "compute")
FOR_EVER = Bounds(release=HANG)
SOON = Bounds(release=0.05)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.release.AGAIN_SECONDS", 0.002)


def gpu() -> FakeGpu:
    return FakeGpu((CARD, cpu_device()))


def on_cards(engine: FakeEngine) -> dict[str, Engine]:
    """An engine that runs on cards."""
    engine.name = "ollama"
    return {"ollama": engine}


def fill(house: Household, memory_bytes: int = 4 * GIB) -> None:
    """Have the workload's program hold memory, as the driver lists it and counts it."""
    house.gpu.hold(CARD.uuid, attrs.evolve(OWN, memory_bytes=memory_bytes))
    house.gpu.put(attrs.evolve(CARD, memory_free_bytes=FREE - memory_bytes))


def empty(house: Household) -> None:
    """Have the card get everything back."""
    house.gpu.hold(CARD.uuid)
    house.gpu.put(CARD)


async def job_on_card(house: Household) -> str:
    """A job that holds memory of the card and was seen there."""
    name = await house.running(await house.key(), memory_bytes=5 * GIB, device="gpu-0")
    house.runtime.set_processes(name, frozenset({7}))
    fill(house)
    await attribution(house.house)
    return name


async def looks(house: Household, count: int = 3) -> None:
    """Wait until the card was looked at so often more."""
    reads = house.gpu.reads
    await house.until(lambda: house.gpu.reads >= reads + count)


async def test_the_promise_comes_back_when_the_processes_are_off_the_card_and_its_memory_is_free(
    tmp_path: Path,
) -> None:
    """vllm-project/vllm#47654: an engine answered success and held its memory; the driver decides."""
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.runtime.end(name, 0)
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}, "the driver lists its process still"
        assert "JobFinished" not in await house.types()

        house.gpu.hold(CARD.uuid)
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}, "the driver counts its memory still"

        house.gpu.put(CARD)
        finished = await house.told("JobFinished")
        assert "memory_note" not in finished["data"]
        assert house.store.world.promised == {}
        await house.check()


async def test_what_others_take_meanwhile_is_not_what_it_held(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.gpu.hold(CARD.uuid, DeviceProcess(99, 6 * GIB, "graphics"))
        house.gpu.put(attrs.evolve(CARD, memory_free_bytes=FREE - 6 * GIB))
        house.runtime.end(name, 0)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


async def test_past_the_bound_the_end_is_told_and_says_what_the_driver_counts(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=SOON) as house:
        name = await job_on_card(house)
        house.gpu.hold(CARD.uuid)
        house.runtime.end(name, 0)
        note = (await house.told("JobFinished"))["data"]["memory_note"]
        assert "within 0.05 seconds of its end gpu-0 was not known to have its memory back" in note
        assert f"{4 * GIB} bytes as used that no program holds" in note
        assert house.store.world.promised == {}
        await house.check()


@pytest.mark.parametrize("condition", ["lost", "late"])
async def test_a_driver_that_says_nothing_frees_nothing_and_holds_nobody_up_past_the_bound(
    tmp_path: Path, condition: str
) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=SOON) as house:
        name = await job_on_card(house)
        if condition == "lost":
            house.gpu.lose_driver()
        else:
            house.gpu.delay_driver()
        house.runtime.end(name, 0)
        note = (await house.told("JobFinished"))["data"]["memory_note"]
        assert "its driver does not say what runs on it" in note
        await house.check()


async def test_a_figure_that_the_driver_does_not_give_now_is_not_taken_for_one_that_fell(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.gpu.hold(CARD.uuid)
        house.gpu.put(attrs.evolve(CARD, memory_free_bytes=None))
        house.runtime.end(name, 0)
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}
        house.gpu.put(CARD)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


async def test_past_the_bound_a_figure_that_is_not_given_is_said(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=SOON) as house:
        name = await job_on_card(house)
        house.gpu.hold(CARD.uuid)
        house.gpu.put(attrs.evolve(CARD, memory_free_bytes=None))
        house.runtime.end(name, 0)
        note = (await house.told("JobFinished"))["data"]["memory_note"]
        assert "its driver does not say how much of its memory is used" in note


@pytest.mark.parametrize("lacking", ["of the card", "of the process"])
async def test_one_look_that_lacks_a_figure_lets_no_end_be_judged_without_it(
    tmp_path: Path, lacking: str
) -> None:
    """The last one that saw its processes: what an earlier one showed a moment before stands."""
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        if lacking == "of the card":
            house.gpu.put(attrs.evolve(CARD, memory_free_bytes=None))
        else:
            house.gpu.hold(CARD.uuid, attrs.evolve(OWN, memory_bytes=None))
        await attribution(house.house)
        house.gpu.hold(CARD.uuid)
        house.runtime.end(name, 0)
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}
        house.gpu.put(attrs.evolve(CARD, memory_free_bytes=FREE - 4 * GIB))
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}
        house.gpu.put(CARD)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


async def test_a_stranger_of_whom_the_driver_tells_nothing_is_in_no_note(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.gpu.hold(CARD.uuid, DeviceProcess(99, None, "compute"))
        house.gpu.put(CARD)
        house.runtime.end(name, 0)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


async def test_a_driver_that_never_answers_holds_no_revoke_up_past_the_bound(tmp_path: Path) -> None:
    class Hangs(FakeGpu):
        hangs = False

        async def processes(self) -> Any:
            if self.hangs:
                await trio.sleep_forever()
            return await super().processes()

    made = Hangs((CARD, cpu_device()))
    async with open_house(tmp_path, gpu=made, bounds=SOON) as house:
        key = await house.key()
        await house.running(key, memory_bytes=GIB, device="gpu-0")
        made.hangs = True
        await house.revoke(key)
        stopped = await house.told("JobStopped")
        assert "its driver did not answer" in stopped["data"]["memory_note"]
        assert house.store.world.promised == {}


async def test_of_the_host_nobody_asks_a_driver(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await house.running(await house.key(), memory_bytes=GIB, device="cpu")
        house.gpu.lose_driver()
        house.runtime.end(name, 0)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


async def test_a_process_that_was_never_seen_is_looked_for_among_those_that_have_ended(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await house.running(await house.key(), memory_bytes=5 * GIB, device="gpu-0")
        house.gpu.hold(CARD.uuid, OWN, DeviceProcess(99, GIB, "graphics"))
        house.gpu.ended.add(7)
        house.runtime.end(name, 0)
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}
        house.gpu.hold(CARD.uuid, DeviceProcess(99, GIB, "graphics"))
        await house.told("JobFinished")


async def test_a_number_that_is_somebody_elses_by_now_holds_nothing_up(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.gpu.others[7] = Program(5000, "a stranger")
        house.runtime.end(name, 0)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


@pytest.mark.parametrize("how", ["undeploy", "crash", "out of memory", "revoke", "load"])
async def test_every_end_of_a_deployment_waits_for_its_card(tmp_path: Path, how: str) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=SOON, engines=on_cards) as house:
        key = await house.key()
        if how == "load":
            house.engine.hold_loads()
            await house.deploying(key, 5 * GIB, engine="ollama")
            deployment = (await house.told("DeploymentStarted"))["data"]["deployment"]
        else:
            deployment = await house.ready(key, 5 * GIB, engine="ollama")
        house.runtime.set_processes(deployment, frozenset({7}))
        fill(house)
        await attribution(house.house)
        kind = "DeploymentEnded"
        match how:
            case "undeploy":
                await house.undeploy(key, deployment)
                kind = "Undeployed"
            case "crash":
                house.runtime.end(deployment, 1)
            case "out of memory":
                house.runtime.end(deployment, 137, out_of_memory=True)
                kind = "OutOfMemory"
            case "revoke":
                await house.revoke(key)
            case "load":
                house.runtime.end(deployment, 1)
                kind = "DeploymentFailed"
        assert "its driver lists its processes still" in (await house.told(kind))["data"]["memory_note"]
        assert house.store.world.promised == {}
        empty(house)
        await house.check()


async def test_a_peer_that_ends_while_it_waits_for_the_card_waits_for_it_again(tmp_path: Path) -> None:
    made = gpu()
    async with open_house(tmp_path, gpu=made, bounds=FOR_EVER) as house:
        key = await house.key()
        name = await house.running(key, memory_bytes=5 * GIB, device="gpu-0")
        house.runtime.set_processes(name, frozenset({7}))
        made.hold(CARD.uuid, OWN)
        stop = await house.stop_job(key, name)
        await looks(house)
        assert "JobStopped" not in await house.types()
    made.ended.add(7)
    async with open_house(tmp_path, gpu=made, bounds=FOR_EVER) as house:
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}
        made.hold(CARD.uuid)
        await house.completed(stop)
        assert "memory_note" not in (await house.told("JobStopped"))["data"]
        assert house.store.world.promised == {}


async def test_a_process_that_has_ended_holds_its_memory_while_the_driver_lists_it(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.gpu.ended.add(7)
        house.runtime.end(name, 0)
        await looks(house)
        assert house.store.world.promised == {CARD.uuid: 5 * GIB}
        empty(house)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


def test_a_process_that_outlived_its_workload_is_known_by_its_start_whosever_it_seems() -> None:
    program = Program(5, "left behind")
    left = attrs.evolve(OWN, program=program)
    seen = Seen(frozenset({(7, program)}), 4 * GIB, 0, 0.0)
    others = CardUse((), (left,), (), (), frozenset(), 0)
    assert _still("job-1", seen, others) == "its driver lists its processes still"
    stranger = attrs.evolve(left, program=Program(6, "a stranger"))
    assert _still("job-1", seen, attrs.evolve(others, others=(stranger,))) is None


async def test_what_was_never_started_waits_for_no_card(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        key = await house.key()
        _, name = await house.job_in(key, "pulling", memory_bytes=GIB)
        house.gpu.lose_driver()
        await house.stop_job(key, name)
        assert "memory_note" not in (await house.told("JobStopped"))["data"]


@pytest.mark.parametrize("size", [200 * MIB, 1000 * MIB])
async def test_small_moves_of_what_no_program_holds_are_nobodys(tmp_path: Path, size: int) -> None:
    """Small beside what it held: a quarter of that."""
    async with open_house(tmp_path, gpu=gpu(), bounds=FOR_EVER) as house:
        name = await job_on_card(house)
        house.gpu.hold(CARD.uuid)
        house.gpu.put(attrs.evolve(CARD, memory_free_bytes=FREE - size))
        house.runtime.end(name, 0)
        assert "memory_note" not in (await house.told("JobFinished"))["data"]


@pytest.mark.parametrize("method", ["processes", "stop"])
async def test_a_workload_that_is_given_up_says_that_nobody_waited_for_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    monkeypatch.setattr(Backoff, "seconds", lambda self, attempt: 0.001)
    breaks = Breaks()
    wraps = {"wrap_runtime": breaks.around, "wrap_gpu": breaks.around}
    async with open_house(tmp_path, gpu=gpu(), bounds=SOON, **wraps) as house:  # type: ignore[arg-type]
        key = await house.key()
        name = await house.running(key, memory_bytes=GIB, device="gpu-0")
        breaks.always = method
        await house.stop_job(key, name)
        failed = await house.told("JobFailed")
        note = failed["data"]["memory_note"]
        assert note == (
            "gpu-0 was not asked whether it has its memory back"
            if method == "processes"
            else "its program could not be ended yet and may hold its memory; that is tried on"
        )
        assert house.store.world.promised == {}
        breaks.always = None
        await house.until(lambda: not house.runtime.is_running(name))
