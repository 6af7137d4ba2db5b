"""What a test can have the fake engine do."""

import pytest
import trio
import trio.testing

from adapters.engine.fake import FakeEngine
from adapters.engine.port import (
    Chat,
    EngineName,
    EngineUnreachable,
    Message,
    ModelNotFound,
    ModelUnusable,
    PromptRefused,
)
from adapters.gpu.port import ApiName
from adapters.runtime.port import Handle

HANDLE = Handle("dep-1", "h-1", "http://127.0.0.1:20000", detail={"model": "any"})
MIB = 1024**2


def says(text: str) -> Chat:
    return Chat((Message("user", text),))


@pytest.mark.parametrize(
    ("name", "apis"),
    [("llamacpp", {"cpu"}), ("ollama", {"cuda", "rocm", "cpu"}), ("vllm", {"cuda"})],
)
async def test_it_stands_for_any_engine_and_serves_any_model(name: EngineName, apis: set[ApiName]) -> None:
    engine = FakeEngine(name=name)

    assert engine.name == name
    assert engine.apis == apis
    assert (await engine.plan("whatever:7b", MIB)).model == "whatever:7b"
    with pytest.raises(ModelNotFound):
        await engine.plan("", MIB)


async def test_it_says_again_what_it_was_asked_last() -> None:
    engine = FakeEngine()
    asked = Chat(
        (Message("user", "first"), Message("assistant", "yes"), Message("user", "and now stop here"))
    )

    answer = await engine.answer(HANDLE, asked)

    assert answer.content == "and now stop here"
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (6, 4, "stop")
    assert answer.model == "any"
    short = Chat(asked.messages, max_tokens=2)
    assert (await engine.answer(HANDLE, short)).content == "and now"
    stopped = Chat(asked.messages, stop=("stop",))
    assert (await engine.answer(HANDLE, stopped)).content == "and now "
    assert engine.asked == [asked, short, stopped]


async def test_it_fails_as_often_as_it_was_told() -> None:
    engine = FakeEngine()
    engine.fail_next_plan(ModelUnusable("broken", fix="mend"))
    engine.fail_next_load(EngineUnreachable("hangs", fix="wait"))
    engine.fail_next_answer(PromptRefused("no", fix="other words"))

    with pytest.raises(ModelUnusable):
        await engine.plan("any", MIB)
    with pytest.raises(EngineUnreachable):
        await engine.make_ready(HANDLE, lambda percent: None)
    with pytest.raises(PromptRefused):
        await engine.answer(HANDLE, says("hello"))

    await engine.plan("any", MIB)
    await engine.make_ready(HANDLE, lambda percent: None)
    await engine.answer(HANDLE, says("hello"))


async def test_it_waits_until_it_is_let_go(nursery: trio.Nursery) -> None:
    engine = FakeEngine()
    load, answer = engine.hold_loads(), engine.hold_answers()
    done: list[str] = []

    async def both() -> None:
        await engine.make_ready(HANDLE, lambda percent: None)
        done.append("ready")
        await engine.answer(HANDLE, says("hello"))
        done.append("answered")

    nursery.start_soon(both)
    await trio.testing.wait_all_tasks_blocked()
    assert done == []
    load.set()
    await trio.testing.wait_all_tasks_blocked()
    assert done == ["ready"]
    answer.set()
    await trio.testing.wait_all_tasks_blocked()
    assert done == ["ready", "answered"]


async def test_it_takes_the_time_it_was_told(autojump_clock: trio.testing.MockClock) -> None:
    engine = FakeEngine(ready_seconds=5, answer_seconds=3)
    before = trio.current_time()

    await engine.make_ready(HANDLE, lambda percent: None)
    await engine.answer(HANDLE, says("hello"))

    assert trio.current_time() - before == 8
