"""Images made from nothing: layers, and what says how they are run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tests.support.docker.layers import Layer, cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
_DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
_DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_OCI = "application/vnd.oci.image.manifest.v1+json"
_OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@attrs.frozen
class Blob:
    """Bytes that a manifest names."""

    digest: str
    size: int
    path: Path


@attrs.frozen
class Image:
    """An image as a registry holds it, or an index of several.

    Args:
        manifest: the manifest's text; its digest is the image's.
        media_type: what kind of manifest it is.
        blobs: the configuration and the layers, in that order; an index has none.
        parts: the images of an index.
        config: the image's own say on how it is run, as an inspected image shows under `Config`.
    """

    manifest: str
    media_type: str
    blobs: tuple[Blob, ...] = ()
    parts: tuple[Image, ...] = ()
    config: dict[str, Any] = attrs.field(factory=dict)

    @property
    def digest(self) -> str:
        """What pins it."""
        return _digest(self.manifest.encode())

    @property
    def layers(self) -> tuple[Blob, ...]:
        """Its layers, the lowest first."""
        return self.blobs[1:]


def machine() -> str:
    """This machine's architecture as images call it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def foreign_machine() -> str:
    """An architecture that this machine is not."""
    return "amd64" if machine() == "arm64" else "arm64"


def make_image(
    layers: Sequence[Layer],
    config: Mapping[str, Any] | None = None,
    *,
    architecture: str | None = None,
    oci: bool = False,
) -> Image:
    """An image of these layers.

    Args:
        layers: the lowest first.
        config: `Cmd`, `Entrypoint`, `Env`, `User`, `Volumes`, `Labels`, ... as the engine has them.
        architecture: what it says it is for; this machine's when None.
        oci: with an OCI manifest, of which the engine's `/distribution` tells no platform.
    """
    said = {
        "architecture": architecture or machine(),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": dict(config or {}),
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "tests"} for _ in layers],
    }
    about = _keep(json.dumps(said, sort_keys=True).encode())
    blobs = (about, *(Blob(layer.digest, layer.size, layer.path) for layer in layers))
    kinds = (_OCI_CONFIG if oci else _DOCKER_CONFIG, *[_OCI_LAYER if oci else _DOCKER_LAYER] * len(layers))
    described = [
        {"mediaType": kind, "digest": blob.digest, "size": blob.size}
        for kind, blob in zip(kinds, blobs, strict=True)
    ]
    media_type = _OCI if oci else _DOCKER
    manifest = {"schemaVersion": 2, "mediaType": media_type, "config": described[0], "layers": described[1:]}
    return Image(json.dumps(manifest, indent=1), media_type, blobs, config=dict(config or {}))


def make_index(images: Mapping[str, Image]) -> Image:
    """An index with an image for each of these architectures."""
    manifests = [
        {
            "mediaType": image.media_type,
            "digest": image.digest,
            "size": len(image.manifest.encode()),
            "platform": {"architecture": architecture, "os": "linux"},
        }
        for architecture, image in images.items()
    ]
    index = {"schemaVersion": 2, "mediaType": _DOCKER_LIST, "manifests": manifests}
    return Image(json.dumps(index, indent=1), _DOCKER_LIST, parts=tuple(images.values()))


def _keep(data: bytes) -> Blob:
    kept = cache_folder() / f"{_digest(data).removeprefix('sha256:')[:32]}.config"
    if not kept.exists():
        part = kept.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(data)
        part.replace(kept)
    os.utime(kept)
    return Blob(_digest(data), len(data), kept)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
