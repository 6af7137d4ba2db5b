"""What a peer is put together from, for each runtime, and what refuses its start (F21)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from adapters.engine import ollama, vllm
from adapters.gpu.fake import cpu_device
from adapters.models.ollama_store import StoreUnreadable
from peer import compose
from peer.compose import Peer, RuntimeRefused, open_peer
from peer.folder import DataFolder
from peer.settings import Settings
from peer.settings_programs import OLLAMA_IMAGE, VLLM_IMAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def peer_of(folder: Path, **variables: str) -> AsyncIterator[Peer]:
    """A peer that is put together and not started."""
    environ = {
        "HOME": str(folder),
        "PATH": "/nowhere",
        "BEST_PEER_DATA": str(folder / "peer"),
        "BEST_PEER_GPU": "none",
        **variables,
    }
    settings = Settings.read(environ)
    with DataFolder.open(settings.data) as data:
        async with open_peer(settings, data, endpoint="http://127.0.0.1:7777") as peer:
            yield peer


@pytest.mark.parametrize(
    ("runtime", "engines", "has_jobs", "has_images"),
    [
        ("fake", {"llamacpp", "ollama", "vllm"}, True, True),
        ("process", {"llamacpp"}, False, False),
        ("native", {"ollama"}, False, False),
    ],
)
async def test_each_runtime_comes_with_the_engines_it_can_run(
    tmp_path: Path, runtime: str, engines: set[str], has_jobs: bool, has_images: bool
) -> None:
    async with peer_of(tmp_path, BEST_PEER_RUNTIME=runtime) as peer:
        house = peer.house
        assert house.runtime.name == runtime
        assert set(house.engines) == engines
        assert house.runtime.has_jobs is has_jobs
        assert (house.runtime.images is not None) is has_images


async def test_what_seems_to_run_in_containers_has_images_too(tmp_path: Path) -> None:
    async with peer_of(
        tmp_path, BEST_PEER_RUNTIME="fake", BEST_PEER_OLLAMA_IMAGE="mirror.example/ollama:1"
    ) as peer:
        engines = peer.house.engines
        named = {name: engine.image(cpu_device()) for name, engine in engines.items()}
        assert named == {"llamacpp": None, "ollama": "mirror.example/ollama:1", "vllm": VLLM_IMAGE}


async def test_what_was_set_reaches_the_house(tmp_path: Path) -> None:
    variables = {
        "BEST_PEER_RUNTIME": "fake",
        "BEST_PEER_PULL": "missing",
        "BEST_PEER_ENGINE_MEMORY": "8G",
        "BEST_PEER_ENGINE_PIDS": "none",
        "BEST_PEER_JOB_MEMORY": "6M",
        "BEST_PEER_JOB_PIDS": "77",
        "BEST_PEER_READY_SECONDS": "11",
        "BEST_PEER_LOAD_SECONDS": "12",
    }
    async with peer_of(tmp_path, **variables) as peer:
        house = peer.house
        assert house.pull == "missing"
        assert (house.ceilings.engine_memory_bytes, house.ceilings.engine_tasks) == (8 << 30, None)
        assert (house.ceilings.job_memory_bytes, house.ceilings.job_tasks) == (6 << 20, 77)
        assert (house.bounds.ready, house.bounds.load) == (11, 12)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (
            "unix:///nowhere/docker.sock",
            "the container engine at unix:///nowhere/docker.sock does not answer",
        ),
        ("ssh://elsewhere", "DOCKER_HOST=ssh://elsewhere is no address the peer can use"),
        ("tcp://engine.example:2375", "in the clear"),
    ],
)
async def test_without_docker_the_start_is_refused_with_the_ways_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, reason: str
) -> None:
    monkeypatch.setattr(compose, "START_PATIENCE_SECONDS", 0.0)
    with pytest.raises(RuntimeRefused, match=reason) as refused:
        async with peer_of(tmp_path, DOCKER_HOST=host):
            raise AssertionError("it was put together")
    text = str(refused.value)
    assert "\n" not in text
    for way in ("BEST_PEER_RUNTIME=process", "native", "fake", "DOCKER"):
        assert way in text


async def test_what_answers_and_is_no_docker_is_told_so(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        socket = tmp_path / "docker.sock"
        with trio.socket.socket(trio.socket.AF_UNIX) as listening:
            await listening.bind(str(socket))
            listening.listen()
            nursery.start_soon(_answer, trio.SocketListener(listening))
            with pytest.raises(RuntimeRefused, match=r"no JSON.*BEST_PEER_RUNTIME=process"):
                async with peer_of(tmp_path, DOCKER_HOST=f"unix://{socket}"):
                    raise AssertionError("it was put together")
            nursery.cancel_scope.cancel()


async def _answer(listener: trio.SocketListener) -> None:
    async def one(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")

    await trio.serve_listeners(one, [listener])


async def test_an_ollama_that_does_not_answer_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be started later: until then a deploy says so."""
    async with peer_of(tmp_path, BEST_PEER_RUNTIME="native", BEST_PEER_ENGINE_HOST="127.99.88.77") as peer:
        assert peer.house.runtime.name == "native"
    assert "no Ollama answers at http://127.99.88.77:11434" in caplog.text


def test_a_store_that_went_away_since_the_settings_were_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeRefused, match="BEST_PEER_MODEL_STORE: ") as refused:
        compose._model_store(tmp_path / "gone")
    assert isinstance(refused.value.__cause__, StoreUnreadable)


def test_the_documented_images_are_those_that_run() -> None:
    assert ollama.IMAGE == OLLAMA_IMAGE
    assert vllm.IMAGE == VLLM_IMAGE
