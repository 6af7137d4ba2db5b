"""A restart at every phase of a job: nothing lost, nothing run twice (F8, F25, F37).

Each test leaves one house and opens another over the same folder, where the fake runtime remembers its
containers, those that have ended as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from actors.ending import REVOKED
from actors.log.accepted import Record
from actors.messages.times import time_text
from adapters.gpu.fake import GIB
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Container, Exit, WorkloadSpec
from tests.support.houses import MIB, Disk, Household, job, open_house
from tests.support.soak.history import problems

if TYPE_CHECKING:
    from pathlib import Path

    from actors.state.keys import Key
    from adapters.engine.fake import FakeEngine

IN_ORDER = ["ImagePulling", "ImagePulled", "JobStarted", "JobFinished"]


def key_of(house: Household) -> Key:
    (key,) = house.store.ring.all()
    return key


async def check(house: Household, sent: dict[str, str]) -> None:
    """As `Household.check`, over both lives."""
    house.accepted.update(sent)
    await house.check()


async def finished(house: Household, code: int = 0) -> dict[str, Any]:
    """Let the one job end; its last fact."""
    name = (await house.told("JobStarted"))["data"]["job"]
    house.runtime.end(name, code)
    return await house.told("JobFinished")


def without_repeats(types: list[str]) -> list[str]:
    return list(dict.fromkeys(types))


async def begin(folder: Path, name: str, holder: str) -> FakeRuntime:
    """What a peer leaves that is killed once a job's container runs and before that is told."""
    runtime = FakeRuntime(folder)
    await runtime.start(WorkloadSpec(name, holder, Container("busybox")))
    return runtime


@pytest.mark.parametrize("phase", ["pulling", "starting"])
async def test_a_job_that_was_not_started_is_run(tmp_path: Path, phase: str) -> None:
    async with open_house(tmp_path) as house:
        _, name = await house.job_in(await house.key(), phase, memory_bytes=MIB)
    async with open_house(tmp_path) as again:
        assert again.store.world.promised == {"cpu": MIB}
        fact = await finished(again)
        assert fact["data"]["job"] == name
        await check(again, house.accepted)
        assert without_repeats(await again.types()) == IN_ORDER
        assert len(again.runtime.starts) == 1


async def test_a_container_started_and_not_told_is_found_and_told(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "starting")
    await begin(tmp_path, name, key.holder)
    async with open_house(tmp_path) as again:
        await finished(again, 7)
        await check(again, house.accepted)
        assert without_repeats(await again.types()) == IN_ORDER
        assert again.runtime.starts == []


async def test_a_container_that_ended_before_its_start_was_told_is_not_started_again(tmp_path: Path) -> None:
    """A job runs once: killed just after the start of one that ended at once."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "starting")
    (await begin(tmp_path, name, key.holder)).end(name, 4, output="done\n")
    async with open_house(tmp_path) as again:
        fact = await again.told("JobFinished")
        assert (fact["data"]["exit_code"], fact["data"]["output"]) == (4, ["done"])
        await check(again, house.accepted)
        assert without_repeats(await again.types()) == IN_ORDER
        assert again.runtime.starts == []


@pytest.mark.parametrize(
    "ended", [Exit(None, interrupted=True), Exit(None, ("said this",)), Exit(143, interrupted=True)]
)
async def test_a_container_that_ended_somehow_is_not_started_again(tmp_path: Path, ended: Exit) -> None:
    """The machine went down under it, before its start was told: it may have done anything by then."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "starting")
    runtime = await begin(tmp_path, name, key.holder)
    program = runtime._programs[name]
    program.finish(ended)
    runtime._keep(program)
    async with open_house(tmp_path) as again:
        fact = await again.told("JobFailed")
        assert (fact["data"]["code"], fact["data"]["exit_code"]) == ("INTERRUPTED", ended.code)
        await check(again, house.accepted)
        assert again.runtime.starts == []


async def test_a_container_that_was_only_made_is_started(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "starting")
    async with open_house(tmp_path, prepare=lambda runtime, _: made_only(runtime, name)) as again:
        await finished(again)
        await check(again, house.accepted)
        assert len(again.runtime.starts) == 1


def made_only(runtime: FakeRuntime, name: str) -> None:
    from adapters.runtime.pretence import made_program

    spec = WorkloadSpec(name, "h", Container("busybox"))
    runtime._programs[name] = made_program(spec, 99, is_started=False)


