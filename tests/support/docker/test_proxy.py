"""The failing registry, before the real one."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from tests.support.docker.proxy import Answer, Corrupt, Cut, Hold, Instead, Mute, RegistryProxy, open_proxy
from tests.support.docker.use import async_engine_client, image_named, pinned, push_as

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.docker.bed import DockerBed

REPOSITORY = "proxy/layered"
BLOB = "GET .*/blobs/"


@pytest.fixture
async def proxy(docker_bed: DockerBed) -> AsyncIterator[RegistryProxy]:
    push_as(docker_bed, "layered", REPOSITORY)
    async with open_proxy(docker_bed.registry.address) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: RegistryProxy) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://{proxy.address}/v2/{REPOSITORY}", trust_env=False
    ) as client:
        yield client


@pytest.fixture
def blob(docker_bed: DockerBed) -> str:
    return f"/blobs/{image_named(docker_bed, 'layered').layers[-1].digest}"


async def test_without_faults_it_is_the_registry_itself(client: httpx.AsyncClient, blob: str) -> None:
    body = (await client.get(blob)).raise_for_status().content
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" in blob
    head = (await client.head(blob)).raise_for_status()
    assert int(head.headers["Content-Length"]) == len(body)
    assert (await client.get("/manifests/none")).status_code == 404


async def test_an_answer_comes_as_often_as_it_should(
    proxy: RegistryProxy, client: httpx.AsyncClient, blob: str
) -> None:
    fault = proxy.fault(BLOB, Answer.error(429, "TOOMANYREQUESTS"), times=2)
    statuses = [(await client.get(blob)).status_code for _ in range(3)]
    assert statuses == [429, 429, 200]
    assert (fault.met, len(proxy.requests)) == (2, 3)
    proxy.fault("HEAD ", Answer.error(503, "UNAVAILABLE"))
    assert (await client.head(blob)).status_code == 503


async def test_a_held_answer_goes_on_when_it_is_let_go(
    proxy: RegistryProxy, client: httpx.AsyncClient, blob: str
) -> None:
    held = proxy.fault(BLOB, Hold(after=1000))
    async with client.stream("GET", blob) as answer:
        await held.reached.wait()
        pieces = answer.aiter_raw()
        got = await anext(pieces)
        while len(got) < 1000:
            got += await anext(pieces)
        assert len(got) == 1000
        held.release()
        async for piece in pieces:
            got += piece
    assert f"sha256:{hashlib.sha256(got).hexdigest()}" in blob


async def test_nothing_is_answered_while_it_is_held_before_its_start(
    proxy: RegistryProxy, client: httpx.AsyncClient, blob: str
) -> None:
    held = proxy.fault(BLOB, Hold())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.get, blob)
        await held.reached.wait()
        proxy.heal()


@pytest.mark.parametrize("after", [None, 0, 1000])
async def test_a_cut_ends_the_connection(
    proxy: RegistryProxy, client: httpx.AsyncClient, blob: str, after: int | None
) -> None:
    proxy.fault(BLOB, Cut(after))
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get(blob)


async def test_one_byte_is_another(proxy: RegistryProxy, client: httpx.AsyncClient, blob: str) -> None:
    whole = (await client.get(blob)).content
    proxy.fault(BLOB, Corrupt(at=5))
    changed = (await client.get(blob)).content
    assert [at for at, (was, is_now) in enumerate(zip(whole, changed, strict=True)) if was != is_now] == [5]


async def test_another_body_comes_instead(proxy: RegistryProxy, client: httpx.AsyncClient) -> None:
    proxy.fault("GET .*/manifests/", Instead(b"{}"))
    assert (await client.get("/manifests/latest")).content == b"{}"


async def test_it_refuses_while_it_is_down(
    proxy: RegistryProxy, client: httpx.AsyncClient, blob: str
) -> None:
    held = proxy.fault(BLOB, Hold(after=10), times=1)
    async with client.stream("GET", blob) as answer:
        await held.reached.wait()
        await proxy.down()
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()
    with pytest.raises(httpx.ConnectError):
        await client.get(blob)
    await proxy.up()
    assert (await client.get(blob)).is_success


async def test_an_engine_pulls_through_it_and_is_held_midway(
    docker_bed: DockerBed, proxy: RegistryProxy
) -> None:
    reference = pinned(docker_bed, proxy.reference(push_as(docker_bed, "layered", REPOSITORY)), "layered")
    layers = image_named(docker_bed, "layered").layers
    # The lowest layer is the shell's, which the engine may have already.
    held = proxy.fault(f"GET .*/blobs/{layers[1].digest}", Hold(after=100_000))
    async with async_engine_client(docker_bed) as engine:
        lines = ""
        request = engine.build_request("POST", "/images/create", params={"fromImage": reference})
        answer = await engine.send(request, stream=True)
        await held.reached.wait()
        held.release()
        async for text in answer.aiter_text():
            lines += text
        await answer.aclose()
        assert "Status: Downloaded newer image" in lines
        (await engine.delete(f"/images/{reference}")).raise_for_status()
    assert any("docker/" in seen.headers["user-agent"] for seen in proxy.requests)


async def test_before_an_engine_a_call_that_is_mute_is_made_and_not_answered(docker_bed: DockerBed) -> None:
    name = f"mute-{uuid.uuid4().hex[:8]}"
    async with open_proxy(str(docker_bed.socket)) as wire, async_engine_client(docker_bed) as engine:
        mute = wire.fault("POST /volumes/create", Mute())
        async with (
            httpx.AsyncClient(base_url=f"http://{wire.address}", trust_env=False) as client,
            trio.open_nursery() as nursery,
        ):
            statuses: list[int] = []

            async def make() -> None:
                statuses.append((await client.post("/volumes/create", json={"Name": name})).status_code)

            nursery.start_soon(make)
            await mute.reached.wait()
            assert (await engine.delete(f"/volumes/{name}")).status_code == 204
            assert statuses == []
            mute.release()
        assert statuses == [201]
