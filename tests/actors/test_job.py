"""A job's facts, in order, whatever its container does (F25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors.house import Bounds, Ceilings
from actors.messages.times import time_text
from actors.rules.refusal import Refusal
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.images.port import ImageFault, ImageNotFound
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Container, Exit, RuntimeUnavailable, StartFailed
from adapters.runtime.pretence import obeys
from tests.support.houses import MIB, Household, job, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from adapters.runtime.port import Handle


def steady(types: list[str]) -> list[str]:
    """Types without the progress between, which goes by how fast things are."""
    return [t for n, t in enumerate(types) if t != "ImagePulling" or t not in types[:n]]


async def last(house: Household, run: str) -> dict[str, Any]:
    """The last fact of a job, once all jobs have ended."""
    await house.until(lambda: not house.store.world.jobs)
    await house.check()
    return (await house.facts(run))[-1]


async def test_a_job_is_told_in_order_under_its_own_correlation(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        receipt = await house.submit(key, job("echo", "hi", env={"A": "b"}), correlation="corr-1")
        started = await house.told("JobStarted")
        name = started["data"]["job"]
        house.runtime.end(name, 3, output="hi\n")
        await house.told("JobFinished")
        facts = await house.facts()
        assert steady([f["type"] for f in facts]) == [
            "ImagePulling",
            "ImagePulled",
            "JobStarted",
            "JobFinished",
        ]
        assert {f["causationid"] for f in facts} == {receipt.id}
        assert {f["correlationid"] for f in facts} == {"corr-1"}
        assert {f["holder"] for f in facts} == {key.holder}
        assert {f["data"]["job"] for f in facts} == {name}
        assert name.startswith("job-")
        assert started["data"] == {
            "job": name,
            "image": "busybox",
            "boxed": False,
            "isolation": "process",
            "holder": key.holder,
        }
        assert facts[-1]["data"] == {"job": name, "exit_code": 3, "output": ["hi"]}
        await house.check()


async def test_a_job_runs_what_was_ordered_in_the_image_that_was_pulled(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        digest = house.images.serve("busybox:1")
        key = await house.key()
        name = await house.running(key, "sh", "-c", "true", image="busybox:1", env={"A": "b"})
        (spec,) = house.runtime.starts
        assert isinstance(spec.program, Container)
        assert digest in spec.program.image
        assert spec.program.command == ("sh", "-c", "true")
        assert spec.program.environment == {"A": "b"}
        assert spec.program.tasks == Ceilings().job_tasks
        assert (spec.workload, spec.holder) == (name, key.holder)
        assert (spec.program.is_boxed, spec.memory_bytes, spec.device_uuids) == (False, None, ())
        assert spec.program.port is None
        assert spec.program.secret is None


@pytest.mark.parametrize("opened", [False, True])
async def test_a_tenants_job_is_boxed_unless_its_approver_opened_it(tmp_path: Path, *, opened: bool) -> None:
    """F31: the box has a ceiling of host memory, and only the box."""
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=GIB, open_jobs=opened)
        await house.running(key, memory_bytes=MIB)
        (spec,) = house.runtime.starts
        assert isinstance(spec.program, Container)
        assert spec.program.is_boxed is not opened
        assert spec.memory_bytes == (None if opened else Ceilings().job_memory_bytes)
        started = (await house.told("JobStarted"))["data"]
        assert started["boxed"] is not opened
        assert started.get("host_memory_bytes") == spec.memory_bytes
        assert (started["device"], started["memory_bytes"]) == ("cpu", MIB)


async def test_a_card_is_handed_over_by_its_uuid_and_the_cpu_is_not(tmp_path: Path) -> None:
    card = cuda_device()
    async with open_house(tmp_path, gpu=FakeGpu((card, cpu_device()))) as house:
        key = await house.key()
        name = await house.running(key, memory_bytes=GIB)
        assert house.store.world.promised == {card.uuid: GIB}
        await house.running(key, memory_bytes=GIB, device="cpu")
        await house.running(key, device="gpu-0")
        assert [s.device_uuids for s in house.runtime.starts] == [(card.uuid,), (), (card.uuid,)]
        facts = [f["data"] for f in await house.facts() if f["type"] == "JobStarted"]
        assert [(f["device"], f.get("memory_bytes")) for f in facts] == [
            ("gpu-0", GIB),
            ("cpu", GIB),
            ("gpu-0", None),
        ]
        assert facts[0]["device_uuid"] == card.uuid
        house.runtime.end(name, 0)
        await house.told("JobFinished")
        assert house.store.world.promised == {"cpu": GIB}
        await house.check()


@pytest.mark.parametrize(
    ("how", "code", "kind"),
    [
        ({"code": 137, "out_of_memory": True}, "OUT_OF_MEMORY", "JobFailed"),
        ({"code": 127, "not_found": True}, "COMMAND_NOT_FOUND", "JobFailed"),
        ({"code": 137}, None, "JobFinished"),
        ({"code": 0, "lost_process": True}, None, "JobFinished"),
    ],
)
async def test_an_end_is_told_by_its_evidence(
    tmp_path: Path, how: dict[str, Any], code: str | None, kind: str
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=GIB)
        run = await house.send(key, job(memory_bytes=MIB))
        name = (await house.told("JobStarted"))["data"]["job"]
        house.runtime.end(name, how.pop("code"), output="words\n", **how)
        fact = await last(house, run)
        assert (fact["type"], fact["data"].get("code")) == (kind, code)
        assert fact["data"]["output"] == ["words"]
        if code == "OUT_OF_MEMORY":
            assert str(Ceilings().job_memory_bytes) in fact["data"]["reason"]
        if kind == "JobFinished":
            assert fact["data"]["note"]


async def test_what_a_job_printed_is_told_by_its_last_lines(tmp_path: Path) -> None:
    """Twenty lines and 2,000 characters at most."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        for text in ("".join(f"line {n}\n" for n in range(100)), "x" * 5000):
            run = await house.send(key, job())
            name = (await house.told("JobStarted", causation=run))["data"]["job"]
            house.runtime.end(name, 0, output=text)
            lines = (await last(house, run))["data"]["output"]
            assert len(lines) in (1, 20)
            assert sum(len(line) for line in lines) <= 2000
        assert lines == ["x" * 2000]


