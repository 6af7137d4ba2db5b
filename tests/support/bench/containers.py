"""A job and a deployment in containers against the same calls made by a bare client of the same engine.

The engine is the test bed's, which is made for it: `python -m tests.support.bench.containers SCRATCH` is what
runs in there, and the last line it writes is its lines as JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import cattrs

from actors.state.keys import Grant
from tests.standins.images import ollama_image
from tests.support.bench.bench import MIB, Bench, Served
from tests.support.bench.child import ROOT, Child
from tests.support.bench.figures import (
    Line,
    NotMeasured,
    Pairs,
    alternate,
    milliseconds,
    ratio_line,
    seconds,
)
from tests.support.bench.history import HOLDER
from tests.support.docker.bed import DockerBed, the_bed
from tests.support.docker.ready import LABEL
from tests.support.docker.use import engine_client, pinned, push_as

BED_SECONDS = 1800.0
AT_ONCE = 20
MODEL = "tiny:latest"
PORT = "11434/tcp"
SAYS = ["echo", "it is done"]
SHARE = Grant(scopes=("deploy", "jobs", "prompt"), memory_bytes=16 << 30)
"""A tenant's key: its jobs run in the closed box."""
_GONE_SECONDS = 60.0
_PATIENCE_SECONDS = 240


@attrs.frozen
class Run:
    """Seconds until the end of all was told, the median of one, and the peer's processor seconds for each."""

    seconds: float
    median: float
    cpu: float = 0.0


@attrs.frozen
class Kind:
    """A kind of workload, through the door and bare.

    Args:
        name: what the bare client is asked to `do`.
        question: the command's request.
        fact: what is told when it has done what is measured.
        bare: the bare client's question.
    """

    name: str
    question: str
    fact: str
    bare: dict[str, Any]


@attrs.frozen
class Stage:
    """What one measurement is made with."""

    bench: Bench
    bed: DockerBed
    served: Served
    client: Child
    bare: Child

    def through_door(self, kind: Kind, count: int) -> Run:
        """One round of ours: so many commands at once, until the last one's fact stood on the stream."""
        before = self.served.child.cpu()
        result = self.client.ask(
            do="prompts",
            port=self.served.door.port,
            users=count,
            count=count,
            question=kind.question,
            stream=self.served.door.stream(f"?type={kind.fact}"),
            fact=kind.fact,
            patience=_PATIENCE_SECONDS,
            within=2 * _PATIENCE_SECONDS,
        )
        used = self.served.child.cpu() - before
        self._clear_up()
        return Run(result["seconds"], result["median"], used / count)

    def by_calls(self, kind: Kind, count: int) -> Run:
        """One round of the baseline."""
        result = self.bare.ask(do=kind.name, count=count, within=2 * _PATIENCE_SECONDS, **kind.bare)
        return Run(result["seconds"], result["median"])

    def body_of(self, workload: str) -> dict[str, Any]:
        """How another container is made just like this workload's, with nothing to be found by."""
        with engine_client(self.bed) as docker:
            found = docker.get("/containers/json", params={"all": "1", "filters": _label(workload)}).json()
            made = docker.get(f"/containers/{found[0]['Id']}/json").raise_for_status().json()
        body: dict[str, Any] = {**made["Config"], "HostConfig": made["HostConfig"], "Labels": {}}
        del body["Hostname"]
        return body

    def _clear_up(self) -> None:
        """End what was deployed, and wait until no container of the peer's is left, which is not measured."""
        door = self.served.door
        left = [one["deployment"] for one in door.get("/queries/get-workloads")["deployments"]]
        for ended in [door.send("UndeployModel", {"deployment": one}) for one in left]:
            door.wait_for(ended, "Undeployed")
        deadline = time.monotonic() + _GONE_SECONDS
        with engine_client(self.bed) as docker:
            while docker.get("/containers/json", params={"all": "1", "filters": _label()}).json():
                if time.monotonic() > deadline:
                    raise NotMeasured(f"containers are left {_GONE_SECONDS:.0f} s after their end was told")
                time.sleep(0.01)


def measure(bench: Bench) -> list[Line]:
    """In a bed that is made for it and ends with it.

    Raises:
        NotMeasured: there can be none here, or something was not as it should be in it.
    """
    argv = [str(ROOT / "scripts" / "testbed"), sys.executable, "-m", __spec__.name, str(bench.folder("bed"))]
    argv += ["--quick"] if bench.quick else []
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=BED_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"it took more than {BED_SECONDS:.0f} s") from None
    if done.returncode or not done.stdout:
        raise NotMeasured("no Docker engine of its own could be made, or it broke: see above")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "failed" in answer:
        raise NotMeasured(answer["failed"])
    return cattrs.structure(answer["lines"], list[Line])


def measure_in(bed: DockerBed, bench: Bench) -> list[Line]:
    """Jobs, then deployments; one at a time, then twenty at once. The keys of `bench` have `SHARE`."""
    with staged(bed, bench) as stage:
        lines = []
        for kind, rounds in ((job_kind(stage), (31, 9)), (deployment_kind(stage), (9, 3))):
            bench.say(f"{kind.name}, one at a time")
            lines.append(_one_line(stage, kind, bench.pick(rounds[0], 1)))
            bench.say(f"{kind.name}, {bench.pick(AT_ONCE, 2)} at once")
            lines.append(_crowd_line(stage, kind, bench.pick(rounds[1], 1)))
        return lines


