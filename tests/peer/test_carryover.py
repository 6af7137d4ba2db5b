"""What the log tells of work over a restart: what runs on, what is found again and what is not (F37)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from adapters.runtime.fake import FakeRuntime
from adapters.runtime.pretence import runs_on
from peer.carryover import NAME, Carried, found_words, left_words
from tests.support.houses import open_house
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Agent

LOG = "best_peer.peer"


async def looked(door: OpenDoor, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said of workloads that were found again, once that was looked for."""
    worker = door.peer.house.workers.get(NAME)
    if worker is not None:
        with trio.fail_after(10):
            await worker.wait_ended()
    return [record.getMessage() for record in caplog.records if "found again" in record.getMessage()]


async def run(door: OpenDoor, agent: Agent) -> str:
    """A job that runs until it is told to end."""
    door.runtime.scripts = runs_on
    started = await agent.wait_for("JobStarted", await agent.command("RunJob", {"image": "busybox"}))
    job: str = started["data"]["job"]
    return job


@pytest.mark.parametrize(
    ("carried", "words"),
    [
        (Carried(), "nothing runs on"),
        (Carried(frozenset("a")), "1 deployment runs on, and the next start finds it again"),
        (
            Carried(frozenset("ab"), frozenset("c")),
            "2 deployments and 1 job run on, and the next start finds them again",
        ),
        (
            Carried(ending=1, commands=2),
            (
                "nothing runs on; 1 workload is being ended, and the next start goes on with that; "
                "2 commands are not done, and the next start goes on with that"
            ),
        ),
    ],
)
def test_what_is_left_is_told_in_words(carried: Carried, words: str) -> None:
    assert left_words(carried) == words


def test_what_is_found_is_told_in_words_and_what_is_not_by_name_up_to_a_bound() -> None:
    gone = [f"dep-{number}" for number in range(7)]
    carried = Carried(frozenset([*gone, "dep-a"]), frozenset(["job-b"]), ending=2, commands=1)
    assert found_words(carried, ["dep-a", "job-b", "dep-of-nobody"]) == (
        "found again from before this start: 1 deployment and 1 job; ended meanwhile: dep-0, dep-1, dep-2, "
        "dep-3, dep-4 and 2 more (best-peer events says how); 2 workloads are being ended; "
        "1 command is gone on with"
    )
    assert found_words(Carried(frozenset(gone[:1])), ()) == (
        "found again from before this start: nothing; ended meanwhile: dep-0 (best-peer events says how)"
    )


async def test_only_what_was_started_runs_on_and_the_rest_is_gone_on_with(tmp_path: Path) -> None:
    def hold_starts(runtime: FakeRuntime, engine: object) -> None:
        runtime.hold_starts()

    async with open_house(tmp_path, prepare=hold_starts) as house:
        key = await house.key()
        _, held = await house.deploying(key)
        assert Carried.of(house.store.world) == Carried(commands=1)
        assert held in house.store.world.deployments


async def test_what_is_being_ended_is_not_said_to_run_on(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        job = await house.running(key)
        assert Carried.of(house.store.world) == Carried(frozenset([deployment]), frozenset([job]))
        come_back = house.runtime.go_away()
        undeploy = await house.undeploy(key, deployment)
        assert Carried.of(house.store.world) == Carried(jobs=frozenset([job]), ending=1)
        come_back()
        await house.completed(undeploy)
        assert Carried.of(house.store.world) == Carried(jobs=frozenset([job]))


async def test_a_restart_says_what_it_found_again_and_what_it_did_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)
    async with open_door(tmp_path) as door:
        assert await looked(door, caplog) == [], "nothing was there before"
        agent = await door.sign_in()
        deployments = [await door.deploy(agent), await door.deploy(agent)]
        job = await run(door, agent)
        data = door.peer.folder.path
    FakeRuntime(data).end(deployments[1], 1)
    async with open_door(tmp_path) as again:
        (said,) = await looked(again, caplog)
        assert said == (
            "found again from before this start: 1 deployment and 1 job; "
            f"ended meanwhile: {deployments[1]} (best-peer events says how)"
        )
        assert {deployments[0], job} == set(await again.runtime.running())
