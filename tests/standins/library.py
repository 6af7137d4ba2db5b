"""Ollama's library on disk, made from nothing: `manifests/` and `blobs/`."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

DEFAULTS = ("registry.ollama.ai", "library")
MODEL = "application/vnd.ollama.image.model"
TEMPLATE = "application/vnd.ollama.image.template"
PARAMS = "application/vnd.ollama.image.params"
CONFIG = "application/vnd.docker.container.image.v1+json"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def make_library(folder: Path) -> Path:
    """An empty library."""
    for part in ("manifests", "blobs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    return folder


def add_model(
    library: Path, name: str, weights: bytes | None, *, config: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Put a model into a library, whole, and return its manifest.

    Args:
        library: the folder.
        name: `model[:tag]`, with or without `namespace/` and `host/` before it.
        weights: its GGUF file; None for a model that has none here.
        config: beside what the configuration of a llama says.
    """
    said = {"model_format": "gguf", "model_family": "llama", "model_families": ["llama"], **(config or {})}
    layers = [
        *([] if weights is None else [_layer(library, MODEL, weights)]),
        _layer(library, TEMPLATE, b"{{ .Prompt }}"),
        _layer(library, PARAMS, b'{"temperature": 0}'),
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _layer(library, CONFIG, json.dumps(said).encode()),
        "layers": layers,
    }
    path = manifest_path(library, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
    return manifest


def manifest_path(library: Path, name: str) -> Path:
    """Where the manifest of a model lies, whether it is there or not."""
    rest, tag = (name, "latest") if name.rfind(":") <= name.rfind("/") else name.rsplit(":", 1)
    parts = rest.split("/")
    host, namespace = (*DEFAULTS[: 3 - len(parts)], *parts[:-1])
    return library.joinpath("manifests", host, namespace, parts[-1], tag)


def blob_path(library: Path, digest: str) -> Path:
    """Where a blob lies, whether it is there or not."""
    return library / "blobs" / digest.replace(":", "-")


def _layer(library: Path, kind: str, data: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blob_path(library, digest).write_bytes(data)
    return {"mediaType": kind, "digest": digest, "size": len(data)}
