"""The program on a real container engine: models served, jobs run, both through a kill (F19-F22, F25, F37).

What stands in for Ollama is an image with its documented API and a real llama.cpp behind it.
"""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from actors.messages.times import time_text
from tests.standins.images import ollama_image
from tests.support.docker.use import containers_of, engine_client, networks_of, push_as
from tests.support.peers import PeerProcess, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tests.support.docker.bed import DockerBed

GIB = 1 << 30
HANG = 120.0
"""A bound on a hang, no measure of speed."""

DEPLOY = {"model": "tiny", "engine": "ollama", "memory_bytes": GIB}


@pytest.fixture(scope="module")
def ollama(docker_bed: DockerBed) -> str:
    """Where the stand-in for Ollama's image is."""
    return push_as(docker_bed, ollama_image(), f"standin/ollama-{uuid.uuid4().hex[:8]}")


@attrs.define(eq=False)
class Containers:
    """A peer over the bed's engine, and an agent of it that may do everything."""

    bed: DockerBed
    peer: PeerProcess
    key: str = ""
    agent: httpx.Client = attrs.field(init=False)

    def open(self) -> None:
        """Begin to talk to its door, wherever that is now."""
        self.key = self.key or self.peer.sign_in()
        self.agent = self.peer.client(**{"x-api-key": self.key})

    def restart(self) -> None:
        """Kill it and start it again."""
        self.peer.kill()
        self.agent.close()
        self.peer.start()
        self.open()

    def send(self, kind: str, data: dict[str, Any]) -> str:
        """An accepted command; its correlation."""
        schema = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind).lstrip("-")
        sent = {
            "specversion": "1.0",
            "id": str(uuid.uuid4()),
            "source": "urn:test",
            "type": kind,
            "time": time_text(0),
            "datacontenttype": "application/json",
            "dataschema": f"{self.peer.endpoint}/commands/{schema}/1.0",
            "data": data,
        }
        answer = self.agent.post("/commands", json=sent)
        assert answer.status_code == 201, answer.text
        correlation: str = answer.json()["correlationId"]
        return correlation

    def until(self, correlation: str, kind: str) -> list[dict[str, Any]]:
        """Every fact under a correlation up to the first of a type."""
        return listen(self.agent, correlation, until=kind)

    def carry_out(self, kind: str, data: dict[str, Any], *, until: str) -> dict[str, Any]:
        """Send a command and wait for a fact; its data."""
        found: dict[str, Any] = self.until(self.send(kind, data), until)[-1]["data"]
        return found

    def ask(self, deployment: str) -> dict[str, Any]:
        """A model's answer."""
        words = {"deployment": deployment, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        return self.carry_out("Prompt", words, until="PromptAnswered")

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Its containers, ended ones too."""
        return containers_of(self.bed, (self.peer.data / "instance").read_text().strip())

    @property
    def networks(self) -> list[dict[str, Any]]:
        """Its networks."""
        return networks_of(self.bed, (self.peer.data / "instance").read_text().strip())

    def wait_for_output(self, container: str, words: bytes) -> None:
        """Wait until a container has written this."""
        with engine_client(self.bed, timeout=HANG) as client:
            parameters = {"follow": "1", "stdout": "1"}
            with client.stream("GET", f"/containers/{container}/logs", params=parameters) as answer:
                for piece in answer.iter_raw():
                    if words in piece:
                        return
        raise AssertionError(f"it ended and did not write {words!r}")

    def nothing_is_left(self) -> bool:
        """Whether it has no container any more, soon: what has ended is removed after its end is told."""
        until = time.monotonic() + HANG
        while self.containers and time.monotonic() < until:
            time.sleep(0.05)
        return not self.containers


@pytest.fixture
def docker(docker_bed: DockerBed, ollama: str, tmp_path: Path) -> Iterator[Containers]:
    """A peer with Docker, as the program is started."""
    with serving(docker_bed, tmp_path, BEST_PEER_OLLAMA_IMAGE=ollama) as made:
        yield made


@contextmanager
def serving(bed: DockerBed, folder: Path, **settings: str) -> Iterator[Containers]:
    """A peer over the bed's engine; whatever it left is removed at the end."""
    chosen = {
        "BEST_PEER_GPU": "none",
        "BEST_PEER_RUNTIME": "docker",
        "DOCKER_HOST": bed.docker_host,
        **settings,
    }
    with PeerProcess(folder, settings=chosen) as peer:
        made = Containers(bed, peer)
        made.open()
        try:
            yield made
        finally:
            made.agent.close()
            peer.kill()
            with engine_client(bed) as client:
                for left in made.containers:
                    client.delete(f"/containers/{left['Id']}", params={"force": "1", "v": "1"})
                for network in made.networks:
                    client.delete(f"/networks/{network['Id']}")


def test_a_model_is_pulled_served_asked_and_undeployed(docker: Containers, ollama: str) -> None:
    told = docker.until(docker.send("DeployModel", DEPLOY), "DeploymentReady")
    kinds = [fact["type"] for fact in told]
    assert [kind for n, kind in enumerate(kinds) if kinds[n - 1 : n] != [kind]] == [
        "ImagePulling",
        "ImagePulled",
        "DeploymentStarted",
        "WeightsLoading",
        "DeploymentReady",
    ]
    facts = {fact["type"]: fact["data"] for fact in told}
    pulled, started = facts["ImagePulled"], facts["DeploymentStarted"]
    assert (pulled["image"], pulled["held"]) == (ollama, False)
    assert started["isolation"] == "container"
    assert {fact["data"]["deployment"] for fact in told} == {started["deployment"]}

    (container,) = docker.containers
    assert container["State"] == "running"
    assert container["Image"].endswith(pulled["digest"]), "the image that was pulled is the one that runs"
    assert {port["IP"] for port in container["Ports"] if "PublicPort" in port} == {"127.0.0.1"}
    (network,) = docker.networks
    assert list(container["NetworkSettings"]["Networks"]) == [network["Name"]]

    answered = docker.ask(started["deployment"])
    assert answered["content"]
    assert answered["completion_tokens"] <= 4

    gone = docker.carry_out("UndeployModel", {"deployment": started["deployment"]}, until="Undeployed")
    assert gone == {"deployment": started["deployment"]}
    assert docker.nothing_is_left()
    assert docker.peer.stop() == 0
    assert docker.networks == []


def test_what_runs_goes_on_through_a_kill_of_the_peer(docker: Containers) -> None:
    deployment = docker.carry_out("DeployModel", DEPLOY, until="DeploymentReady")["deployment"]
    (before,) = docker.containers
    docker.restart()
    assert docker.ask(deployment)["content"]
    (after,) = docker.containers
    assert after["Id"] == before["Id"]
    docker.carry_out("UndeployModel", {"deployment": deployment}, until="Undeployed")
    assert docker.nothing_is_left()


def test_an_engine_that_ended_while_the_peer_was_down_is_told_with_its_end(docker: Containers) -> None:
    correlation = docker.send("DeployModel", DEPLOY)
    docker.until(correlation, "DeploymentReady")
    (container,) = docker.containers
    docker.peer.kill()
    with engine_client(docker.bed) as client:
        client.post(f"/containers/{container['Id']}/kill").raise_for_status()
    docker.agent.close()
    docker.peer.start()
    docker.open()
    ended = docker.until(correlation, "DeploymentEnded")[-1]["data"]
    assert ended["exit_code"] == 137
    assert ended["output"], "its last lines are known, though nobody was there when it wrote them"
    assert docker.nothing_is_left()


def test_a_deploy_that_was_killed_over_comes_to_its_end_all_the_same(docker: Containers) -> None:
    """At whatever moment that was: the deploy is ready in the end, in one container."""
    correlation = docker.send("DeployModel", DEPLOY)
    for kind in ("ImagePulling", "DeploymentStarted"):
        docker.until(correlation, kind)
        docker.restart()
    told = docker.until(correlation, "DeploymentReady")
    assert [fact["type"] for fact in told].count("DeploymentStarted") == 1
    (container,) = docker.containers
    assert container["State"] == "running"
    deployment = told[-1]["data"]["deployment"]
    docker.carry_out("UndeployModel", {"deployment": deployment}, until="Undeployed")
    assert docker.nothing_is_left()


def test_a_model_that_cannot_be_served_fails_its_deploy_and_leaves_nothing(docker: Containers) -> None:
    why = {"tiny:large": "OUT_OF_MEMORY", "embed": "MODEL_UNUSABLE", "none": "MODEL_NOT_FOUND"}
    for model, code in why.items():
        failed = docker.carry_out("DeployModel", {**DEPLOY, "model": model}, until="DeploymentFailed")
        assert failed["code"] == code
        assert failed["fix"]
        assert docker.nothing_is_left()
    workloads = docker.agent.get("/queries/get-workloads").json()
    assert workloads["held_bytes"] == 0


def test_an_image_that_is_not_there_fails_its_deploy(docker_bed: DockerBed, tmp_path: Path) -> None:
    missing = f"{docker_bed.registry.address}/there/is-none:1"
    with serving(docker_bed, tmp_path, BEST_PEER_OLLAMA_IMAGE=missing) as docker:
        failed = docker.carry_out("DeployModel", DEPLOY, until="DeploymentFailed")
        assert failed["code"] == "IMAGE_NOT_FOUND"
        assert docker.containers == []


def test_an_image_is_pulled_by_command_and_again(docker: Containers) -> None:
    image = push_as(docker.bed, "shell", f"pulled/{uuid.uuid4().hex[:8]}")
    first = docker.carry_out("PullImage", {"image": image}, until="ImagePulled")
    assert (first["image"], first["held"]) == (image, False)
    again = docker.carry_out("PullImage", {"image": image}, until="ImagePulled")
    assert again == first
    none = docker.carry_out("PullImage", {"image": f"{image}-none"}, until="CommandFailed")
    assert none["code"] == "IMAGE_NOT_FOUND"


def test_nothing_is_pulled_that_is_held_where_the_owner_says_so(
    docker_bed: DockerBed, ollama: str, tmp_path: Path
) -> None:
    settings = {"BEST_PEER_OLLAMA_IMAGE": ollama, "BEST_PEER_PULL": "missing"}
    with serving(docker_bed, tmp_path, **settings) as docker:
        docker.carry_out("PullImage", {"image": ollama}, until="ImagePulled")
        told = docker.until(docker.send("DeployModel", DEPLOY), "DeploymentReady")
        pulling, pulled = told[:2]
        assert pulling["data"]["progress_pct"] == 100
        assert pulled["data"]["held"] is True
        deployment = told[-1]["data"]["deployment"]
        docker.carry_out("UndeployModel", {"deployment": deployment}, until="Undeployed")
        assert docker.nothing_is_left()


def test_a_job_tells_what_it_wrote_and_how_it_ended(docker: Containers) -> None:
    image = push_as(docker.bed, "shell", f"jobs/{uuid.uuid4().hex[:8]}")
    told = docker.until(
        docker.send("RunJob", {"image": image, "command": ["sh", "-c", "echo hello; id -u; exit 3"]}),
        "JobFinished",
    )
    assert [fact["type"] for fact in told if fact["type"] != "ImagePulling"] == [
        "ImagePulled",
        "JobStarted",
        "JobFinished",
    ]
    finished = told[-1]["data"]
    assert (finished["exit_code"], finished["output"]) == (3, ["hello", "0"])
    assert docker.nothing_is_left()


def test_jobs_go_on_through_a_kill_of_the_peer(docker: Containers) -> None:
    """One ends while nobody is there, one is stopped afterwards."""
    image = push_as(docker.bed, "shell", f"jobs/{uuid.uuid4().hex[:8]}")

    def begun(script: str) -> tuple[str, str]:
        correlation = docker.send("RunJob", {"image": image, "command": ["sh", "-c", script]})
        job: str = docker.until(correlation, "JobStarted")[-1]["data"]["job"]
        return correlation, job

    ends, _ = begun("trap 'echo done; exit 7' USR1; echo set; while :; do sleep 300 & wait $!; done")
    (first,) = docker.containers
    docker.wait_for_output(first["Id"], b"set")
    _, job = begun("sleep 300")
    docker.peer.kill()
    docker.agent.close()
    with engine_client(docker.bed, timeout=HANG) as client:
        client.post(f"/containers/{first['Id']}/kill", params={"signal": "USR1"}).raise_for_status()
        client.post(f"/containers/{first['Id']}/wait").raise_for_status()
    docker.peer.start()
    docker.open()
    finished = docker.until(ends, "JobFinished")[-1]["data"]
    assert (finished["exit_code"], finished["output"]) == (7, ["set", "done"])
    assert finished["ended_at"], "it ended before this was told"
    stopped = docker.carry_out("StopJob", {"job": job}, until="JobStopped")
    assert stopped["job"] == job
    assert docker.nothing_is_left()
