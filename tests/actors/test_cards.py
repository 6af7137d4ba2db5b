"""A workload is started on the card it was promised once that can be used, or fails and says why (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from actors.house import Bounds
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.gpu.port import Device
from tests.support.houses import HANG, Household, job, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from adapters.engine.fake import FakeEngine
    from adapters.engine.port import Engine

CARD = cuda_device(0)
PATIENT = Bounds(card=HANG)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.cards.AGAIN_SECONDS", 0.002)


def on_cards(engine: FakeEngine) -> dict[str, Engine]:
    """An engine that runs on cards."""
    engine.name = "ollama"
    return {"ollama": engine}


async def pulling(house: Household, **more: object) -> str:
    """A job on the card whose image is being fetched."""
    run, _ = await house.job_in(await house.key(), "pulling", **more)
    return run


def release(house: Household) -> None:
    assert house.pull is not None
    house.pull.release()


async def test_a_job_waits_until_its_card_can_be_used(tmp_path: Path) -> None:
    """ollama/ollama#7669: what started before its card could be used stayed on the processor."""
    gpu = FakeGpu((CARD, cpu_device()))
    async with open_house(tmp_path, gpu=gpu, bounds=PATIENT) as house:
        await pulling(house, memory_bytes=GIB)
        gpu.delay_driver()
        reads = gpu.reads
        release(house)
        await house.until(lambda: gpu.reads > reads + 2)
        assert house.runtime.starts == []
        gpu.bring_back()
        await house.told("JobStarted")
        assert house.runtime.starts[0].device_uuids == (CARD.uuid,)


async def test_a_card_that_does_not_come_back_in_time_fails_what_was_to_start_on_it(tmp_path: Path) -> None:
    gpu = FakeGpu((CARD, cpu_device()))
    async with open_house(tmp_path, gpu=gpu, bounds=Bounds(card=0.05)) as house:
        await pulling(house, memory_bytes=GIB)
        gpu.lose(CARD.uuid, reason="it fell off the bus")
        release(house)
        fact = await house.told("JobFailed")
        assert fact["data"]["code"] == "DEVICE_UNAVAILABLE"
        assert "gpu-0 could not be used for 0.05 seconds: it fell off the bus" in fact["data"]["reason"]
        assert house.store.world.promised == {}
        await house.check()


async def test_a_card_is_known_by_its_uuid_whatever_number_it_has_by_now(tmp_path: Path) -> None:
    """ollama/ollama#7429: the driver counts its cards anew at every start."""
    other = cuda_device(1)
    gpu = FakeGpu((CARD, other, cpu_device()))
    async with open_house(tmp_path, gpu=gpu) as house:
        await pulling(house, memory_bytes=GIB, device="gpu-1")
        gpu.shown = (attrs.evolve(other, id="gpu-0"), attrs.evolve(CARD, id="gpu-1"), cpu_device())
        release(house)
        await house.told("JobStarted")
        assert house.runtime.starts[0].device_uuids == (other.uuid,)
        assert house.store.world.promised == {other.uuid: GIB}


async def test_a_job_may_have_a_card_of_unknown_size_without_a_promise(tmp_path: Path) -> None:
    unknown = attrs.evolve(CARD, memory_total_bytes=0, is_total_known=False, memory_free_bytes=None)
    async with open_house(tmp_path, gpu=FakeGpu((unknown, cpu_device()))) as house:
        await house.send(await house.key(), job(device="gpu-0"))
        await house.told("JobStarted")
        assert house.runtime.starts[0].device_uuids == (CARD.uuid,)


async def test_an_engine_is_not_started_on_a_card_whose_size_is_not_known_any_more(tmp_path: Path) -> None:
    class Forgets(FakeGpu):
        async def devices(self) -> tuple[Device, ...]:
            shown = await super().devices()
            self.put(attrs.evolve(CARD, memory_total_bytes=0, is_total_known=False))
            return shown

    gpu = Forgets((CARD, cpu_device()))
    async with open_house(tmp_path, gpu=gpu, bounds=Bounds(card=0.05), engines=on_cards) as house:
        await house.deploying(await house.key(), GIB, engine="ollama", device="gpu-0")
        fact = await house.told("DeploymentFailed")
        assert fact["data"]["code"] == "DEVICE_UNAVAILABLE"
        assert "does not say how much memory it has" in fact["data"]["reason"]
        assert house.runtime.starts == []
