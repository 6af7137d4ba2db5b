"""What a test can have the fake runtime do."""

import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import (
    Container,
    EngineEvent,
    Exit,
    NotEnded,
    RuntimeUnavailable,
    StartFailed,
    WorkloadSpec,
)
from adapters.runtime.pretence import UNREAD_EVENTS, obeys
from tests.support.puppeteer import puppet


def job(*command: str) -> WorkloadSpec:
    return WorkloadSpec("job-1", "h-1", Container("registry.test/tool@sha256:1", command))


async def test_a_start_fails_as_often_as_it_was_told() -> None:
    runtime = FakeRuntime()
    runtime.fail_next_start(StartFailed("no", fix="mend"))

    with pytest.raises(StartFailed):
        await runtime.start(puppet())
    assert runtime.starts == []

    await runtime.start(puppet())
    assert [spec.workload for spec in runtime.starts] == ["dep-1"]


async def test_a_start_waits_until_it_is_let_go(nursery: trio.Nursery) -> None:
    runtime = FakeRuntime()
    gate = runtime.hold_starts()
    nursery.start_soon(runtime.start, puppet())
    await trio.testing.wait_all_tasks_blocked()
    assert await runtime.running() == ()

    gate.set()
    await trio.testing.wait_all_tasks_blocked()

    assert await runtime.running() == ("dep-1",)


async def test_an_end_may_be_for_want_of_memory() -> None:
    runtime = FakeRuntime()
    await runtime.start(puppet())

    runtime.end("dep-1", 137, output="loading\n", out_of_memory=True)

    assert await runtime.wait("dep-1") == Exit(137, ("loading",), out_of_memory=True)
    assert not runtime.is_running("dep-1")
    with pytest.raises(LookupError):
        runtime.end("dep-1", 0)


async def test_a_stubborn_program_that_ends_within_its_grace_is_not_killed(nursery: trio.Nursery) -> None:
    runtime = FakeRuntime()
    await runtime.start(puppet())
    runtime.make_stubborn("dep-1")

    async def stop() -> None:
        await runtime.stop("dep-1", grace_seconds=60)

    nursery.start_soon(stop)
    await trio.testing.wait_all_tasks_blocked()
    runtime.end("dep-1", 5)

    assert (await runtime.wait("dep-1")).code == 5


async def test_what_is_kept_for_a_restart_is_the_owners_alone(tmp_path: Path) -> None:
    await FakeRuntime(tmp_path).start(puppet())

    (kept,) = (tmp_path / "workloads").iterdir()

    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert FakeRuntime(tmp_path).is_running("dep-1")


async def test_ports_stay_apart_across_a_restart(tmp_path: Path) -> None:
    before = await FakeRuntime(tmp_path).start(puppet("dep-1"))
    after = await FakeRuntime(tmp_path).start(puppet("dep-2"))

    assert before.base_url != after.base_url


async def test_a_job_is_called_by_nobody_and_ends_when_it_is_told() -> None:
    runtime = FakeRuntime()
    handle = await runtime.start(job("train"))
    assert handle.base_url == ""

    runtime.end("job-1", 2, output="done\n", ended_at="2026-10-19T08:00:00.000Z")

    assert await runtime.wait("job-1") == Exit(2, ("done",), ended_at="2026-10-19T08:00:00.000Z")


@pytest.mark.parametrize(
    ("command", "end"),
    [
        (("echo", "hello"), Exit(0, ("echo hello",))),
        ((), Exit(0, ("registry.test/tool@sha256:1",))),
        (("exit", "3"), Exit(3, ("exit 3",))),
        (("exit", "300"), Exit(0, ("exit 300",))),
        (("oom",), Exit(137, ("oom",), out_of_memory=True)),
        (("sleep", "600"), Exit(0, ("sleep 600",))),
    ],
)
async def test_a_job_does_as_its_command_says(
    command: tuple[str, ...], end: Exit, autojump_clock: trio.testing.MockClock
) -> None:
    runtime = FakeRuntime(scripts=obeys)

    await runtime.start(job(*command))

    assert runtime.is_running("job-1") == (command[:1] == ("sleep",))
    assert await runtime.wait("job-1") == end


async def test_what_is_called_runs_until_it_is_stopped_whatever_its_command_is() -> None:
    runtime = FakeRuntime(scripts=obeys)

    await runtime.start(puppet())
    await runtime.start(WorkloadSpec("dep-2", "h-1", Container("i", ("exit", "1"), port=80)))

    assert await runtime.running() == ("dep-1", "dep-2")


async def test_the_end_of_a_container_is_known_across_a_restart_until_it_is_discarded(
    tmp_path: Path,
) -> None:
    await FakeRuntime(tmp_path).start(job("train"))
    FakeRuntime(tmp_path).end("job-1", 3, output="words\n")

    after = FakeRuntime(tmp_path)
    assert await after.wait("job-1") == Exit(3, ("words",))
    assert await after.running() == ()
    await after.discard("job-1")

    assert await FakeRuntime(tmp_path).wait("job-1") == Exit(None)


async def test_an_engine_that_is_away_says_nothing_of_what_goes_on(nursery: trio.Nursery) -> None:
    runtime = FakeRuntime()
    await runtime.start(job("train"))
    ends: list[Exit] = []

    async def wait() -> None:
        ends.append(await runtime.wait("job-1"))

    nursery.start_soon(wait)
    async with runtime.events() as events:
        come_back = runtime.go_away()
        with pytest.raises(RuntimeUnavailable):
            await anext(events)
    runtime.end("job-1", 4)
    for look in (runtime.find, runtime.processes, runtime.discard):
        with pytest.raises(RuntimeUnavailable):
            await look("job-1")
    with pytest.raises(RuntimeUnavailable):
        await runtime.running()
    with pytest.raises(StartFailed) as failed:
        await runtime.start(puppet())
    assert failed.value.code == "RUNTIME_UNAVAILABLE"
    with pytest.raises(NotEnded):
        await runtime.stop("job-1", grace_seconds=1)
    await trio.testing.wait_all_tasks_blocked()
    assert ends == []

    come_back()
    await trio.testing.wait_all_tasks_blocked()

    assert ends == [Exit(4)]


async def test_who_does_not_read_what_the_engine_does_has_to_look_for_himself() -> None:
    runtime = FakeRuntime()
    async with runtime.events() as events:
        for _ in range(UNREAD_EVENTS + 1):
            runtime.lose_process("job-1")

        for _ in range(UNREAD_EVENTS):
            assert await anext(events) == EngineEvent("job-1", "oom")
        with pytest.raises(RuntimeUnavailable):
            await anext(events)


async def test_a_fake_program_is_no_process_of_the_host_unless_it_is_said_to_be_one() -> None:
    runtime = FakeRuntime()
    await runtime.start(job("train"))
    (pid,) = await runtime.processes("job-1")
    assert pid > 1 << 22

    runtime.set_processes("job-1", frozenset({7, 8}))

    assert await runtime.processes("job-1") == {7, 8}
    runtime.end("job-1", 0)
    assert await runtime.processes("job-1") == frozenset()
