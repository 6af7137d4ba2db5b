"""Ollama and vLLM in real containers: their stand-ins, started and set as the peer starts and sets them."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from adapters.engine.json_http import JsonHttp
from adapters.engine.ollama import Ollama
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import (
    Chat,
    EngineEnded,
    EngineOutOfMemory,
    EngineUnreachable,
    Message,
    ModelNotFound,
    ModelTooLarge,
    ModelUnusable,
    PromptRefused,
)
from adapters.engine.vllm import Vllm
from adapters.gpu.fake import cuda_device
from adapters.models.ollama_store import OllamaStore
from tests.standins.images import ollama_image, vllm_image
from tests.standins.library import add_model, make_library
from tests.support.docker.bed import DockerBed
from tests.support.docker.own import OwnEngine, open_own_engine
from tests.support.docker.use import containers_of, push_as
from tests.support.runtimes import DockerWorld, open_docker_world, pulled
from tests.support.serving import GIB, MIB, Served

HELLO = Chat((Message("user", "hello"),), max_tokens=4)

pytestmark = pytest.mark.docker


@pytest.fixture
async def http() -> AsyncIterator[JsonHttp]:
    async with JsonHttp() as made:
        yield made


@pytest.fixture
async def world(docker_bed: DockerBed) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed) as made:
        yield made


@pytest.fixture
async def ollama(docker_bed: DockerBed, world: DockerWorld, http: JsonHttp) -> Served:
    reference = push_as(docker_bed, ollama_image(), f"engines/{uuid.uuid4().hex}")
    image = await pulled(docker_bed, world.client, reference)
    return Served(Ollama(http, image), world.runtime, memory_bytes=200 * MIB)


@attrs.frozen
class OnCard:
    """vLLM on an engine that has a card, as far as the engine knows."""

    served: Served
    engine: OwnEngine
    instance: str


@pytest.fixture
async def vllm(docker_bed: DockerBed, http: JsonHttp) -> AsyncIterator[OnCard]:
    async with (
        open_own_engine(docker_bed, nvidia=True) as engine,
        open_docker_world(docker_bed, socket=engine.socket) as world,
    ):
        reference = push_as(docker_bed, vllm_image(), f"engines/{uuid.uuid4().hex}")
        image = await pulled(docker_bed, world.client, reference)
        engine_ = Vllm(OpenAiChat(http), image)
        yield OnCard(
            Served(engine_, world.runtime, "tiny/chat", 8 * GIB, cuda_device()), engine, world.instance
        )


async def test_ollama_pulls_loads_and_answers_in_a_container(
    docker_bed: DockerBed, ollama: Served, world: DockerWorld, http: JsonHttp
) -> None:
    told: list[int | None] = []
    handle = await ollama.start(await ollama.plan())
    with trio.fail_after(60):
        ready = await ollama.engine.make_ready(handle, told.append)
    about = (await http.ask(handle.base_url, "GET", "/standin")).body

    assert (ready.context_tokens, ready.note) == (512, None)
    assert (told[0], max(percent for percent in told if percent is not None)) == (None, 99)
    assert (await ollama.engine.answer(handle, HELLO)).completion_tokens == 4
    with pytest.raises(PromptRefused, match="room for 512 tokens"):
        await ollama.engine.answer(handle, Chat((Message("user", "x" * 2000),)))
    assert await ollama.engine.is_alive(handle)
    assert about["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void", "whatever its image says"
    assert handle.base_url.startswith("http://127.0.0.1:")

    await world.restart()
    found = await world.runtime.find("dep-1")
    assert found is not None
    assert found.adopted
    assert (await ollama.engine.answer(found, HELLO)).content, "a restarted peer goes on with it"
    await world.runtime.stop("dep-1", grace_seconds=5)
    assert (await world.runtime.wait("dep-1")).code == 0, "it ends by itself when it is asked to"
    await world.runtime.discard("dep-1")
    assert containers_of(docker_bed, world.instance) == []


async def test_the_operators_store_is_served_read_only_and_nothing_pulled(
    ollama: Served, http: JsonHttp, tmp_path: Path, tiny_model: Path
) -> None:
    library = make_library(tmp_path / "store")
    add_model(library, "mine", await trio.Path(tiny_model).read_bytes())
    before = sorted(path.name for path in library.rglob("*"))
    assert isinstance(ollama.engine, Ollama)
    ollama.engine.store = OllamaStore(library)

    handle = await ollama.ready("mine")
    about = (await http.ask(handle.base_url, "GET", "/standin")).body
    async with http.ask_for_lines(handle.base_url, "/api/pull", {"model": "tiny"}) as reply:
        lines = [line async for line in reply]

    assert about["pulls"] == []
    assert about["environment"]["OLLAMA_MODELS"] == "/models"
    assert "read-only file system" in lines[-1]["error"]
    assert sorted(path.name for path in library.rglob("*")) == before


async def test_what_ollama_cannot_serve_is_told(ollama: Served) -> None:
    async def fail(model: str, fault: type[Exception], said: str, workload: str) -> None:
        handle = await ollama.start(await ollama.plan(model), workload)
        with pytest.raises(fault, match=said):
            await ollama.engine.make_ready(handle, lambda percent: None)

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, "embed", ModelUnusable, "embedding model", "dep-1")
            nursery.start_soon(fail, "tiny:private", ModelNotFound, "does not show", "dep-2")
            nursery.start_soon(fail, "tiny:large", EngineOutOfMemory, "no more memory", "dep-3")
            nursery.start_soon(fail, "unknown", ModelNotFound, "no such model", "dep-4")


async def test_a_container_that_ends_while_it_loads_is_explained(ollama: Served, http: JsonHttp) -> None:
    handle = await ollama.start(await ollama.plan("tiny:slow"))
    ended = []

    async def make_ready() -> None:
        with pytest.raises(EngineUnreachable):
            await ollama.engine.make_ready(handle, lambda percent: None)

    with trio.fail_after(60):
        while not await ollama.engine.is_alive(handle):
            await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                http.ask, handle.base_url, "POST", "/standin", {"exit": 3, "says": "panic: oh"}
            )
            ended.append(await ollama.runtime.wait("dep-1"))

    assert ended[0].code == 3
    fault = ollama.engine.explain(ended[0])
    assert isinstance(fault, EngineEnded)
    assert "code 3" in fault.reason
    assert "panic: oh" in fault.reason


async def test_two_deployments_have_each_a_server_of_their_own(ollama: Served) -> None:
    one, two = await ollama.ready(), await ollama.ready(workload="dep-2")

    assert one.base_url != two.base_url
    await ollama.runtime.stop("dep-1", grace_seconds=5)
    assert not await ollama.engine.is_alive(one)
    assert (await ollama.engine.answer(two, HELLO)).content


async def test_vllm_is_handed_its_card_and_answers_with_its_key(vllm: OnCard, http: JsonHttp) -> None:
    served = vllm.served
    handle = await served.ready()
    about = (await http.ask(handle.base_url, "GET", "/standin")).body

    assert vllm.engine.nvidia is not None
    assert vllm.engine.nvidia.seen()[-1]["NVIDIA_VISIBLE_DEVICES"] == served.device.uuid
    assert (await served.engine.answer(handle, HELLO)).completion_tokens == 4
    assert about["options"]["gpu_memory_utilization"] == pytest.approx(0.2812, abs=1e-4)
    assert about["environment"]["VLLM_API_KEY"] == handle.secret
    with pytest.raises(EngineUnreachable, match="key"):
        await served.engine.answer(attrs.evolve(handle, secret=None), HELLO)
    with pytest.raises(PromptRefused, match="it has 513 tokens"):
        await served.engine.answer(handle, Chat((Message("user", "x" * 2000),)))
    assert await served.engine.is_alive(handle)

    await http.ask(handle.base_url, "POST", "/standin", {"kill_worker": True})
    with trio.fail_after(60):
        ended = await served.runtime.wait("dep-1")
    assert ended.code == 0, "an end that nobody asked for, all the same"
    assert "one of its processes was lost" in served.engine.explain(ended).reason


async def test_why_vllm_ended_is_found_above_its_last_lines(vllm: OnCard) -> None:
    served = vllm.served

    async def fail(model: str, fault: type[Exception], said: str, workload: str) -> None:
        await served.start(await served.plan(model), workload)
        ended = await served.runtime.wait(workload)
        found = served.engine.explain(ended)
        assert ended.code == 1
        assert type(found) is fault
        assert said in f"{found.reason} {found.fix}"

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, "tiny/gated", ModelNotFound, "gated", "dep-1")
            nursery.start_soon(fail, "tiny/large", ModelTooLarge, "No available memory", "dep-2")
            nursery.start_soon(fail, "tiny/old-driver", EngineEnded, "updates the NVIDIA driver", "dep-3")
