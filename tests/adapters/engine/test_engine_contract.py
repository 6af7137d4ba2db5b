"""What every engine promises, kept by all of them: on the real llama.cpp, on stand-ins, and by the fake."""

import pytest
import trio
import trio.testing

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
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import API_KEY, Container, Executable, Exit
from tests.support.serving import MIB, Served

ENGINES = ("llamacpp", "ollama", "vllm", "fake")
LISTING = ("llamacpp", "fake")
"""Those that serve what is there; the others fetch what is named."""
FETCHING = ("ollama", "vllm")
KEYED = ("llamacpp", "vllm", "fake")
"""Those that ask whoever calls for a key."""


@pytest.fixture(params=ENGINES)
async def served(request: pytest.FixtureRequest, llamacpp: Served, ollama: Served, vllm: Served) -> Served:
    if request.param != "fake":
        return {"llamacpp": llamacpp, "ollama": ollama, "vllm": vllm}[request.param]
    held = await llamacpp.engine.models() or ()
    runtime = FakeRuntime()
    return Served(FakeEngine(lives=runtime.is_running, held=held), runtime)


def says(*words: str) -> Chat:
    return Chat(tuple(Message("user", word) for word in words), max_tokens=4)


@pytest.mark.parametrize("served", LISTING, indirect=True)
async def test_what_can_be_deployed_is_listed(served: Served) -> None:
    (model,) = await served.engine.models() or ()

    assert model.name == "tiny"
    assert model.context_tokens == 512
    assert model.architecture == "llama"
    assert 0 < model.least_memory_bytes < 100 * MIB


@pytest.mark.parametrize("served", FETCHING, indirect=True)
async def test_one_that_fetches_what_is_named_lists_nothing(served: Served) -> None:
    assert await served.engine.models() is None


async def test_a_plan_keeps_to_the_promise_and_names_its_model(served: Served) -> None:
    plan = await served.plan()

    assert plan.model == served.model
    assert plan.memory_bytes == served.memory_bytes
    assert plan.slots >= 1
    assert plan.context_tokens is None or plan.context_tokens > 0
    assert ("model", served.model) in plan.detail


@pytest.mark.parametrize("served", LISTING, indirect=True)
async def test_a_model_that_is_not_there_is_refused_by_name(served: Served) -> None:
    with pytest.raises(ModelNotFound, match="no model large"):
        await served.plan("large")


@pytest.mark.parametrize("name", ["", "../etc/passwd", "/etc/passwd", "--help", "a b", "x" * 1000, "a//b"])
async def test_what_is_no_name_of_a_model_is_refused(served: Served, name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        await served.plan(name)
    assert len(caught.value.reason) < 400


async def test_a_promise_too_small_says_what_would_do(served: Served) -> None:
    with pytest.raises(PromiseTooSmall) as caught:
        await served.plan(memory_bytes=1000)

    assert str(caught.value.least_bytes) in caught.value.fix
    assert (await served.plan(memory_bytes=caught.value.least_bytes)).slots >= 1


@pytest.mark.parametrize("served", KEYED, indirect=True)
async def test_every_program_gets_a_key_of_its_own_outside_its_arguments(served: Served) -> None:
    plan, image = await served.plan(), served.engine.image(served.device)
    keys = set()
    for workload in ("dep-1", "dep-2"):
        program = served.engine.program(plan, served.device, workload=workload, image=image)
        if isinstance(program, Container):
            assert program.secret is not None
            key, said = program.secret[1], [*(program.command or ()), *program.environment.values()]
        else:
            key, said = program.secret_files[API_KEY], [*program.argv, *program.environment.values()]
            assert f"{{secret:{API_KEY}}}" in said
            assert "{port}" in said
        assert len(key) >= 43
        assert not any(key in part for part in said)
        assert key not in repr(program) or isinstance(program, Executable)
        keys.add(key)
    assert len(keys) == 2


async def test_a_ready_model_answers_and_counts(served: Served) -> None:
    told: list[int | None] = []
    handle = await served.start(await served.plan())

    with trio.fail_after(60):
        ready = await served.engine.make_ready(handle, told.append)
    answer = await served.engine.answer(handle, says("one two three four five six"))

    assert ready.context_tokens in (512, 4096)
    assert told[0] is None
    assert answer.model == served.model
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

    with pytest.raises(PromptRefused, match=r"too long: .*room for") as caught:
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
    assert (await served.engine.answer(found, says("again"))).model == served.model


async def test_an_end_nobody_asked_for_is_a_failure_whatever_its_code(served: Served) -> None:
    for ended in (Exit(0), Exit(1, ("why",)), Exit(None), Exit(137, out_of_memory=True)):
        fault = served.engine.explain(ended)
        assert isinstance(fault, EngineFault)
        assert fault.reason
        assert fault.fix
