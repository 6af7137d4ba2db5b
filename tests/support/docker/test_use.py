"""Images under a test's own names, on the real registry and engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.docker.contents import build_python_image
from tests.support.docker.use import (
    containers_of,
    digest_of,
    engine_client,
    pinned,
    push_as,
    untagged,
)

if TYPE_CHECKING:
    from tests.support.docker.bed import DockerBed


def test_the_reference_of_what_was_pushed_can_be_pulled_and_run(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "use/run", tag="one")
    with engine_client(docker_bed) as engine:
        said = engine.get(f"/distribution/{reference}/json").raise_for_status().json()
        assert said["Descriptor"]["digest"] == digest_of(docker_bed, "shell")
        by_digest = pinned(docker_bed, reference, "shell")
        pulled = engine.post("/images/create", params={"fromImage": by_digest}).raise_for_status()
        assert "error" not in pulled.text
        assert (
            _run(engine, by_digest, ["sh", "-c", "id -un; ls -1d /in /out /tmp"]) == "root\n/in\n/out\n/tmp\n"
        )
        engine.delete(f"/images/{by_digest}").raise_for_status()


def test_an_image_of_the_tests_own_brings_its_files_and_packages(docker_bed: DockerBed) -> None:
    image = build_python_image(
        files={"/serve": b"#!/usr/bin/python3\nimport attrs, ssl\nprint(attrs.__name__, ssl.HAS_TLSv1_3)\n"},
        site_packages=["attrs", "attr"],
        config={"Entrypoint": ["/serve"], "Cmd": []},
    )
    reference = push_as(docker_bed, image, "use/packages")
    with engine_client(docker_bed) as engine:
        engine.post("/images/create", params={"fromImage": reference}).raise_for_status()
        assert _run(engine, reference, []) == "attrs True\n"
        engine.delete(f"/images/{reference}").raise_for_status()


@pytest.mark.parametrize("name", ["foreign", "indexed"])
def test_an_index_is_served_under_its_own_digest(docker_bed: DockerBed, name: str) -> None:
    reference = push_as(docker_bed, name, f"use/{name}")
    with engine_client(docker_bed) as engine:
        said = engine.get(f"/distribution/{reference}/json").raise_for_status().json()
    assert said["Descriptor"]["digest"] == digest_of(docker_bed, name)
    assert len(said["Platforms"]) == {"foreign": 1, "indexed": 2}[name]


def test_containers_are_told_by_the_instance_they_bear(docker_bed: DockerBed) -> None:
    label = "io.behavioralstate.best-peer.instance"
    reference = push_as(docker_bed, "shell", "use/labels")
    with engine_client(docker_bed) as engine:
        engine.post("/images/create", params={"fromImage": reference}).raise_for_status()
        made = engine.post("/containers/create", json={"Image": reference, "Labels": {label: "use-a"}})
        identity = made.raise_for_status().json()["Id"]
        assert [found["Id"] for found in containers_of(docker_bed, "use-a")] == [identity]
        assert containers_of(docker_bed, "use-b") == []
        engine.delete(f"/containers/{identity}").raise_for_status()
        engine.delete(f"/images/{reference}").raise_for_status()


def test_a_reference_without_its_tag_keeps_the_port() -> None:
    assert untagged("127.0.0.1:5000/a/b:c") == "127.0.0.1:5000/a/b"
    assert untagged("127.0.0.1:5000/a/b") == "127.0.0.1:5000/a/b"
    assert untagged("127.0.0.1:5000/a/b@sha256:00") == "127.0.0.1:5000/a/b"


def _run(engine: httpx.Client, image: str, command: list[str]) -> str:
    made = engine.post("/containers/create", json={"Image": image, "Cmd": command, "Tty": True})
    identity = made.raise_for_status().json()["Id"]
    engine.post(f"/containers/{identity}/start").raise_for_status()
    ended = json.loads(engine.post(f"/containers/{identity}/wait").raise_for_status().text)
    logs = engine.get(f"/containers/{identity}/logs", params={"stdout": "1", "stderr": "1"})
    engine.delete(f"/containers/{identity}").raise_for_status()
    assert ended["StatusCode"] == 0, logs.text
    return logs.text.replace("\r\n", "\n")
