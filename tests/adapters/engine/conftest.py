"""A model and engines that serve it for real."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from adapters.engine.json_http import JsonHttp
from adapters.engine.llamacpp import LlamaCpp
from adapters.engine.ollama import Ollama
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.vllm import Vllm
from adapters.gpu.fake import cuda_device
from adapters.models.folder import ModelFolder
from adapters.runtime.process import ProcessRuntime
from tests.standins.library import add_model, make_library
from tests.standins.local import OLLAMA, VLLM, LocalRuntime
from tests.support.serving import GIB, MIB, Served
from tests.support.tinymodel import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, written once."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture
def models(tmp_path: Path, tiny_model: Path) -> ModelFolder:
    """A folder that holds the tiny model."""
    folder = tmp_path / "models"
    folder.mkdir()
    # A link of the file system's and not a symbolic one, which the folder does not follow.
    (folder / "tiny.gguf").hardlink_to(tiny_model)
    return ModelFolder(folder)


@asynccontextmanager
async def _ending(runtime: ProcessRuntime) -> AsyncIterator[None]:
    """End what runs when the test has ended."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
            for workload in await runtime.running():
                await runtime.stop(workload, grace_seconds=0)


@pytest.fixture
async def llamacpp(tmp_path: Path, models: ModelFolder) -> AsyncIterator[Served]:
    """llama.cpp out of the wheel, as real processes that end with the test."""
    async with OpenAiChat() as chat:
        runtime = ProcessRuntime(tmp_path, secrets.token_hex(8))
        async with _ending(runtime):
            yield Served(LlamaCpp(models, chat, cores=2), runtime)


@pytest.fixture
def registry(tmp_path: Path, tiny_model: Path) -> Path:
    """What a stand-in for Ollama pulls from: it has `tiny`, and `embed`, which is for no conversation."""
    library = make_library(tmp_path / "registry")
    add_model(library, "tiny", tiny_model.read_bytes())
    add_model(library, "embed", tiny_model.read_bytes() + b"\0", config={"capabilities": ["embedding"]})
    return library


def script(library: Path, **models: dict[str, Any]) -> None:
    """Say how it goes with models of a stand-in's registry or hub, by name (`tiny` is `tiny:latest`)."""
    said = {name if "/" in name or ":" in name else f"{name}:latest": how for name, how in models.items()}
    (library / "script.json").write_text(json.dumps(said))


@pytest.fixture
async def ollama(tmp_path: Path, registry: Path) -> AsyncIterator[Served]:
    """The stand-in for Ollama's container, as a process that ends with the test."""
    async with JsonHttp() as http:
        runtime = LocalRuntime(
            tmp_path / "run", secrets.token_hex(8), more={"STANDIN_REGISTRY": str(registry)}
        )
        async with _ending(runtime):
            yield Served(Ollama(http, image_name=OLLAMA), runtime, memory_bytes=200 * MIB)


@pytest.fixture
def hub(tmp_path: Path, tiny_model: Path) -> Path:
    """What a stand-in for vLLM fetches from: it has `tiny/chat`."""
    folder = tmp_path / "hub"
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "chat.gguf").hardlink_to(tiny_model)
    return folder


@pytest.fixture
async def vllm(tmp_path: Path, hub: Path) -> AsyncIterator[Served]:
    """The stand-in for vLLM's container, as a process that ends with the test."""
    async with OpenAiChat() as chat:
        runtime = LocalRuntime(tmp_path / "run", secrets.token_hex(8), more={"STANDIN_HUB": str(hub)})
        async with _ending(runtime):
            yield Served(Vllm(chat, VLLM), runtime, "tiny/chat", 8 * GIB, cuda_device())