_WHAT = {
    "jobs": (
        "a job that prints a line, in the closed box, from the command to the fact of its end, against "
        "creating, starting and awaiting its container and reading its output"
    ),
    "deploys": (
        "a deployment of Ollama's stand-in with a tiny model, from the command to its being ready, against "
        "the same calls of Docker and of the engine"
    ),
}


def _one_line(stage: Stage, kind: Kind, rounds: int) -> Line:
    base, ours = _rounds(stage, kind, 1, rounds)
    times = Pairs(tuple(o.seconds for o in ours), tuple(b.seconds for b in base))
    more = times.difference
    line = ratio_line(f"{_WHAT[kind.name]}, one at a time", times, milliseconds, None)
    told = f"{more.middle * 1e3:.1f} ms more ({more.low * 1e3:.1f} to {more.high * 1e3:.1f})"
    spent = f"{milliseconds(median(o.cpu for o in ours))} of processor time in the peer"
    return attrs.evolve(line, shown=f"{line.shown}; {told}, {spent}")


def _crowd_line(stage: Stage, kind: Kind, rounds: int) -> Line:
    count = stage.bench.pick(AT_ONCE, 2)
    base, ours = _rounds(stage, kind, count, rounds)
    times = Pairs(tuple(o.seconds for o in ours), tuple(b.seconds for b in base))
    line = ratio_line(f"the same, {count} at once, until the last", times, seconds, None)
    spent = f"{milliseconds(median(o.cpu for o in ours))} of processor time each in the peer"
    return attrs.evolve(line, shown=f"{line.shown}; {spent}")


def _rounds(stage: Stage, kind: Kind, count: int, rounds: int) -> tuple[list[Run], list[Run]]:
    base, ours = alternate(
        rounds, partial(stage.by_calls, kind, count), partial(stage.through_door, kind, count)
    )
    return base, ours


@contextmanager
def staged(bed: DockerBed, bench: Bench) -> Iterator[Stage]:
    """A peer, a client of its door and a bare client of the bed's engine, each in a process of its own."""
    engine = ollama_image()
    settings = {
        "BEST_PEER_GPU": "none",
        "BEST_PEER_RUNTIME": "docker",
        "DOCKER_HOST": bed.docker_host,
        "BEST_PEER_OLLAMA_IMAGE": pinned(bed, push_as(bed, engine, "bench/ollama"), engine),
        "BEST_PEER_COMMANDS_PER_MINUTE": "1000000",
    }
    home = bench.folder("bare")
    with (
        bench.served(None, **settings) as served,
        bench.client() as client,
        Child.start(["tests.support.bench.barecalls", str(bed.socket), bed.api], home) as bare,
    ):
        bare.answer()
        yield Stage(bench, bed, served, client, bare)


def job_kind(stage: Stage) -> Kind:
    """Jobs of an image that the engine holds; the first one, which has it pulled, shows how they are made."""
    door = stage.served.door
    image = pinned(stage.bed, push_as(stage.bed, "shell", "bench/job"), "shell")
    order = {"image": image, "memory_bytes": MIB}
    begun = door.send("RunJob", {**order, "command": ["sleep", "600"]})
    job = door.wait_for(begun, "JobStarted", fails="JobFailed")["job"]
    body = {**stage.body_of(job), "Cmd": SAYS}
    door.wait_for(door.send("StopJob", {"job": job}), "JobStopped")
    command = door.request("POST", "/commands", door.command("RunJob", {**order, "command": SAYS}))
    return Kind("jobs", command.decode(), "JobFinished", {"body": body})


def deployment_kind(stage: Stage) -> Kind:
    """The same with deployments."""
    door = stage.served.door
    order = {"model": MODEL, "engine": "ollama", "memory_bytes": 128 * MIB}
    ready = door.wait_for(door.send("DeployModel", order), "DeploymentReady", fails="DeploymentFailed")
    body = stage.body_of(ready["deployment"])
    door.wait_for(door.send("UndeployModel", {"deployment": ready["deployment"]}), "Undeployed")
    command = door.request("POST", "/commands", door.command("DeployModel", order))
    return Kind("deploys", command.decode(), "DeploymentReady", {"body": body, "port": PORT, "model": MODEL})


def _label(workload: str | None = None) -> str:
    """Docker's filter for a workload's container; without one, for all of the key's."""
    mark = f"{LABEL}.holder={HOLDER}" if workload is None else f"{LABEL}.workload={workload}"
    return json.dumps({"label": [mark]})


def main() -> None:
    """Measure in the bed that this process runs in."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    answer: dict[str, Any]
    bench = Bench(asked.scratch, quick=asked.quick, grant=SHARE)
    try:
        answer = {"lines": cattrs.unstructure(measure_in(the_bed(), bench))}
    except NotMeasured as why:
        answer = {"failed": str(why)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
