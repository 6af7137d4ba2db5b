"""BEST 0.9.18, section 13: security and limits."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from peer.setting import SettingsError
from peer.settings import Settings
from tests.support.agents import begin
from tests.support.answers import code, error, pointers
from tests.support.peers import MODEL_BYTES, environment, open_door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor

DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
JSON = {"content-type": "application/json"}


def test_s01_a_door_off_this_machine_is_not_served_in_the_clear(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    open_to_all = {**environ, "BEST_PEER_LISTEN": "0.0.0.0:7777"}
    for endpoint in ("http://203.0.113.7:7777", "http://peer.example:7777"):
        with pytest.raises(SettingsError):
            Settings.read({**open_to_all, "BEST_PEER_ENDPOINT": endpoint})
    assert Settings.read({**open_to_all, "BEST_PEER_ENDPOINT": "https://203.0.113.7:7777"})


async def test_s01_a_tls_door_is_trusted_by_its_certificate_and_serves_nobody_in_the_clear(
    tmp_path: Path,
) -> None:
    async with open_door(tmp_path, https=True) as door:
        assert (await door.client().get("/.well-known/best")).status_code == 200
        plain = door.endpoint.replace("https", "http")
        assert code(await door.client().get(f"{plain}/.well-known/best"), 400) == "BAD_REQUEST"
        door.tls = ssl.create_default_context()
        with pytest.raises(httpx.ConnectError):
            await door.client().get("/.well-known/best")


async def test_s02_what_no_scope_allows_is_denied_and_told_apart_from_the_unknown(door: OpenDoor) -> None:
    reader = await door.sign_in(scopes=["workspaces"])
    for command in ("DeployModel", "UndeployModel", "Prompt", "RunJob", "StopJob"):
        listed = {one["commandType"] for one in (await reader.get("/commands")).json()["commands"]}
        assert command not in listed
    assert code(await reader.send("DeployModel", DEPLOY), 403) == "FORBIDDEN"
    assert code(await reader.send("MakeTea", {}), 400) == "UNKNOWN_COMMAND"
    refused = await door.approve((await begin(door.client()))["user_code"], scopes=[])
    assert code(refused, 400) == "INVALID_GRANT"


async def test_s04_no_field_of_a_command_makes_its_sender_another(door: OpenDoor, agent: Agent) -> None:
    other = await door.sign_in("other", memory_bytes=1 << 30)
    theirs = await door.deploy(other)
    tenant = await door.sign_in("tenant", memory_bytes=1 << 30)
    refused = await tenant.send("DeployModel", {**DEPLOY, "holder": other.holder})
    assert code(refused, 400) == "SCHEMA_VALIDATION"
    assert pointers(refused) == {"/data/holder"}
    prompt = {"deployment": theirs, "messages": [{"role": "user", "content": "hello"}]}
    for command, data in (("Prompt", prompt), ("UndeployModel", {"deployment": theirs})):
        assert code(await tenant.send(command, data, holder=other.holder), 404) == "UNKNOWN_DEPLOYMENT"
    assert code(await agent.send("Prompt", prompt), 404) == "UNKNOWN_DEPLOYMENT"  # not even an `all` key
    correlation = await agent.command("UndeployModel", {"deployment": theirs})
    ended = await agent.wait_for("Undeployed", correlation)
    assert ended["holder"] == agent.holder


async def test_s05_no_agent_grants_itself_more(door: OpenDoor, agent: Agent) -> None:
    begun = await begin(door.client(), "more")
    for path, body in (
        ("approve", {"user_code": begun["user_code"]}),
        ("revoke", {"name": agent.holder}),
    ):
        answer = await agent.http.post(f"/admin/{path}", json=body)
        assert code(answer, 401) == "UNAUTHORIZED"
    assert (await agent.get("/commands")).status_code == 200


async def test_s07_what_is_too_large_too_deep_or_too_long_is_refused(agent: Agent) -> None:
    limit = 256 << 10
    whole = agent.envelope("DeployModel", DEPLOY)
    padding = limit - len(orjson.dumps({**whole, "padding": ""}))
    fits = orjson.dumps({**whole, "padding": "x" * padding})
    assert len(fits) == limit
    assert (await agent.http.post("/commands", content=fits, headers=JSON)).status_code == 201
    found = error(await agent.http.post("/commands", content=fits + b" ", headers=JSON), 413)
    assert (found["code"], found["details"]) == ("PAYLOAD_TOO_LARGE", {"limit_bytes": limit})

    async def pieces() -> Any:
        for _ in range(40):
            yield b"x" * 8192

    chunked = await agent.http.post("/commands", content=pieces(), headers=JSON)
    assert code(chunked, 413) == "PAYLOAD_TOO_LARGE"
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    assert code(await agent.http.post("/commands", content=deep, headers=JSON), 400) == "INVALID_JSON"
    for wrong, where in (
        ({"model": "x" * 300}, "/data/model"),
        ({"memory_bytes": 1 << 62}, "/data/memory_bytes"),
    ):
        answer = await agent.send("DeployModel", {**DEPLOY, **wrong})
        assert code(answer, 400) == "SCHEMA_VALIDATION"
        assert pointers(answer) == {where}
    messages = [{"role": "user", "content": "x"}] * 2000
    answer = await agent.send("Prompt", {"deployment": "dep-" + "x" * 22, "messages": messages})
    assert pointers(answer) == {"/data/messages"}
    many = {f"extra{number}": 1 for number in range(5000)}
    answer = await agent.send("DeployModel", {**DEPLOY, **many})
    assert len(answer.json()["error"]["details"]["problems"]) <= 32
    assert answer.json()["error"]["details"]["more"] is True


async def test_s07_ids_and_correlations_are_bounded(agent: Agent) -> None:
    for field, name in (("/id", "id"), ("/correlationid", "correlationid"), ("/source", "source")):
        answer = await agent.send("DeployModel", DEPLOY, **{name: "x" * 3000})
        assert code(answer, 400) == "INVALID_ENVELOPE"
        assert pointers(answer) == {field}


async def test_s09_a_refusal_repeats_no_credential(agent: Agent) -> None:
    for answer in (
        await agent.send("DeployModel", {**DEPLOY, agent.key: 1}),
        await agent.send("DeployModel", {**DEPLOY, "device": agent.key}),
        await agent.send(agent.key, DEPLOY),
        await agent.get("/events", **{agent.key: "1"}),
        await agent.get(f"/commands/{agent.key}/1.0"),
        await agent.get(f"/queries/{agent.key}"),
        await agent.get("/queries/get-workloads", deployment=agent.key),
    ):
        assert answer.status_code in {400, 404, 422}
        assert agent.key not in answer.text
