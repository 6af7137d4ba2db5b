"""vLLM as it is set, loaded, asked and ended: on the stand-in, whose words are those of the real one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from adapters.engine import vllm as module
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import (
    Chat,
    EngineEnded,
    EngineFault,
    EngineOutOfMemory,
    EngineUnreachable,
    Message,
    ModelNotFound,
    ModelNotPulled,
    ModelTooLarge,
    ModelUnusable,
    PromiseTooLarge,
    PromptRefused,
)
from adapters.engine.vllm import IMAGE, Vllm, computed, share_of
from adapters.engine.vllm_words import explain_vllm
from adapters.gpu.fake import cuda_device
from adapters.runtime.port import Container, Exit, Handle, WorkloadSpec
from tests.standins.local import VLLM, LocalRuntime
from tests.standins.vllm_server import ENDS
from tests.support.serving import GIB, Served

HELLO = Chat((Message("user", "hello"),), max_tokens=4)


@pytest.fixture
async def chat() -> AsyncIterator[OpenAiChat]:
    async with OpenAiChat() as made:
        yield made


def say(hub: Path, model: str, **how: Any) -> None:
    (hub / "script.json").write_text(json.dumps({model: how}))


async def world(served: Served, handle: Handle, **does: Any) -> None:
    assert isinstance(served.engine, Vllm)
    await served.engine.chat.http.ask(handle.base_url, "POST", "/standin", does)


async def program(chat: OpenAiChat, promised: int = 12 * GIB) -> Container:
    engine = Vllm(chat)
    return engine.program(
        await engine.plan("org/model", promised), cuda_device(), workload="dep-1", image="pulled@sha256:0"
    )


async def test_the_image_is_pinned_or_the_owners(chat: OpenAiChat) -> None:
    assert Vllm(chat).image(cuda_device()) == IMAGE
    assert Vllm(chat, "mirror.example/vllm").image(cuda_device()) == "mirror.example/vllm"
    assert (await program(chat)).image == "pulled@sha256:0"


async def test_the_command_line_is_the_documented_one_and_says_no_key(chat: OpenAiChat) -> None:
    made = await program(chat)
    assert made.command is not None
    options = dict(zip(made.command[::2], made.command[1::2], strict=True))

    assert options["--model"] == options["--served-model-name"] == "org/model"
    assert (options["--host"], options["--port"], made.port) == ("0.0.0.0", "8000", 8000)
    assert options["--gpu-memory-utilization"] == "0.4427"
    assert options["--max-model-len"] == "auto"
    assert made.secret is not None
    assert made.secret[0] == "VLLM_API_KEY"
    assert made.shared_memory_bytes == GIB
    assert "sleep" not in " ".join(made.command)


async def test_nothing_is_reported_and_nobody_puts_it_to_sleep(chat: OpenAiChat) -> None:
    environment = (await program(chat)).environment

    assert environment["VLLM_SERVER_DEV_MODE"] == "0"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["DO_NOT_TRACK"] == "1"


@pytest.mark.parametrize(
    ("promised", "total", "share"),
    [
        (24 * GIB, 24 * GIB, "0.9270"),
        (80 * GIB, 80 * GIB, "0.9562"),
        (2 * GIB, 24 * GIB, "0.0390"),
        # Never up: a hair less than was promised, not a hair more.
        (10 * GIB, 79 * GIB + 12345, "0.1099"),
    ],
)
def test_a_promise_is_a_share_of_the_card_less_a_margin(promised: int, total: int, share: str) -> None:
    found = share_of(promised, cuda_device(memory_bytes=total))

    assert found == share
    assert float(found) * total <= promised - GIB


def test_more_than_the_card_has_is_refused() -> None:
    with pytest.raises(PromiseTooLarge, match="gpu-0"):
        share_of(25 * GIB, cuda_device())


@pytest.mark.parametrize("name", ["org/../model", "s3://bucket/model", "a/b/c", ".hidden", "org/-x", "org/"])
async def test_only_names_of_the_hub_are_taken(chat: OpenAiChat, name: str) -> None:
    with pytest.raises(ModelNotFound, match="no name of a model"):
        await Vllm(chat).plan(name, 12 * GIB)
    assert (await Vllm(chat).plan("gpt2", 12 * GIB)).model == "gpt2"


async def test_it_is_ready_with_the_context_it_serves(vllm: Served) -> None:
    told: list[int | None] = []
    handle = await vllm.start(await vllm.plan())
    with trio.fail_after(60):
        ready = await vllm.engine.make_ready(handle, told.append)

    assert (ready.context_tokens, ready.note) == (512, None)
    assert told == [None], "it tells nobody how far it is"


async def test_without_its_key_nobody_is_answered(vllm: Served) -> None:
    handle = await vllm.ready()

    with pytest.raises(EngineUnreachable, match="does not take this peer's key"):
        await vllm.engine.answer(attrs.evolve(handle, secret="other"), HELLO)
    assert (await vllm.engine.answer(handle, HELLO)).completion_tokens == 4


async def test_too_long_is_told_with_both_figures(vllm: Served) -> None:
    handle = await vllm.ready()

    with pytest.raises(PromptRefused, match=r"it has 513 tokens and there is room for 512"):
        await vllm.engine.answer(handle, Chat((Message("user", "x" * 2000),)))


async def test_a_model_for_no_conversation_is_refused_at_its_first_answer(vllm: Served, hub: Path) -> None:
    say(hub, "tiny/chat", is_embedding=True)
    handle = await vllm.start(await vllm.plan())

    with trio.fail_after(60), pytest.raises(ModelUnusable, match="does not support Chat"):
        await vllm.engine.make_ready(handle, lambda percent: None)


async def test_one_that_hangs_is_found_though_its_health_is_well(
    vllm: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await vllm.ready()
    assert await vllm.engine.is_alive(handle)
    await world(vllm, handle, hang=True)
    monkeypatch.setattr(module, "TOKEN_SECONDS", 0.5)

    assert not await vllm.engine.is_alive(handle)


async def test_one_that_computes_for_others_lives_though_it_answers_late(
    vllm: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await vllm.ready()
    await world(vllm, handle, hang=True)
    monkeypatch.setattr(module, "TOKEN_SECONDS", 2.0)
    alive: list[bool] = []

    async with trio.open_nursery() as nursery:

        async def probe() -> None:
            alive.append(await vllm.engine.is_alive(handle))

        nursery.start_soon(probe)
        while not alive:
            await world(vllm, handle, compute=10)

    assert alive == [True]


async def test_a_worker_that_is_killed_ends_it_with_0_and_that_is_a_failure(vllm: Served) -> None:
    handle = await vllm.ready()
    await world(vllm, handle, kill_worker=True)
    with trio.fail_after(30):
        ended = await vllm.runtime.wait("dep-1")

    assert ended.code == 0
    fault = vllm.engine.explain(ended)
    assert isinstance(fault, EngineEnded)
    assert "one of its processes was lost" in fault.reason
    assert not await vllm.engine.is_alive(handle)


async def test_a_card_with_less_free_than_was_promised_is_said(vllm: Served) -> None:
    assert isinstance(vllm.runtime, LocalRuntime)
    vllm.runtime.more["STANDIN_CARD_FREE"] = str(2 * GIB)
    await vllm.start(await vllm.plan())
    with trio.fail_after(30):
        ended = await vllm.runtime.wait("dep-1")

    assert ended.code == 1
    assert "desired GPU memory utilization" not in " ".join(ended.output), "it stands well above"
    fault = vllm.engine.explain(with_all_lines(ended, vllm))
    assert isinstance(fault, EngineOutOfMemory)
    assert "less free memory than was promised" in fault.reason


def with_all_lines(ended: Exit, served: Served) -> Exit:
    """As a runtime that keeps what stood before the last lines tells it; this one does not."""
    assert isinstance(served.runtime, LocalRuntime)
    written = served.runtime.data / "workloads" / "dep-1"
    lines = [
        line for path in written.glob("output*") for line in path.read_text(errors="replace").splitlines()
    ]
    return attrs.evolve(ended, before=tuple(lines))


@pytest.mark.parametrize(
    ("end", "fault", "said"),
    [
        ("missing", ModelNotFound, "no such model"),
        ("gated", ModelNotFound, "does not show this model"),
        ("unreachable", ModelNotPulled, "could not be fetched"),
        ("full-disk", ModelNotPulled, "no room"),
        ("old-driver", EngineEnded, "newer driver"),
        ("no-card", EngineEnded, "sees no card"),
        ("no-memory", EngineOutOfMemory, "no more memory"),
        ("no-cache", ModelTooLarge, "more memory than it was promised"),
        ("broken", ModelUnusable, "broken or incomplete"),
        ("unsupported", ModelUnusable, "does not serve the model"),
    ],
)
def test_an_end_while_it_loads_means_what_its_words_say(
    end: str, fault: type[EngineFault], said: str
) -> None:
    cause = ENDS[end].format(model="org/model")
    last = ("Traceback", "RuntimeError: Engine core initialization failed. See root cause above.")

    for ended in (Exit(1, (cause, *last)), Exit(1, last, before=("INFO", cause, "Traceback"))):
        found = explain_vllm(ended)
        assert type(found) is fault
        assert said in found.reason
        assert cause[:40] in found.reason
        assert found.fix


@pytest.mark.parametrize(
    ("ended", "fault", "said"),
    [
        (Exit(2, ("vllm serve: error: unrecognized arguments: --max-model-len",)), EngineEnded, "an option"),
        (Exit(1, ("nvidia-container-cli: unsatisfied condition: cuda>=12.9",)), EngineEnded, "newer driver"),
        (Exit(137, out_of_memory=True), EngineOutOfMemory, "no more memory"),
        (Exit(0, lost_process=True), EngineEnded, "processes was lost"),
        (Exit(1, ("who knows",)), EngineEnded, "code 1; it said last: who knows"),
        (Exit(None), EngineEnded, "not known"),
    ],
)
def test_an_end_means_what_its_code_says_where_its_words_do_not(
    ended: Exit, fault: type[EngineFault], said: str
) -> None:
    found = explain_vllm(ended)

    assert type(found) is fault
    assert said in found.reason


def test_tokens_are_counted_over_all_that_counts_them() -> None:
    page = (
        b"# HELP vllm:prompt_tokens_total x\n"
        b'vllm:prompt_tokens_total{engine="0"} 12.0\n'
        b'vllm:generation_tokens_total{engine="0"} 30\n'
        b'vllm:generation_tokens_total{engine="1"} nonsense\n'
        b"vllm:num_requests_running 7\n"
    )
    assert computed(page) == 42
    assert computed(b"nothing\xff") is None


async def test_the_stand_in_takes_only_what_vllm_documents(vllm: Served) -> None:
    made = vllm.engine.program(await vllm.plan(), vllm.device, workload="dep-1", image=VLLM)
    assert isinstance(made, Container)
    odd = attrs.evolve(made, command=(*(made.command or ()), "--turbo"))
    await vllm.runtime.start(WorkloadSpec("dep-1", "h-1", odd))
    with trio.fail_after(30):
        ended = await vllm.runtime.wait("dep-1")

    assert ended.code == 2
    assert "an option" in explain_vllm(ended).reason
