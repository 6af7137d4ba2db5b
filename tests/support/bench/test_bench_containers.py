"""What jobs and deployments are measured against: the peer's containers again, made by nobody's rules."""

from __future__ import annotations

from pathlib import Path

from tests.support.bench.bench import Bench
from tests.support.bench.containers import SHARE, job_kind, staged
from tests.support.docker.bed import DockerBed
from tests.support.docker.use import engine_client


def test_the_bare_client_runs_the_containers_that_the_peer_runs(
    docker_bed: DockerBed, tmp_path: Path
) -> None:
    with (
        staged(docker_bed, Bench(tmp_path, quick=True, grant=SHARE)) as stage,
        engine_client(docker_bed) as docker,
    ):
        kind = job_kind(stage)
        wanted = kind.bare["body"]["HostConfig"]
        made = docker.post("/containers/create", json=kind.bare["body"]).raise_for_status().json()["Id"]
        try:
            got = docker.get(f"/containers/{made}/json").json()["HostConfig"]
        finally:
            docker.delete(f"/containers/{made}").raise_for_status()
        assert got == wanted
        assert got["ReadonlyRootfs"], "it is not the closed box"
        for run in (stage.through_door(kind, 2), stage.by_calls(kind, 2)):
            assert 0 < run.median <= run.seconds
