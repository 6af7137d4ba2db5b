"""Ollama as it is set, loaded, asked and ended: on the stand-in, whose words are those of the real one."""

import json
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from adapters.engine.json_http import JsonHttp
from adapters.engine.ollama import IMAGE, Ollama
from adapters.engine.ollama_words import explain_ollama
from adapters.engine.port import (
    Chat,
    EngineEnded,
    EngineFault,
    EngineMissing,
    EngineOutOfMemory,
    EngineUnreachable,
    Message,
    ModelNotFound,
    ModelNotPulled,
    ModelUnusable,
    PromiseTooLarge,
    PromiseTooSmall,
    PromptRefused,
)
from adapters.gpu.fake import cpu_device, cuda_device
from adapters.gpu.port import Api, Device
from adapters.models.ollama_store import OllamaStore
from adapters.runtime.port import Container, Executable, Exit, Handle, Mount
from tests.adapters.engine.conftest import script
from tests.standins.library import add_model, make_library, manifest_path
from tests.standins.local import OLLAMA, LocalRuntime
from tests.support.serving import GIB, MIB, Served
from tests.support.tinymodel import write_tiny_model

HELLO = Chat((Message("user", "hello"),), max_tokens=4)


@pytest.fixture
def tiny_weights(tiny_model: Path) -> bytes:
    return tiny_model.read_bytes()


@pytest.fixture
async def http() -> AsyncIterator[JsonHttp]:
    async with JsonHttp() as made:
        yield made


async def about(http: JsonHttp, handle: Handle) -> dict[str, Any]:
    """What the stand-in tells of itself."""
    found = (await http.ask(handle.base_url, "GET", "/standin")).body
    assert isinstance(found, dict)
    return found


async def world(http: JsonHttp, handle: Handle, **does: Any) -> None:
    """Let something happen to the stand-in."""
    await http.ask(handle.base_url, "POST", "/standin", does)


def container(
    engine: Ollama, plan: Any, device: Device, image: str = OLLAMA, spare_bytes: int | None = None
) -> Container:
    made = engine.program(plan, device, workload="dep-1", image=image, spare_bytes=spare_bytes)
    assert isinstance(made, Container)
    return made


def rocm_device() -> Device:
    return attrs.evolve(cuda_device(), apis=(Api("rocm", "7.0"),), vendor="amd")


@pytest.mark.parametrize(
    ("device", "image"),
    [(cuda_device(), IMAGE), (cpu_device(), IMAGE), (rocm_device(), f"{IMAGE}-rocm")],
)
async def test_the_image_is_the_pinned_build_for_the_device(
    http: JsonHttp, device: Device, image: str
) -> None:
    assert Ollama(http).image(device) == image
    assert Ollama(http, "mirror.example/ollama:mine").image(device) == "mirror.example/ollama:mine"
    assert Ollama(http, installed="http://127.0.0.1:11434").image(device) is None


async def test_a_server_keeps_one_model_for_ever_and_leaves_no_conversation_to_the_cloud(
    http: JsonHttp,
) -> None:
    engine = Ollama(http, load_seconds=1800)
    plan = await engine.plan("tiny", 4 * GIB)
    made = container(engine, plan, cuda_device())

    assert (
        made.environment.items()
        >= {
            "OLLAMA_HOST": "0.0.0.0:11434",
            "OLLAMA_NO_CLOUD": "1",
            "OLLAMA_KEEP_ALIVE": "-1m",
            "OLLAMA_MAX_LOADED_MODELS": "1",
            "OLLAMA_NUM_PARALLEL": str(plan.slots),
            "OLLAMA_CONTEXT_LENGTH": str(plan.context_tokens),
            "OLLAMA_LOAD_TIMEOUT": "1800s",
        }.items()
    )
    assert (made.port, made.mounts, made.command, made.secret) == (11434, (), None, None)
    assert "OLLAMA_MODELS" not in made.environment
    assert not {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} & made.environment.keys()


