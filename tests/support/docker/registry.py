"""Registries: starting Debian's docker-registry, and putting images into one."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.docker.images import Blob, Image

STORE_FOLDER = "registry"
"""The folder of the bed's disk where the images of all its registries lie."""

STORE = "bed/store"
"""The repository that holds every blob, for others to take them from without sending them again."""

USERNAME = "tester"
PASSWORD = "open sesame"
HTPASSWD = f"{USERNAME}:$2b$04$1H8M38BoldAGvQJFJsf7/.aV42c.TmIYnv6ucPpbcOfiRQWLAkXNe\n"
"""That user with that password: bcrypt, the one kind the registry takes."""


def start_registry(
    folder: Path, address: str, *, store: Path, auth: Mapping[str, Any] | None = None
) -> subprocess.Popen[bytes]:
    """A registry that serves what lies in `store` at `address`; several may share one store.

    Args:
        folder: where its configuration and its output go.
        address: `127.0.0.1:PORT`.
        store: where the images lie.
        auth: who it serves, as its configuration says it; None serves everybody.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(store)}, "delete": {"enabled": True}},
        "http": {"addr": address, "secret": "the bed's"},
    }
    if auth is not None:
        config["auth"] = dict(auth)
    about = folder / "registry.yml"
    # JSON is YAML.
    about.write_text(json.dumps(config))
    with (folder / "registry.log").open("ab") as log:
        return subprocess.Popen(
            ["docker-registry", "serve", str(about)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def wait_for_registry(address: str) -> None:
    """Wait until something serves HTTP at `address`, half a minute at most.

    Raises:
        TransportError: nothing does.
    """
    deadline = time.monotonic() + 30
    while True:
        try:
            httpx.get(f"http://{address}/v2/", timeout=5, trust_env=False)
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def put_image(address: str, image: Image, repository: str, *, tag: str = "latest") -> None:
    """Let the registry at `address`, which asks nobody who they are, serve an image as `repository:tag`.

    Sends only what the registry has nowhere.
    """
    with httpx.Client(base_url=f"http://{address}/v2", timeout=30, trust_env=False) as client:
        _put(client, image, repository, tag)


def put_manifest(address: str, repository: str, tag: str, manifest: bytes, media_type: str) -> None:
    """Let `repository:tag` mean this manifest, whose blobs the repository has."""
    with httpx.Client(base_url=f"http://{address}/v2", timeout=30, trust_env=False) as client:
        _put_manifest(client, repository, tag, manifest, media_type)


def delete_manifest(address: str, repository: str, digest: str) -> None:
    """Let the registry forget an image and every tag of it."""
    with httpx.Client(base_url=f"http://{address}/v2", timeout=30, trust_env=False) as client:
        client.delete(f"/{repository}/manifests/{digest}").raise_for_status()


def _put(client: httpx.Client, image: Image, repository: str, reference: str) -> None:
    for part in image.parts:
        _put(client, part, repository, part.digest)
    for blob in image.blobs:
        _put_blob(client, blob, repository)
    _put_manifest(client, repository, reference, image.manifest.encode(), image.media_type)


def _put_manifest(client: httpx.Client, repository: str, tag: str, manifest: bytes, media_type: str) -> None:
    client.put(
        f"/{repository}/manifests/{tag}", content=manifest, headers={"Content-Type": media_type}
    ).raise_for_status()


def _put_blob(client: httpx.Client, blob: Blob, repository: str) -> None:
    mount = {"mount": blob.digest, "from": STORE}
    opened = client.post(f"/{repository}/blobs/uploads/", params=mount)
    if opened.status_code == httpx.codes.ACCEPTED:
        # The store has not got it yet; the upload begun here is left to be forgotten.
        client.delete(opened.headers["Location"]).raise_for_status()
        begun = client.post(f"/{STORE}/blobs/uploads/")
        begun.raise_for_status()
        client.put(
            httpx.URL(begun.headers["Location"]).copy_merge_params({"digest": blob.digest}),
            content=_read(blob.path),
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)},
        ).raise_for_status()
        opened = client.post(f"/{repository}/blobs/uploads/", params=mount)
    opened.raise_for_status()
    assert opened.status_code == httpx.codes.CREATED, f"the registry did not take {blob.digest}"


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece
