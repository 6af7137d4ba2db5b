"""The worlds that the contract of images is tested in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.adapters.images.worlds import FakeWorld, open_docker_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.adapters.images.worlds import World
    from tests.support.docker.bed import DockerBed


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def bed_or_none(request: pytest.FixtureRequest) -> DockerBed | None:
    return request.getfixturevalue("docker_bed") if request.param == "docker" else None


@pytest.fixture
async def world(bed_or_none: DockerBed | None, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A registry and an engine, real ones or the fake's."""
    if bed_or_none is None:
        yield FakeWorld()
        return
    async with open_docker_world(bed_or_none, request.node.nodeid) as found:
        yield found
