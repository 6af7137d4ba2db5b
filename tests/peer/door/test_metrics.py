"""GET /metrics at a door that serves: who reads what of it, in which text, and what else their key opens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors.metrics import SERIES
from adapters.clock.fake import FakeClock
from adapters.gpu.fake import cpu_device, cuda_device
from peer.door.metrics import PATH, READ_SECONDS
from peer.door.metrics_text import OPENMETRICS_TYPE, PROMETHEUS_TYPE
from tests.support.answers import code, error
from tests.support.doorasgi import ask
from tests.support.peers import MODEL_BYTES, OpenDoor, open_door
from tests.support.scrapes import HangingGpu, put_cards, read_answer, scrape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx
    from trio.testing import MockClock

    from tests.support.agents import Agent
    from tests.support.scrapes import Page

CARD, CPU = cuda_device(), cpu_device()
OF_THE_DOOR = {series.name for series in SERIES if series.readers == "all or metrics"}
PUBLIC = {"/.well-known/best", "/oauth/device", "/oauth/token", "/device"}
"""What needs no key, and so opens to whoever holds any."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> HangingGpu:
    """The devices of the doors of a test."""
    return put_cards(monkeypatch, CARD, CPU)


@pytest.fixture
async def door(gpu: HangingGpu, tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def collector_of(door: OpenDoor) -> Agent:
    return await door.sign_in("collector", scopes=["metrics"])


def holders(page: Page) -> set[str]:
    """Whose workloads a page tells of."""
    return {*page.labels("best_peer_deployment_info", "holder"), *page.labels("best_peer_job_info", "holder")}


async def test_a_key_reads_its_own_workloads_and_one_for_all_or_for_metrics_everybodys(
    door: OpenDoor,
) -> None:
    tenant = await door.sign_in("tenant", memory_bytes=8 * MODEL_BYTES)
    deployer = await door.sign_in("deployer", scopes=["deploy", "jobs"])
    own = [await door.deploy(each, engine="ollama") for each in (tenant, deployer)]
    correlation = await deployer.command("RunJob", {"image": "busybox", "command": ["sleep", "3600"]})
    job = (await deployer.wait_for("JobStarted", correlation))["data"]["job"]
    for agent, deployment in zip((tenant, deployer), own, strict=True):
        page = await scrape(agent)
        assert page.labels("best_peer_deployment_info", "deployment") == [deployment]
        assert set(page.labels("best_peer_deployment_phase", "deployment")) == {deployment}
        assert holders(page) == {agent.holder}
        assert not OF_THE_DOOR & page.series.keys()
    assert (await scrape(tenant)).labels("best_peer_job_info", "job") == []
    assert (await scrape(deployer)).labels("best_peer_job_info", "job") == [job]
    for agent in (await door.sign_in("owner"), await collector_of(door)):
        page = await scrape(agent)
        assert set(page.labels("best_peer_deployment_info", "deployment")) == set(own)
        assert holders(page) == {tenant.holder, deployer.holder}
        assert page.labels("best_peer_job_info", "job") == [job]
        promised = page.value("best_peer_device_memory_promised_bytes", device="gpu-0")
        assert promised == 2 * MODEL_BYTES
        assert page.value("best_peer_device_memory_promised_bytes", device="cpu") == 0
        # No command was refused here, so that nothing is counted of that.
        assert OF_THE_DOOR - page.series.keys() == {"best_peer_commands_refused_total"}


async def test_every_card_is_every_keys_and_the_processor_is_not_one_for_accelerators_alone(
    door: OpenDoor,
) -> None:
    for grant, seen in (
        ({}, ["gpu-0", "cpu"]),
        ({"scopes": ["prompt"]}, ["gpu-0", "cpu"]),
        ({"scopes": ["metrics"]}, ["gpu-0", "cpu"]),
        ({"accelerators_only": True}, ["gpu-0"]),
        ({"memory_bytes": MODEL_BYTES, "accelerators_only": True}, ["gpu-0"]),
    ):
        page = await scrape(await door.sign_in(**grant))
        for name in ("best_peer_device_info", "best_peer_device_memory_free_bytes"):
            assert page.labels(name, "device") == seen, grant
        if "best_peer_device_memory_promised_bytes" in page.series:
            assert page.labels("best_peer_device_memory_promised_bytes", "device") == seen
        assert page.value("best_peer_info", driver="580.00") == 1


async def test_it_is_behind_the_key_on_loopback_too(gpu: HangingGpu, tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        client = door.client()
        collector = await collector_of(door)
        leaving = await door.sign_in("leaving", scopes=["metrics"], expires_seconds=60)
        refused: list[dict[str, str]] = [
            {},
            {"x-api-key": "bp_" + "a" * 43},
            {"authorization": "Basic " + collector.key},
            {"authorization": f"Bearer {door.admin_token}"},
            {"x-api-key": door.admin_token},
        ]
        for headers in refused:
            answer = await client.get(PATH, headers=headers)
            assert code(answer, 401) == "UNAUTHORIZED"
            assert answer.headers["www-authenticate"] == "Bearer"
        for headers in ({"x-api-key": collector.key}, {"authorization": f"Bearer {collector.key}"}):
            assert read_answer(await client.get(PATH, headers=headers)).value("best_peer_hardware_readable")
        assert (await leaving.get(PATH)).status_code == 200
        clock.advance(60_000)
        assert code(await leaving.get(PATH), 401) == "UNAUTHORIZED"
        assert (await collector.get(PATH)).status_code == 200
        await door.admin("POST", "revoke", json={"name": "collector"})
        assert code(await collector.get(PATH), 401) == "UNAUTHORIZED"


def targets(door: OpenDoor) -> list[tuple[str, str]]:
    """Every path and method that the door serves, those that are straight on ASGI too."""
    rules = door.peer.app._app.url_map.iter_rules()
    found = [(method, re.sub(r"<[^>]*>", "1.0", rule.rule)) for rule in rules for method in rule.methods]
    return [*found, ("POST", "/commands"), ("GET", "/events/stream")]


async def test_a_collectors_key_opens_nothing_but_the_metrics(door: OpenDoor) -> None:
    """Whatever a door comes to serve: it is walked by its own map of routes."""
    collector, owner = await collector_of(door), await door.sign_in("owner")
    walked = targets(door)
    assert {path for _, path in walked} > {PATH, "/commands", "/events", "/queries/1.0", "/workflows/1.0"}
    assert len(walked) > 25
    for method, path in walked:
        if path in PUBLIC:
            continue
        for headers in ({"x-api-key": collector.key}, {"authorization": f"Bearer {collector.key}"}):
            answer = await door.client().request(method, path, headers=headers)
            if path == PATH:
                assert answer.status_code == 200
            else:
                assert answer.status_code == (401 if path.startswith("/admin/") else 403), (method, path)
    # And what is there for everybody else is no more told apart from what is not.
    for path in ("/queries/get-hardware-state", "/commands/deploy-model/1.0", "/queries/no-such-query"):
        found = error(await collector.get(path), 403)
        assert found["code"] == "FORBIDDEN"
    assert (await owner.get("/queries/get-hardware-state")).status_code == 200
    assert code(await collector.send("RevokeAgent", {}), 403) == "FORBIDDEN"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, PROMETHEUS_TYPE),
        ("*/*", PROMETHEUS_TYPE),
        ("image/png", PROMETHEUS_TYPE),
        ("application/openmetrics-text", OPENMETRICS_TYPE),
    ],
)
async def test_the_text_is_the_one_that_was_asked_for(
    door: OpenDoor, accept: str | None, expected: str
) -> None:
    client = door.client(**{"x-api-key": (await collector_of(door)).key})
    del client.headers["accept"]
    headers = {} if accept is None else {"accept": accept}
    answer = await client.get(PATH, headers=headers)
    assert answer.headers["content-type"] == expected
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["vary"] == "Accept, Authorization, X-Api-Key"
    read_answer(answer)
    head = await client.head(PATH, headers=headers)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == expected
    assert head.headers["content-length"] == answer.headers["content-length"]
    assert code(await client.post(PATH), 405) == "METHOD_NOT_ALLOWED"


