"""What a test can have the fake runtime do."""

import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Exit, StartFailed
from tests.support.puppeteer import puppet


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
