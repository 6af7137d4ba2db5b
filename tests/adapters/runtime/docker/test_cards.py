"""Cards that a container is granted, and those that it is not, by a stand-in for NVIDIA's toolkit."""

import attrs
import pytest

from adapters.runtime.port import StartFailed
from tests.support.docker.bed import DockerBed
from tests.support.docker.hostile import WANTED, hostile
from tests.support.docker.own import open_own_engine
from tests.support.docker.use import push_as
from tests.support.runtimes import open_docker_world, pulled

MEMORY = 256 << 20


async def test_a_card_that_was_not_granted_is_not_handed_over(docker_bed: DockerBed) -> None:
    """bottlerocket-os/bottlerocket#3718: one that was granted none, or one, saw all of them."""
    async with (
        open_own_engine(docker_bed, nvidia=True) as engine,
        open_docker_world(docker_bed, socket=engine.socket) as world,
    ):
        assert engine.nvidia is not None
        image = push_as(docker_bed, hostile(), f"{world.instance}/hostile")
        image = await pulled(docker_bed, world.client, image)
        for is_boxed in (True, False):
            spec = world.job("env", image=image, memory=MEMORY, environment=WANTED, is_boxed=is_boxed)
            await world.run(spec)
            assert engine.nvidia.seen() == []

            granted = attrs.evolve(spec, workload="job-2", device_uuids=("GPU-1", "GPU-2"))
            ended = await world.run(granted)

            given = {
                "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
                "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            }
            assert engine.nvidia.seen()[-1] == given
            inside = dict(line.partition("=")[::2] for line in ended.output)
            assert {name: value for name, value in inside.items() if "NVIDIA" in name} == given
            assert "CUDA_VISIBLE_DEVICES" not in inside
            (engine.nvidia.folder / "seen.jsonl").unlink()


async def test_a_toolkit_that_fails_says_what_to_do(docker_bed: DockerBed) -> None:
    async with (
        open_own_engine(docker_bed, nvidia=True) as engine,
        open_docker_world(docker_bed, socket=engine.socket) as world,
    ):
        assert engine.nvidia is not None
        engine.nvidia.fail("requirement error: unsatisfied condition: cuda>=13.0, please update your driver")

        with pytest.raises(StartFailed, match="driver is too old") as failed:
            await world.runtime.start(attrs.evolve(world.job("true"), device_uuids=("GPU-1",)))

        assert failed.value.code == "DEVICE_UNAVAILABLE"
        assert "BEST_PEER_VLLM_IMAGE" in failed.value.fix
        assert await world.runtime.kept() == ()
