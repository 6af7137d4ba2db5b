"""Which run-job and stop-job are taken, and that a refused one leaves nothing (F12, F18, F25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors.rules.refusal import Refusal
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from tests.support.houses import MIB, Household, deploy, job, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from actors.messages.commands import Command
    from actors.state.keys import Key

CARD = cuda_device(memory_bytes=8 * GIB)
TENANT: dict[str, Any] = {"memory_bytes": GIB, "scopes": ("jobs", "deploy")}


async def refusal(house: Household, key: Key, body: Command) -> Refusal:
    """What it is refused with; nothing of it was accepted."""
    before = len(house.store.accepted), dict(house.store.world.promised)
    with pytest.raises(Refusal) as refused:
        await house.send(key, body)
    assert (len(house.store.accepted), house.store.world.promised) == before
    return refused.value


@pytest.mark.parametrize(
    ("grant", "body", "code"),
    [
        (TENANT, job(), "JOB_NEEDS_DEVICE"),
        (TENANT, job(device="gpu-0"), "JOB_NEEDS_DEVICE"),
        (TENANT, job(memory_bytes=GIB + 1), "SHARE_EXCEEDED"),
        ({**TENANT, "jobs": 0}, job(memory_bytes=MIB), "JOBS_EXCEEDED"),
        ({"accelerators_only": True}, job(), "ACCELERATORS_ONLY"),
        ({"accelerators_only": True}, job(device="cpu"), "ACCELERATORS_ONLY"),
        ({}, job(memory_bytes=1 << 50), "INSUFFICIENT_MEMORY"),
        ({}, job(memory_bytes=MIB, device="gpu-7"), "UNKNOWN_DEVICE"),
        ({}, job(isolation="container"), "ISOLATION_UNAVAILABLE"),
        ({}, job(image="Upper"), "INVALID_IMAGE"),
    ],
)
async def test_what_is_not_to_be_is_refused_at_once_and_leaves_nothing(
    tmp_path: Path, grant: dict[str, Any], body: Command, code: str
) -> None:
    async with open_house(tmp_path, gpu=FakeGpu((CARD, cpu_device()))) as house:
        refused = await refusal(house, await house.key(**grant), body)
        assert refused.code == code
        assert refused.message


async def test_jobs_accepted_and_not_started_count_in_share_and_number(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=FakeGpu((CARD, cpu_device()))) as house:
        key = await house.key(memory_bytes=100 * MIB, jobs=2)
        for _ in range(2):
            await house.job_in(key, "pulling", memory_bytes=40 * MIB)
        refused = await refusal(house, key, job(memory_bytes=1))
        assert (refused.code, refused.details) == ("JOBS_EXCEEDED", {"held": 2, "limit": 2})
        refused = await refusal(house, key, deploy(64 * MIB))
        assert (refused.code, refused.details["available_bytes"]) == ("SHARE_EXCEEDED", 20 * MIB)


async def test_jobs_and_deployments_share_one_share(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=100 * MIB)
        await house.ready(key, 64 * MIB)
        refused = await refusal(house, key, job(memory_bytes=40 * MIB))
        assert (refused.code, refused.details["available_bytes"]) == ("SHARE_EXCEEDED", 36 * MIB)
        await house.running(key, memory_bytes=36 * MIB)
        assert (await refusal(house, key, deploy(64 * MIB))).code == "SHARE_EXCEEDED"


async def test_jobs_and_deployments_share_the_devices(tmp_path: Path) -> None:
    async with open_house(tmp_path, gpu=FakeGpu((cuda_device(memory_bytes=8 * GIB),))) as house:
        key = await house.key()
        await house.running(key, memory_bytes=5 * GIB)
        refused = await refusal(house, key, job(memory_bytes=4 * GIB))
        assert (refused.code, refused.details["available_bytes"]) == ("INSUFFICIENT_MEMORY", 3 * GIB)


async def test_a_job_without_a_device_asks_no_driver(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        reads = house.gpu.reads
        await house.running(key)
        assert house.gpu.reads == reads


async def test_a_retry_is_answered_and_runs_nothing_again(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        first = await house.submit(key, job("x"), identifier="cmd-x")
        name = (await house.told("JobStarted"))["data"]["job"]
        assert await house.submit(key, job("x"), identifier="cmd-x") == first
        house.runtime.end(name, 0)
        await house.told("JobFinished")
        assert await house.submit(key, job("x"), identifier="cmd-x") == first
        assert (await refusal_of(house, key, "cmd-x")).code == "DUPLICATE_ID"
        await house.check()
        assert len(house.runtime.starts) == 1


async def refusal_of(house: Household, key: Key, identifier: str) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await house.send(key, job("another"), identifier=identifier)
    return refused.value


async def test_a_stop_names_a_job_that_the_key_may_stop(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        one, other = await house.key(scopes=("jobs",)), await house.key("other", scopes=("jobs",))
        name = await house.running(one)
        for key, wanted in ((other, name), (one, "job-of-nobody")):
            with pytest.raises(Refusal) as refused:
                await house.stop_job(key, wanted)
            assert refused.value.code == "UNKNOWN_JOB"
            assert refused.value.details == {"job": wanted}


async def test_a_key_taken_back_while_its_device_is_looked_for_runs_no_job(tmp_path: Path) -> None:
    class Slow(FakeGpu):
        async def devices(self) -> Any:
            self.asked = True
            await go.wait()
            return await super().devices()

    go, gpu = trio.Event(), Slow()
    async with open_house(tmp_path, gpu=gpu) as house:
        key = await house.key()

        async def refused() -> None:
            assert (await refusal(house, key, job(memory_bytes=MIB))).code == "UNAUTHORIZED"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await house.until(lambda: hasattr(gpu, "asked"))
            await house.revoke(key)
            await house.until(lambda: not house.store.ring.ending())
            go.set()
        assert house.store.world.promised == {}
        await house.check()
