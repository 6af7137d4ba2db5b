"""A peer's own network: made when it is missed, kept while it is used, never somebody else's."""

import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.faults import EngineError
from adapters.runtime.docker.labels import INSTANCE
from adapters.runtime.docker.networks import OwnNetwork, is_network_gone
from adapters.runtime.port import StartFailed
from tests.support.docker.bed import DockerBed
from tests.support.docker.kernel import do
from tests.support.docker.lossy import LossyTransport
from tests.support.docker.own import open_own_engine
from tests.support.docker.use import async_engine_client
from tests.support.runtimes import DockerWorld, docker_runtime, open_docker_world, until_up

ICC = "com.docker.network.bridge.enable_icc"
MTU = "com.docker.network.driver.mtu"


@pytest.fixture
async def world(docker_bed: DockerBed) -> AsyncIterator[DockerWorld]:
    async with open_docker_world(docker_bed) as made:
        yield made


def name_of(world: DockerWorld) -> str:
    return f"bp-{world.instance}"


async def networks(client: DockerClient, name: str) -> list[dict[str, Any]]:
    """Every network of a name."""
    rows = await client.call("GET", "/networks", params={"filters": json.dumps({"name": [name]})})
    return [row for row in rows if row["Name"] == name]


async def make(bed: DockerBed, name: str, **more: Any) -> str | None:
    """A network by another hand than the peer's; its id, None where the engine has that name and no other."""
    async with async_engine_client(bed) as engine:
        made = await engine.post(
            "/networks/create", json={"Name": name, "Driver": "bridge", "CheckDuplicate": False, **more}
        )
        return str(made.json()["Id"]) if made.status_code == httpx.codes.CREATED else None


async def remove(client: DockerClient, name: str) -> None:
    for row in await networks(client, name):
        await client.call("DELETE", f"/networks/{row['Id']}")


@asynccontextmanager
async def instead(bed: DockerBed, world: DockerWorld, **more: Any) -> AsyncIterator[None]:
    """Another network under the name of the peer's, which is gone."""
    await remove(world.client, name_of(world))
    made = await make(bed, name_of(world), **more)
    assert made is not None
    try:
        yield
        assert [row["Id"] for row in await networks(world.client, name_of(world))] == [made]
    finally:
        await world.client.call("DELETE", f"/networks/{made}")


