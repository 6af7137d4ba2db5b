"""The empty box that is started when a peer starts."""

from typing import Any

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.containers import Containers
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.info import OPEN_FILES
from adapters.runtime.docker.probe import PROBE, image_name, make_empty_image
from adapters.runtime.port import Container, WorkloadSpec
from tests.support.docker.bed import DockerBed
from tests.support.docker.own import open_own_engine
from tests.support.runtimes import docker_runtime


async def everything(client: DockerClient) -> dict[str, Any]:
    """What an engine has but for the peer's own network: containers, images, volumes, networks."""
    containers = await client.call("GET", "/containers/json", params={"all": 1})
    images = await client.call("GET", "/images/json", params={"all": 1})
    volumes = await client.call("GET", "/volumes")
    networks = await client.call("GET", "/networks")
    return {
        "containers": [one["Id"] for one in containers],
        "images": [one["Id"] for one in images],
        "volumes": volumes["Volumes"] or [],
        "networks": sorted(one["Name"] for one in networks if one["Name"] != "bp-p-1"),
    }


async def test_a_peer_that_starts_leaves_nothing_of_its_look_at_the_engine(docker_bed: DockerBed) -> None:
    async with (
        open_own_engine(docker_bed) as engine,
        DockerClient(unix_endpoint(engine.socket)) as client,
    ):
        before = await everything(client)
        async with docker_runtime(client, "p-1") as runtime:
            assert await everything(client) == before
            assert runtime.engine.open_files in (OPEN_FILES, None)
            assert any("65536" in remark for remark in runtime.remarks()) == (
                runtime.engine.open_files is None
            )
        assert await everything(client) == before


async def test_an_engine_on_which_no_box_starts_is_told_of(docker_bed: DockerBed) -> None:
    async with (
        open_own_engine(docker_bed, "--init-path", "/nowhere/docker-init") as engine,
        DockerClient(unix_endpoint(engine.socket)) as client,
    ):
        before = await everything(client)
        async with docker_runtime(client, "p-1") as runtime:
            (said,) = (remark for remark in runtime.remarks() if "no job can be started" in remark)
            assert "docker-init" in said
        assert await everything(client) == before


async def test_what_an_earlier_peer_left_of_its_look_is_removed(docker_bed: DockerBed) -> None:
    async with (
        open_own_engine(docker_bed) as engine,
        DockerClient(unix_endpoint(engine.socket)) as client,
    ):
        async with docker_runtime(client, "p-1") as killed:
            containers = Containers(client, "p-1")
            before = await everything(client)
            await make_empty_image(containers)
            program = Container(image_name(containers), ("/nothing",))
            await killed.prepare(WorkloadSpec(PROBE, "", program))
            assert await everything(client) != before
            assert await killed.kept() == ()

        async with docker_runtime(client, "p-1"):
            assert await everything(client) == before
