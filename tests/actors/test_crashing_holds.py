"""Holds whose teller crashes, and work whose actor is lost while a machine is taken back (F29)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors import holding
from actors.holding import Wanted, hold
from actors.job import JobActor
from actors.kernel.child import Backoff
from actors.rules.refusal import Refusal
from tests.support.breaks import Breaks, Bug
from tests.support.houses import HANG, Household, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from actors.messages.envelope import Fact

ACT = Wanted("hold-00000000000000000001", "cpu", ends_work=True)


@pytest.fixture(autouse=True)
def goes_on_at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    monkeypatch.setattr(holding, "PERIOD_SECONDS", 0.005)
    monkeypatch.setattr(Backoff, "seconds", lambda self, attempt: 0.001)


async def held(house: Household) -> list[Any]:
    return [fact for fact in await house.facts() if fact["type"] == "DeviceHeldV1"]


class Once:
    """Tells facts, and crashes the first time."""

    def __init__(self, tell: Any, *, after: bool) -> None:
        self._tell = tell
        self._after = after
        self.crashed = False

    async def __call__(self, *facts: Fact, **more: Any) -> None:
        is_first, self.crashed = not self.crashed, True
        if self._after or not is_first:
            await self._tell(*facts, **more)
        if is_first:
            raise Bug("tell")


async def test_an_act_whose_teller_crashes_first_is_refused_and_not_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        once = Once(house.store.events.tell, after=False)
        monkeypatch.setattr(house.store.events, "tell", once)
        with pytest.raises(Refusal, match="nothing is held"):
            await hold(house.house, ACT)
        assert once.crashed
        await house.running(await house.key())
        assert await held(house) == []


async def test_an_act_whose_teller_crashes_behind_its_fact_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        once = Once(house.store.events.tell, after=True)
        monkeypatch.setattr(house.store.events, "tell", once)
        assert [each.id for each in await hold(house.house, ACT)] == [ACT.id]
        assert once.crashed
        assert len(await held(house)) == 1


async def test_work_whose_actor_is_lost_is_asked_again_to_end_though_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks, lost = Breaks(), trio.Event()

    async def fail(actor: JobActor, crash: BaseException) -> None:
        breaks.always = None
        lost.set()
        raise Bug("give_up")

    monkeypatch.setattr(JobActor, "give_up", fail)
    async with open_house(tmp_path, wrap_runtime=breaks.around) as house:
        name = await house.running(await house.key())
        breaks.always = "stop"
        await hold(house.house, ACT)
        with trio.fail_after(HANG):
            await lost.wait()
        stopped = await house.told("JobStopped")
        assert (stopped["data"]["job"], stopped["data"]["reason"]) == (name, "held by its owner")
        await house.check()
