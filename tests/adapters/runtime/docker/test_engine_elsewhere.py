"""An engine that is spoken to over a network, as on another machine: by TLS, its ports at its address."""

import socket
import ssl
from pathlib import Path

import httpx
import pytest
import trio
import trustme

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import Endpoint, endpoint_from
from adapters.runtime.docker.faults import EngineGone
from adapters.runtime.docker.images import DockerImages
from adapters.runtime.docker.runtime import DockerRuntime
from adapters.runtime.port import Container, Exit, WorkloadSpec
from tests.support.docker.bed import DockerBed
from tests.support.docker.own import open_own_engine
from tests.support.docker.use import push_as
from tests.support.runtimes import how, pulled


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder as `DOCKER_CERT_PATH` names it, with the engine's own beside those."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for who, key, chain in (("127.0.0.1", "engine-key", "engine"), ("peer.test", "key", "cert")):
        issued = authority.issue_cert(who)
        issued.private_key_pem.write_to_path(tmp_path / f"{key}.pem")
        for place, part in enumerate(issued.cert_chain_pems):
            part.write_to_path(tmp_path / f"{chain}.pem", append=place > 0)
    return tmp_path


async def page(address: str) -> str:
    """What is served there, once something is."""
    async with httpx.AsyncClient(trust_env=False) as reader:
        with trio.fail_after(30):
            while True:
                try:
                    return (await reader.get(address)).text
                except httpx.TransportError:
                    await trio.sleep(0.05)
    raise AssertionError


async def test_an_engine_of_another_machine_is_asked_by_tls_and_its_ports_are_reached_there(
    docker_bed: DockerBed, certificates: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = (
        *("--host", f"tcp://127.0.0.1:{port}", "--tlsverify", "--tlscacert", f"{certificates}/ca.pem"),
        *("--tlscert", f"{certificates}/engine.pem", "--tlskey", f"{certificates}/engine-key.pem"),
    )
    variables = {
        "DOCKER_HOST": f"tcp://127.0.0.1:{port}",
        "DOCKER_TLS_VERIFY": "1",
        "DOCKER_CERT_PATH": str(certificates),
    }
    async with (
        open_own_engine(docker_bed, *flags) as engine,
        DockerClient(endpoint_from(variables, home=certificates)) as client,
    ):
        # No address of loopback's, by which it would be reached anyhow.
        bridge = await client.call("GET", "/networks/bridge")
        there = bridge["IPAM"]["Config"][0]["Gateway"]
        image = await pulled(docker_bed, client, push_as(docker_bed, "web", f"elsewhere/{engine.bridge}"))
        async with DockerRuntime(client, "p-1", DockerImages(client), engine_host=there) as runtime:
            handle = await runtime.start(WorkloadSpec("dep-1", "h-1", Container(image, port=8080)))
            assert handle.base_url.startswith(f"http://{there}:")
            assert await page(f"{handle.base_url}/index.html") == "it works\n"

            job = WorkloadSpec(
                "job-1", "h-1", Container(image, ("sh", "-c", "echo done; exit 3"), is_boxed=True)
            )
            await runtime.prepare(job)
            with trio.fail_after(60):
                async with runtime.follow("job-1") as chunks:
                    await runtime.start(job)
                    written = b"".join([chunk.data async for chunk in chunks])
                assert written == b"done\n"
                assert how(await runtime.wait("job-1")) == Exit(3, ("done",))
            await runtime.stop("dep-1", grace_seconds=0)

        nameless = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        with pytest.raises(EngineGone):
            async with DockerClient(Endpoint(f"https://127.0.0.1:{port}", tls=nameless), patience_seconds=0):
                raise AssertionError
