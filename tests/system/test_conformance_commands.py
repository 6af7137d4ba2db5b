"""BEST 0.9.18, sections 7 and 8: the envelope, commands and their schema documents."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import trio
from jsonschema import Draft202012Validator

from adapters.engine.port import EngineUnreachable
from tests.support.agents import envelope
from tests.support.answers import code, error, pointers
from tests.support.best_schemas import best_errors
from tests.support.peers import MODEL_BYTES, PeerProcess, listen
from tests.support.probes import strings_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor

DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
ROUTING = ("x-source", "x-target", "x-queue", "x-component", "x-route", "x-handler")


async def entries(agent: Agent) -> list[dict[str, Any]]:
    body = (await agent.get("/commands")).json()
    assert best_errors("agents/commands.json#/$defs/commandCatalogue", body) == []
    listed: list[dict[str, Any]] = body["commands"]
    return listed


async def document(agent: Agent, entry: dict[str, Any]) -> dict[str, Any]:
    answer = await agent.http.get(entry["dataschema"])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/schema+json"
    found: dict[str, Any] = answer.json()
    return found


async def test_w01_each_attribute_is_asked_for_and_all_faults_are_told_at_once(agent: Agent) -> None:
    whole = agent.envelope("DeployModel", DEPLOY)
    for attribute in whole:
        answer = await agent.http.post("/commands", json={k: v for k, v in whole.items() if k != attribute})
        assert code(answer, 400) == "INVALID_ENVELOPE"
        assert pointers(answer) == {f"/{attribute}"}
    wrong = {
        "specversion": "0.3",
        "datacontenttype": "text/plain",
        "time": "yesterday",
        "data": [],
        "id": "",
        "dataschema": "deploy-model/1.0",
    }
    answer = await agent.http.post("/commands", json={**whole, **wrong})
    assert code(answer, 400) == "INVALID_ENVELOPE"
    assert pointers(answer) == {f"/{name}" for name in wrong}


async def test_w02_attributes_beyond_the_profile_are_ignored(agent: Agent) -> None:
    extras = {"subject": "x", "traceparent": "00-ab", "tenantid": "t", "partitionkey": 7, "holder": "h-other"}
    await agent.command("DeployModel", DEPLOY, **extras)


async def test_w03_s06_the_source_is_any_reference_and_no_identity(door: OpenDoor, agent: Agent) -> None:
    other = await door.sign_in("other", memory_bytes=1 << 30)
    for source in ("urn:x", "svc", "/a/b", "https://agent.example/", other.holder):
        correlation = await agent.command("DeployModel", DEPLOY, source=source)
        started = await agent.wait_for("DeploymentStarted", correlation)
        assert started["holder"] == started["data"]["holder"] == agent.holder
        assert started["source"].startswith("urn:best-peer:")
    assert (await other.events()) == []


async def test_w04_no_schema_asks_for_what_the_key_implies(agent: Agent) -> None:
    for entry in await entries(agent):
        names = set((await document(agent, entry))["properties"])
        assert not names & {"holder", "tenant", "tenantId", "key", "account", "user", "principal", "peer"}


async def test_k01_k02_k03_the_catalogue_leads_to_each_document(door: OpenDoor, agent: Agent) -> None:
    for entry in await entries(agent):
        assert entry["dataschema"] == f"{door.endpoint}/commands/{entry['schema']}/{entry['version']}"
        found = await document(agent, entry)
        assert found["commandType"] == entry["commandType"]
        assert entry["commandType"] == "".join(part.capitalize() for part in entry["schema"].split("-"))


async def test_k04_the_catalogue_shows_what_this_key_may_send(door: OpenDoor, agent: Agent) -> None:
    assert len(await entries(agent)) == 7
    deployer = await door.sign_in(scopes=["deploy", "prompt"])
    assert {one["commandType"] for one in await entries(deployer)} == {
        "DeployModel",
        "UndeployModel",
        "PullImage",
        "Prompt",
        "RevokeAgent",
    }


def test_k05_what_was_answered_is_kept_through_a_kill(tmp_path: Path) -> None:
    with PeerProcess(tmp_path) as peer:
        key = {"x-api-key": peer.sign_in()}
        with peer.client(**key) as client:
            sent = envelope(peer.endpoint, "DeployModel", DEPLOY)
            answer = client.post("/commands", json=sent)
            peer.kill()
        assert answer.status_code == 201
        peer.start()
        with peer.client(**key) as client:
            # On another port its schemas are at other addresses; what was sent is the same command.
            again = client.post("/commands", json={**sent, **moved(peer.endpoint)})
            assert (again.status_code, again.json()) == (201, answer.json())
            told = [e["type"] for e in listen(client, sent["id"], until="DeploymentReady")]
    assert told.count("DeploymentReady") == 1
    assert told.count("DeploymentStarted") == 1


def moved(endpoint: str) -> dict[str, str]:
    return {"dataschema": f"{endpoint}/commands/deploy-model/1.0"}


async def test_k06_k09_the_receipt_has_id_and_correlation(agent: Agent) -> None:
    for correlation in (None, "my-chain", "my-chain"):
        sent = agent.envelope("DeployModel", DEPLOY, correlationid=correlation)
        answer = await agent.http.post("/commands", json=sent)
        assert answer.status_code == 201
        assert answer.json() == {"id": sent["id"], "correlationId": correlation or sent["id"]}


async def test_k07_faults_are_400_and_an_unknown_type_is_no_404(agent: Agent) -> None:
    unknown = await agent.send("MakeTea", {})
    assert code(unknown, 400) == "UNKNOWN_COMMAND"
    assert pointers(unknown) == {"/type"}
    wrong = await agent.send("DeployModel", {"model": 7, "memory_bytes": "much", "more": 1})
    assert code(wrong, 400) == "SCHEMA_VALIDATION"
    assert pointers(wrong) == {"/data/model", "/data/memory_bytes", "/data/engine", "/data/more"}
    for body in (b"", b"{", b"[]", b'"x"', b'{"id": 1, "id": 2}', b"\xff"):
        answer = await agent.http.post(
            "/commands", content=body, headers={"content-type": "application/json"}
        )
        assert error(answer, 400)["code"] in {"INVALID_JSON", "INVALID_ENVELOPE"}


async def test_k08_both_content_types_are_taken_and_no_other(agent: Agent) -> None:
    for kind in ("application/json", "application/cloudevents+json", "application/json; charset=utf-8"):
        answer = await agent.http.post(
            "/commands", json=agent.envelope("DeployModel", DEPLOY), headers={"content-type": kind}
        )
        assert answer.status_code == 201
    for kind in ("text/plain", "application/cloudevents-batch+json", "application/xml"):
        answer = await agent.http.post(
            "/commands", json=agent.envelope("DeployModel", DEPLOY), headers={"content-type": kind}
        )
        assert code(answer, 415) == "UNSUPPORTED_MEDIA_TYPE"


async def test_k10_a_retry_is_answered_as_before_and_other_content_refused(agent: Agent) -> None:
    sent = agent.envelope("DeployModel", DEPLOY, correlationid="chain")
    first = await agent.http.post("/commands", json=sent)
    later = {**sent, "time": "2026-10-20T00:00:00+02:00", "source": "elsewhere"}
    for same in (sent, later, {**sent, "data": dict(reversed(DEPLOY.items()))}):
        again = await agent.http.post("/commands", json=same)
        assert (again.status_code, again.json()) == (201, first.json())
    for other in (
        {**sent, "data": {**DEPLOY, "memory_bytes": MODEL_BYTES + 1}},
        {**sent, "correlationid": "another"},
        {
            **sent,
            "type": "RevokeAgent",
            "data": {},
            "dataschema": f"{agent.endpoint}/commands/revoke-agent/1.0",
        },
    ):
        assert code(await agent.http.post("/commands", json=other), 409) == "DUPLICATE_ID"
    await agent.wait_for("DeploymentReady", "chain")
    started = [one for one in await agent.events() if one["type"] == "DeploymentStarted"]
    assert len(started) == 1


async def test_k11_k12_a_dataschema_is_compared_and_never_fetched(agent: Agent) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for schema in (
            f"http://127.0.0.1:{port}/commands/deploy-model/1.0",
            f"{agent.endpoint}/commands/deploy-model/1.1",
            f"{agent.endpoint}/commands/deploy/1.0",
            f"{agent.endpoint}/commands/deploy-model/1.0/",
        ):
            answer = await agent.send("DeployModel", DEPLOY, dataschema=schema)
            assert code(answer, 400) == "UNKNOWN_SCHEMA"
            assert pointers(answer) == {"/dataschema"}
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_k13_a_type_and_another_types_schema_are_never_mixed(agent: Agent) -> None:
    crossed = f"{agent.endpoint}/commands/deploy-model/1.0"
    answer = await agent.send("UndeployModel", DEPLOY, dataschema=crossed)
    assert code(answer, 400) == "UNKNOWN_SCHEMA"
    named = [one["commandType"] for one in await entries(agent)]
    assert len(named) == len(set(named))


async def test_k14_what_was_accepted_ends_in_an_event_when_it_fails_too(door: OpenDoor, agent: Agent) -> None:
    door.engine().fail_next_load(EngineUnreachable("it hangs", fix="try again"))
    failed = await agent.wait_for("DeploymentFailed", await agent.command("DeployModel", DEPLOY))
    assert failed["data"]["code"] == "ENGINE_UNREACHABLE"
    assert failed["data"]["fix"]
    deployment = await door.deploy(agent)
    door.engine().fail_next_answer(EngineUnreachable("it hangs", fix="try again"))
    prompt = {"deployment": deployment, "messages": [{"role": "user", "content": "hello"}]}
    failed = await agent.wait_for("PromptFailed", await agent.command("Prompt", prompt))
    assert failed["data"]["code"] == "ENGINE_UNREACHABLE"


async def test_k15_k16_x02_impact_and_workflows_stand_on_entry_and_document_alike(agent: Agent) -> None:
    impacts = {}
    for entry in await entries(agent):
        found = await document(agent, entry)
        for member in ("impact", "workflows", "commandType"):
            assert found.get(member) == entry.get(member)
        if "impact" in entry:
            impacts[entry["commandType"]] = entry["impact"]["categories"]
    assert impacts == {
        "UndeployModel": ["destructive"],
        "StopJob": ["destructive"],
        "RevokeAgent": ["irreversible"],
    }


async def test_x01_documents_are_raw_schemas_and_unknown_ones_404(agent: Agent) -> None:
    for entry in await entries(agent):
        found = await document(agent, entry)
        Draft202012Validator.check_schema(found)
        assert found["type"] == "object"
    for path in ("none/1.0", "deploy-model/9.9", "deploy-model/1", "Deploy-Model/1.0"):
        assert code(await agent.get(f"/commands/{path}"), 404) == "NOT_FOUND"


async def test_x03_every_event_seen_is_one_that_its_command_produces(door: OpenDoor, agent: Agent) -> None:
    produces = {
        entry["commandType"]: set((await document(agent, entry))["produces"])
        for entry in await entries(agent)
    }
    deployment = await door.deploy(agent)
    prompt = {"deployment": deployment, "messages": [{"role": "user", "content": "hello"}]}
    asked = await agent.command("Prompt", prompt)
    await agent.wait_for("PromptAnswered", asked)
    ended = await agent.command("UndeployModel", {"deployment": deployment})
    await agent.wait_for("Undeployed", ended)
    by_correlation = {asked: "Prompt", ended: "UndeployModel"}
    seen = set()
    for event in await agent.events():
        command = by_correlation.get(event["correlationid"], "DeployModel")
        assert event["type"] in produces[command]
        seen.add(event["type"])
    assert {"DeploymentStarted", "DeploymentReady", "PromptAnswered", "Undeployed"} <= seen


async def test_x04_no_document_names_routing_of_ours(agent: Agent) -> None:
    for entry in await entries(agent):
        for path, _ in strings_in(await document(agent, entry)):
            assert not any(part in path.lower() for part in ROUTING)


async def test_k10_a_retry_is_answered_while_the_first_is_still_in_flight(
    door: OpenDoor, agent: Agent
) -> None:
    sent = agent.envelope("DeployModel", DEPLOY)
    answers = []

    async def send() -> None:
        answers.append(await agent.http.post("/commands", json=sent))

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(send)
    assert {(a.status_code, a.text) for a in answers} == {(201, answers[0].text)}
    await agent.wait_for("DeploymentReady", sent["id"])
    assert len(door.runtime.starts) == 1


async def test_k09_a_command_without_a_correlation_may_name_its_own_id(agent: Agent) -> None:
    chosen = str(uuid.uuid4())
    answer = await agent.send("DeployModel", DEPLOY, id=chosen, correlationid=chosen)
    assert answer.json() == {"id": chosen, "correlationId": chosen}
