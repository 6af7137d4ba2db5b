"""A model and engines that serve it for real."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from adapters.engine.llamacpp import LlamaCpp
from adapters.engine.openai_chat import OpenAiChat
from adapters.models.folder import ModelFolder
from adapters.runtime.process import ProcessRuntime
from tests.support.serving import Served
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


@pytest.fixture
async def llamacpp(tmp_path: Path, models: ModelFolder) -> AsyncIterator[Served]:
    """llama.cpp out of the wheel, as real processes that end with the test."""
    async with OpenAiChat() as chat:
        runtime = ProcessRuntime(tmp_path, secrets.token_hex(8))
        yield Served(LlamaCpp(models, chat, cores=2), runtime)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 30):
            for workload in await runtime.running():
                await runtime.stop(workload, grace_seconds=0)