async def test_a_job_that_runs_on_is_waited_for(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        _, name = await house.job_in(await house.key(), "running", memory_bytes=MIB)
    async with open_house(tmp_path) as again:
        assert again.store.world.jobs[name].phase == "running"
        assert again.store.world.promised == {"cpu": MIB}
        await finished(again)
        await check(again, house.accepted)
        assert (await again.types()).count("JobStarted") == 1


async def test_a_job_that_ended_meanwhile_is_told_with_its_code_and_its_time(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        _, name = await house.job_in(await house.key(), "running")
        at = time_text(house.clock.now_ms() - 60_000)
    FakeRuntime(tmp_path).end(name, 3, output="words\n", ended_at=at)
    async with open_house(tmp_path) as again:
        fact = await again.told("JobFinished")
        assert fact["data"] == {"job": name, "exit_code": 3, "output": ["words"], "ended_at": at}
        await check(again, house.accepted)


async def test_a_job_whose_container_is_gone_was_interrupted(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        _, name = await house.job_in(await house.key(), "running", memory_bytes=MIB)
    runtime = FakeRuntime(tmp_path)
    runtime.end(name, 0)
    await runtime.discard(name)
    async with open_house(tmp_path) as again:
        fact = await again.told("JobFailed")
        assert (fact["data"]["code"], fact["data"]["exit_code"]) == ("INTERRUPTED", None)
        await check(again, house.accepted)
        assert again.store.world.promised == {}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("survives", [True, False])
@pytest.mark.parametrize("phase", ["starting", "running"])
async def test_a_stop_under_way_is_carried_on(
    tmp_path: Path, phase: str, *, survives: bool, together: bool
) -> None:
    """The wish to stop outlives the peer; what ended then ended by it, as far as anybody knows."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, phase, memory_bytes=MIB)
        away = house.runtime.go_away()
        stop = await house.stop_job(key, name, correlation=run if together else None)
    del away
    if phase == "running" and not survives:
        FakeRuntime(tmp_path).end(name, 143)
    async with open_house(tmp_path) as again:
        await again.completed(run, stop)
        await check(again, house.accepted)
        assert again.store.world.promised == {}
        types = await again.types()
        assert types.count("JobStopped") == (1 if together else 2)
        assert types[-1] == "JobStopped"
        assert again.runtime.starts == []


async def test_a_stop_that_came_after_the_end_finds_it(tmp_path: Path) -> None:
    """It ended by itself before anybody asked, and the peer was killed before it saw either."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "running")
        house.runtime.go_away()
        at = time_text(house.clock.now_ms() - 1)
        stop = await house.stop_job(key, name)
    FakeRuntime(tmp_path).end(name, 6, ended_at=at)
    async with open_house(tmp_path) as again:
        await again.completed(stop)
        await check(again, house.accepted)
        assert (await again.facts(run))[-1]["data"]["exit_code"] == 6
        assert (await again.facts(stop))[0]["data"]["code"] == "JOB_ENDED"


async def test_a_stop_that_came_after_an_end_whose_start_was_not_told_finds_both(tmp_path: Path) -> None:
    """It started and ended within a moment, and the peer was killed before it told the first."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, name = await house.job_in(key, "starting")
        at = time_text(house.clock.now_ms() - 1)
        house.runtime.go_away()
        stop = await house.stop_job(key, name)
    (await begin(tmp_path, name, key.holder)).end(name, 6, ended_at=at)
    async with open_house(tmp_path) as again:
        await again.completed(run, stop)
        await check(again, house.accepted)
        assert without_repeats(await again.types(run)) == IN_ORDER
        assert (await again.facts(stop))[0]["data"]["code"] == "JOB_ENDED"


async def test_a_stop_whose_job_has_gone_is_completed(tmp_path: Path) -> None:
    """Killed between the fact that ended the job and the fact that completes the stop."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        _, name = await house.job_in(key, "running")
        stop = await house.stop_job(key, name)
        await house.completed(stop)
    day = next((tmp_path / "events").iterdir())
    lines = day.read_bytes().splitlines(keepends=True)
    assert b"JobStopped" in lines[-1]
    day.write_bytes(b"".join(lines[:-1]))
    async with open_house(tmp_path) as again:
        await check(again, house.accepted)
        assert (await again.types(stop)) == ["CommandFailed"]


@pytest.mark.parametrize("phase", ["starting", "running"])
async def test_a_revoke_under_way_is_carried_on(tmp_path: Path, phase: str) -> None:
    """Easily missed 20."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        run, _ = await house.job_in(key, phase)
        house.runtime.go_away()
        await house.revoke(key)
        assert house.store.ring.ending() == (key.holder,)
    async with open_house(tmp_path) as again:
        fact = await again.told("JobStopped", causation=run)
        assert fact["data"]["reason"] == REVOKED
        await again.until(lambda: not again.store.ring.ending())
        await check(again, house.accepted)


@pytest.mark.parametrize("opened", [False, True])
async def test_a_restart_runs_it_in_the_box_it_was_admitted_to(tmp_path: Path, *, opened: bool) -> None:
    """F31: settled at the admission, and kept with the command."""
    async with open_house(tmp_path) as house:
        key = await house.key(memory_bytes=GIB, open_jobs=opened)
        await house.job_in(key, "pulling", memory_bytes=MIB)
    async with open_house(tmp_path) as again:
        assert (await again.told("JobStarted"))["data"]["boxed"] is not opened
        (spec,) = again.runtime.starts
        assert isinstance(spec.program, Container)
        assert spec.program.is_boxed is not opened


class WithoutJobs(FakeRuntime):
    """As a runtime of plain processes."""

    has_jobs = False


@pytest.mark.parametrize("phase", ["pulling", "running"])
async def test_a_peer_started_with_a_runtime_without_jobs_fails_them_with_the_fix(
    tmp_path: Path, phase: str
) -> None:
    async with open_house(tmp_path) as house:
        run, name = await house.job_in(await house.key(), phase, memory_bytes=MIB)
    if phase == "running":
        FakeRuntime(tmp_path).end(name, 0)
    async with open_house(tmp_path, make_runtime=WithoutJobs) as again:
        fact = await again.told("JobFailed", causation=run)
        assert fact["data"]["code"] == "JOBS_UNAVAILABLE"
        assert fact["data"]["fix"]
        assert again.store.world.promised == {}
        await check(again, house.accepted)


async def test_a_record_that_does_not_say_so_is_run_in_the_box(tmp_path: Path) -> None:
    """What was settled for a tenant is never run open by mistake."""
    record = Record(
        id="cmd-old",
        holder="h-agent-1",
        correlationid="corr-old",
        hash="x",
        type="RunJob",
        at="2026-01-01T00:00:00.000Z",
        subject="job-0123456789abcdef",
        data=msgspec.Raw(b'{"image":"busybox"}'),
    )
    (tmp_path / "accepted.jsonl").write_bytes(msgspec.json.encode(record) + b"\n")
    async with open_house(tmp_path) as house:
        assert (await house.told("JobStarted"))["data"]["boxed"]


async def test_what_is_left_of_workloads_that_nobody_knows_is_removed(tmp_path: Path) -> None:
    """Killed between a job's last fact and the removal of its container; and one that still runs."""
    (await begin(tmp_path, "job-of-nobody", "h")).end("job-of-nobody", 0)
    await begin(tmp_path, "job-that-runs", "h")
    async with open_house(tmp_path) as house:
        await house.until(lambda: not house.runtime._programs)
        await house.check()


async def test_what_is_left_is_removed_once_the_engine_is_back(tmp_path: Path) -> None:
    (await begin(tmp_path, "job-of-nobody", "h")).end("job-of-nobody", 0)
    back: list[Any] = []

    def away(runtime: FakeRuntime, engine: FakeEngine) -> None:
        back.append(runtime.go_away())

    async with open_house(tmp_path, prepare=away) as house:
        assert "job-of-nobody" in house.runtime._programs
        back[0]()
        await house.until(lambda: not house.runtime._programs)
        await house.check()


async def test_a_job_that_is_not_durable_yet_is_not_begun(tmp_path: Path, disk: Disk) -> None:
    """The actors alone were restarted: it begins when the disk has kept it, and once."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.send, key, job())
            await house.until(lambda: bool(house.store.world.jobs))
            house.tree.recover()
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (house.images.pulled, house.runtime.starts) == ([], [])
            disk.release("accepted.jsonl")
        await house.told("JobStarted")
        await house.check()
        assert len(house.runtime.starts) == 1


async def test_several_restarts_in_a_row_lose_nothing(tmp_path: Path) -> None:
    """Six lives of one folder, each left while jobs are pulled, started, run and stopped."""
    sent: dict[str, str] = {}
    for life in range(6):
        async with open_house(tmp_path) as house:
            house.accepted.update(sent)
            key = key_of(house) if len(house.store.ring) else await house.key()
            if life % 3 == 1:
                house.runtime.hold_starts()
            if life % 3 == 2:
                house.images.hold_pull("busybox")
            for number, name in enumerate(tuple(house.store.world.jobs)):
                if house.store.world.jobs[name].phase != "ending" and number % 2:
                    await house.stop_job(key, name)
                elif house.runtime.is_running(name):
                    house.runtime.end(name, number)
            for _ in range(4):
                await house.send(key, job())
            for _ in range(life * 9):
                await trio.lowlevel.checkpoint()
            assert problems(await house.facts(), house.accepted, all_done=False) == []
            sent = house.accepted
    async with open_house(tmp_path) as last:
        await check(last, sent)
