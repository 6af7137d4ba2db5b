"""The owner takes devices and gives them back: what takes work, what ends, and what outlives what (F29)."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing

from actors import holding
from actors.available import available_now
from actors.holding import PERIOD_SECONDS, Wanted, hold, release, release_spec
from actors.messages.times import time_text
from actors.reports import Machine, hardware_state
from actors.rules.holding import MOST_REASON, MOST_SECONDS
from actors.rules.refusal import Refusal
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from tests.support.houses import HANG, Disk, Household, deploy, job, open_house

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from actors.state.holds import Hold
    from actors.state.keys import Key
    from adapters.engine.fake import FakeEngine
    from adapters.gpu.port import Device
    from adapters.runtime.fake import FakeRuntime

CARD = cuda_device()
HOUR_MS = 3_600_000
NUMBERS = itertools.count(1)


def machine() -> FakeGpu:
    return FakeGpu((CARD, cpu_device()))


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PERIOD_SECONDS == 5
    monkeypatch.setattr(holding, "PERIOD_SECONDS", 0.005)


@asynccontextmanager
async def household(folder: Path, **more: Any) -> AsyncIterator[tuple[Household, Key]]:
    """A house with a card, and its one key."""
    async with open_house(folder, gpu=more.pop("gpu", None) or machine(), **more) as house:
        keys = house.store.ring.all()
        yield house, next(iter(keys), None) or await house.key()


def wanted(device: str | None = None, **more: Any) -> Wanted:
    return Wanted(f"hold-{next(NUMBERS):020}", device, **more)


async def take(house: Household, device: str | None = None, **more: Any) -> tuple[Hold, ...]:
    return await hold(house.house, wanted(device, **more))


async def refused(house: Household, key: Key, body: Any) -> Refusal | None:
    """Why a command is not taken; None when it is."""
    try:
        await house.send(key, body)
    except Refusal as no:
        return no
    return None


async def told(house: Household) -> list[tuple[str, str, Any]]:
    """The facts of holds: type, device, and what ended them; those of one act are in no order."""
    return sorted(
        (f["type"], f["data"]["device"], f["data"].get("cause"))
        for f in await house.facts()
        if f["type"].startswith("Device")
    )


async def test_a_held_machine_takes_no_work_until_it_is_released(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        running = await house.ready(key)
        held = await take(house, reason="  maintenance \n today ")
        assert [(h.device, h.reason, h.every_device) for h in held] == [
            ("gpu-0", "maintenance today", True),
            ("cpu", "maintenance today", True),
        ]
        for body in (deploy(), job(), job(memory_bytes=GIB), job(device="gpu-0")):
            no = await refused(house, key, body)
            assert no is not None
            assert no.code == "DEVICE_BUSY"
            assert no.details["reason"] == "maintenance today"
            assert "held by its owner" in no.message
        assert running in house.store.world.deployments
        assert [h.device for h in await release(house.house)] == ["gpu-0", "cpu"]
        await house.ready(key)
        assert await told(house) == [
            ("DeviceHeldV1", "cpu", None),
            ("DeviceHeldV1", "gpu-0", None),
            ("DeviceReleasedV1", "cpu", "released"),
            ("DeviceReleasedV1", "gpu-0", "released"),
        ]
        assert await release(house.house) == ()
        await house.check()


async def test_one_device_is_held_by_either_of_its_names_and_no_other(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        for name in ("gpu-0", CARD.uuid):
            await take(house, name)
            no = await refused(house, key, job(device="gpu-0"))
            assert no is not None
            assert no.code == "DEVICE_BUSY"
            await house.running(key)
            await release(house.house, device=name)
        assert house.store.world.holds.on("cpu") is None


async def test_what_cannot_be_held_is_refused_and_nothing_told(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, _):
        now = house.clock.now_ms()
        for ask, code in (
            (wanted("gpu-9"), "UNKNOWN_DEVICE"),
            (wanted(until_ms=now), "INVALID_HOLD"),
            (wanted(until_ms=now + MOST_SECONDS * 1000 + 1), "INVALID_HOLD"),
            (wanted(reason="x" * (MOST_REASON + 1)), "INVALID_HOLD"),
            (wanted(reason="a\x1b[2Jb"), "INVALID_HOLD"),
            (wanted(reason="\u202egnp.exe"), "INVALID_HOLD"),
        ):
            with pytest.raises(Refusal) as no:
                await hold(house.house, ask)
            assert no.value.code == code
        with pytest.raises(Refusal, match="gpu-9"):
            await release(house.house, device="gpu-9")
        assert await told(house) == []
        await take(house, reason="   ", until_ms=now + MOST_SECONDS * 1000)
        assert [h.reason for h in house.store.world.holds] == [None, None]


async def test_clients_read_until_when_and_why_and_no_holder_who(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        until = house.clock.now_ms() + HOUR_MS
        await take(house, "gpu-0", until_ms=until, reason="a render")
        state = await hardware_state(Machine(house.house), key, instance="p", version="1")
        assert [d["availability"] for d in state["devices"]] == [
            {"state": "busy", "until": time_text(until), "reason": "a render"},
            {"state": "free"},
        ]
        assert all("holder" not in f for f in await house.facts() if f["type"].startswith("Device"))


async def test_a_hold_ends_at_its_time_to_the_millisecond_and_is_told_once(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        await take(house, until_ms=house.clock.now_ms() + 1000)
        house.clock.advance(999)
        assert (await refused(house, key, job())) is not None
        house.clock.advance(1)
        assert available_now(house.house, ())["cpu"].is_free
        await house.until(lambda: not len(house.store.world.holds))
        await house.running(key)
        assert await told(house) == [
            ("DeviceHeldV1", "cpu", None),
            ("DeviceHeldV1", "gpu-0", None),
            ("DeviceReleasedV1", "cpu", "ended"),
            ("DeviceReleasedV1", "gpu-0", "ended"),
        ]


async def test_a_newer_hold_stands_whatever_becomes_of_the_older(tmp_path: Path) -> None:
    """Of the one made by `--while`: a device that was held again meanwhile stays held."""
    async with household(tmp_path) as (house, _):
        (older, _) = await take(house, until_ms=house.clock.now_ms() + 1000)
        (newer,) = await take(house, "gpu-0", reason="newer")
        assert [h.device for h in await release(house.house, identifier=older.id)] == ["cpu"]
        house.clock.advance(2000)
        assert house.store.world.holds.on(CARD.uuid) == newer
        assert await release(house.house, identifier=older.id) == ()
        assert [h.id for h in await release(house.house, identifier=newer.id)] == [newer.id]


async def test_no_teller_of_an_older_hold_ends_the_newer_one(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, _):
        (older,) = await take(house, "gpu-0")
        (newer,) = await take(house, "gpu-0")
        worker = house.house.workers.spawn(release_spec(house.house, older, "ended"))
        with trio.fail_after(HANG):
            await worker.wait_ended()
        assert house.store.world.holds.on(CARD.uuid) == newer
        assert [kind for kind, *_ in await told(house)] == ["DeviceHeldV1", "DeviceHeldV1"]


async def test_a_hold_whose_time_has_passed_is_not_said_to_be_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the keeper has told that it is over."""
    monkeypatch.setattr(holding, "PERIOD_SECONDS", HANG)
    async with household(tmp_path) as (house, _):
        await take(house, until_ms=house.clock.now_ms() + 1000)
        await trio.testing.wait_all_tasks_blocked()
        house.clock.advance(1000)
        assert await release(house.house) == ()
        assert {cause for *_, cause in await told(house)} == {None}