async def test_jobs_that_end_at_once_are_told_in_order_twenty_at_a_time(tmp_path: Path) -> None:
    """Within the same millisecond as they started; each once, whatever meets."""
    async with open_house(tmp_path, commands_per_minute=1000) as house:
        house.runtime.scripts = obeys
        key = await house.key(memory_bytes=GIB, jobs=20)
        runs = [await house.send(key, job("exit", str(n % 3), memory_bytes=MIB)) for n in range(20)]
        for number, run in enumerate(runs):
            fact = await last(house, run)
            assert (fact["type"], fact["data"]["exit_code"]) == ("JobFinished", number % 3)
            assert steady(await house.types(run)) == [
                "ImagePulling",
                "ImagePulled",
                "JobStarted",
                "JobFinished",
            ]
        assert house.store.world.holding(key.holder).jobs == set()
        assert house.store.world.promised == {}


async def test_a_job_that_was_over_long_ago_says_when_it_ended(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        name = await house.running(await house.key())
        at = time_text(house.clock.now_ms() - 60_000)
        house.runtime.end(name, 0, ended_at=at)
        assert (await house.told("JobFinished"))["data"]["ended_at"] == at


@pytest.mark.parametrize("code", ["NO_COMMAND", "COMMAND_NOT_FOUND", "IMAGE_GONE", "NO_ROOM", "START_FAILED"])
async def test_a_container_that_cannot_be_started_fails_the_job_with_the_fix(
    tmp_path: Path, code: str
) -> None:
    async with open_house(tmp_path) as house:
        house.runtime.fail_next_start(StartFailed("it is not to be", fix="let it be", code=code))
        run = await house.send(await house.key(), job())
        fact = await last(house, run)
        assert fact["type"] == "JobFailed"
        assert fact["data"] | {"job": ""} == {
            "job": "",
            "code": code,
            "reason": "it is not to be",
            "fix": "let it be",
        }
        assert "JobStarted" not in await house.types(run)


async def test_an_image_that_is_not_to_be_had_fails_the_job_with_the_fix(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        house.images.withdraw("busybox")
        run = await house.send(await house.key(), job())
        fact = await last(house, run)
        assert (fact["type"], fact["data"]["code"]) == ("JobFailed", ImageNotFound.code)
        assert fact["data"]["fix"]
        assert house.runtime.starts == []


async def test_an_image_whose_pull_breaks_fails_the_job(tmp_path: Path) -> None:
    class Broken(ImageFault):
        code = "PULL_FAILED"

    async with open_house(tmp_path) as house:
        house.images.fail_pull("busybox", Broken("it broke", fix="try again"))
        fact = await last(house, await house.send(await house.key(), job()))
        assert fact["data"]["code"] == "PULL_FAILED"


async def test_a_device_that_went_away_fails_the_job(tmp_path: Path) -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    async with open_house(tmp_path, gpu=gpu) as house:
        run, _ = await house.job_in(await house.key(), "pulling", memory_bytes=GIB)
        gpu.shown = (cpu_device(),)
        assert house.pull is not None
        house.pull.release()
        fact = await last(house, run)
        assert fact["data"]["code"] == "DEVICE_UNAVAILABLE"
        assert house.runtime.starts == []


async def test_a_job_waits_for_an_engine_that_is_away(tmp_path: Path) -> None:
    """Before it is started as while it runs: unknown is a state, and one that passes."""
    async with open_house(tmp_path, make_runtime=Counts) as house:
        assert isinstance(house.runtime, Counts)
        key = await house.key()
        come_back = house.runtime.go_away()
        run = await house.send(key, job())
        await house.until(lambda: house.runtime.looked > 5)  # type: ignore[attr-defined]
        assert await house.facts() == []
        come_back()
        name = (await house.told("JobStarted"))["data"]["job"]
        come_back = house.runtime.go_away()
        house.runtime.end(name, 4)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert "JobFinished" not in await house.types(run)
        come_back()
        assert (await last(house, run))["data"]["exit_code"] == 4


async def test_a_job_is_failed_when_its_engine_stays_away_and_what_was_started_ends(tmp_path: Path) -> None:
    """Nobody knows whether it was started: it is ended once that can be done."""
    async with open_house(tmp_path, bounds=Bounds(away=0.01)) as house:
        key = await house.key(memory_bytes=GIB)
        run, name = await house.job_in(key, "starting", memory_bytes=MIB)
        come_back = house.runtime.go_away()
        house.runtime.plant(name)
        assert house.runtime._gate is not None
        house.runtime._gate.set()
        fact = await house.told("JobFailed", causation=run)
        assert fact["data"]["code"] == "RUNTIME_UNAVAILABLE"
        assert "may hold its memory" in fact["data"]["memory_note"]
        assert house.store.world.promised == {}
        assert house.runtime.is_running(name)
        come_back()
        await house.until(lambda: not house.runtime.is_running(name))
        await house.check()


async def test_a_job_whose_engine_goes_away_after_its_end_leaves_nothing(tmp_path: Path) -> None:
    async with open_house(tmp_path, make_runtime=GoesAway) as house:
        assert isinstance(house.runtime, GoesAway)
        run, name = await house.job_in(await house.key(), "running")
        house.runtime.end(name, 0)
        await house.told("JobFinished", causation=run)
        await house.until(lambda: house.runtime.tried > 3)  # type: ignore[attr-defined]
        house.runtime.is_away = False
        await house.check()


async def test_a_job_whose_end_nobody_knows_is_interrupted(tmp_path: Path) -> None:
    """Somebody removed its container."""
    async with open_house(tmp_path) as house:
        run, name = await house.job_in(await house.key(), "running")
        removed = house.runtime._programs.pop(name)
        removed.finish(Exit(None))
        fact = await last(house, run)
        assert (fact["type"], fact["data"]["code"]) == ("JobFailed", "INTERRUPTED")
        assert (fact["data"]["exit_code"], fact["data"]["output"]) == (None, [])


async def test_a_runtime_without_jobs_takes_none(tmp_path: Path) -> None:
    async with open_house(tmp_path, make_runtime=WithoutJobs) as house:
        with pytest.raises(Refusal) as refused:
            await house.send(await house.key(), job())
        assert refused.value.code == "JOBS_UNAVAILABLE"
        assert house.store.world.unfinished == {}


class Counts(FakeRuntime):
    """Counts how often it was asked for a program."""

    looked = 0

    async def find(self, workload: str) -> Handle | None:
        self.looked += 1
        return await super().find(workload)


class GoesAway(FakeRuntime):
    """Answers no more when something is to be removed."""

    is_away = True
    tried = 0

    async def discard(self, workload: str) -> None:
        self.tried += 1
        if self.is_away:
            raise RuntimeUnavailable("it does not answer")
        await super().discard(workload)


class WithoutJobs(FakeRuntime):
    """As a runtime of plain processes."""

    has_jobs = False
