"""What tests do with the bed: put images under names of their own, and look what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from tests.support.docker.images import Image
from tests.support.docker.ready import LABEL
from tests.support.docker.registry import put_image

if TYPE_CHECKING:
    from tests.support.docker.bed import DockerBed


def image_named(bed: DockerBed, image: str | Image) -> Image:
    """One of the bed's ready images by its name, or an image as it is."""
    return bed.images[image] if isinstance(image, str) else image


def push_as(bed: DockerBed, image: str | Image, repository: str, *, tag: str = "latest") -> str:
    """Let the bed's registries serve an image under a name of the test's own; returns the reference.

    Nothing is sent that the registry has already: some 50 ms for a ready image. The guarded registries serve
    it as well, under their own addresses.

    Args:
        bed: the bed.
        image: the name of a ready one, or one that was built.
        repository: a name that no other test uses, in lower case.
        tag: the tag.
    """
    put_image(bed.registry.address, image_named(bed, image), repository, tag=tag)
    return f"{bed.registry.address}/{repository}:{tag}"


def digest_of(bed: DockerBed, image: str | Image) -> str:
    """The digest that pins an image wherever it was pushed: an index's own for an index."""
    return image_named(bed, image).digest


def untagged(reference: str) -> str:
    """A reference without its tag and its digest."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def pinned(bed: DockerBed, reference: str, image: str | Image) -> str:
    """The reference that pins the image which was pushed as `reference`."""
    return f"{untagged(reference)}@{digest_of(bed, image)}"


def engine_client(bed: DockerBed, *, timeout: float = 30.0) -> httpx.Client:
    """A plain client of the engine, which blocks; paths come with no version (`/containers/json`)."""
    transport = httpx.HTTPTransport(uds=str(bed.socket))
    return httpx.Client(transport=transport, base_url=bed.api, timeout=timeout, trust_env=False)


def async_engine_client(bed: DockerBed, *, timeout: float = 30.0) -> httpx.AsyncClient:
    """The same for tests in Trio."""
    transport = httpx.AsyncHTTPTransport(uds=str(bed.socket))
    return httpx.AsyncClient(transport=transport, base_url=bed.api, timeout=timeout, trust_env=False)


def containers_of(bed: DockerBed, instance: str) -> list[dict[str, Any]]:
    """Every container of a peer's instance, ended ones too, as the engine lists them: what was left."""
    return _labelled(bed, "/containers/json", instance, {"all": "1"})


def networks_of(bed: DockerBed, instance: str) -> list[dict[str, Any]]:
    """Every network of a peer's instance: one while it runs, or something on it does."""
    return _labelled(bed, "/networks", instance, {})


def _labelled(bed: DockerBed, path: str, instance: str, params: dict[str, str]) -> list[dict[str, Any]]:
    with engine_client(bed) as client:
        mark = f'{{"label": ["{LABEL}.instance={instance}"]}}'
        found = client.get(path, params={**params, "filters": mark}).raise_for_status().json()
        assert isinstance(found, list)
        return found