async def test_a_release_is_told_once_however_often_it_is_begun(tmp_path: Path) -> None:
    """A teller that crashed behind its fact is started again, and another look may begin one as well."""
    async with household(tmp_path) as (house, _):
        (held,) = await take(house, "gpu-0")
        for cause in ("released", "ended"):
            worker = house.house.workers.spawn(release_spec(house.house, held, cause))
            with trio.fail_after(HANG):
                await worker.wait_ended()
        assert [cause for *_, cause in await told(house)] == [None, "released"]


async def test_the_same_act_sent_again_is_one(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, _):
        ask = wanted("gpu-0")
        assert await hold(house.house, ask) == await hold(house.house, ask)
        assert len(await told(house)) == 1


async def test_a_card_that_is_first_seen_later_is_held_with_every_other(tmp_path: Path) -> None:
    """As when it is cut into instances while the owner has it."""
    async with household(tmp_path) as (house, key):
        await take(house)
        house.gpu.shown = (cuda_device(1), *house.gpu.shown)
        no = await refused(house, key, job(device="gpu-1"))
        assert no is not None
        assert no.code == "DEVICE_BUSY"
        assert [h.device for h in await release(house.house, device="gpu-1")] == ["gpu-1"]
        await house.running(key, device="gpu-1")
        assert (await refused(house, key, job(device="gpu-0"))) is not None
        await release(house.house)
        house.gpu.shown = (cuda_device(2), *house.gpu.shown)
        await house.running(key, device="gpu-2")


async def test_cards_that_were_numbered_anew_are_held_by_what_they_are(tmp_path: Path) -> None:
    """ollama/ollama#7429: an index is for people alone."""
    other = cuda_device(1)
    async with household(tmp_path, gpu=FakeGpu((CARD, other, cpu_device()))) as (house, key):
        await take(house, "gpu-0")
        house.gpu.shown = (
            attrs.evolve(other, id="gpu-0"),
            attrs.evolve(CARD, id="gpu-1"),
            cpu_device(),
        )
        await house.running(key, device="gpu-0")
        assert (await refused(house, key, job(device="gpu-1"))) is not None
        assert await release(house.house, device="gpu-0") == ()
        assert len(await release(house.house, device="gpu-1")) == 1
        await house.running(key, device="gpu-1")


async def test_a_device_that_is_gone_can_be_released(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, _):
        await take(house, "gpu-0")
        house.gpu.shown = (cpu_device(),)
        assert [h.device for h in await release(house.house, device="gpu-0")] == ["gpu-0"]
        assert len(house.store.world.holds) == 0


async def test_taken_back_now_what_runs_there_ends_and_is_told_why(tmp_path: Path) -> None:
    """Easily missed 5 and 7."""
    async with household(tmp_path) as (house, key):
        deployment = await house.ready(key)
        on_cpu, nowhere = await house.running(key, device="cpu"), await house.running(key)
        on_card = await house.running(key, device="gpu-0")
        await take(house, "cpu", ends_work=True, reason="maintenance")
        world = house.store.world
        await house.until(lambda: set(world.jobs) == {on_card} and not world.deployments)
        ends = [f for f in await house.facts() if f["type"] in ("DeploymentEnded", "JobStopped")]
        why = "held by its owner: maintenance"
        reasons = {f["data"].get("deployment") or f["data"]["job"]: f["data"]["reason"] for f in ends}
        assert reasons == dict.fromkeys((deployment, on_cpu, nowhere), why)
        assert {f["holder"] for f in ends} == {key.holder}
        assert world.owners_ends == {}
        await house.check()