async def test_an_accept_in_several_header_fields_is_one_list(door: OpenDoor) -> None:
    client = door.client(**{"x-api-key": (await collector_of(door)).key})
    del client.headers["accept"]
    request = client.build_request(
        "GET", PATH, headers=[("accept", "text/html"), ("accept", "application/openmetrics-text")]
    )
    assert (await client.send(request)).headers["content-type"] == OPENMETRICS_TYPE


async def test_it_is_found_below_the_endpoints_own_path(gpu: HangingGpu, tmp_path: Path) -> None:
    async with open_door(tmp_path, path="/machine") as door:
        key = {"x-api-key": (await collector_of(door)).key}
        assert (
            await ask(door.peer.app, "GET", "/machine/metrics", "127.0.0.1", headers=key)
        ).status_code == 200


async def test_it_is_no_part_of_the_protocol(door: OpenDoor) -> None:
    agent = await door.sign_in()
    for path in ("/.well-known/best", "/commands", "/queries", "/workflows"):
        assert "/metrics" not in (await agent.get(path)).text


async def test_a_driver_that_hangs_holds_a_scrape_up_for_so_long_and_no_longer(
    gpu: HangingGpu, tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        deployment = await door.deploy(agent, engine="ollama")
        mock_clock.jump(1)  # so that no reading is recent
        gpu.hangs = True
        answers: list[httpx.Response] = []

        async def ask_for_it() -> None:
            headers = {"x-api-key": agent.key}
            answers.append(await ask(door.peer.app, "GET", PATH, "127.0.0.1", headers=headers))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask_for_it)
            await trio.testing.wait_all_tasks_blocked()
            assert READ_SECONDS < 5, "as long as a cloud waits for a member's"
            mock_clock.jump(READ_SECONDS - 0.1)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            mock_clock.jump(0.1)
            await trio.testing.wait_all_tasks_blocked()
            assert len(answers) == 3
        page = read_answer(answers[0])
        assert page.value("best_peer_hardware_readable") == 0
        assert not [name for name in page.series if name.startswith("best_peer_device_")]
        assert page.value("best_peer_deployment_info", deployment=deployment, device="gpu-0") == 1


async def test_a_driver_that_is_gone_takes_the_devices_with_it_and_brings_them_back(
    gpu: HangingGpu, tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_door(tmp_path) as door:
        agent = await collector_of(door)
        seen: list[tuple[float | None, list[str], list[Any]]] = []
        for change in (None, gpu.lose_driver, gpu.bring_back):
            if change is not None:
                change()
            mock_clock.jump(1)
            page = await scrape(agent)
            devices = sorted(name for name in page.series if name.startswith("best_peer_device_"))
            seen.append(
                (page.value("best_peer_hardware_readable"), devices, [*page.series["best_peer_info"]])
            )
        assert seen[0] == seen[2] != seen[1]
        assert len(seen[0][1]) == 8
        assert seen[1][:2] == (0, [])
        assert dict(seen[1][2][0])["driver"] == ""


async def test_scrapes_and_queries_share_a_reading(
    gpu: HangingGpu, tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        mock_clock.jump(1)
        before = gpu.reads
        for _ in range(5):
            await scrape(agent)
            await agent.query("get-hardware-state")
        assert gpu.reads == before + 1
