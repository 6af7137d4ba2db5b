"""Engines and registries that a test may treat badly: nothing of them is left."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.docker.kernel import cgroup_processes
from tests.support.docker.own import OwnEngine, open_own_engine, own_engine, own_registry
from tests.support.docker.use import push_as

if TYPE_CHECKING:
    from tests.support.docker.bed import DockerBed


def _run(engine: OwnEngine, image: str, *command: str, **host: Any) -> str:
    """Start a container; its id."""
    with engine.client() as client:
        asked = {"Image": image, "Cmd": list(command), "HostConfig": host}
        identity = str(client.post("/containers/create", json=asked).raise_for_status().json()["Id"])
        started = client.post(f"/containers/{identity}/start")
        assert started.is_success, started.text
        return identity


def _output(engine: OwnEngine, identity: str) -> str:
    with engine.client() as client:
        client.post(f"/containers/{identity}/wait").raise_for_status()
        logs = client.get(f"/containers/{identity}/logs", params={"stdout": "1"}).raise_for_status()
        return logs.content[8:].decode()


def _links() -> str:
    return subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout


def _traces(engine: OwnEngine) -> list[str]:
    mounts = Path("/proc/self/mountinfo").read_text()
    links = _links()
    left = [str(path) for path in (engine.folder, engine.data) if path.exists()]
    left += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*{engine.cgroup}")]
    left += [line for line in mounts.splitlines() if str(engine.folder) in line or str(engine.data) in line]
    left += [line for line in links.splitlines() if engine.bridge in line]
    left += [str(pid) for pid in cgroup_processes(engine.cgroup)]
    return left


@pytest.mark.parametrize("ending", ["none", "stop", "kill"])
def test_nothing_of_an_engine_is_left_however_it_ended(docker_bed: DockerBed, ending: str) -> None:
    reference = push_as(docker_bed, "web", "own/web")
    with own_engine(docker_bed, "--live-restore") as engine:
        engine.pull(reference)
        ports = {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "0"}]}
        identity = _run(engine, reference, "httpd", "-f", "-p", "8080", "-h", "/www", PortBindings=ports)
        with engine.client() as client:
            shown = client.get(f"/containers/{identity}/json").raise_for_status().json()
        port = shown["NetworkSettings"]["Ports"]["8080/tcp"][0]["HostPort"]
        transport = httpx.HTTPTransport(retries=5)
        with httpx.Client(transport=transport, trust_env=False) as caller:
            assert caller.get(f"http://127.0.0.1:{port}/index.html").text == "it works\n"
        with engine.client() as client:
            client.post("/networks/create", json={"Name": "own", "Driver": "bridge"}).raise_for_status()
        (bridge,) = engine.bridges_of_networks()
        assert bridge in _links()
        if ending != "none":
            {"stop": engine.stop, "kill": engine.kill}[ending]()
            assert cgroup_processes(engine.cgroup), "live-restore keeps containers running"
    assert _traces(engine) == []
    assert bridge not in _links()


def test_an_engine_comes_back_with_what_it_had_and_the_beds_stays(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "own/shell")
    with own_engine(docker_bed) as engine:
        engine.pull(reference)
        identity = _run(engine, reference, "sleep", "600", Init=True)
        engine.kill()
        assert not engine.answers()
        engine.start()
        assert [found["Id"] for found in engine.containers()] == [identity]
        assert engine.containers()[0]["State"] == "exited"
    transport = httpx.HTTPTransport(uds=str(docker_bed.socket))
    with httpx.Client(transport=transport, base_url=docker_bed.api) as client:
        assert client.get("/_ping").is_success


def test_a_small_disk_fills_up(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "layered", "own/layered")
    with own_engine(docker_bed, disk_bytes=12 << 20) as engine:
        with engine.client() as client:
            answer = client.post("/images/create", params={"fromImage": reference})
        assert "no space left on device" in answer.text
    assert _traces(engine) == []


async def test_root_is_another_user_outside(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "own/mapped")
    async with open_own_engine(docker_bed, "--userns-remap=default") as engine:
        engine.pull(reference)
        identity = _run(engine, reference, "cat", "/proc/self/uid_map")
        assert _output(engine, identity).split() == ["0", "100000", "65536"]
    assert _traces(engine) == []


def test_the_stand_in_for_nvidias_toolkit_notes_what_is_given(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "own/devices")
    with own_engine(docker_bed, nvidia=True) as engine:
        assert engine.nvidia
        engine.pull(reference)
        wanted = [{"Driver": "nvidia", "DeviceIDs": ["GPU-1", "GPU-2"], "Capabilities": [["gpu"]]}]
        _run(engine, reference, "true", DeviceRequests=wanted)
        (seen,) = engine.nvidia.seen()
        assert seen["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
        engine.nvidia.fail("device error: GPU-1: unknown device")
        with pytest.raises(AssertionError, match="unknown device"):
            _run(engine, reference, "true", DeviceRequests=wanted)


def test_a_registry_comes_back_where_it_was(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "own/registry")
    with own_registry(docker_bed) as registry:
        asked = f"http://{registry.address}/v2/own/registry/manifests/latest"
        assert reference.endswith("/own/registry:latest")
        assert httpx.get(asked, trust_env=False).is_success
        registry.kill()
        with pytest.raises(httpx.ConnectError):
            httpx.get(asked, trust_env=False)
        registry.start()
        assert httpx.get(asked, trust_env=False).is_success