async def test_without_a_reason_the_words_stand_alone(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        await house.running(key, device="gpu-0")
        await take(house, ends_work=True)
        assert (await house.told("JobStopped"))["data"]["reason"] == "held by its owner"


async def test_what_loads_is_running_and_ends_as_well(tmp_path: Path) -> None:
    def held_up(runtime: FakeRuntime, engine: FakeEngine) -> None:
        engine.hold_loads()

    async with household(tmp_path, prepare=held_up) as (house, key):
        command, _ = await house.deploying(key)
        await house.told("WeightsLoading")
        await take(house, ends_work=True)
        ended = await house.told("DeploymentEnded")
        assert (ended["causationid"], ended["data"]["reason"]) == (command, "held by its owner")
        await house.check()


@pytest.mark.parametrize("device", [None, "cpu"])
async def test_what_was_starting_ends_as_soon_as_it_starts(tmp_path: Path, device: str | None) -> None:
    """One that names no device too: it runs on the processor."""
    async with household(tmp_path) as (house, key):
        run, name = await house.job_in(key, "pulling")
        assert house.store.world.jobs[name].device_uuid is None
        await take(house, device, ends_work=True, reason="mine")
        # Its image still comes; it is told of as any other.
        assert house.store.world.jobs[name].phase == "starting"
        assert house.pull is not None
        house.pull.release()
        await house.told("JobStopped")
        assert (await house.types(run))[-2:] == ["JobStarted", "JobStopped"]
        assert (await house.facts(run))[-1]["data"]["reason"] == "held by its owner: mine"
        await house.check()


async def test_what_was_starting_runs_when_the_hold_is_over_by_then(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        run, name = await house.job_in(key, "pulling")
        await take(house, ends_work=True)
        await release(house.house)
        assert house.pull is not None
        house.pull.release()
        await house.told("JobStarted", causation=run)
        await house.at_rest()
        assert house.store.world.jobs[name].phase == "running"


async def test_what_starts_after_its_time_runs_though_the_end_was_not_told_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "PERIOD_SECONDS", 60)
    async with household(tmp_path) as (house, key):
        run, name = await house.job_in(key, "starting")
        await take(house, ends_work=True, until_ms=house.clock.now_ms() + 1000)
        await trio.testing.wait_all_tasks_blocked()
        house.clock.advance(1000)
        house.runtime._gate.set()  # type: ignore[union-attr]
        await house.told("JobStarted", causation=run)
        assert house.store.world.jobs[name].phase == "running"
        assert house.store.world.owners_ends == {}
        types = await house.types()
        assert "DeviceReleasedV1" not in types[: types.index("JobStarted")]


async def test_a_job_that_was_over_before_it_was_taken_back_has_finished(tmp_path: Path) -> None:
    """Its true end is told, and not the owner's wish that came after it: its engine was away meanwhile."""
    async with household(tmp_path) as (house, key):
        name = await house.running(key)
        come_back = house.runtime.go_away()
        house.runtime.end(name, 3, ended_at=time_text(house.clock.now_ms()))
        house.clock.advance(60_000)
        await take(house, ends_work=True)
        come_back()
        assert (await house.told("JobFinished"))["data"]["exit_code"] == 3
        await house.check()


class Asked(FakeGpu):
    """Holds a reading of the devices up."""

    begun: trio.Event
    go: trio.Event | None = None

    async def devices(self) -> tuple[Device, ...]:
        found = await super().devices()
        if self.go is not None:
            go, self.go = self.go, None
            self.begun.set()
            await go.wait()
        return found


async def test_a_hold_is_seen_by_what_was_asked_before_it_and_decided_after(tmp_path: Path) -> None:
    """Read in the moment of the decision, never before."""
    gpu = Asked((CARD, cpu_device()))
    async with household(tmp_path, gpu=gpu) as (house, key), trio.open_nursery() as nursery:
        gpu.begun, gpu.go = trio.Event(), (go := trio.Event())
        found: list[Refusal | None] = []

        async def ask() -> None:
            found.append(await refused(house, key, deploy()))

        nursery.start_soon(ask)
        await gpu.begun.wait()
        await take(house)
        go.set()
        await house.until(lambda: bool(found))
        assert found[0] is not None
        assert found[0].code == "DEVICE_BUSY"


async def test_a_disk_without_room_refuses_a_hold_and_it_is_not_told_later(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "KEEP_SECONDS", 0.05)
    async with household(tmp_path) as (house, key):
        running = await house.running(key)
        disk.full.add("events")
        with pytest.raises(Refusal) as no:
            await take(house, ends_work=True)
        assert no.value.code == "NO_ROOM"
        disk.full.clear()
        await house.running(key)
        assert await told(house) == []
        assert running in house.store.world.jobs


async def test_a_release_that_the_disk_did_not_keep_is_told_as_soon_as_it_can_be(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "KEEP_SECONDS", 0.05)
    monkeypatch.setattr("actors.log.eventlog.ROOM_RETRY_SECONDS", 0.01)
    async with household(tmp_path) as (house, key):
        await take(house)
        disk.full.add("events")
        for _ in range(2):
            with pytest.raises(Refusal, match="still held"):
                await release(house.house)
        assert (await refused(house, key, deploy())) is not None
        disk.full.clear()
        await house.until(lambda: not len(house.store.world.holds))
        assert [kind for kind, *_ in await told(house)].count("DeviceReleasedV1") == 2


async def test_an_owner_who_leaves_while_it_is_told_loses_the_answer_alone(
    tmp_path: Path, disk: Disk
) -> None:
    async with household(tmp_path) as (house, key):
        name = await house.running(key)
        disk.hold("events")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: take(house, ends_work=True))
            await house.until(lambda: is_telling(house))
            nursery.cancel_scope.cancel()
        disk.release("events")
        await house.told("JobStopped")
        assert name not in house.store.world.jobs


