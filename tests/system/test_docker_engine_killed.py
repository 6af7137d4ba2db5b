"""A container engine that is killed under a deployment: what is told, what is left, what goes on (F19, F37).

The engine is one of the test's own; the peer is the whole one, in this process.
"""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from tests.standins.images import ollama_image
from tests.support.docker.own import open_own_engine
from tests.support.docker.proxy import Hold, open_proxy
from tests.support.docker.use import push_as
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.docker.bed import DockerBed
    from tests.support.docker.own import OwnEngine

HANG = 240.0
"""A bound on a hang, no measure of speed."""

DEPLOY = {"model": "tiny", "engine": "ollama", "memory_bytes": 1 << 30}
ENDS = {"DeploymentReady", "DeploymentFailed", "DeploymentEnded", "OutOfMemory", "CommandFailed"}


@pytest.fixture(scope="module")
def ollama(docker_bed: DockerBed) -> str:
    """Where the stand-in for Ollama's image is."""
    return push_as(docker_bed, ollama_image(), f"standin/ollama-{uuid.uuid4().hex[:8]}")


@attrs.frozen
class Served:
    """A peer over an engine that may be killed, and an agent that may do everything."""

    engine: OwnEngine
    door: OpenDoor
    agent: Agent

    async def kill(self) -> None:
        """End the engine as a crash would; what it ran goes on until it is started again."""
        await trio.to_thread.run_sync(self.engine.kill)

    async def start(self) -> None:
        """Start it again."""
        await trio.to_thread.run_sync(self.engine.start)

    async def until(self, correlation: str, *kinds: str) -> list[dict[str, Any]]:
        """Every fact under a correlation up to the first of these types."""
        with trio.fail_after(HANG):
            async with self.agent.stream("from the beginning", correlationId=correlation) as listener:
                return list(await listener.until(*kinds))

    async def nothing_is_left(self) -> None:
        """Wait until there is no container any more."""
        with trio.fail_after(HANG):
            while await trio.to_thread.run_sync(self.engine.containers):  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.05)


@asynccontextmanager
async def serving(bed: DockerBed, folder: Path, image: str, *flags: str) -> AsyncIterator[Served]:
    """A peer over an engine of its own."""
    async with open_own_engine(bed, *flags) as engine:
        settings = {
            "BEST_PEER_GPU": "none",
            "BEST_PEER_RUNTIME": "docker",
            "DOCKER_HOST": engine.docker_host,
            "BEST_PEER_OLLAMA_IMAGE": image,
        }
        async with open_door(folder, settings=settings) as door:
            yield Served(engine, door, await door.sign_in())


def kinds(told: list[dict[str, Any]]) -> list[str]:
    return [fact["type"] for fact in told]


async def test_a_pull_goes_on_once_its_engine_is_back(
    docker_bed: DockerBed, ollama: str, tmp_path: Path
) -> None:
    async with (
        open_proxy(docker_bed.registry.address) as proxy,
        serving(docker_bed, tmp_path, proxy.reference(ollama)) as served,
    ):
        held = proxy.fault("GET .*/blobs/", Hold(after=1000))
        correlation = await served.agent.command("DeployModel", DEPLOY)
        with trio.fail_after(HANG):
            await held.reached.wait()
        await served.kill()
        proxy.heal()
        held.release()
        await served.start()
        told = await served.until(correlation, *ENDS)
        assert kinds(told)[-1] == "DeploymentReady"
        assert (kinds(told).count("ImagePulled"), kinds(told).count("DeploymentStarted")) == (1, 1)
        deployment = told[-1]["data"]["deployment"]
        undeploy = await served.agent.command("UndeployModel", {"deployment": deployment})
        await served.until(undeploy, "Undeployed")
        await served.nothing_is_left()


async def test_without_live_restore_what_ran_is_told_to_have_ended(
    docker_bed: DockerBed, ollama: str, tmp_path: Path
) -> None:
    async with serving(docker_bed, tmp_path, ollama) as served:
        correlation = await served.agent.command("DeployModel", DEPLOY)
        assert kinds(await served.until(correlation, *ENDS))[-1] == "DeploymentReady"
        await served.kill()
        await served.start()
        ended = (await served.until(correlation, "DeploymentEnded"))[-1]["data"]
        assert ended["reason"]
        await served.nothing_is_left()
        again = await served.agent.command("DeployModel", DEPLOY)
        assert kinds(await served.until(again, *ENDS))[-1] == "DeploymentReady"


async def test_with_live_restore_a_deployment_goes_on(
    docker_bed: DockerBed, ollama: str, tmp_path: Path
) -> None:
    async with serving(docker_bed, tmp_path, ollama, "--live-restore") as served:
        correlation = await served.agent.command("DeployModel", DEPLOY)
        ready = (await served.until(correlation, *ENDS))[-1]
        assert ready["type"] == "DeploymentReady"
        deployment = ready["data"]["deployment"]
        (before,) = await trio.to_thread.run_sync(served.engine.containers)
        await served.kill()
        await served.start()
        words = {"deployment": deployment, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        prompt = await served.agent.command("Prompt", words)
        assert kinds(await served.until(prompt, "PromptAnswered", "PromptFailed")) == ["PromptAnswered"]
        (after,) = await trio.to_thread.run_sync(served.engine.containers)
        assert (after["Id"], after["State"]) == (before["Id"], "running")
        undeploy = await served.agent.command("UndeployModel", {"deployment": deployment})
        await served.until(undeploy, "Undeployed")
        await served.nothing_is_left()
        assert "DeploymentEnded" not in kinds(await served.agent.events(correlationId=correlation))


async def test_an_undeploy_while_the_engine_is_away_is_carried_out_when_it_is_back(
    docker_bed: DockerBed, ollama: str, tmp_path: Path
) -> None:
    async with serving(docker_bed, tmp_path, ollama, "--live-restore") as served:
        correlation = await served.agent.command("DeployModel", DEPLOY)
        deployment = (await served.until(correlation, *ENDS))[-1]["data"]["deployment"]
        await served.kill()
        undeploy = await served.agent.command("UndeployModel", {"deployment": deployment})
        rows = (await served.agent.get("/queries/get-workloads")).json()["deployments"]
        assert [row["phase"] for row in rows] == ["ending"]
        await served.start()
        assert kinds(await served.until(undeploy, "Undeployed")) == ["Undeployed"]
        await served.nothing_is_left()


async def test_an_engine_that_is_killed_while_a_model_loads_fails_the_deploy(
    docker_bed: DockerBed, ollama: str, tmp_path: Path
) -> None:
    async with serving(docker_bed, tmp_path, ollama) as served:
        correlation = await served.agent.command("DeployModel", {**DEPLOY, "model": "tiny:slow"})
        await served.until(correlation, "WeightsLoading")
        await served.kill()
        await served.start()
        told = await served.until(correlation, *ENDS)
        assert kinds(told)[-1] == "DeploymentFailed"
        assert told[-1]["data"]["fix"]
        await served.nothing_is_left()
        state = (await served.agent.get("/queries/get-hardware-state")).json()
        assert [device["memory_promised_bytes"] for device in state["devices"]] == [0]
