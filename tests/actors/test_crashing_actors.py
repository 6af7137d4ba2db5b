"""Actors that crash at any call to the outside, once or always: rebuilt, or given up with a told fact.

Rule 6 of the house: a worker that raises is rebuilt from the fold and started again; past its budget its own
work ends with a told fact. Every accepted command completes once, and nothing is told twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from actors.house import Bounds
from actors.kernel.child import Backoff
from actors.messages.commands import RevokeAgent
from actors.revoker import NAME
from actors.rules.refusal import Refusal
from adapters.engine.fake import FakeEngine
from adapters.runtime.fake import FakeRuntime
from tests.support.breaks import Breaks, Bug, house_with
from tests.support.houses import Disk, Household, deploy, open_house

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def restarts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "seconds", lambda self, attempt: 0.001)


async def lead_a_life(house: Household) -> None:
    """A deploy, prompts, an undeploy, each sent as soon as it may be; refusals are no matter."""
    key = await house.key()
    try:
        command = await house.send(key, deploy())
    except Bug:
        return  # the sender is told that the peer failed over it; nothing was accepted
    await house.until(lambda: command not in house.store.world.unfinished)
    for deployment in tuple(house.store.world.deployments):
        try:
            for _ in range(2):
                await house.prompt(key, deployment)
            await house.undeploy(key, deployment)
        except Refusal:
            pass  # it ended meanwhile


async def calls_of_a_life(folder: Path) -> list[str]:
    breaks = Breaks()
    async with house_with(breaks, folder) as house:
        await lead_a_life(house)
        await house.check()
    return breaks.calls


async def test_a_life_makes_the_calls_that_are_broken_below(tmp_path: Path) -> None:
    calls = await calls_of_a_life(tmp_path)
    expected = "plan devices find program start make_ready wait answer stop discard"
    assert set(calls) >= set(expected.split())
    assert len(calls) < 40


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("at", range(24))
async def test_a_crash_at_any_one_call_loses_nothing_and_tells_nothing_twice(
    tmp_path: Path, at: int, *, after: bool
) -> None:
    breaks = Breaks(at=at, after=after)
    async with house_with(breaks, tmp_path) as house:
        await lead_a_life(house)
        await house.check()
        assert house.store.world.promised == {}
        assert house.store.world.deployments == {}


@pytest.mark.parametrize("phase", ["loading", "ready"])
@pytest.mark.parametrize(
    "method",
    ["find", "devices", "program", "start", "make_ready", "wait", "stop", "discard", "answer", "running"],
)
async def test_a_call_that_always_fails_ends_its_work_with_a_told_fact(
    tmp_path: Path, method: str, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Past its budget: every command completes, and what was reserved comes back."""
    caplog.set_level(logging.CRITICAL + 1)
    breaks = Breaks()
    async with house_with(breaks, tmp_path) as house:
        key = await house.key()
        if phase == "ready":
            deployment = await house.ready(key)
            breaks.always = method
            commands = [await house.prompt(key, deployment), await house.undeploy(key, deployment)]
        else:
            if method != "devices":  # the desk asks for those as well, and could not accept it
                breaks.always = method
            command, deployment = await house.deploying(key)
            breaks.always = method
            await house.completed(command)
            commands = [command]
            if deployment in house.store.world.deployments:
                commands.append(await house.undeploy(key, deployment))
        await house.completed(*commands)
        await house.until(lambda: not house.store.world.deployments)
        assert house.store.world.promised == {}
        assert house.store.world.holding(key.holder).deployments == set()
        breaks.always = None
        await house.until(lambda: not running(house.runtime))
        # What could not be removed at all is removed after the next start.
        await house.check(removed=method != "discard")


def running(runtime: FakeRuntime) -> list[str]:
    return [name for name in runtime._programs if runtime.is_running(name)]


@attrs.define(eq=False)
class Crashes(FakeEngine):
    """A probe that raises when told to."""

    bug: bool = False

    async def is_alive(self, handle: Any) -> bool:
        if self.bug:
            self.bug = False
            raise Bug("is_alive")
        return await super().is_alive(handle)


QUICK_PROBE = Bounds(probe=0.002)


async def test_an_undeploy_not_yet_durable_does_not_end_what_a_crash_rebuilds(
    tmp_path: Path, disk: Disk
) -> None:
    """The actor is rebuilt while an undeploy waits for the disk, which then has no room for it."""
    breaks, engine = Breaks(), Crashes()
    async with open_house(
        tmp_path, engines=lambda _: {"llamacpp": engine}, wrap_runtime=breaks.around, bounds=QUICK_PROBE
    ) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("accepted.jsonl")
        disk.full.add("accepted.jsonl")

        async def refused() -> None:
            with pytest.raises(Refusal):
                await house.undeploy(key, deployment)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await house.until(lambda: house.store.world.deployments[deployment].phase == "ending")
            engine.bug = True
            await house.until(lambda: house.house.addresses.get(deployment) is None)
            await trio.testing.wait_all_tasks_blocked(0.01)
            disk.release("accepted.jsonl")
        disk.full.clear()
        await house.until(lambda: house.house.addresses.get(deployment) is not None)
        assert "stop" not in breaks.calls
        await house.check()