@pytest.mark.parametrize("is_named", [True, False])
async def test_an_act_given_up_while_it_is_told_is_released(
    tmp_path: Path, disk: Disk, *, is_named: bool
) -> None:
    async with household(tmp_path) as (house, _):
        act = wanted()
        disk.hold("events")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, house.house, act)
            await house.until(lambda: is_telling(house))
            nursery.cancel_scope.cancel()
        released: list[Hold] = []

        async def give_up() -> None:
            released.extend(await release(house.house, identifier=act.id if is_named else None))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            await trio.testing.wait_all_tasks_blocked()
            disk.release("events")
        assert [each.device for each in released] == ["gpu-0", "cpu"]
        assert not len(house.store.world.holds)


async def test_an_act_that_a_slow_disk_has_in_hand_is_not_said_to_be_released(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "KEEP_SECONDS", 0.05)
    async with household(tmp_path) as (house, _):
        act = wanted()
        disk.hold("events")
        with pytest.raises(Refusal, match="whether the hold was kept"):
            await hold(house.house, act)
        with pytest.raises(Refusal, match="release it again"):
            await release(house.house, identifier=act.id)
        disk.release("events")
        await house.until(lambda: not is_telling(house))
        assert len(await release(house.house, identifier=act.id)) == 2


async def test_the_same_act_sent_twice_at_once_is_one_and_answered_twice(tmp_path: Path, disk: Disk) -> None:
    async with household(tmp_path) as (house, _):
        act = wanted()
        answers: list[tuple[Hold, ...]] = []

        async def send() -> None:
            answers.append(await hold(house.house, act))

        disk.hold("events")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(send)
            await house.until(lambda: is_telling(house))
            await trio.testing.wait_all_tasks_blocked()
            disk.release("events")
        assert [len(each) for each in answers] == [2, 2]
        assert len(await told(house)) == 2


async def test_an_act_that_was_told_while_the_same_one_read_the_devices_is_one(tmp_path: Path) -> None:
    class Gated(FakeGpu):
        gate: trio.Event | None = None

        async def devices(self) -> tuple[Device, ...]:
            if (gate := self.gate) is not None:
                await gate.wait()
            return await super().devices()

    gpu = Gated((CARD, cpu_device()))
    async with household(tmp_path, gpu=gpu) as (house, _):
        act = wanted("gpu-0")
        opening = gpu.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, house.house, act)
            await trio.testing.wait_all_tasks_blocked()
            gpu.gate = None
            await hold(house.house, act)
            opening.set()
        assert len(await told(house)) == 1


async def test_a_machine_taken_back_is_rid_of_what_runs_on_a_card_that_is_not_listed(tmp_path: Path) -> None:
    gpu = machine()
    async with household(tmp_path, gpu=gpu) as (house, key):
        await house.running(key, device=CARD.id)
        gpu.shown = (cpu_device(),)
        await take(house, ends_work=True)
        assert len(house.store.world.owners_ends) == 1
        gpu.shown = (CARD, cpu_device())
        await house.told("JobStopped")


def is_telling(house: Household) -> bool:
    return any(worker.name.startswith("hold ") for worker in house.house.workers.statistics())


