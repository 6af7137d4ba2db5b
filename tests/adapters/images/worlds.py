"""A registry and an engine with what happens to them from outside: real ones, and the fake's."""

from __future__ import annotations

import hashlib
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import attrs
import httpx
import trio

from adapters.images.fake import FREE_BYTES, FakeImages, digest_of
from adapters.images.port import Images, PullFailed, PullProgress, RegistryToken
from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import Endpoint, unix_endpoint
from adapters.runtime.docker.images import DockerImages
from adapters.runtime.docker.transport import OwnConnections
from tests.support.docker import tokens
from tests.support.docker.contents import files_layer
from tests.support.docker.images import Image, foreign_machine, make_image
from tests.support.docker.proxy import Cut, Hold, RegistryProxy, open_proxy
from tests.support.docker.registry import delete_manifest
from tests.support.docker.use import push_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.docker.bed import DockerBed

SIZE_BYTES = 300_000
"""What an image of a test's own takes at least; noise, which does not get smaller."""

HELD_AFTER = 100_000
"""Enough for an engine to say that it fetches it."""


@attrs.frozen
class Held:
    """A pull that stands in the middle: `begun` is set when it does."""

    begun: trio.Event
    release: Callable[[], None]


class World(Protocol):
    """What is published is in `repository`, which no other test uses."""

    repository: str

    @property
    def images(self) -> Images:
        """The adapter under test."""
        ...

    def publish(self, tag: str, content: str = "one", *, is_usable: bool = True) -> str:
        """Have the registry serve an image under the repository's tag, and its digest; the digest."""

    def withdraw(self, tag: str, digest: str) -> None:
        """Have the registry serve the image no more."""

    def guard(self, content: str = "one") -> tuple[str, RegistryToken]:
        """An image that the registry serves to who has the token, by its reference."""

    async def build(self, reference: str) -> None:
        """Have the engine hold an image that came from no registry."""

    async def keep(self, reference: str) -> None:
        """Have the engine hold what the registry serves, whatever the adapter thinks of it."""

    async def use(self, reference: str) -> None:
        """Have a container use what the engine holds."""

    def hold_pull(self, tag: str) -> Held:
        """Have the next pull of the tag stand in the middle."""

    def break_pull(self, tag: str) -> None:
        """Have pulls of the tag break off in the middle."""

    async def cut_off(self) -> None:
        """Have the registry not answer."""

    def asked(self) -> int:
        """How often the registry was asked anything."""

    async def references(self) -> set[str]:
        """Everything of the repository that the engine holds, by tag and by digest."""

    def without_engine(self) -> Images:
        """The adapter at an engine that is not there."""

    def without_room(self) -> Images:
        """The adapter at an engine whose disk cannot be read from here."""


@attrs.define
class FakeWorld:
    images: FakeImages = attrs.field(factory=lambda: FakeImages(serves_all=False))
    repository: str = "registry.example:5000/team/thing"

    def publish(self, tag: str, content: str = "one", *, is_usable: bool = True) -> str:
        steps = (PullProgress(None, 0, None), PullProgress(99, SIZE_BYTES, SIZE_BYTES))
        return self.images.serve(
            f"{self.repository}:{tag}",
            digest=digest_of(content),
            steps=steps,
            size_bytes=SIZE_BYTES,
            is_usable=is_usable,
        )

    def withdraw(self, tag: str, digest: str) -> None:
        self.images.withdraw(f"{self.repository}:{tag}")
        self.images.withdraw(f"{self.repository}@{digest}")

    def guard(self, content: str = "one") -> tuple[str, RegistryToken]:
        reference = f"{self.repository}:guarded"
        self.images.serve(reference, digest=digest_of(content), token="opens")
        return reference, RegistryToken("registry.example:5000", "opens")

    async def build(self, reference: str) -> None:
        self.images.build(reference)

    async def keep(self, reference: str) -> None:
        self.images.keep(reference)

    async def use(self, reference: str) -> None:
        self.images.use(reference)

    def hold_pull(self, tag: str) -> Held:
        held = self.images.hold_pull(f"{self.repository}:{tag}")
        return Held(held.begun, held.release)

    def break_pull(self, tag: str) -> None:
        self.images.fail_pull(f"{self.repository}:{tag}", PullFailed("it broke", fix="try again"))

    async def cut_off(self) -> None:
        self.images.cut_off()

    def asked(self) -> int:
        return len(self.images.resolved) + len(self.images.pulled)

    async def references(self) -> set[str]:
        return set(self.images.references())

    def without_engine(self) -> Images:
        self.images.take_down()
        return self.images

    def without_room(self) -> Images:
        assert self.images.free_bytes == FREE_BYTES
        self.images.free_bytes = None
        return self.images