async def test_a_prompt_in_flight_outlives_its_deployments_crash(tmp_path: Path) -> None:
    """The engine runs on: the one actor is rebuilt and adopts it, the other waits and is answered."""
    engine = Crashes()
    async with open_house(tmp_path, engines=lambda _: {"llamacpp": engine}, bounds=QUICK_PROBE) as house:
        key = await house.key()
        deployment = await house.ready(key)
        thinking = engine.hold_answers()
        first = await house.prompt(key, deployment)
        await house.until(lambda: len(engine.asked) == 1)
        engine.bug = True
        await house.until(lambda: not engine.bug)
        second = await house.prompt(key, deployment)
        thinking.set()
        await house.completed(first, second)
        assert await house.types(first) == await house.types(second) == ["PromptAnswered"]
        await house.check()


async def test_a_log_that_fails_restarts_everything_after_it(tmp_path: Path, disk: Disk) -> None:
    """Nobody knows what was stored: it is read again, and what is unfinished is taken up."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        thinking = house.engine.hold_answers()
        prompt = await house.prompt(key, deployment)
        await house.until(lambda: len(house.engine.asked) == 1)
        world = house.store.world
        disk.broken.append("events")
        house.runtime.end(deployment, 1)
        await house.until(lambda: house.store.world is not world)
        thinking.set()
        await house.until(lambda: len(house.house.workers) > 0)
        await house.completed(prompt)
        await house.check()
        assert (await house.types()).count("DeploymentEnded") == 1


async def test_a_command_whose_write_failed_is_neither_lost_nor_run_twice(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        disk.broken.append("accepted.jsonl")
        with pytest.raises(Refusal) as refused:
            await house.send(key, deploy(), identifier="cmd-x")
        assert refused.value.code == "LOG_UNAVAILABLE"

        async def again() -> None:
            while True:
                try:
                    await house.send(key, deploy(), identifier="cmd-x")
                except Refusal:
                    await trio.sleep(0.005)
                else:
                    return

        with trio.fail_after(10):
            await again()
        await house.completed("cmd-x")
        await house.check()
        assert len(house.store.world.deployments) == 1


async def test_a_full_disk_ends_no_revoke(tmp_path: Path, disk: Disk) -> None:
    """The revoker outlives it, and writes down that the work has ended once there is room."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        await house.ready(key)
        await house.revoke(key)
        disk.full.add("keys.jsonl")
        await house.told("DeploymentEnded")
        await house.until(lambda: disk.refusals > 8)
        assert house.house.workers.get(NAME) is not None
        assert house.store.ring.ending() == (key.holder,)
        disk.full.clear()
        await house.until(lambda: not house.store.ring.ending())
        await house.check()


async def test_a_key_is_given_back_once_there_is_room_to_write_it_down(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        disk.full.add("keys.jsonl")
        command = await house.send(key, RevokeAgent())
        await house.until(lambda: not house.store.ring.all()[0].is_open(house.clock.now_ms()))
        assert await house.facts() == []
        disk.full.clear()
        await house.completed(command)
        await house.check()
        assert await house.types() == ["AgentRevoked"]


async def test_a_prompt_that_keeps_crashing_is_failed_and_gives_its_turn_back(tmp_path: Path) -> None:
    breaks = Breaks()
    async with house_with(breaks, tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        breaks.always = "answer"
        prompts = [await house.prompt(key, deployment) for _ in range(20)]
        await house.completed(*prompts)
        for prompt in prompts:
            (fact,) = await house.facts(prompt)
            assert (fact["type"], fact["data"]["code"]) == ("PromptFailed", "INTERNAL")
            assert fact["data"]["reason"].endswith(": Bug")
        breaks.always = None
        again = await house.prompt(key, deployment)
        await house.completed(again)
        assert await house.types(again) == ["PromptAnswered"]
        await house.check()


class DiesWhileItLoads(FakeEngine):
    """Its program ends, and so does the actor that watches it."""

    runtime: FakeRuntime

    async def make_ready(self, handle: Any, progress: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.runtime.end(handle.workload, 9, output="no more\n")
        raise Bug("make_ready")


async def test_an_end_that_the_actor_missed_is_told_by_its_code_all_the_same(tmp_path: Path) -> None:
    """The peer runs on, so it is not told to have restarted."""
    engine = DiesWhileItLoads()

    def prepare(runtime: FakeRuntime, _: FakeEngine) -> None:
        engine.runtime = runtime

    async with open_house(tmp_path, engines=lambda _: {"llamacpp": engine}, prepare=prepare) as house:
        command, _ = await house.deploying(await house.key())
        await house.completed(command)
        await house.check()
        fact = (await house.facts())[-1]
        assert (fact["type"], fact["data"]["exit_code"]) == ("DeploymentFailed", 9)
        assert fact["data"]["code"] != "INTERRUPTED"
        assert "no more" in fact["data"]["reason"]
