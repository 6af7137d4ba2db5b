"""BEST 0.9.18, section 10: queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from tests.support.answers import code, pointers
from tests.support.best_schemas import best_errors

if TYPE_CHECKING:
    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor


async def entries(agent: Agent) -> list[dict[str, Any]]:
    body = (await agent.get("/queries")).json()
    assert best_errors("agents/queries.json#/$defs/queryCatalogue", body) == []
    listed: list[dict[str, Any]] = body["queries"]
    return listed


async def test_q01_q02_each_entry_leads_to_its_document(door: OpenDoor, agent: Agent) -> None:
    for entry in await entries(agent):
        assert entry["dataschema"] == f"{door.endpoint}/queries/{entry['schema']}/{entry['version']}"
        answer = await agent.http.get(entry["dataschema"])
        assert answer.status_code == 200
        assert best_errors("agents/queries.json#/$defs/querySchemaDocument", answer.json()) == []
        assert answer.json()["response"]
        assert answer.json().get("workflows") == entry.get("workflows")
    assert code(await agent.get("/queries/none/1.0"), 404) == "NOT_FOUND"


async def test_q03_answers_fit_their_schema_and_faults_say_which(door: OpenDoor, agent: Agent) -> None:
    deployment = await door.deploy(agent)
    for entry in await entries(agent):
        document = (await agent.http.get(entry["dataschema"])).json()
        answer = await agent.get(f"/queries/{entry['schema']}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        Draft202012Validator(document["response"]).validate(answer.json())
        wrong = await agent.get(f"/queries/{entry['schema']}", nothing="1")
        assert code(wrong, 400) == "SCHEMA_VALIDATION"
        assert pointers(wrong) == {"/nothing"}
    one = await agent.query("get-workloads", deployment=deployment)
    assert [each["deployment"] for each in one["deployments"]] == [deployment]
    other = await agent.get("/queries/get-workloads", deployment="dep-none-of-this-name")
    assert code(other, 404) == "UNKNOWN_DEPLOYMENT"
    (told,) = [each["dataschema"] for each in await entries(agent) if each["schema"] == "get-workloads"]
    parameters = (await agent.http.get(told)).json()["parameters"]["properties"]
    assert "UNKNOWN_DEPLOYMENT" in parameters["deployment"]["description"]
    assert code(await agent.get("/queries/none"), 404) == "NOT_FOUND"


async def test_q04_a_query_changes_nothing_and_is_only_read(door: OpenDoor, agent: Agent) -> None:
    await door.deploy(agent)
    before = await agent.events()
    workloads = await agent.query("get-workloads")
    for _ in range(3):
        await agent.query("get-hardware-state")
        assert await agent.query("get-workloads") == workloads
    assert await agent.events() == before
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = await agent.http.request(method, "/queries/get-workloads")
        assert code(answer, 405) == "METHOD_NOT_ALLOWED"
