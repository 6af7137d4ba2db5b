"""Images of the stand-ins, with the tiny model in them: what tests take for Ollama's and vLLM's."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.standins.library import add_model, make_library
from tests.support.docker.contents import PACKAGES, files_layer, python_layer, shell_layer
from tests.support.docker.images import make_image
from tests.support.tinymodel import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.docker.images import Image

ROOT = Path(__file__).resolve().parents[2]
LLAMA = "xllamacpp"
REGISTRY = "/registry"
HUB = "/hub"

OLLAMA_MODELS: Mapping[str, Mapping[str, Any]] = {
    "tiny:latest": {},
    "tiny:breaks": {"pulls": [{"break_at": 0.5}, {}]},
    "tiny:slow": {"pulls": [{"step": 0.5}]},
    "tiny:private": {"pulls": [{"error": "pull model manifest: 401: unauthorized"}]},
    "tiny:large": {"load_fails": "llama-server process has terminated: cudaMalloc failed: out of memory"},
    "embed:latest": {},
}
"""What the stand-in for Ollama's registry has, and how it goes with each."""

VLLM_MODELS: Mapping[str, Mapping[str, Any]] = {
    "tiny/chat": {},
    "tiny/embed": {"is_embedding": True},
    "tiny/gated": {"end": "gated"},
    "tiny/large": {"end": "no-cache"},
    "tiny/old-driver": {"end": "old-driver"},
}
"""The same for the hub that the stand-in for vLLM fetches from."""


def ollama_image() -> Image:
    """Stands in for `ollama/ollama`."""
    config = {
        "Cmd": ["serve"],
        "ExposedPorts": {"11434/tcp": {}},
        "Env": [f"STANDIN_REGISTRY={REGISTRY}", "NVIDIA_VISIBLE_DEVICES=all"],
    }
    return _image("ollama_server", ("ollama_pulls", "library"), _registry(), config)


def vllm_image() -> Image:
    """Stands in for `vllm/vllm-openai`."""
    with tempfile.TemporaryDirectory() as made:
        weights = write_tiny_model(Path(made) / "tiny.gguf").read_bytes()
    files = {f"{HUB}/{name}.gguf": weights for name in VLLM_MODELS}
    files[f"{HUB}/script.json"] = json.dumps(VLLM_MODELS).encode()
    config: dict[str, Any] = {"Cmd": None, "ExposedPorts": {"8000/tcp": {}}, "Env": [f"STANDIN_HUB={HUB}"]}
    return _image("vllm_server", (), files, config)


def _registry() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as made:
        library = make_library(Path(made) / "registry")
        weights = write_tiny_model(Path(made) / "tiny.gguf").read_bytes()
        for name in OLLAMA_MODELS:
            config = {"capabilities": ["embedding"]} if name.startswith("embed") else None
            add_model(library, name, weights, config=config)
        paths = [path for path in library.rglob("*") if path.is_file()]
        # Contents and not paths, which are others each time: the layer is then made once.
        files = {f"{REGISTRY}/{path.relative_to(library)}": path.read_bytes() for path in paths}
    return {**files, f"{REGISTRY}/script.json": json.dumps(OLLAMA_MODELS).encode()}


def _image(
    module: str, more: tuple[str, ...], files: Mapping[str, bytes], config: Mapping[str, Any]
) -> Image:
    sources = [f"tests/standins/{name}.py" for name in (module, *more, "llama_runner")]
    sources.append("adapters/engine/xllama_server.py")
    layers = [
        shell_layer(),
        python_layer(),
        files_layer({}, site_packages=[LLAMA]),
        files_layer({**{f"{PACKAGES}/{source}": ROOT / source for source in sources}, **files}),
    ]
    environment = [
        f"PATH=/bin:/usr/bin:{PACKAGES}/bin",
        f"PYTHONPATH={PACKAGES}",
        "HOME=/root",
        *config["Env"],
    ]
    entry = ["/usr/bin/python3", "-m", f"tests.standins.{module}"]
    return make_image(layers, {**config, "Env": environment, "Entrypoint": entry})
