"""Whose a process is, by its control group and by the engine's own word: both say the same."""

from collections.abc import AsyncIterator

import pytest

from adapters.runtime.docker import pids
from tests.support.docker.bed import DockerBed
from tests.support.runtimes import DockerWorld, open_docker_world


@pytest.fixture
async def world(docker_bed: DockerBed) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed) as made:
        yield made


@pytest.mark.parametrize("is_shown", [True, False])
async def test_every_container_has_its_own_processes_whoever_says_so(
    world: DockerWorld, monkeypatch: pytest.MonkeyPatch, is_shown: bool
) -> None:
    if not is_shown:
        monkeypatch.setattr(pids, "by_container", lambda among: None)
    else:
        # The test's engine may run among numbers of its own: its containers are in groups all the same.
        monkeypatch.setattr("adapters.runtime.docker.groups.are_the_machines", lambda proc: True)
    await world.runtime.start(world.job("sh", "-c", "sleep 600 & sleep 600"))
    await world.runtime.start(world.spec("dep-2"))
    first, second = (
        await world.runtime.processes("job-1"),
        await world.runtime.processes("dep-2"),
    )

    assert len(first) >= 3
    assert await world.runtime.all_processes() == {"job-1": first, "dep-2": second}
    assert await world.runtime.all_processes(first) == {"job-1": first, "dep-2": frozenset()}
    await world.runtime.stop("job-1", grace_seconds=0)
    assert await world.runtime.all_processes() == {"dep-2": second}
