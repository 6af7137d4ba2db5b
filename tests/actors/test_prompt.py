"""A prompt is answered once, whole, or failed with the fix (F23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from actors.house import Bounds
from actors.messages.commands import Prompt, Turn
from actors.rules.refusal import Refusal
from adapters.engine.fake import FakeEngine
from adapters.engine.port import Answer, Chat, EngineUnreachable, PromptRefused
from tests.support.houses import Disk, Household, deploy, open_house

if TYPE_CHECKING:
    from pathlib import Path

    from actors.state.keys import Key
    from adapters.runtime.fake import FakeRuntime
    from adapters.runtime.port import Handle


async def test_an_answer_is_told_whole_with_its_counts(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        words = "äöü \u2028 " + "word " * 500
        receipt = await house.submit(
            key, Prompt(deployment, (Turn("system", "be brief"), Turn("user", words))), correlation="corr-p"
        )
        await house.completed(receipt.id)
        (fact,) = await house.facts(receipt.id)
    assert fact["type"] == "PromptAnswered"
    assert fact["correlationid"] == "corr-p"
    assert fact["data"]["content"] == words
    assert fact["data"]["model"] == "small"
    assert fact["data"]["prompt_tokens"] == 503
    assert fact["data"]["completion_tokens"] == 501
    assert fact["data"]["finish_reason"] == "stop"


async def test_the_engine_is_asked_what_was_sent(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        turns = (Turn("system", "s"), Turn("user", "u"), Turn("assistant", "a"), Turn("user", "again"))
        command = await house.send(
            key, Prompt(deployment, turns, max_tokens=3, temperature=0.5, stop=("END",))
        )
        await house.completed(command)
        chat = house.engine.asked[-1]
    assert [(m.role, m.content) for m in chat.messages] == [(t.role, t.content) for t in turns]
    assert (chat.max_tokens, chat.temperature, chat.stop) == (3, 0.5, ("END",))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (PromptRefused("too long", fix="shorter"), "PROMPT_REFUSED"),
        (EngineUnreachable("no answer", fix="again"), "ENGINE_UNREACHABLE"),
    ],
)
async def test_an_engine_that_will_not_answer_fails_the_prompt_with_the_fix(
    tmp_path: Path, fault: PromptRefused, code: str
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        house.engine.fail_next_answer(fault)
        command = await house.prompt(key, deployment)
        await house.completed(command)
        (fact,) = await house.facts(command)
        assert fact["type"] == "PromptFailed"
        assert (fact["data"]["code"], fact["data"]["fix"]) == (code, fault.fix)
        # It costs the deployment nothing.
        again = await house.prompt(key, deployment)
        await house.completed(again)
        assert await house.types(again) == ["PromptAnswered"]
        await house.check()


async def test_a_prompt_that_is_not_answered_in_time_fails_and_gives_its_turn_back(tmp_path: Path) -> None:
    async with open_house(tmp_path, bounds=Bounds(prompt=0.02)) as house:
        key = await house.key()
        deployment = await house.ready(key)
        thinking = house.engine.hold_answers()
        commands = [await house.prompt(key, deployment) for _ in range(20)]
        await house.completed(*commands)
        assert {t for c in commands for t in await house.types(c)} == {"PromptFailed"}
        codes = {(await house.facts(c))[0]["data"]["code"] for c in commands}
        assert codes == {"PROMPT_TIMEOUT"}
        thinking.set()
        again = await house.prompt(key, deployment)
        await house.completed(again)
        assert await house.types(again) == ["PromptAnswered"]
        await house.check()


class OneByOne(FakeEngine):
    """Answers when told to, and says in which order it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, trio.Event] = {}

    async def answer(self, handle: Handle, chat: Chat) -> Answer:
        self.asked.append(chat)
        gate = self.gates.setdefault(chat.messages[0].content, trio.Event())
        await gate.wait()
        return Answer("yes", "small", "stop", 1, 1)


async def test_sixteen_are_asked_at_a_time_and_the_rest_in_the_order_of_acceptance(
    tmp_path: Path, disk: Disk
) -> None:
    """Tasks that start together run in no certain order; what was accepted first must not ask last."""
    engine = OneByOne()
    async with open_house(tmp_path, engines=lambda _: {"llamacpp": engine}) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(house.prompt, key, deployment, f"{number}")
                await trio.testing.wait_all_tasks_blocked()
            disk.release("accepted.jsonl")
        await house.until(lambda: len(engine.asked) == 16)
        assert {c.messages[0].content for c in engine.asked} == {str(n) for n in range(16)}
        for number in range(16, 30):
            engine.gates[engine.asked[number - 16].messages[0].content].set()
            await house.until(lambda n=number: len(engine.asked) > n)  # type: ignore[misc]
            assert engine.asked[-1].messages[0].content == str(number)
        for gate in engine.gates.values():
            gate.set()
        await house.check()


async def test_a_prompt_in_flight_fails_when_its_engine_dies(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        thinking = house.engine.hold_answers()
        commands = [await house.prompt(key, deployment) for _ in range(20)]
        await house.until(lambda: len(house.engine.asked) == 16)
        house.runtime.end(deployment, 139)
        thinking.set()
        await house.check()
        for command in commands:
            (fact,) = await house.facts(command)
            assert fact["type"] == "PromptFailed"
            assert fact["data"]["code"] in ("DEPLOYMENT_ENDED", "ENGINE_UNREACHABLE")
            assert fact["data"]["fix"]


async def test_a_prompt_in_flight_fails_when_its_deployment_is_undeployed(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        thinking = house.engine.hold_answers()
        commands = [await house.prompt(key, deployment) for _ in range(18)]
        await house.until(lambda: len(house.engine.asked) == 16)
        undeploy = await house.undeploy(key, deployment)
        await house.completed(undeploy)
        thinking.set()
        await house.check()
        for command in commands:
            (fact,) = await house.facts(command)
            assert (fact["type"], fact["data"]["code"]) == ("PromptFailed", "DEPLOYMENT_ENDED")


async def test_a_prompt_is_refused_at_ingest_where_it_could_not_be_answered(tmp_path: Path) -> None:
    async with open_house(tmp_path, prepare=hold) as house:
        key, other = await house.key(), await house.key("other")
        await house.send(key, deploy())
        await house.told("WeightsLoading")
        (deployment,) = house.store.world.deployments
        assert await code(house, key, deployment) == "DEPLOYMENT_NOT_READY"
        assert await code(house, other, deployment) == "UNKNOWN_DEPLOYMENT"
        assert await code(house, key, "dep-of-nobody") == "UNKNOWN_DEPLOYMENT"
        assert house.engine._loading is not None
        house.engine._loading.set()
        await house.told("DeploymentReady")
        assert await code(house, other, deployment) == "UNKNOWN_DEPLOYMENT"
        house.runtime.make_stubborn(deployment)
        await house.undeploy(key, deployment)
        assert await code(house, key, deployment) == "DEPLOYMENT_ENDING"
        house.runtime.end(deployment, 0)
        await house.check()


def hold(runtime: FakeRuntime, engine: FakeEngine) -> None:
    engine.hold_loads()


async def code(house: Household, key: Key, deployment: str) -> str:
    with pytest.raises(Refusal) as refused:
        await house.prompt(key, deployment)
    return refused.value.code
