"""BEST 0.9.18, section 12: errors, statuses, content types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from peer.door.problems import STATUS
from tests.support.agents import envelope
from tests.support.answers import code, error, pointers
from tests.support.peers import MODEL_BYTES, open_door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor

DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}


async def test_h01_h02_every_kind_of_refusal_has_its_own_code_and_status(
    door: OpenDoor, agent: Agent
) -> None:
    prompter = await door.sign_in(scopes=["prompt"])
    tenant = await door.sign_in(memory_bytes=MODEL_BYTES)
    sent = agent.envelope("DeployModel", DEPLOY)
    assert (await agent.http.post("/commands", json=sent)).status_code == 201
    big = {**sent, "data": {**DEPLOY, "model": "x" * (256 << 10)}}
    told = {
        "invalid": error(await agent.send("DeployModel", {}), 400),
        "no key": error(await door.client().get("/commands"), 401),
        "denied": error(await prompter.send("DeployModel", DEPLOY), 403),
        "unknown command": error(await agent.send("MakeTea", {}), 400),
        "unknown schema": error(await agent.send("Prompt", {}, dataschema="https://x.example/a"), 400),
        "unknown thing": error(await agent.send("UndeployModel", {"deployment": "dep-" + "x" * 22}), 404),
        "unknown path": error(await agent.get("/nowhere"), 404),
        "method": error(await agent.http.delete("/commands"), 405),
        "duplicate": error(
            await agent.http.post("/commands", json={**sent, "data": {**DEPLOY, "model": "other"}}), 409
        ),
        "another's": error(await tenant.http.post("/commands", json=sent), 409),
        "too large": error(await agent.http.post("/commands", json=big), 413),
        "media type": error(await agent.http.post("/commands", content=b"x"), 415),
        "too much": error(await tenant.send("DeployModel", {**DEPLOY, "memory_bytes": MODEL_BYTES + 1}), 422),
        "no room": error(await agent.send("DeployModel", {**DEPLOY, "memory_bytes": 1 << 50}), 422),
        "no such": error(await agent.send("DeployModel", {**DEPLOY, "engine": "vllm"}), 422),
    }
    codes = [found["code"] for found in told.values()]
    assert len(set(codes)) == len(codes), codes
    for what, found in told.items():
        assert found["message"], what
        assert found["code"] in STATUS, what


async def test_h01_validation_lists_every_fault_with_its_place(agent: Agent) -> None:
    data = {
        "deployment": "not a deployment",
        "messages": [{"role": "nobody", "content": 5}, {"role": "user"}],
        "max_tokens": 0,
        "temperature": -1,
        "extra": True,
    }
    answer = await agent.send("Prompt", data)
    assert code(answer, 400) == "SCHEMA_VALIDATION"
    assert pointers(answer) == {
        "/data/deployment",
        "/data/messages/0/role",
        "/data/messages/0/content",
        "/data/messages/1/content",
        "/data/max_tokens",
        "/data/temperature",
        "/data/extra",
    }
    for problem in answer.json()["error"]["details"]["problems"]:
        assert "expected" in problem["message"]
    assert "further in details.problems" in answer.json()["error"]["message"]


async def test_h02_a_fault_of_ours_is_500_and_says_nothing_of_its_inside(
    door: OpenDoor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(door.peer.house.store.events, "page", fail)
    answer = await agent.get("/events")
    assert code(answer, 500) == "INTERNAL"
    assert "inside" not in answer.text
    monkeypatch.undo()
    assert (await agent.get("/events")).status_code == 200


async def test_h03_each_kind_of_body_has_its_content_type(agent: Agent) -> None:
    kinds = {
        "/.well-known/best": "application/json",
        "/commands": "application/json",
        "/commands/prompt/1.0": "application/schema+json",
        "/events": "application/json",
        "/events/prompt-answered/1.0": "application/schema+json",
        "/queries": "application/json",
        "/queries/get-workloads": "application/json",
        "/queries/get-workloads/1.0": "application/json",
        "/workflows": "application/json",
        "/workflows/serve-a-model": "application/json",
        "/nowhere": "application/json",
    }
    for path, kind in kinds.items():
        assert (await agent.get(path)).headers["content-type"] == kind, path
    async with agent.http.stream("GET", "/events/stream", params={"type": ""}) as refused:
        assert refused.headers["content-type"] == "application/json"


async def test_h03_a_stream_is_an_event_stream(door: OpenDoor, agent: Agent) -> None:
    async with agent.stream() as listener:
        door.peer.streams.end_everything()
        assert await listener.next() is None
        assert listener.headers["content-type"] == "text/event-stream"
        assert listener.headers["cache-control"] == "no-store"


async def test_h04_a_401_says_where_the_way_in_is(door: OpenDoor) -> None:
    answer = await door.client().get("/events")
    found = error(answer, 401)
    assert found["details"] == {"manifest": f"{door.endpoint}/.well-known/best"}
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_paths_that_are_nearly_right_are_not_redirected(agent: Agent) -> None:
    command = envelope(agent.endpoint, "DeployModel", DEPLOY)
    for path in ("/commands/", "/Commands", "/commands//", "/commands%2f", "/commands//deploy-model/1.0"):
        answer = await agent.http.post(f"{agent.endpoint}{path}", json=command)
        assert code(answer, 404) == "NOT_FOUND", path
    assert (await agent.http.post(f"{agent.endpoint}//commands", json=command)).status_code == 201
    assert (await agent.http.options("/commands")).status_code == 405


async def test_a_wrong_key_is_told_apart_from_none(door: OpenDoor) -> None:
    none = error(await door.client().get("/commands"), 401)["message"]
    wrong = error(await door.client(**{"x-api-key": "bp_x"}).get("/commands"), 401)["message"]
    assert none.startswith("no key came")
    assert wrong.startswith("this key opens nothing")


async def test_h02_too_many_is_429_with_the_wait(tmp_path: Path) -> None:
    async with open_door(tmp_path, settings={"BEST_PEER_COMMANDS_PER_MINUTE": "1"}) as door:
        tenant = await door.sign_in(memory_bytes=1 << 30)
        await door.deploy(tenant)
        answer = await tenant.send("DeployModel", DEPLOY)
        assert code(answer, 429) == "TOO_MANY_COMMANDS"
        assert 1 <= int(answer.headers["retry-after"]) <= 60
