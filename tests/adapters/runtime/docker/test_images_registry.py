"""Asking registries through a real engine: every way in which one fails to answer as it should."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from adapters.images.port import (
    ImageDenied,
    ImageFault,
    ImageNotFound,
    ImageUnusable,
    Pinned,
    PullProgress,
    RegistryToken,
    RegistryUnreachable,
)
from tests.adapters.images.worlds import DockerWorld, open_docker_world
from tests.support.docker import tokens
from tests.support.docker.proxy import Answer, Cut, Hold, Instead, Kind
from tests.support.docker.use import digest_of, push_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.docker.bed import DockerBed

MANIFESTS = "(GET|HEAD) .*/manifests/"
EVERYTHING = ".*"


@pytest.fixture
async def world(docker_bed: DockerBed, request: pytest.FixtureRequest) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed, request.node.nodeid) as found:
        yield found


def unheard(progress: PullProgress) -> None:
    """Progress that nobody asks for."""


async def fails(world: DockerWorld, reference: str, token: RegistryToken | None = None) -> ImageFault:
    """How it fails to be resolved, and to be pulled, which is the same."""
    with pytest.raises(ImageFault) as caught:
        await world.images.resolve(reference, token=token)
    with pytest.raises(type(caught.value)):
        await world.images.pull(reference, unheard, token=token)
    assert await world.references() == set()
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "kind", "expected", "said"),
    [
        (MANIFESTS, Answer.error(429, "TOOMANYREQUESTS"), RegistryUnreachable, "had enough of questions"),
        (MANIFESTS, Answer.error(404, "MANIFEST_UNKNOWN"), ImageNotFound, "serves no"),
        (MANIFESTS, Answer.error(404, "NAME_UNKNOWN"), ImageNotFound, "serves no"),
        (MANIFESTS, Answer.error(403, "DENIED"), ImageDenied, "refuses"),
        (MANIFESTS, Answer.error(401, "UNAUTHORIZED"), ImageDenied, "refuses"),
        (MANIFESTS, Answer(502), RegistryUnreachable, "502"),
        (EVERYTHING, Answer(503), RegistryUnreachable, "503"),
        (MANIFESTS, Cut(), RegistryUnreachable, "EOF"),
        (EVERYTHING, Cut(), RegistryUnreachable, "EOF"),
        (MANIFESTS, Answer(200, b"<html>hello</html>"), RegistryUnreachable, ""),
        (MANIFESTS, Instead(b"no manifest"), RegistryUnreachable, ""),
    ],
    ids=lambda value: str(getattr(value, "status", None) or "") or None,
)
async def test_a_registry_that_fails_is_told_apart(
    world: DockerWorld, pattern: str, kind: Kind, expected: type[ImageFault], said: str
) -> None:
    world.publish("1")
    world.proxy.fault(pattern, kind)
    fault = await fails(world, f"{world.repository}:1")
    assert type(fault) is expected
    assert said in fault.reason


async def test_a_registry_that_refuses_connections_is_unreachable(world: DockerWorld) -> None:
    await world.proxy.down()
    fault = await fails(world, f"{world.repository}:1")
    assert type(fault) is RegistryUnreachable
    assert "connection refused" in fault.reason


async def test_a_registry_with_no_address_is_unreachable(world: DockerWorld) -> None:
    assert type(await fails(world, "nowhere.invalid:5000/thing")) is RegistryUnreachable


async def test_a_registry_that_hangs_is_waited_for_so_long_and_no_longer(world: DockerWorld) -> None:
    world.publish("1")
    world.proxy.fault(MANIFESTS, Hold())
    # The engine has to answer within as long, on a busy machine too.
    world.images.resolve_seconds = 2
    fault = await fails(world, f"{world.repository}:1")
    assert type(fault) is RegistryUnreachable
    assert "did not say within 2 s" in fault.reason


async def test_a_registry_that_wants_a_password_denies(world: DockerWorld) -> None:
    push_as(world.bed, "shell", world.path)
    assert type(await fails(world, f"{world.bed.guarded.address}/{world.path}")) is ImageDenied


async def test_a_registry_that_hides_what_it_does_not_show_does_not_find(world: DockerWorld) -> None:
    push_as(world.bed, "shell", world.path)
    for name in (world.path, f"{world.path}-none"):
        fault = await fails(world, f"{world.bed.tokens.address}/{name}")
        assert type(fault) is ImageNotFound
        assert "whoever has its credential" in fault.reason


@pytest.mark.parametrize("kind", ["of nobody", "of another repository", "of another time"])
async def test_a_token_that_does_not_open_the_repository_is_denied(world: DockerWorld, kind: str) -> None:
    reference, token = world.guard()
    folder = world.bed.tokens.folder
    assert folder is not None
    mine = f"repository:{world.path}:pull"
    wrong = {
        "of nobody": "ey.no.token",
        "of another repository": tokens.mint(folder, ["repository:another:pull"]),
        "of another time": tokens.mint(folder, [mine], lifetime_seconds=-1),
    }[kind]
    fault = await fails(world, reference, attrs.evolve(token, token=wrong))
    assert type(fault) is ImageDenied
    assert wrong not in fault.reason


async def test_a_token_is_in_no_log(world: DockerWorld, caplog: pytest.LogCaptureFixture) -> None:
    reference, token = world.guard()
    caplog.set_level(logging.DEBUG)
    await world.images.pull(reference, unheard, token=token)
    with pytest.raises(ImageNotFound):
        await world.images.pull(reference + "-none", unheard, token=token)
    assert "/images/create" in caplog.text
    assert token.token not in caplog.text
    # Nor as it travels: its beginning, which every JSON of a token has.
    assert "eyJyZWdpc3RyeXRva2Vu" not in caplog.text


async def test_an_index_is_pinned_by_its_own_digest(world: DockerWorld) -> None:
    push_as(world.bed, "indexed", world.path)
    digest = digest_of(world.bed, "indexed")
    assert await world.images.resolve(world.repository) == Pinned(world.repository, digest)
    found = await world.images.pull(world.repository, unheard)
    assert found.run == f"{world.repository}@{digest}"
    inspected = await world.client.call("GET", f"/images/{found.run}/json")
    assert inspected["Architecture"] == world.client.engine.architecture


async def test_an_index_with_nothing_for_this_machine_is_of_no_use(world: DockerWorld) -> None:
    push_as(world.bed, "foreign", world.path)
    assert await world.images.resolve(world.repository) == Pinned(
        world.repository, digest_of(world.bed, "foreign")
    )
    with pytest.raises(ImageUnusable, match="no matching manifest"):
        await world.images.pull(world.repository, unheard)
    assert await world.references() == set()


async def test_an_image_of_which_no_platform_is_told_is_pulled(world: DockerWorld) -> None:
    push_as(world.bed, "shell-oci", world.path)
    assert (await world.images.pull(world.repository, unheard)).digest == digest_of(world.bed, "shell-oci")


async def test_what_is_fetched_is_what_was_resolved_when_the_tag_moves_meanwhile(world: DockerWorld) -> None:
    first = world.publish("1", "one")
    held = world.hold_pull("1")
    found = []

    async def pull() -> None:
        found.append(await world.images.pull(f"{world.repository}:1", unheard))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull)
        await held.begun.wait()
        world.publish("1", "two")
        held.release()
    assert found[0].digest == first
