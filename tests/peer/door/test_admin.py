"""The owner's routes: the token before anything else, approvals, revokes and what they end (F12 to F14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import peer.door.admin_keys
from actors.log.journal import JournalUnavailable
from adapters.engine.fake import FakeEngine
from tests.support.agents import begin, poll
from tests.support.answers import code, error
from tests.support.peers import MODEL_BYTES, OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.agents import Agent

ROUTES = [
    ("GET", "pending"),
    ("POST", "approve"),
    ("POST", "deny"),
    ("POST", "revoke"),
    ("GET", "keys"),
    ("GET", "status"),
]


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def test_without_the_token_nothing_is_learned(door: OpenDoor) -> None:
    agent = await door.sign_in("lab")
    begun = await begin(door.client())
    said = set()
    for token in (None, "Bearer wrong", f"Bearer {agent.key}", f"Basic {door.admin_token}", "Bearer é"):
        client = door.client()
        if token is not None:
            client.headers["authorization"] = token
        for method, name in ROUTES:
            for body in ({"user_code": begun["user_code"]}, {"user_code": "BCDF-GHJK", "scopes": ["x"]}):
                answer = await client.request(method, f"/admin/{name}", json=body)
                assert code(answer, 401) == "UNAUTHORIZED"
                said.add(answer.text)
    assert len(said) == 1
    assert (await door.client(**{"x-api-key": door.admin_token}).get("/admin/status")).status_code == 401


async def test_what_waits_is_shown_as_it_was_sent(door: OpenDoor) -> None:
    begun = await begin(
        door.client(), "lab", client_id="mcp", agent_label="Helper", credential_lifetime="session"
    )
    shown = (await door.admin("GET", "pending", params={"user_code": begun["user_code"].lower()})).json()
    assert 0 < shown.pop("seconds_left") <= 600
    assert shown == {
        "user_code": begun["user_code"],
        "state": "pending",
        "name": "lab",
        "client_id": "mcp",
        "agent_label": "Helper",
        "address": "127.0.0.1",
        "lifetime": "session",
        "same_name": {"keys": [], "codes": []},
    }
    unknown = (await door.admin("GET", "pending", params={"user_code": "nothing"})).json()
    assert unknown["state"] == "unknown"


async def test_what_is_not_said_follows_from_the_share(door: OpenDoor) -> None:
    async def granted(**asked: Any) -> list[str]:
        answer = await door.approve((await begin(door.client()))["user_code"], **asked)
        scopes: list[str] = answer.json()["grant"]["scopes"]
        return scopes

    assert await granted() == ["all"]
    assert await granted(memory_bytes=1 << 30) == ["deploy", "jobs", "prompt", "workspaces"]
    assert await granted(memory_bytes=1 << 30, scopes=["all"]) == ["all"]
    assert await granted(scopes=["prompt", "prompt"]) == ["prompt"]


async def test_a_key_that_nothing_can_come_of_is_granted_and_said_to_be(door: OpenDoor) -> None:
    async def notes(**asked: Any) -> list[str]:
        answer = await door.approve((await begin(door.client()))["user_code"], **asked)
        found: list[str] = answer.json()["notes"]
        return found

    assert (
        await notes() == await notes(memory_bytes=1 << 30) == await notes(scopes=["deploy", "prompt"]) == []
    )
    (one,) = await notes(scopes=["prompt"])
    assert one.startswith("its key can prompt nothing: ")
    (one,) = await notes(scopes=["deploy", "jobs"])
    assert one.startswith("its key deploys what nobody can prompt: ")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "INVALID_JSON"),
        (b"{", "INVALID_JSON"),
        (b"\xff", "INVALID_JSON"),
        (b"[]", "SCHEMA_VALIDATION"),
        (b"{}", "SCHEMA_VALIDATION"),
        (b'{"user_code":"BCDF-GHJK","memory_bytes":"40"}', "SCHEMA_VALIDATION"),
        (b'{"user_code":"BCDF-GHJK","memory_bytes":1.5}', "SCHEMA_VALIDATION"),
        (b'{"user_code":"BCDF-GHJK","deployments":true}', "SCHEMA_VALIDATION"),
        (b'{"user_code":"BCDF-GHJK","open_jobs":"no"}', "SCHEMA_VALIDATION"),
        (b'{"user_code":"BCDF-GHJK","scopes":"all"}', "SCHEMA_VALIDATION"),
        (b'{"user_code":"BCDF-GHJK","scope":["all"]}', "SCHEMA_VALIDATION"),
        (b'{"user_code":"%s"}' % (b"x" * 300), "SCHEMA_VALIDATION"),
    ],
)
async def test_a_body_is_read_strictly(door: OpenDoor, body: bytes, expected: str) -> None:
    assert code(await door.admin("POST", "approve", content=body), 400) == expected


@pytest.mark.parametrize(
    "grant",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"memory_bytes": -1},
        {"memory_bytes": 1 << 60},
        {"deployments": -1},
        {"workspaces": 1 << 40},
        {"scopes": ["prompt"], "jobs": 3},
        {"scopes": ["metrics"], "workspaces": 2},
    ],
)
async def test_a_grant_that_cannot_be_leaves_the_code_waiting(door: OpenDoor, grant: dict[str, Any]) -> None:
    begun = await begin(door.client())
    assert code(await door.approve(begun["user_code"], **grant), 400) == "INVALID_GRANT"
    assert (await door.approve(begun["user_code"])).status_code == 200


async def test_an_approval_that_the_disk_does_not_keep_is_none(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = await begin(door.client())

    def fail(record: Any) -> None:
        raise JournalUnavailable("the log is not written")

    monkeypatch.setattr(door.peer.house.store.keys, "put", fail)
    assert code(await door.approve(begun["user_code"]), 503) == "LOG_UNAVAILABLE"
    monkeypatch.undo()
    assert (await door.approve(begun["user_code"])).status_code == 200


async def test_a_revoke_closes_keys_and_streams_and_ends_the_work(door: OpenDoor) -> None:
    first, second, other = [await door.sign_in(name) for name in ("lab", "lab", "office")]
    for agent in (first, second, other):
        await door.deploy(agent)
    async with first.stream() as one, second.stream() as two, other.stream() as rest:
        answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        assert [each["holder"] for each in answer.pop("revoked")] == [first.holder, second.holder]
        assert answer == {
            "closed_before": [],
            "withdrawn": [],
            "kept": True,
            "still_running": [],
            "keep_running": False,
        }
        # A stream may still tell what was told before its key closed.
        while await one.next() is not None:
            pass
        while await two.next() is not None:
            pass
        told = await rest.until("DeploymentEnded")
        told += await rest.until("DeploymentEnded")
        reasons = {each["data"]["reason"] for each in told}
        assert reasons == {"its credential was taken back by the owner of this machine"}
        assert {each["holder"] for each in told} == {first.holder, second.holder}
    for agent in (first, second):
        assert code(await agent.get("/commands"), 401) == "UNAUTHORIZED"
    left = (await other.query("get-workloads"))["deployments"]
    assert {each["holder"] for each in left} == {other.holder}
    assert code(await door.admin("POST", "revoke", json={"name": "lab"}), 404) == "UNKNOWN_KEY"
    assert code(await door.admin("POST", "revoke", json={"name": "nobody"}), 404) == "UNKNOWN_KEY"


async def test_work_may_be_left_running_and_a_holder_named(door: OpenDoor) -> None:
    one, two, owner = [await door.sign_in(name) for name in ("lab", "lab", "owner")]
    deployment = await door.deploy(one)
    answer = await door.admin("POST", "revoke", json={"name": one.holder, "keep_running": True})
    assert answer.json()["keep_running"] is True
    assert (await one.get("/commands")).status_code == 401
    assert (await two.get("/commands")).status_code == 200
    listed = (await owner.query("get-workloads"))["deployments"]
    assert [(each["deployment"], each["phase"]) for each in listed] == [(deployment, "ready")]


async def leave_running(door: OpenDoor, name: str, how: str) -> tuple[Agent, str]:
    """A closed key whose work runs on, and that work."""
    agent = await door.sign_in(name)
    deployment = await door.deploy(agent)
    if how == "revoke --keep-running":
        await door.admin("POST", "revoke", json={"name": name, "keep_running": True})
    else:
        async with agent.stream() as stream:
            await agent.command("RevokeAgent", {})
            while await stream.next() is not None:
                pass
    assert (await agent.get("/commands")).status_code == 401
    return agent, deployment


@pytest.mark.parametrize("how", ["revoke --keep-running", "revoke-agent"])
async def test_a_later_revoke_ends_what_a_closed_key_left_running(door: OpenDoor, how: str) -> None:
    """It was refused with UNKNOWN_KEY, and nobody could end that work any more."""
    agent, deployment = await leave_running(door, "lab", how)
    owner = await door.sign_in("owner")
    for name in ("lab", agent.holder):
        found = error(await door.admin("POST", "revoke", json={"name": name, "keep_running": True}), 404)
        assert found["code"] == "UNKNOWN_KEY"
        assert f"best-peer revoke {name} ends it" in found["message"]
    async with owner.stream() as stream:
        answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        told = (await stream.until("DeploymentEnded"))[-1]
    assert answer == {
        "revoked": [],
        "closed_before": [{"name": "lab", "holder": agent.holder}],
        "withdrawn": [],
        "kept": True,
        "still_running": [],
        "keep_running": False,
    }
    assert told["data"]["deployment"] == deployment
    assert told["data"]["reason"] == "its credential was taken back by the owner of this machine"
    assert (await owner.query("get-workloads"))["deployments"] == []
    found = error(await door.admin("POST", "revoke", json={"name": "lab"}), 404)
    assert found["code"] == "UNKNOWN_KEY"
    assert "nothing of it runs" in found["message"]


async def test_what_a_closed_key_left_is_ended_with_its_open_namesake_and_not_without_being_asked(
    door: OpenDoor,
) -> None:
    closed, left = await leave_running(door, "lab", "revoke --keep-running")
    opened, owner = await door.sign_in("lab"), await door.sign_in("owner")
    kept = await door.admin("POST", "revoke", json={"name": opened.holder, "keep_running": True})
    assert kept.json()["closed_before"] == []
    assert [d["deployment"] for d in (await owner.query("get-workloads"))["deployments"]] == [left]
    third = await door.sign_in("lab")
    answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
    assert [each["holder"] for each in answer["revoked"]] == [third.holder]
    assert [each["holder"] for each in answer["closed_before"]] == [closed.holder]
    assert (await owner.query("get-workloads"))["deployments"] == []


async def test_what_a_closed_key_left_is_ended_across_a_restart_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_door(tmp_path) as door:
        agent, deployment = await leave_running(door, "lab", "revoke --keep-running")
        owner = await door.sign_in("owner")
    async with open_door(tmp_path) as door:
        listed = await door.agent(owner.key).query("get-workloads")
        assert [each["deployment"] for each in listed["deployments"]] == [deployment]
        # The container engine does not end it before the peer is stopped.
        monkeypatch.setattr(peer.door.admin_keys, "STOP_WAIT_SECONDS", 0.0)
        door.runtime.go_away()
        answer = (await door.admin("POST", "revoke", json={"name": agent.holder})).json()
        assert answer["still_running"] == [deployment]
    async with open_door(tmp_path) as door:
        again = door.agent(owner.key)
        async with again.stream("from the beginning", type="DeploymentEnded") as stream:
            (told,) = await stream.until("DeploymentEnded")
        assert told["data"]["deployment"] == deployment
        assert (await again.query("get-workloads"))["deployments"] == []


async def test_a_revoke_holds_through_a_restart_and_so_does_the_end_of_the_work(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        agent, owner = await door.sign_in("lab"), await door.sign_in("owner")
        await door.deploy(agent)
        await door.admin("POST", "revoke", json={"name": "lab"})
    async with open_door(tmp_path) as door:
        assert (await door.agent(agent.key).get("/commands")).status_code == 401
        assert (await door.agent(owner.key).query("get-workloads"))["deployments"] == []
        [state] = [
            k["state"] for k in (await door.admin("GET", "status")).json()["keys"] if k["name"] == "lab"
        ]
        assert state == "revoked"


async def test_a_revoke_that_the_disk_did_not_keep_says_so_and_is_written_when_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_door(tmp_path) as door:
        agent = await door.sign_in("lab")

        def fail(record: Any) -> None:
            raise JournalUnavailable("the log is not written")

        # The peer would write it by itself.
        monkeypatch.setattr("actors.revoker.RETRY_SECONDS", float("inf"))
        with monkeypatch.context() as failing:
            failing.setattr(door.peer.house.store.keys, "put", fail)
            answer = await door.admin("POST", "revoke", json={"name": "lab", "keep_running": True})
        assert answer.json()["kept"] is False
        assert (await agent.get("/commands")).status_code == 401
        answer = await door.admin("POST", "revoke", json={"name": "lab", "keep_running": True})
        assert answer.json()["kept"] is True
        assert code(await door.admin("POST", "revoke", json={"name": "lab"}), 404) == "UNKNOWN_KEY"
    async with open_door(tmp_path) as door:
        assert (await door.agent(agent.key).get("/commands")).status_code == 401


async def test_the_owner_sees_everything_and_no_secret(door: OpenDoor) -> None:
    agent = await door.sign_in("lab", memory_bytes=4 * MODEL_BYTES, expires_seconds=3600)
    deployment = await door.deploy(agent)
    async with agent.stream():
        answer = await door.admin("GET", "status")
    status = answer.json()
    assert status["endpoint"] == door.endpoint
    assert status["streams"] == 1
    assert [each["deployment"] for each in status["workloads"]["deployments"]] == [deployment]
    [key] = status["keys"]
    assert (key["name"], key["holder"], key["state"]) == ("lab", agent.holder, "open")
    assert (key["held_bytes"], key["deployments"]) == (MODEL_BYTES, 1)
    assert agent.key not in answer.text
    assert door.admin_token not in answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_work_accepted_in_the_moment_of_a_revoke_does_not_outlive_it(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key closes while the engine is asked whether it can serve the model."""
    agent, owner = await door.sign_in("lab"), await door.sign_in("owner")
    plan = FakeEngine.plan

    async def revoke_meanwhile(engine: FakeEngine, model: str, memory_bytes: int) -> Any:
        await door.admin("POST", "revoke", json={"name": "lab"})
        return await plan(engine, model, memory_bytes)

    monkeypatch.setattr(FakeEngine, "plan", revoke_meanwhile)
    answer = await agent.send(
        "DeployModel", {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
    )
    found = error(answer, 401)
    assert found["details"] == {"manifest": f"{door.endpoint}/.well-known/best"}
    assert (await owner.query("get-workloads"))["deployments"] == []
    assert door.runtime.starts == []


async def test_an_approval_is_told_to_the_device_that_asked_alone(door: OpenDoor) -> None:
    one, two = await begin(door.client(), "one"), await begin(door.client(), "two")
    await door.approve(two["user_code"])
    assert (await poll(door.client(), one["device_code"])).json()["error"] == "authorization_pending"
    assert (await poll(door.client(), two["device_code"])).json()["name"] == "two"
