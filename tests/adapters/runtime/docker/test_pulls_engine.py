"""Pulls on a real engine: broken, stalled, held to limits, given up; and what is left of them."""

from __future__ import annotations

import os
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import httpx
import pytest
import trio

from adapters.images.port import (
    EngineDown,
    Image,
    ImageDenied,
    ImageFault,
    ImageNotFound,
    NoRoom,
    Pinned,
    PullFailed,
    PullLimits,
    PullProgress,
    RegistryUnreachable,
    TooLarge,
)
from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.images import DockerImages
from adapters.runtime.docker.pulls import Pulls
from adapters.runtime.docker.transport import OwnConnections
from tests.adapters.images.worlds import SIZE_BYTES, DockerWorld, open_docker_world
from tests.support.docker.contents import files_layer
from tests.support.docker.images import Image as SomeImage
from tests.support.docker.images import make_image
from tests.support.docker.layers import Layer
from tests.support.docker.own import OwnEngine, open_own_engine
from tests.support.docker.proxy import Answer, Corrupt, Cut, Hold, Instead, Kind
from tests.support.docker.use import push_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.docker.bed import DockerBed

MANIFEST = "GET .*/manifests/"
BLOBS = "GET .*/blobs/"
MIB = 1 << 20


@pytest.fixture
async def world(docker_bed: DockerBed, request: pytest.FixtureRequest) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed, request.node.nodeid) as found:
        yield found


def unheard(progress: PullProgress) -> None:
    """Progress that nobody asks for."""


@pytest.mark.parametrize(
    ("pattern", "kind", "expected"),
    [
        (MANIFEST, Answer.error(404, "MANIFEST_UNKNOWN"), ImageNotFound),
        (MANIFEST, Answer.error(429, "TOOMANYREQUESTS"), RegistryUnreachable),
        (MANIFEST, Answer(503), RegistryUnreachable),
        (MANIFEST, Answer.error(401, "UNAUTHORIZED"), ImageDenied),
        (MANIFEST, Cut(), RegistryUnreachable),
        (MANIFEST, Instead(b"{}"), PullFailed),
        (MANIFEST, Corrupt(at=30), PullFailed),
        (BLOBS, Answer.error(404, "BLOB_UNKNOWN"), PullFailed),
        (BLOBS, Answer.error(403, "DENIED"), ImageDenied),
        (BLOBS, Answer(503), PullFailed),
        (BLOBS, Cut(), PullFailed),
        (BLOBS, Cut(after=1000), PullFailed),
        (BLOBS, Corrupt(at=300), PullFailed),
        (BLOBS, Corrupt(at=100_000), PullFailed),
    ],
)
async def test_an_error_in_a_stream_that_began_well_fails_the_pull(
    world: DockerWorld, pattern: str, kind: Kind, expected: type[ImageFault]
) -> None:
    """moby/moby#8844: the engine answers 200, and puts what goes wrong into what it streams."""
    world.publish("1")
    async with armed(world, pattern, kind) as images:
        with pytest.raises(ImageFault) as caught:
            await images.pull(f"{world.repository}:1", unheard)
    assert type(caught.value) is expected
    assert caught.value.fix
    assert await world.references() == set()
    world.proxy.heal()
    assert (await world.images.pull(f"{world.repository}:1", unheard)).digest is not None


@pytest.mark.parametrize(
    ("pattern", "kind"), [(MANIFEST, Hold()), (BLOBS, Hold()), (BLOBS, Hold(after=1000))]
)
async def test_a_pull_that_says_nothing_has_stalled(world: DockerWorld, pattern: str, kind: Kind) -> None:
    world.publish("1")
    async with armed(world, pattern, kind) as images:
        images.pulls = Pulls(stall_seconds=0.5)
        with pytest.raises(PullFailed, match=r"stalled: .* said nothing of it for 0\.5 s"):
            await images.pull(f"{world.repository}:1", unheard)
    assert await world.references() == set()


