"""A disk that gets full below the container engine in a pull: what the door tells of it (F19, F22)."""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any

import trio

from tests.support.docker.contents import build_image, files_layer
from tests.support.docker.own import open_own_engine
from tests.support.docker.use import push_as
from tests.support.peers import open_door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.docker.bed import DockerBed
    from tests.support.docker.own import OwnEngine

HANG = 240.0
"""A bound on a hang, no measure of speed."""

MIB = 1 << 20
DISK = 48 * MIB
IMAGE = 30 * MIB
"""It lies there packed and unpacked for a moment, and once is all that there is room for."""

DEPLOY = {"model": "tiny", "engine": "ollama", "memory_bytes": 128 * MIB}


async def end_of(agent: Agent, kind: str, data: dict[str, Any], *ends: str) -> list[dict[str, Any]]:
    """Carry out a command; every fact up to its last."""
    correlation = await agent.command(kind, data)
    with trio.fail_after(HANG):
        async with agent.stream("from the beginning", correlationId=correlation) as listener:
            return await listener.until(*ends)


def images_of(engine: OwnEngine) -> set[str]:
    """What it holds by name."""
    with engine.client() as client:
        rows = client.get("/images/json").raise_for_status().json()
    return {name for row in rows for name in row["RepoDigests"] or ()}


async def test_a_full_disk_fails_what_needs_the_image_and_leaves_nothing_and_then_it_goes_on(
    docker_bed: DockerBed, tmp_path: Path
) -> None:
    noise = files_layer({"/noise": random.Random("full").randbytes(IMAGE)})
    large = push_as(docker_bed, build_image(noise), f"full/{uuid.uuid4().hex[:8]}")
    small = push_as(docker_bed, "shell", f"full/{uuid.uuid4().hex[:8]}")
    async with open_own_engine(docker_bed, disk_bytes=DISK) as engine:
        settings = {
            "BEST_PEER_GPU": "none",
            "BEST_PEER_RUNTIME": "docker",
            "DOCKER_HOST": engine.docker_host,
            "BEST_PEER_OLLAMA_IMAGE": large,
        }
        async with open_door(tmp_path, settings=settings) as door:
            agent = await door.sign_in()
            held = await trio.to_thread.run_sync(images_of, engine)
            for kind, data, failed, done in (
                ("DeployModel", DEPLOY, "DeploymentFailed", "DeploymentReady"),
                ("RunJob", {"image": large, "command": ["true"]}, "JobFailed", "JobFinished"),
                ("PullImage", {"image": large}, "CommandFailed", "ImagePulled"),
            ):
                told = await end_of(agent, kind, data, failed, done, "CommandFailed")
                assert {fact["type"] for fact in told} == {"ImagePulling", failed}
                assert told[-1]["data"]["code"] == "NO_IMAGE_ROOM"
                assert told[-1]["data"]["fix"]
                assert await trio.to_thread.run_sync(engine.containers) == []
                assert await trio.to_thread.run_sync(images_of, engine) == held
            workloads = await agent.query("get-workloads")
            assert (workloads["deployments"], workloads["jobs"], workloads["held_bytes"]) == ([], [], 0)
            hardware = await agent.query("get-hardware-state")
            assert [device["memory_promised_bytes"] for device in hardware["devices"]] == [0]

            run = {"image": small, "command": ["sh", "-c", "echo there is room"]}
            (*_, finished) = await end_of(agent, "RunJob", run, "JobFinished", "JobFailed")
            assert (finished["type"], finished["data"]["output"]) == ("JobFinished", ["there is room"])
