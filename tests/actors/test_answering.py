"""Whether what runs programs answers, as the owner is told."""

from pathlib import Path

import trio
import trio.testing

from actors.answering import LOOK_SECONDS, runtime_report
from actors.house import House
from actors.kernel.workers import Workers
from actors.messages.envelope import EnvelopeEncoder
from actors.store import Store
from adapters.clock.fake import FakeClock
from adapters.engine.fake import FakeEngine
from adapters.gpu.fake import FakeGpu
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import RuntimeUnavailable


class Away(FakeRuntime):
    """Says that it is away."""

    async def running(self) -> tuple[str, ...]:
        raise RuntimeUnavailable("it does not answer")


class Hung(FakeRuntime):
    """Takes the question and never answers."""

    async def running(self) -> tuple[str, ...]:
        await trio.sleep_forever()
        raise AssertionError


def house_of(folder: Path, runtime: FakeRuntime) -> House:
    """A house that is not even started: a look only asks."""
    clock = FakeClock()
    store = Store(folder, EnvelopeEncoder("urn:test", {}), clock)
    engines = {"llamacpp": FakeEngine()}
    return House(store=store, workers=Workers(), clock=clock, runtime=runtime, engines=engines, gpu=FakeGpu())


async def test_one_that_answers_is_told_as_such(tmp_path: Path) -> None:
    assert await runtime_report(house_of(tmp_path, FakeRuntime(tmp_path))) == {
        "name": "fake",
        "answers": True,
    }


async def test_one_that_is_away_does_not_answer(tmp_path: Path) -> None:
    assert (await runtime_report(house_of(tmp_path, Away(tmp_path))))["answers"] is False


async def test_one_that_hangs_is_not_waited_for(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    begun = trio.current_time()
    assert (await runtime_report(house_of(tmp_path, Hung(tmp_path))))["answers"] is False
    assert trio.current_time() - begun == LOOK_SECONDS