async def test_a_pull_past_its_bound_is_given_up_while_another_of_the_image_goes_on(
    world: DockerWorld,
) -> None:
    digest = world.publish("1")
    held = world.hold_pull("1")
    found: list[Image] = []

    async def whole() -> None:
        found.append(await world.images.pull(f"{world.repository}:1", unheard))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(whole)
        await held.begun.wait()
        with pytest.raises(TooLarge):
            await world.images.pull(f"{world.repository}:1", unheard, limits=PullLimits(most_bytes=1000))
        held.release()
    assert found[0].digest == digest
    assert await world.images.held(f"{world.repository}@{digest}") is not None


async def test_an_image_that_unpacks_past_its_bound_does_not_stay(world: DockerWorld) -> None:
    """A layer of nothing but zeros: the registry sends thirty kilobytes of it."""
    image = make_image([files_layer({"/zeros": bytes(20 * MIB)})], {"Cmd": ["/zeros"]})
    assert image.layers[0].size < 1 * MIB
    reference = world.proxy.reference(push_as(world.bed, image, world.path))
    for images in (world.images, world.without_room()):
        with pytest.raises(TooLarge):
            await images.pull(reference, unheard, limits=PullLimits(most_bytes=10 * MIB))
        assert await world.references() == set()


async def test_an_image_in_two_repositories_is_removed_from_one_alone(world: DockerWorld) -> None:
    digest = world.publish("1")
    direct = f"{world.bed.registry.address}/{world.path}"
    for repository in (direct, world.repository):
        await world.images.pull(f"{repository}@{digest}", unheard)
    await world.images.remove(Pinned(direct, digest))
    assert await world.references() == {f"{world.repository}@{digest}"}


async def test_many_pulls_at_once_all_come_to_their_end(world: DockerWorld) -> None:
    digests = [world.publish(str(number), f"content {number}") for number in range(5)]
    async with trio.open_nursery() as nursery:
        for number in range(5):
            for _ in range(2):
                nursery.start_soon(world.images.pull, f"{world.repository}:{number}", unheard)
    for number, digest in enumerate(digests):
        held = await world.images.held(f"{world.repository}:{number}")
        assert held is not None
        assert held.digest == digest


async def test_a_full_disk_is_no_room_and_nothing_of_the_pull_stays(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, noise("full", 30 * MIB), "pulls/full")
    async with own(docker_bed, disk_bytes=48 * MIB) as (engine, images):
        before = free(engine)
        with pytest.raises(NoRoom, match="no space left on device"):
            await images.pull(reference, unheard)
        assert await everything(images) == []
        assert left(engine) == []
        assert free(engine) > before - 2 * MIB
        small = push_as(docker_bed, "shell", "pulls/full", tag="small")
        assert (await images.pull(small, unheard)).digest is not None


async def test_a_pull_that_would_take_the_room_to_be_kept_is_given_up(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, noise("floor", 20 * MIB), "pulls/floor")
    async with own(docker_bed, disk_bytes=96 * MIB) as (engine, images):
        before = free(engine)
        told: list[PullProgress] = []
        with pytest.raises(NoRoom, match="have to stay free"):
            await images.pull(reference, told.append, limits=PullLimits(least_free_bytes=before - 8 * MIB))
        assert told
        assert await everything(images) == []
        with trio.fail_after(30):
            # The engine takes back what it had written as soon as it notices that nobody listens.
            while free(engine) < before - 2 * MIB or left(engine):  # noqa: ASYNC110 - it is another process
                await trio.sleep(0.02)
        limits = PullLimits(least_free_bytes=before - 50 * MIB, most_bytes=50 * MIB)
        assert (await images.pull(reference, unheard, limits=limits)).digest is not None


