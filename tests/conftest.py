"""What all tests share."""

import pytest

from tests.support.docker.bed import DockerBed, NoBed, the_bed

pytest_plugins = ["tests.support.nvml.fixtures"]


@pytest.fixture(scope="session")
def docker_bed() -> DockerBed:
    """A real Docker engine and registries on loopback, shared by every test of the run.

    A test uses an instance id and a repository name of its own, and leaves no container behind.
    """
    bed: DockerBed | NoBed
    try:
        bed = the_bed()
    except NoBed as problem:
        bed = problem
    if isinstance(bed, NoBed):
        pytest.fail(str(bed), pytrace=False)
    return bed


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "docker: needs an engine of its own (set on what uses docker_bed)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "docker_bed" in getattr(item, "fixturenames", ()):
            item.add_marker("docker")