@pytest.mark.parametrize(
    ("promised", "spare", "left_free"),
    [
        # The card is this workload's alone: all of it that was not promised.
        (4 * GIB, None, 20 * GIB),
        # Others were promised most of the rest.
        (4 * GIB, 3 * GIB, 3 * GIB),
        # Promised whole: something stays free for what comes with the first question.
        (24 * GIB, 0, 512 * MIB),
    ],
)
async def test_a_promise_becomes_what_is_left_free_of_the_card(
    http: JsonHttp, promised: int, spare: int | None, left_free: int
) -> None:
    engine = Ollama(http)
    made = container(engine, await engine.plan("tiny", promised), cuda_device(), spare_bytes=spare)

    assert made.environment["OLLAMA_GPU_OVERHEAD"] == str(left_free)
    assert made.environment["LLAMA_ARG_FIT_TARGET"] == str(left_free // MIB)


async def test_on_the_cpu_every_card_is_hidden(http: JsonHttp) -> None:
    engine = Ollama(http)
    made = container(engine, await engine.plan("tiny", 4 * GIB), cpu_device())

    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        assert made.environment[name] == "-1"
    assert "OLLAMA_GPU_OVERHEAD" not in made.environment
    assert made.detail == {"device": "cpu"}


async def test_more_than_the_device_has_is_refused(http: JsonHttp) -> None:
    engine = Ollama(http)

    with pytest.raises(PromiseTooLarge, match=r"gpu-0 has 25769803776"):
        container(engine, await engine.plan("tiny", 25 * GIB), cuda_device())


@pytest.mark.parametrize(
    ("promised", "slots", "context"),
    [(1 * GIB, 1, 4096), (12 * GIB, 2, 8192), (24 * GIB, 2, 16_384), (80 * GIB, 4, 32_768)],
)
async def test_what_is_not_known_yet_gets_a_context_by_its_promise(
    http: JsonHttp, promised: int, slots: int, context: int
) -> None:
    plan = await Ollama(http).plan("tiny", promised)

    assert (plan.slots, plan.context_tokens) == (slots, context)


async def test_a_model_of_the_cloud_is_refused_before_anything_is_promised(http: JsonHttp) -> None:
    with pytest.raises(ModelUnusable, match="other machines"):
        await Ollama(http).plan("large:120b-cloud", 4 * GIB)


async def test_the_store_serves_what_it_holds_and_nothing_is_pulled(
    ollama: Served, http: JsonHttp, tmp_path: Path, registry: Path, tiny_weights: bytes
) -> None:
    library = make_library(tmp_path / "store")
    add_model(library, "mine", tiny_weights)
    engine = ollama.engine = Ollama(http, OLLAMA, store=OllamaStore(library))
    plan = await engine.plan("mine", 200 * MIB)
    made = container(engine, plan, cpu_device())

    assert (plan.context_tokens, plan.slots) == (512, 4), "what the model itself has"
    assert made.mounts == (Mount(library, "/models", is_read_only=True),)
    assert made.environment["OLLAMA_MODELS"] == "/models"
    assert made.environment["OLLAMA_NOPRUNE"] == "1"
    handle = await ollama.ready("mine")
    assert (await about(http, handle))["pulls"] == []
    assert str(library) not in json.dumps(dict(handle.detail))
    other = container(engine, await engine.plan("tiny", 200 * MIB), cpu_device())
    assert (other.mounts, "OLLAMA_MODELS" in other.environment) == ((), False)


async def test_a_model_of_the_store_that_does_not_fit_is_refused_with_what_would_do(
    http: JsonHttp, tmp_path: Path
) -> None:
    library = make_library(tmp_path / "store")
    extra = {"llama.context_length": 1_000_000, "llama.attention.key_length": 100_000}
    add_model(library, "wide", write_tiny_model(tmp_path / "wide.gguf", extra=extra).read_bytes())
    engine = Ollama(http, store=OllamaStore(library))

    with pytest.raises(PromiseTooSmall) as caught:
        await engine.plan("wide", 128 * MIB)
    assert (await engine.plan("wide", caught.value.least_bytes)).slots == 1


@pytest.mark.parametrize(
    ("extra", "config", "words"),
    [
        ({"llama.pooling_type": 0}, {}, "embedding model"),
        ({"llama.attention.causal": False}, {}, "embedding model"),
        (None, {"model_family": "nomic-bert"}, "embedding model"),
        (None, {"remote_host": "https://ollama.com"}, "other machines"),
    ],
)
async def test_a_model_of_the_store_for_no_conversation_is_refused_before_it_is_started(
    http: JsonHttp,
    tmp_path: Path,
    extra: dict[str, Any] | None,
    config: dict[str, Any],
    words: str,
) -> None:
    library = make_library(tmp_path / "store")
    weights = b"no GGUF" if extra is None else write_tiny_model(tmp_path / "m.gguf", extra=extra).read_bytes()
    add_model(library, "mine", weights, config=config)

    with pytest.raises(ModelUnusable, match=words) as caught:
        await Ollama(http, store=OllamaStore(library)).plan("mine", 4 * GIB)
    assert "the operator's model store" in caught.value.reason
    assert str(tmp_path) not in f"{caught.value.reason} {caught.value.fix}"


async def test_a_store_that_the_engine_cannot_read_is_said(
    ollama: Served, http: JsonHttp, tmp_path: Path, tiny_weights: bytes
) -> None:
    library = make_library(tmp_path / "store")
    add_model(library, "mine", tiny_weights)
    ollama.engine = Ollama(http, OLLAMA, store=OllamaStore(library))
    plan = await ollama.plan("mine")
    manifest_path(library, "mine").unlink()
    handle = await ollama.start(plan)

    with pytest.raises(ModelUnusable, match="the operator's model store has this model"):
        await ollama.engine.make_ready(handle, lambda percent: None)


async def test_a_store_that_is_gone_is_said(http: JsonHttp, tmp_path: Path) -> None:
    library = make_library(tmp_path / "store")
    engine = Ollama(http, store=OllamaStore(library))
    library.rename(tmp_path / "gone")

    with pytest.raises(ModelUnusable, match="the operator's model store cannot be read"):
        await engine.plan("mine", 4 * GIB)


async def test_progress_begins_when_the_server_answers_and_tells_the_pull(
    ollama: Served, registry: Path
) -> None:
    script(registry, tiny={"pulls": [{"fall_back": True}]})
    told: list[int | None] = []
    handle = await ollama.start(await ollama.plan())

    with trio.fail_after(60):
        served = await ollama.engine.make_ready(handle, told.append)

    percents = [percent for percent in told if percent is not None]
    assert told[0] is None
    assert max(percents) == 99, "not done before Ollama says so"
    assert sorted(percents) != percents, "it falls back when more is known to come"
    assert served.context_tokens == 512, "as it is served, not as it was asked for"
    assert served.note is None


async def test_a_model_is_loaded_once_whatever_is_asked_of_it(ollama: Served, http: JsonHttp) -> None:
    handle = await ollama.ready()
    for chat in (HELLO, attrs.evolve(HELLO, temperature=0.5, stop=("x",)), Chat(HELLO.messages, 1)):
        await ollama.engine.answer(handle, chat)
    said = await about(http, handle)

    assert said["loads"] == 1
    for question in said["asked"]:
        assert question["options"]["num_ctx"] == 4096
        assert (question["truncate"], question["shift"], question["stream"]) == (False, False, False)
        assert question["keep_alive"] == -1
    assert said["asked"][-2]["options"].items() >= {"temperature": 0.5, "stop": ["x"]}.items()


async def test_a_model_already_there_is_not_pulled_again(ollama: Served, http: JsonHttp) -> None:
    handle = await ollama.ready()
    await ollama.engine.make_ready(handle, lambda percent: None)

    assert (await about(http, handle))["pulls"] == ["tiny"]


@pytest.mark.parametrize("is_old", [False, True])
async def test_an_embedding_model_is_refused_once_it_is_known_to_be_one(
    ollama: Served, registry: Path, is_old: bool
) -> None:
    script(registry, embed={"is_old": is_old})
    handle = await ollama.start(await ollama.plan("embed"))

    with pytest.raises(ModelUnusable, match="embedding model"):
        await ollama.engine.make_ready(handle, lambda percent: None)


@pytest.mark.parametrize(
    ("card", "device", "said"),
    [
        (1, cuda_device(), None),
        (0.4, cuda_device(), r"in part by the CPU, 400000 of its 1000000 bytes lie on the card"),
        (0, cuda_device(), r"by the CPU alone and not by the card it was placed on"),
        (1, cpu_device(), None),
    ],
)
async def test_a_model_that_ended_up_on_the_cpu_says_so(
    tmp_path: Path, http: JsonHttp, registry: Path, card: float, device: Device, said: str | None
) -> None:
    """ollama/ollama#7669: it was on the processor, and nobody was told."""
    script(registry, tiny={"card": card})
    more = {"STANDIN_REGISTRY": str(registry), "STANDIN_CARD": "GPU-0"}
    runtime = LocalRuntime(tmp_path / "run", secrets.token_hex(8), more=more)
    served = Served(Ollama(http, OLLAMA), runtime, device=device, memory_bytes=200 * MIB)
    handle = await served.start(await served.plan())
    with trio.fail_after(60):
        ready = await served.engine.make_ready(handle, lambda percent: None)
    on_card = (await about(http, handle))["has_card"]
    await runtime.stop("dep-1", grace_seconds=0)

    assert on_card == (not device.is_cpu)
    if said is None:
        assert ready.note is None
    else:
        assert ready.note is not None
        assert re.search(said, ready.note)
        assert "memory_bytes" in ready.note


@pytest.mark.parametrize(
    ("words", "fault", "said"),
    [
        (
            "llama-server process has terminated: cudaMalloc failed: out of memory",
            EngineOutOfMemory,
            "memory",
        ),
        ("model requires more system memory (9 GiB) than is available", EngineFault, "more memory than"),
        ("error loading model: invalid magic characters", ModelUnusable, "cannot load"),
        ("this model may be incompatible with your version of Ollama", ModelUnusable, "newer Ollama"),
        ("something else", EngineUnreachable, "status 500: something else"),
    ],
)
async def test_a_load_that_fails_is_told_by_its_words(
    ollama: Served, registry: Path, words: str, fault: type[EngineFault], said: str
) -> None:
    script(registry, tiny={"load_fails": words})
    handle = await ollama.start(await ollama.plan())

    with pytest.raises(fault, match=said):
        await ollama.engine.make_ready(handle, lambda percent: None)


async def test_a_runner_that_is_killed_fails_its_prompt_and_no_other(ollama: Served, http: JsonHttp) -> None:
    handle = await ollama.ready()
    before = len((await about(http, handle))["asked"])
    await world(http, handle, pause_runner=True)
    faults: list[EngineFault] = []

    async def ask() -> None:
        with pytest.raises(EngineFault) as caught:
            await ollama.engine.answer(handle, HELLO)
        faults.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        while len((await about(http, handle))["asked"]) == before:
            await trio.lowlevel.checkpoint()
        await world(http, handle, kill_runner=True)

    assert isinstance(faults[0], EngineOutOfMemory), "nothing else kills it"
    assert await ollama.engine.is_alive(handle)
    assert (await ollama.engine.answer(handle, HELLO)).completion_tokens == 4
    assert (await about(http, handle))["loads"] == 2


async def test_a_server_that_hangs_is_not_alive(
    ollama: Served, http: JsonHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await ollama.ready()
    await world(http, handle, hang=True)
    monkeypatch.setattr("adapters.engine.ollama_api.ALIVE_SECONDS", 0.3)

    assert not await ollama.engine.is_alive(handle)


async def test_too_many_at_once_are_told_to_come_again(
    tmp_path: Path, http: JsonHttp, registry: Path
) -> None:
    more = {"STANDIN_REGISTRY": str(registry), "OLLAMA_MAX_QUEUE": "0"}
    runtime = LocalRuntime(tmp_path / "run", secrets.token_hex(8), more=more)
    served = Served(Ollama(http, OLLAMA), runtime, memory_bytes=200 * MIB)
    handle = await served.start(await served.plan())
    with trio.fail_after(60), pytest.raises(EngineUnreachable, match="too many prompts") as caught:
        await served.engine.make_ready(handle, lambda percent: None)
    await runtime.stop("dep-1", grace_seconds=0)
    assert "again" in caught.value.fix


async def test_a_conversation_that_an_old_ollama_cut_is_refused_all_the_same(
    ollama: Served, registry: Path
) -> None:
    script(registry, tiny={"is_old": True})
    handle = await ollama.ready()

    with pytest.raises(PromptRefused, match="room for 512 tokens"):
        await ollama.engine.answer(handle, Chat((Message("user", "x" * 8000),), max_tokens=4))
    assert (await ollama.engine.answer(handle, HELLO)).content


async def test_a_server_that_takes_no_foreign_name_is_said(ollama: Served) -> None:
    handle = await ollama.ready()
    foreign = attrs.evolve(handle, base_url=handle.base_url.replace("127.0.0.1", "127.0.0.2"))

    with pytest.raises(EngineUnreachable):
        await ollama.engine.answer(foreign, HELLO)


@pytest.fixture
async def installed(ollama: Served, http: JsonHttp) -> tuple[Ollama, Handle]:
    """An Ollama that runs by itself, and how it is known."""
    handle = await ollama.ready()
    return Ollama(http, installed=handle.base_url), handle


async def test_the_installed_one_is_asked_before_anything_is_promised(
    installed: tuple[Ollama, Handle], registry: Path
) -> None:
    engine, _ = installed

    assert (await engine.plan("tiny", 200 * MIB)).model == "tiny"
    assert (await engine.plan("unknown", 200 * MIB)).model == "unknown", "it may be pulled"
    with pytest.raises(EngineMissing, match="does not answer") as caught:
        await Ollama(engine.http, installed="http://127.0.0.1:1").plan("tiny", 200 * MIB)
    assert "BEST_PEER_ENGINE_HOST" in caught.value.fix


async def test_the_installed_one_is_told_with_each_question_where_the_model_was_placed(
    installed: tuple[Ollama, Handle], http: JsonHttp
) -> None:
    engine, handle = installed
    plan = await engine.plan("tiny", 200 * MIB)
    for device, says in ((cpu_device(), {"num_gpu": 0}), (cuda_device(), {})):
        program = engine.program(plan, device, workload="dep-1")
        assert isinstance(program, Executable)
        placed = attrs.evolve(handle, detail={**dict(plan.detail), **program.detail})
        await engine.answer(placed, HELLO)
        options = (await about(http, handle))["asked"][-1]["options"]
        assert {key: options[key] for key in options if key == "num_gpu"} == says


async def test_a_model_of_the_installed_one_for_no_conversation_is_refused_at_once(
    installed: tuple[Ollama, Handle], http: JsonHttp
) -> None:
    engine, handle = installed
    async with http.ask_for_lines(handle.base_url, "/api/pull", {"model": "embed"}) as reply:
        async for _ in reply:
            pass

    with pytest.raises(ModelUnusable, match="embedding model"):
        await engine.plan("embed", 200 * MIB)


@pytest.mark.parametrize(
    ("ended", "fault", "said"),
    [
        (Exit(137, out_of_memory=True), EngineOutOfMemory, "no more memory"),
        (Exit(137), EngineEnded, "was killed"),
        (Exit(0), EngineEnded, "ended by itself"),
        (Exit(None), EngineEnded, "not known"),
        (Exit(1, ("Error: mkdir /models: permission denied",)), EngineEnded, "folder of models"),
        (Exit(1, ("CUDA driver version is insufficient",)), EngineEnded, "cannot use the card"),
        (Exit(1, ("write /root: no space left on device",)), ModelNotPulled, "no room"),
        (Exit(2, ("panic: oh",)), EngineEnded, "code 2; it said last: panic: oh"),
    ],
)
def test_an_end_means_what_its_code_and_last_lines_say(
    ended: Exit, fault: type[EngineFault], said: str
) -> None:
    found = explain_ollama(ended)

    assert type(found) is fault
    assert said in found.reason
    assert found.fix


async def test_a_name_that_is_none_is_not_sent_anywhere(http: JsonHttp) -> None:
    with pytest.raises(ModelNotFound, match="no name"):
        await Ollama(http).plan("http://169.254.169.254/latest", 4 * GIB)