@contextmanager
def another_machine(here: str, there: str) -> Iterator[None]:
    """A machine at the other end of a wire, which says at port 80 whom it sees, and knows no way else."""
    name = f"bp{secrets.token_hex(4)}"
    answers = (
        "import socket; door = socket.create_server(('', 80)); print(flush=True)\n"
        "while True: line, who = door.accept(); line.sendall(who[0].encode()); line.close()"
    )
    inside = ("ip", "netns", "exec", name)
    do("ip", "netns", "add", name)
    try:
        do("ip", "link", "add", name, "type", "veth", "peer", "name", "wire", "netns", name)
        do("ip", "address", "add", f"{here}/30", "dev", name)
        do("ip", "link", "set", name, "up")
        do(*inside, "ip", "address", "add", f"{there}/30", "dev", "wire")
        do(*inside, "ip", "link", "set", "wire", "up")
        with subprocess.Popen([*inside, sys.executable, "-c", answers], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            try:
                yield
            finally:
                program.kill()
    finally:
        do("ip", "netns", "delete", name)


async def test_a_peer_that_starts_has_a_network_that_keeps_containers_apart(world: DockerWorld) -> None:
    (found,) = await networks(world.client, name_of(world))

    assert found["Driver"] == "bridge"
    assert found["Options"][ICC] == "false"
    assert found["EnableIPv6"] is False
    assert found["Labels"] == {INSTANCE: world.instance}
    assert not any("no engine" in remark for remark in world.runtime.remarks())


async def test_what_is_not_boxed_is_on_it_and_is_reached_by_its_port(world: DockerWorld) -> None:
    handle = await world.runtime.start(world.spec())
    await until_up(handle)

    found = await world.client.call("GET", f"/containers/{name_of(world)}-dep-1/json")
    assert list(found["NetworkSettings"]["Networks"]) == [name_of(world)]
    (binding,) = found["NetworkSettings"]["Ports"]["8000/tcp"]
    assert binding["HostIp"] == "127.0.0.1"


async def test_a_peer_of_the_same_instance_finds_it_and_makes_none(world: DockerWorld) -> None:
    before = await networks(world.client, name_of(world))

    await world.restart()
    await world.run(world.job("true"))

    assert await networks(world.client, name_of(world)) == before


async def test_one_that_was_removed_meanwhile_is_made_for_the_next_start(world: DockerWorld) -> None:
    await remove(world.client, name_of(world))

    assert (await world.run(world.job("true"))).code == 0
    assert len(await networks(world.client, name_of(world))) == 1


async def test_one_that_is_removed_between_making_and_starting_is_made_again(world: DockerWorld) -> None:
    spec = world.job("true")
    await world.runtime.prepare(spec)
    await remove(world.client, name_of(world))

    assert (await world.run(spec)).code == 0


async def test_what_is_on_it_reaches_other_machines(world: DockerWorld) -> None:
    """As an engine does that fetches its model: by this machine's own address, for another knows no other."""
    script = "import socket; s = socket.create_connection(('192.0.2.2', 80), 30); print(s.recv(100).decode())"
    with another_machine("192.0.2.1", "192.0.2.2"):
        ended = await world.run(world.job("python3", "-c", script))
        boxed = await world.run(world.job("python3", "-c", script, is_boxed=True))

    assert ended.output == ("192.0.2.1",)
    assert "Network is unreachable" in boxed.output[-1]


@pytest.mark.parametrize(
    ("message", "is_gone"),
    [
        ("network bp-p-1 not found", True),
        ("failed to set up container networking: network bp-p-1 not found", True),
        ("No such image: registry.test/network@sha256:00", False),
        ("No such container: bp-p-1-job-1", False),
    ],
)
def test_engines_old_and_new_say_that_it_is_gone(message: str, is_gone: bool) -> None:
    assert is_network_gone(EngineError(404, message)) is is_gone
    assert not is_network_gone(EngineError(500, message))


async def test_a_box_needs_none(docker_bed: DockerBed, world: DockerWorld) -> None:
    async with instead(docker_bed, world):
        assert (await world.run(world.job("true", is_boxed=True))).code == 0


@pytest.mark.parametrize("labels", [{}, {INSTANCE: "another"}])
async def test_somebody_elses_network_of_its_name_is_not_used(
    docker_bed: DockerBed, world: DockerWorld, labels: dict[str, str]
) -> None:
    async with instead(docker_bed, world, Labels=labels, Options={ICC: "false"}):
        with pytest.raises(StartFailed, match="not this peer's") as failed:
            await world.runtime.start(world.job("true"))

        assert f"docker network rm {name_of(world)}" in failed.value.fix
        async with docker_runtime(world.client, world.instance) as other:
            (said,) = (remark for remark in other.remarks() if "no engine and no open job" in remark)
            assert name_of(world) in said
    assert await world.runtime.kept() == ()


@pytest.mark.parametrize("options", [{}, {ICC: "true"}])
async def test_one_of_its_own_on_which_containers_reach_each_other_is_not_used(
    docker_bed: DockerBed, world: DockerWorld, options: dict[str, str]
) -> None:
    async with instead(docker_bed, world, Labels={INSTANCE: world.instance}, Options=options):
        with pytest.raises(StartFailed, match="may reach each other") as failed:
            await world.runtime.start(world.job("true"))

        assert f"docker network rm {name_of(world)}" in failed.value.fix

    assert (await world.run(world.job("true"))).code == 0
    (made,) = await networks(world.client, name_of(world))
    assert made["Options"][ICC] == "false"


async def test_of_two_that_crossed_one_stays(docker_bed: DockerBed, world: DockerWorld) -> None:
    more = {"Labels": {INSTANCE: world.instance}, "Options": {ICC: "false"}}
    await world.runtime.start(world.spec())
    made = await make(docker_bed, name_of(world), **more)
    count = 1 if made is None else 2  # Since 25 an engine takes a name once.
    assert len(await networks(world.client, name_of(world))) == count

    assert (await world.run(world.job("true"))).code == 0

    (left,) = await networks(world.client, name_of(world))
    assert left["Id"] != made
    assert await world.runtime.running() == ("dep-1",)


async def test_an_answer_that_is_lost_makes_no_second(docker_bed: DockerBed, world: DockerWorld) -> None:
    await remove(world.client, name_of(world))
    endpoint = unix_endpoint(docker_bed.socket)
    transport = LossyTransport(endpoint, ("POST", "/networks/create"))
    async with DockerClient(endpoint, transport=transport) as client:
        await OwnNetwork(client, world.instance).ensure()

    assert transport.lost == []
    assert len(await networks(world.client, name_of(world))) == 1


async def test_it_goes_with_a_peer_that_has_nothing_on_it(world: DockerWorld) -> None:
    async with docker_runtime(world.client, f"{world.instance}-b") as other:
        await other.start(world.job("sleep", "99", is_boxed=True))
        assert await networks(world.client, f"{name_of(world)}-b")

    # Whose name is a part of the other's.
    assert await networks(world.client, name_of(world))
    assert not await networks(world.client, f"{name_of(world)}-b")
    assert await other.running() == ("job-1",)
    await other.stop("job-1", grace_seconds=0)
    await other.discard("job-1")


async def test_it_stays_where_something_of_a_stopped_peers_runs_on(world: DockerWorld) -> None:
    async with docker_runtime(world.client, f"{world.instance}-b") as other:
        await until_up(await other.start(world.spec()))
    assert await networks(world.client, f"{name_of(world)}-b")

    async with docker_runtime(world.client, f"{world.instance}-b") as other:
        handle = await other.find("dep-1")
        assert handle is not None
        await until_up(handle)
        await other.stop("dep-1", grace_seconds=0)
        await other.discard("dep-1")
    assert not await networks(world.client, f"{name_of(world)}-b")


async def test_a_foreign_network_of_its_name_stays_when_the_peer_goes(
    docker_bed: DockerBed, world: DockerWorld
) -> None:
    async with instead(docker_bed, world):
        async with docker_runtime(world.client, world.instance):
            pass
        assert len(await networks(world.client, name_of(world))) == 1


async def test_where_no_addresses_are_left_that_is_said_with_what_to_do(docker_bed: DockerBed) -> None:
    pool = ("--default-address-pool", "base=100.64.0.0/28,size=28")
    async with open_own_engine(docker_bed, *pool) as engine:
        async with DockerClient(unix_endpoint(engine.socket)) as client:
            await client.call("POST", "/networks/create", json={"Name": "all", "Driver": "bridge"})
        async with open_docker_world(docker_bed, socket=engine.socket) as world:
            (said,) = (remark for remark in world.runtime.remarks() if "no engine and no open job" in remark)
            assert "docker network prune" in said
            with pytest.raises(StartFailed, match="no addresses left") as failed:
                await world.runtime.start(world.job("true"))
            assert "default-address-pools" in failed.value.fix
            assert (await world.run(world.job("true", is_boxed=True))).code == 0

            await remove(world.client, "all")
            assert (await world.run(world.job("true"))).code == 0


async def test_packets_are_as_long_as_the_owner_said_for_dockers_own_bridge(docker_bed: DockerBed) -> None:
    async with (
        open_own_engine(docker_bed, "--mtu", "1400") as engine,
        open_docker_world(docker_bed, socket=engine.socket) as world,
    ):
        (found,) = await networks(world.client, name_of(world))
        assert found["Options"][MTU] == "1400"

        ended = await world.run(world.job("cat", "/sys/class/net/eth0/mtu"))

        assert ended.output == ("1400",)