@pytest.mark.parametrize("phase", ["pulling", "starting", "running"])
@pytest.mark.parametrize("is_released", [False, True])
async def test_a_wish_to_end_outlives_restarts_and_the_hold(
    tmp_path: Path, phase: str, *, is_released: bool
) -> None:
    """Kept until the runtime confirms it; but only of what ran while the device was held."""

    def hold_up(runtime: FakeRuntime, engine: FakeEngine) -> None:
        if phase == "starting":
            runtime.hold_starts()
        if phase == "pulling":
            runtime.images.hold_pull("busybox")  # type: ignore[attr-defined]

    async with household(tmp_path) as (house, key):
        run, name = await house.job_in(key, phase)
        if phase == "running":
            house.runtime.make_stubborn(name)
        await take(house, ends_work=True, reason="mine")
        sent = house.accepted
    async with household(tmp_path, prepare=hold_up) as (house, _):
        assert {h.device for h in house.store.world.holds} == {"gpu-0", "cpu"}
        if phase == "running":
            house.runtime.make_stubborn(name)
        if is_released:
            await release(house.house)
    async with household(tmp_path) as (house, _):
        house.accepted.update(sent)
        if is_released and phase != "running":
            await house.told("JobStarted", causation=run)
            await house.at_rest()
            assert house.store.world.jobs[name].phase == "running"
            house.runtime.end(name, 0)
            await house.told("JobFinished", causation=run)
        else:
            stopped = await house.told("JobStopped", causation=run)
            assert stopped["data"]["reason"] == "held by its owner: mine"
        await house.check()


async def test_an_actor_that_is_built_anew_knows_the_wish_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with nothing else first, whenever the keeper asks again."""
    async with household(tmp_path) as (house, key):
        deployment, name = await house.ready(key), await house.running(key)
        for workload in (deployment, name):
            house.runtime.make_stubborn(workload)
        await take(house, ends_work=True)
    monkeypatch.setattr(holding.HoldKeeper, "_end_work", lambda keeper: None)
    async with household(tmp_path) as (house, _):
        assert (await house.told("JobStopped"))["data"]["reason"] == "held by its owner"
        assert (await house.told("DeploymentEnded"))["data"]["reason"] == "held by its owner"
        await house.check()


async def test_a_hold_whose_time_came_while_the_peer_was_down_is_told_over_at_the_start(
    tmp_path: Path,
) -> None:
    async with household(tmp_path) as (house, _):
        await take(house, until_ms=house.clock.now_ms() + HOUR_MS)
        clock = house.clock
    clock.advance(2 * HOUR_MS)
    async with household(tmp_path, clock=clock) as (house, key):
        await house.until(lambda: not len(house.store.world.holds))
        await house.running(key)
    async with household(tmp_path, clock=clock) as (house, _):
        assert [kind for kind, *_ in await told(house)] == ["DeviceHeldV1"] * 2 + ["DeviceReleasedV1"] * 2


async def test_a_hold_outlives_a_clock_that_jumps(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        await take(house, until_ms=house.clock.now_ms() + HOUR_MS)
        house.clock.advance(-24 * HOUR_MS)
        assert (await refused(house, key, job())) is not None
        house.clock.advance(25 * HOUR_MS)
        await house.until(lambda: not len(house.store.world.holds))


async def test_work_that_a_stop_and_the_owner_end_at_once_is_ended_once(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, key):
        deployment, name = await house.ready(key), await house.running(key)
        for workload in (deployment, name):
            house.runtime.make_stubborn(workload)
        undeploy, stop = await house.undeploy(key, deployment), await house.stop_job(key, name)
        await take(house, ends_work=True)
        sent = house.accepted
    async with household(tmp_path) as (house, _):
        house.accepted.update(sent)
        await house.completed(undeploy, stop)
        await house.check()


async def test_the_fold_and_what_is_read_back_of_it_are_one(tmp_path: Path) -> None:
    async with household(tmp_path) as (house, _):
        await take(house, until_ms=house.clock.now_ms() + HOUR_MS, reason="x")
        await take(house, "gpu-0", ends_work=True)
        before = list(house.store.world.holds)
    async with household(tmp_path) as (house, _):
        assert list(house.store.world.holds) == before
        assert attrs.asdict(before[0])["device_uuid"] == CARD.uuid
