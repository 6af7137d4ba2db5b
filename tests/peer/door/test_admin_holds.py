"""The owner's holds at the door: who is affected, what a client reads, and who reads the facts (F29)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import peer.door.admin_holds
from actors.messages.times import time_ms
from adapters.clock.fake import FakeClock
from adapters.gpu.fake import cuda_device
from adapters.gpu.host import HostGpu
from tests.support.answers import code, error
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from adapters.gpu.port import Device

HOLD = "hold-0123456789abcdef"
OTHER = "hold-fedcba9876543210"
CPU = {"id": "cpu", "uuid": "cpu"}


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def hold(door: OpenDoor, hold: str = HOLD, **body: Any) -> httpx.Response:
    return await door.admin("POST", "hold", json={"hold": hold, **body})


async def release(door: OpenDoor, **body: Any) -> httpx.Response:
    return await door.admin("POST", "release", json=body)


async def test_who_is_affected_is_told_before_and_after(door: OpenDoor) -> None:
    agent = await door.sign_in("lab")
    deployment = await door.deploy(agent)
    before = (await door.admin("GET", "holds")).json()
    assert (before["devices"], before["holds"]) == ([CPU], [])
    (work,) = before["work"]
    assert work == {
        "workload": deployment,
        "kind": "deployment",
        "what": "small",
        "device": "cpu",
        "phase": "ready",
        "started": True,
        "holder": agent.holder,
        "name": "lab",
    }
    held = (await hold(door, reason="maintenance")).json()
    assert (held["hold"], held["work"], held["still_running"]) == (HOLD, [work], [])
    (only,) = held["held"]
    assert (only["device"], only["until"], only["reason"], only["now"]) == ("cpu", None, "maintenance", False)
    status = (await door.admin("GET", "status")).json()
    assert status["holds"] == held["held"] == (await door.admin("GET", "holds")).json()["holds"]
    assert status["affected"] == [{**work, "ends": False}]
    assert (await release(door)).json() == {"released": held["held"], "holds": []}
    assert (await release(door)).json() == {"released": [], "holds": []}
    assert (await door.admin("GET", "status")).json()["affected"] == []


async def test_what_runs_on_a_device_that_is_not_seen_now_is_named_where_every_one_is_meant(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await door.deploy(await door.sign_in("lab"))

    async def other(_: HostGpu) -> tuple[Device, ...]:
        return (cuda_device(),)

    monkeypatch.setattr(HostGpu, "devices", other)
    before = (await door.admin("GET", "holds")).json()
    assert [(each["workload"], each["device"]) for each in before["work"]] == [(deployment, "cpu")]
    assert (await door.admin("GET", "holds", params={"device": "gpu-0"})).json()["work"] == []
    assert (await hold(door)).json()["work"] == before["work"]


async def test_a_client_reads_busy_and_is_refused_with_the_owners_words(door: OpenDoor) -> None:
    agent = await door.sign_in("lab")
    assert (await hold(door, seconds=3600, reason="a render")).status_code == 200
    state = (await agent.get("/queries/get-hardware-state")).json()["devices"][0]["availability"]
    assert (state["state"], state["reason"]) == ("busy", "a render")
    sent = await agent.send("DeployModel", {"model": "small", "engine": "llamacpp", "memory_bytes": 1 << 20})
    refused = error(sent, 422)
    assert refused["code"] == "DEVICE_BUSY"
    assert refused["details"] == {"device": "cpu", "until": state["until"], "reason": "a render"}
    assert "held by its owner" in refused["message"]


async def test_taken_back_now_it_answers_when_the_work_has_ended(door: OpenDoor) -> None:
    agent = await door.sign_in("lab")
    deployment = await door.deploy(agent)
    answer = (await hold(door, now=True, reason="maintenance")).json()
    assert [each["workload"] for each in answer["work"]] == [deployment]
    assert answer["still_running"] == []
    (ended,) = [e for e in await agent.events() if e["type"] == "DeploymentEnded"]
    assert ended["data"]["reason"] == "held by its owner: maintenance"


async def test_what_does_not_end_is_named_and_tried_on(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer.door.admin_holds, "END_WAIT_SECONDS", 0.01)
    monkeypatch.setattr("actors.ending.RETRY_SECONDS", 0.01)
    agent = await door.sign_in("lab")
    deployment = await door.deploy(agent)
    (started,) = await agent.events(type="DeploymentStarted")
    come_back = door.runtime.go_away()
    assert (await hold(door, now=True)).json()["still_running"] == [deployment]
    (affected,) = (await door.admin("GET", "status")).json()["affected"]
    assert (affected["workload"], affected["name"], affected["ends"]) == (deployment, "lab", True)
    await hold(door, OTHER)
    assert (await door.admin("GET", "status")).json()["affected"] == [affected], "whatever hold stands now"
    come_back()
    await agent.wait_for("DeploymentEnded", started["correlationid"])


async def test_a_hold_whose_time_has_come_is_shown_nowhere_though_its_end_is_not_told(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        deployment = await door.deploy(await door.sign_in("lab"))
        (held,) = (await hold(door, seconds=60)).json()["held"]
        status = (await door.admin("GET", "status")).json()
        assert (status["holds"], [each["workload"] for each in status["affected"]]) == ([held], [deployment])
        clock.advance(60_000)
        status = (await door.admin("GET", "status")).json()
        assert (status["holds"], status["affected"]) == ([], [])


async def test_holds_are_read_by_keys_approved_for_all_alone(door: OpenDoor) -> None:
    everything = await door.sign_in("all")
    others = [
        await door.sign_in("tenant", memory_bytes=1 << 30),
        await door.sign_in("scoped", scopes=["deploy", "jobs", "prompt", "workspaces"]),
    ]
    await hold(door, reason="mine")
    await release(door)
    seen = [e for e in await everything.events() if e["type"].startswith("Device")]
    assert [e["type"] for e in seen] == ["DeviceHeldV1", "DeviceReleasedV1"]
    assert all("holder" not in e and "correlationid" not in e for e in seen)
    assert [e["data"] for e in seen] == [
        {
            "hold": HOLD,
            "device": "cpu",
            "device_uuid": "cpu",
            "ends_work": False,
            "every_device": True,
            "reason": "mine",
        },
        {"hold": HOLD, "device": "cpu", "device_uuid": "cpu", "cause": "released"},
    ]
    for agent in others:
        for parameters in ({}, {"type": "DeviceHeldV1"}, {"source": seen[0]["source"]}):
            assert (await agent.get("/events", **parameters)).json()["events"] == []


async def test_an_end_may_be_named_by_a_time_or_by_how_long(door: OpenDoor) -> None:
    for body in ({"until": "2099-01-01T00:00:00Z"}, {"until": "soon"}, {"until": "2020-01-01T00:00:00Z"}):
        assert code(await hold(door, **body), 400) == "INVALID_HOLD"
    assert code(await hold(door, until="2026-12-01T00:00:00"), 400) == "INVALID_HOLD"
    assert code(await hold(door, seconds=60, until="2026-12-01T00:00:00Z"), 400) == "INVALID_HOLD"
    wrong: list[dict[str, Any]] = [
        {"seconds": 0},
        {"seconds": 366 * 86_400 + 1},
        {"seconds": True},
        {"reason": 7},
    ]
    for body in (*wrong, {"reason": 7}, {"x": 1}):
        assert code(await hold(door, **body), 400) == "SCHEMA_VALIDATION"
    for name in ("", "hold-1", "dep-0123456789abcdef", f"{HOLD}\n", "hold-" + "x" * 65):
        assert code(await hold(door, name), 400) == "SCHEMA_VALIDATION"
    assert (await door.admin("GET", "holds")).json()["holds"] == []
    (held,) = (await hold(door, seconds=60)).json()["held"]
    assert time_ms(held["until"]) - time_ms(held["since"]) <= 60_000


async def test_a_device_that_is_not_there_is_named_in_no_hold(door: OpenDoor) -> None:
    for answer in (
        await hold(door, device="gpu-7"),
        await release(door, device="gpu-7"),
        await door.admin("GET", "holds", params={"device": "gpu-7"}),
    ):
        refused = error(answer, 422)
        assert (refused["code"], refused["details"]) == ("UNKNOWN_DEVICE", {"devices": ["cpu"]})


async def test_a_release_of_one_hold_leaves_a_newer_one(door: OpenDoor) -> None:
    await hold(door)
    await hold(door, OTHER, device="cpu")
    assert (await release(door, hold=HOLD)).json()["released"] == []
    answer = (await release(door, hold=OTHER)).json()
    assert [each["hold"] for each in answer["released"]] == [OTHER]


async def test_the_hold_that_another_takes_the_place_of_is_told_before_and_after(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (await hold(door, reason="mine for good")).json()
    assert first["replaced"] == []
    before = (await door.admin("GET", "holds", params={"device": "cpu"})).json()
    assert before["replaces"] == first["held"]
    # A card that is first seen now is held with every other, though no fact names it.
    card = cuda_device(0)

    async def devices(_: HostGpu) -> list[Device]:
        return [card]

    monkeypatch.setattr(HostGpu, "devices", devices)
    second = (await hold(door, OTHER, seconds=3)).json()
    (replaced,) = second["replaced"]
    assert replaced == {**first["held"][0], "device": card.id, "device_uuid": card.uuid}
    assert (await hold(door, OTHER, seconds=3)).json()["replaced"] == []


async def test_nobody_but_the_owner_holds(door: OpenDoor) -> None:
    agent = await door.sign_in("lab")
    for method, name in (("GET", "holds"), ("POST", "hold"), ("POST", "release")):
        for headers in ({}, {"authorization": f"Bearer {agent.key}"}, {"x-api-key": agent.key}):
            answer = await door.client().request(
                method, f"/admin/{name}", headers=headers, json={"hold": HOLD}
            )
            assert code(answer, 401) == "UNAUTHORIZED"
    assert (await door.admin("GET", "holds")).json()["holds"] == []