async def test_what_an_image_shares_with_one_that_is_held_did_not_land(docker_bed: DockerBed) -> None:
    below, above = layer("below", 8 * MIB), layer("above", SIZE_BYTES)
    first = push_as(docker_bed, make_image([below]), "pulls/shared", tag="first")
    second = push_as(docker_bed, make_image([below, above]), "pulls/shared", tag="second")
    async with own(docker_bed) as (_, images):
        await images.pull(first, unheard)
        found = await images.pull(second, unheard, limits=PullLimits(most_bytes=6 * MIB))
        assert found.digest is not None


async def test_an_engine_that_is_killed_in_the_middle_is_down_and_fetches_again_later(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    digest = world.publish("1")
    held = world.hold_pull("1")
    async with own(docker_bed) as (engine, images):

        async def kill() -> None:
            await held.begun.wait()
            await trio.to_thread.run_sync(engine.kill)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises(EngineDown) as caught:
                await images.pull(f"{world.repository}:1", unheard)
            assert "does not answer" in caught.value.reason
        world.proxy.heal()
        await trio.to_thread.run_sync(engine.start)
        assert await images.held(f"{world.repository}:1") is None
        assert (await images.pull(f"{world.repository}:1", unheard)).digest == digest


async def test_a_part_that_breaks_is_taken_up_again_and_its_progress_with_it(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    image = noise("retried", 4 * MIB)
    reference = world.proxy.reference(push_as(docker_bed, image, "pulls/retried"))
    world.proxy.fault(f"{BLOBS}{image.layers[0].digest}", Cut(after=3 * MIB), times=1)
    told: list[PullProgress] = []
    # The bed's own engine gives up at once.
    async with own(docker_bed, "--max-download-attempts", "3") as (_, images):
        assert (await images.pull(reference, told.append)).digest == image.digest
    done = [one.bytes_done for one in told]
    assert max(done) == image.layers[0].size == told[-1].bytes_total
    # The second time the engine counts from nothing and asks for the rest: what had come is still counted.
    late = done[next(place for place, one in enumerate(done) if one >= 3 * MIB) :]
    assert min(late) >= 3 * MIB


def layer(name: str, size: int) -> Layer:
    """Noise, always the same for a name."""
    return files_layer({f"/{name}": random.Random(name).randbytes(size)})


def noise(name: str, size: int) -> SomeImage:
    return make_image([layer(name, size)], {"Cmd": ["/none"]})


@attrs.define
class Arming(httpx.AsyncBaseTransport):
    """The way to an engine, on which something is done just before a pull is asked for."""

    way: httpx.AsyncBaseTransport
    arm: Callable[[], object]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/images/create"):
            self.arm()
        return await self.way.handle_async_request(request)


@asynccontextmanager
async def armed(world: DockerWorld, pattern: str, kind: Kind) -> AsyncIterator[DockerImages]:
    """The world's images, whose registry fails once it has resolved what is then to be pulled."""
    here = unix_endpoint(world.bed.socket)
    way = Arming(OwnConnections(here), lambda: world.proxy.fault(pattern, kind))
    async with DockerClient(here, transport=way) as client:
        yield DockerImages(client)


@asynccontextmanager
async def own(
    bed: DockerBed, *flags: str, disk_bytes: int | None = None
) -> AsyncIterator[tuple[OwnEngine, DockerImages]]:
    """An engine of one test's own, which holds nothing yet."""
    async with (
        open_own_engine(bed, *flags, disk_bytes=disk_bytes) as engine,
        DockerClient(unix_endpoint(engine.socket)) as client,
    ):
        yield engine, DockerImages(client, room_seconds=0.02)


async def everything(images: DockerImages) -> object:
    """All the images that its engine has."""
    return await images.client.call("GET", "/images/json", params={"all": 1})


def free(engine: OwnEngine) -> int:
    found = os.statvfs(engine.data)
    return found.f_bavail * found.f_frsize


def left(engine: OwnEngine) -> list[str]:
    """What lies about of parts that were not fetched to their end."""
    return [path.name for path in (engine.data / "tmp").glob("*")]