@attrs.define
class Wire(httpx.AsyncBaseTransport):
    """The way to an engine, until it is cut."""

    way: httpx.AsyncBaseTransport
    is_cut: bool = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.is_cut:
            raise httpx.ConnectError("connection refused", request=request)
        return await self.way.handle_async_request(request)


@attrs.define
class DockerWorld:
    """The bed's engine, and its registry behind a proxy.

    Args:
        name: what the images of this test are made from, so that no other's share parts with them.
    """

    bed: DockerBed
    client: DockerClient
    proxy: RegistryProxy
    name: str
    images: DockerImages
    remote: DockerClient
    _wire: Wire
    repository: str = attrs.field(init=False)
    _containers: list[str] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.repository = f"{self.proxy.address}/{self.path}"

    @property
    def path(self) -> str:
        return f"images/{self.name}"

    def content(self, content: str, *, is_usable: bool = True) -> Image:
        noise = random.Random(f"{self.name} {content}").randbytes(SIZE_BYTES)
        architecture = None if is_usable else foreign_machine()
        return make_image([files_layer({"/noise": noise})], {"Cmd": ["/noise"]}, architecture=architecture)

    def publish(self, tag: str, content: str = "one", *, is_usable: bool = True) -> str:
        image = self.content(content, is_usable=is_usable)
        push_as(self.bed, image, self.path, tag=tag)
        return image.digest

    def withdraw(self, tag: str, digest: str) -> None:
        delete_manifest(self.bed.registry.address, self.path, digest)

    def guard(self, content: str = "one") -> tuple[str, RegistryToken]:
        self.publish("guarded", content)
        registry = self.bed.tokens
        assert registry.folder is not None
        token = tokens.mint(registry.folder, [f"repository:{self.path}:pull"])
        return f"{registry.address}/{self.path}:guarded", RegistryToken(registry.address, token)

    async def build(self, reference: str) -> None:
        repository, _, tag = reference.rpartition(":")
        parameters = {"fromSrc": "-", "repo": repository, "tag": tag}
        await self.client.call("POST", "/images/create", params=parameters, tar=bytes(10240))

    async def keep(self, reference: str) -> None:
        async with self.client.stream("POST", "/images/create", params={"fromImage": reference}) as pieces:
            async for _ in pieces:
                pass

    async def use(self, reference: str) -> None:
        made = await self.client.call("POST", "/containers/create", json={"Image": reference, "Cmd": ["/x"]})
        self._containers.append(made["Id"])

    def hold_pull(self, tag: str) -> Held:
        fault = self.proxy.fault(self.layers, Hold(after=HELD_AFTER))
        return Held(fault.reached, fault.release)

    def break_pull(self, tag: str) -> None:
        self.proxy.fault(self.layers, Cut(after=1000))

    @property
    def layers(self) -> str:
        """What asks for parts of this test's images. What describes one ends before what is done to these."""
        return f"GET /v2/{self.path}/blobs/"

    async def cut_off(self) -> None:
        await self.proxy.down()

    def asked(self) -> int:
        return len(self.proxy.requests)

    async def references(self) -> set[str]:
        found = await self.client.call("GET", "/images/json", params={"all": 1})
        listed = {one for image in found for one in (image["RepoTags"] or []) + (image["RepoDigests"] or [])}
        return {one for one in listed if self.path in one}

    def without_engine(self) -> Images:
        self.remote.patience_seconds = 0
        self._wire.is_cut = True
        return DockerImages(self.remote)

    def without_room(self) -> Images:
        return DockerImages(self.remote)

    async def clean(self) -> None:
        """Leave nothing of the test's in the engine."""
        for container in self._containers:
            await self.client.call("DELETE", f"/containers/{container}", ok=(404,))
        for reference in await self.references():
            await self.client.call("DELETE", f"/images/{reference}", params={"force": 1}, ok=(404,))


@asynccontextmanager
async def open_docker_world(bed: DockerBed, test: str) -> AsyncIterator[DockerWorld]:
    """A world of one test's own on the bed; `test` names it."""
    name = hashlib.sha256(test.encode()).hexdigest()[:16]
    here = unix_endpoint(bed.socket)
    # Another machine's engine, for all that the adapter can tell.
    elsewhere, wire = Endpoint("http://engine.example:2375"), Wire(OwnConnections(here))
    async with (
        open_proxy(bed.registry.address) as proxy,
        DockerClient(here) as client,
        DockerClient(elsewhere, transport=wire) as remote,
    ):
        world = DockerWorld(bed, client, proxy, name, DockerImages(client), remote, wire)
        try:
            yield world
        finally:
            with trio.move_on_after(30, shield=True):
                await world.clean()
