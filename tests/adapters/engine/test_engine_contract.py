"""What every engine promises, kept by llama.cpp and by the fake."""

from collections.abc import AsyncIterator

import pytest
import trio

from adapters.engine.fake import FakeEngine
from adapters.engine.port import (
    Chat,
    EngineFault,
    EngineUnreachable,
    Message,
    ModelNotFound,
    PromiseTooSmall,
    PromptRefused,
)
from adapters.gpu.fake import cpu_device
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import API_KEY, Executable, Exit
from tests.support.serving import MIB, Served


@pytest.fixture(params=["llamacpp", "fake"])
async def served(request: pytest.FixtureRequest, llamacpp: Served) -> AsyncIterator[Served]:
    if request.param == "llamacpp":
        yield llamacpp
        return
    runtime = FakeRuntime()
    held = await llamacpp.engine.models() or ()
    yield Served(FakeEngine(lives=runtime.is_running, held=held), runtime)


def says(*words: str) -> Chat:
    return Chat(tuple(Message("user", word) for word in words), max_tokens=4)


async def test_what_can_be_deployed_is_listed(served: Served) -> None:
    (model,) = await served.engine.models() or ()

    assert model.name == "tiny"
    assert model.context_tokens == 512
    assert model.architecture == "llama"
    assert 0 < model.least_memory_bytes < 100 * MIB


async def test_a_plan_keeps_to_the_promise_and_names_its_model(served: Served) -> None:
    plan = await served.engine.plan("tiny", 100 * MIB)

    assert plan.model == "tiny"
    assert plan.memory_bytes == 100 * MIB
    assert plan.slots >= 1
    assert plan.context_tokens is not None
    assert ("model", "tiny") in plan.detail


async def test_a_model_that_is_not_there_is_refused_by_name(served: Served) -> None:
    with pytest.raises(ModelNotFound, match="no model large"):
        await served.engine.plan("large", 100 * MIB)


async def test_a_promise_too_small_says_what_would_do(served: Served) -> None:
    with pytest.raises(PromiseTooSmall) as caught:
        await served.engine.plan("tiny", 1000)

    assert str(caught.value.least_bytes) in caught.value.fix
    assert (await served.engine.plan("tiny", caught.value.least_bytes)).slots >= 1


async def test_every_program_gets_a_key_of_its_own_outside_its_arguments(served: Served) -> None:
    plan = await served.engine.plan("tiny", 100 * MIB)
    one = served.engine.program(plan, cpu_device(), workload="dep-1")
    two = served.engine.program(plan, cpu_device(), workload="dep-2")

    assert isinstance(one, Executable)
    assert isinstance(two, Executable)
    keys = {one.secret_files[API_KEY], two.secret_files[API_KEY]}
    assert len(keys) == 2
    assert all(len(key) >= 43 for key in keys)
    assert not any(key in part for key in keys for part in (*one.argv, *one.environment.values()))
    assert f"{{secret:{API_KEY}}}" in one.argv
    assert "{port}" in one.argv


async def test_a_ready_model_answers_and_counts(served: Served) -> None:
    told: list[int | None] = []
    handle = await served.start(await served.engine.plan("tiny", 100 * MIB))

    with trio.fail_after(60):
        ready = await served.engine.make_ready(handle, told.append)
    answer = await served.engine.answer(handle, says("one two three four five six"))

    assert ready.context_tokens in (512, 4096)
    assert told[0] is None
    assert answer.model == "tiny"
    assert answer.finish_reason == "length"
    assert answer.prompt_tokens is not None
    assert answer.completion_tokens == 4
    assert answer.content
    assert await served.engine.is_alive(handle)


async def test_many_conversations_at_once_are_all_answered(served: Served) -> None:
    handle = await served.ready()
    answered = []

    async def ask(number: int) -> None:
        answered.append((await served.engine.answer(handle, says(f"a b c d e {number}"))).completion_tokens)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, number)

    assert answered == [4] * 20


async def test_a_conversation_too_long_is_refused_with_figures(served: Served) -> None:
    handle = await served.ready()

    with pytest.raises(PromptRefused, match=r"too long: .*tokens.*room for") as caught:
        await served.engine.answer(handle, says("x " * 5000))

    assert "shorter messages" in caught.value.fix
    assert "x x" not in str(caught.value)
    assert (await served.engine.answer(handle, says("still here"))).content


async def test_an_engine_that_ended_cannot_be_reached(served: Served) -> None:
    handle = await served.ready()
    await served.runtime.stop("dep-1", grace_seconds=0)

    with pytest.raises(EngineUnreachable, match="did not answer"):
        await served.engine.answer(handle, says("anyone?"))
    assert not await served.engine.is_alive(handle)


async def test_a_question_that_is_given_up_leaves_the_engine_well(served: Served) -> None:
    handle = await served.ready()
    for _ in range(50):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.engine.answer, handle, says("never mind"))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    with trio.fail_after(60):
        assert (await served.engine.answer(handle, says("still here"))).content


async def test_what_a_program_knew_comes_back_with_its_handle(served: Served) -> None:
    await served.ready()

    found = await served.runtime.find("dep-1")

    assert found is not None
    assert (await served.engine.answer(found, says("again"))).model == "tiny"


async def test_an_end_nobody_asked_for_is_a_failure_whatever_its_code(served: Served) -> None:
    for ended in (Exit(0), Exit(1, ("why",)), Exit(None), Exit(137, out_of_memory=True)):
        fault = served.engine.explain(ended)
        assert isinstance(fault, EngineFault)
        assert fault.reason
        assert fault.fix
