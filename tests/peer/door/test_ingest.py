"""Commands at a door that serves: retries, names that belong to a key, the pace, the share (F3, F7, F12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from adapters.engine.port import ModelNotFound
from tests.support.answers import code, error
from tests.support.peers import MODEL_BYTES, OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.agents import Agent

DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
SHARE = 1 << 30


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def test_a_retry_is_answered_as_before_after_a_restart(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        sent = agent.envelope("DeployModel", DEPLOY, correlationid="chain")
        first = (await agent.http.post("/commands", json=sent)).json()
        await agent.wait_for("DeploymentReady", "chain")
    async with open_door(tmp_path) as door:
        agent = door.agent(agent.key)
        sent["dataschema"] = agent.envelope("DeployModel", {})["dataschema"]
        again = await agent.http.post("/commands", json=sent)
        assert (again.status_code, again.json()) == (201, first)
        other = {**sent, "data": {**DEPLOY, "model": "other"}}
        assert code(await agent.http.post("/commands", json=other), 409) == "DUPLICATE_ID"
        assert [e["type"] for e in await agent.events()].count("DeploymentStarted") == 1


async def test_a_retry_is_answered_though_its_command_would_now_be_refused(door: OpenDoor) -> None:
    agent = await door.sign_in(memory_bytes=MODEL_BYTES)
    sent = agent.envelope("DeployModel", DEPLOY)
    first = await agent.http.post("/commands", json=sent)
    assert code(await agent.send("DeployModel", DEPLOY), 422) == "SHARE_EXCEEDED"
    assert (await agent.http.post("/commands", json=sent)).json() == first.json()


async def names_are_taken(door: OpenDoor, other: Agent, command: str, chain: str) -> None:
    """Neither name may be used by another key, as an id or as a correlation."""
    for name in (command, chain):
        for attributes, field in (({"id": name}, "/id"), ({"correlationid": name}, "/correlationid")):
            found = error(await other.send("DeployModel", DEPLOY, **attributes), 409)
            assert found["code"] == "ID_NOT_YOURS"
            assert found["details"] == {"field": field}


async def test_ids_and_correlations_belong_to_the_key_that_used_them_first(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        agent, other = await door.sign_in("one"), await door.sign_in("two")
        sent = await agent.send("DeployModel", DEPLOY, correlationid="chain")
        await names_are_taken(door, other, sent.json()["id"], "chain")
        # Its own are free to it: a chain of commands goes on under one correlation.
        await agent.command("DeployModel", DEPLOY, correlationid="chain")
        await agent.command("DeployModel", DEPLOY, correlationid=sent.json()["id"])
        await agent.wait_for("DeploymentReady", "chain")
    async with open_door(tmp_path) as door:
        await names_are_taken(door, door.agent(other.key), sent.json()["id"], "chain")


async def test_of_two_keys_that_send_one_id_at_once_one_has_it(door: OpenDoor) -> None:
    agents = [await door.sign_in(f"agent-{number}") for number in range(4)]
    answers = []

    async def send(agent: Agent) -> None:
        answers.append(await agent.send("DeployModel", DEPLOY, id="the-same"))

    async with trio.open_nursery() as nursery:
        for agent in agents:
            nursery.start_soon(send, agent)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    assert {code(a, 409) for a in answers if a.status_code == 409} == {"ID_NOT_YOURS"}


async def test_sixty_new_commands_a_minute_and_retries_and_refusals_are_not_counted(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_door(tmp_path, settings={"BEST_PEER_COMMANDS_PER_MINUTE": "3"}) as door:
        tenant = await door.sign_in("tenant", memory_bytes=SHARE)
        sent = [tenant.envelope("DeployModel", DEPLOY) for _ in range(4)]
        for each in sent[:3]:
            assert (await tenant.http.post("/commands", json=each)).status_code == 201
            mock_clock.jump(10)
            # Refused before it was whole, refused by its admission, and a retry.
            assert code(await tenant.send("DeployModel", {}), 400) == "SCHEMA_VALIDATION"
            over = {**DEPLOY, "memory_bytes": SHARE + 1}
            assert (await tenant.send("DeployModel", over)).status_code in {422, 429}
            assert (await tenant.http.post("/commands", json=each)).status_code == 201
        refused = await tenant.http.post("/commands", json=sent[3])
        found = error(refused, 429)
        assert found["code"] == "TOO_MANY_COMMANDS"
        assert found["details"] == {"limit": 3, "retry_after_seconds": 30}
        assert refused.headers["retry-after"] == "30"
        assert (await tenant.http.post("/commands", json=sent[0])).status_code == 201
        mock_clock.jump(30)
        assert (await tenant.http.post("/commands", json=sent[3])).status_code == 201
        assert (await tenant.http.post("/commands", json=sent[3])).status_code == 201
        assert code(await tenant.send("DeployModel", DEPLOY), 429) == "TOO_MANY_COMMANDS"


async def test_the_owners_own_keys_are_not_paced_and_each_tenant_has_its_own_pace(tmp_path: Path) -> None:
    async with open_door(tmp_path, settings={"BEST_PEER_COMMANDS_PER_MINUTE": "1"}) as door:
        owner = await door.sign_in("owner")
        scoped = await door.sign_in("scoped", scopes=["deploy"])
        tenants = [await door.sign_in(f"tenant-{n}", memory_bytes=SHARE) for n in range(2)]
        for agent in (owner, owner, owner, scoped, scoped, *tenants):
            assert (await agent.send("DeployModel", DEPLOY)).status_code == 201
        for tenant in tenants:
            assert code(await tenant.send("DeployModel", DEPLOY), 429) == "TOO_MANY_COMMANDS"


async def test_the_first_check_that_fails_is_told(door: OpenDoor) -> None:
    """Envelope, schema, scope, share and state, in that order."""
    prompter = await door.sign_in(scopes=["prompt"], memory_bytes=MODEL_BYTES)
    wrong = prompter.envelope("DeployModel", {"memory_bytes": -1})
    answer = await prompter.http.post("/commands", json={**wrong, "specversion": "2"})
    assert code(answer, 400) == "INVALID_ENVELOPE"
    assert code(await prompter.http.post("/commands", json=wrong), 400) == "SCHEMA_VALIDATION"
    vast = {**DEPLOY, "memory_bytes": 1 << 45}
    assert code(await prompter.send("DeployModel", vast), 403) == "FORBIDDEN"
    tenant = await door.sign_in(memory_bytes=MODEL_BYTES)
    door.engine().fail_next_plan(ModelNotFound("there is no such model", fix="name another"))
    assert code(await tenant.send("DeployModel", vast), 422) == "SHARE_EXCEEDED"
    assert code(await tenant.send("DeployModel", DEPLOY), 422) == "MODEL_NOT_FOUND"
    owner = await door.sign_in()
    assert code(await owner.send("DeployModel", vast), 422) == "INSUFFICIENT_MEMORY"


async def test_an_answer_longer_than_a_conversation_holds_is_refused_after_a_restart_too(
    tmp_path: Path,
) -> None:
    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        deployment = await door.deploy(agent)
        asked = {
            "deployment": deployment,
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 4097,
        }
        assert code(await agent.send("Prompt", asked), 422) == "MAX_TOKENS_TOO_LARGE"
    async with open_door(tmp_path) as door:
        agent = door.agent(agent.key)
        assert code(await agent.send("Prompt", asked), 422) == "MAX_TOKENS_TOO_LARGE"
        assert (await agent.send("Prompt", {**asked, "max_tokens": 4096})).status_code == 201


async def test_a_refused_command_leaves_nothing_behind(door: OpenDoor) -> None:
    tenant = await door.sign_in(memory_bytes=SHARE, deployments=2)
    sent = tenant.envelope("DeployModel", {**DEPLOY, "memory_bytes": SHARE + 1}, correlationid="chain")
    assert code(await tenant.http.post("/commands", json=sent), 422) == "SHARE_EXCEEDED"
    other = await door.sign_in()
    assert (await other.send("DeployModel", DEPLOY, id=sent["id"], correlationid="chain")).status_code == 201
    assert (await tenant.query("get-workloads"))["held_bytes"] == 0
    assert (door.peer.folder.path / "accepted.jsonl").read_text().count(sent["id"]) == 1


async def test_numbers_written_with_a_point_are_the_same_command(door: OpenDoor) -> None:
    agent = await door.sign_in()
    sent = agent.envelope("DeployModel", {**DEPLOY, "memory_bytes": float(MODEL_BYTES)})
    first = await agent.http.post("/commands", json=sent)
    assert first.status_code == 201
    sent["data"]["memory_bytes"] = MODEL_BYTES
    assert (await agent.http.post("/commands", json=sent)).json() == first.json()
