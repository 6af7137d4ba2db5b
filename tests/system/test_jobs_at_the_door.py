"""Jobs as an agent meets them: commands, facts and queries over the wire, by the documents alone (F25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from adapters.runtime.pretence import obeys, runs_on
from tests.support.answers import code

if TYPE_CHECKING:
    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor

MIB = 1 << 20
ECHO = {"image": "busybox:1", "command": ["echo", "hi"], "env": {"A": "b"}}


@pytest.fixture(autouse=True)
def jobs_end_by_themselves(door: OpenDoor) -> None:
    door.runtime.scripts = obeys


async def schema_of(agent: Agent, event: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = (await agent.http.get(event["dataschema"])).json()
    return document


async def run(door: OpenDoor, agent: Agent, **data: Any) -> tuple[str, str]:
    """A job that runs until it is told to end: its run-job's correlation and its id."""
    door.runtime.scripts = runs_on
    correlation = await agent.command("RunJob", {"image": "busybox", **data})
    started = await agent.wait_for("JobStarted", correlation)
    return correlation, started["data"]["job"]


async def test_a_job_is_followed_from_its_command_to_its_end(agent: Agent) -> None:
    correlation = await agent.command("RunJob", ECHO)
    await agent.wait_for("JobFinished", correlation)
    facts = await agent.events(correlationId=correlation)
    kinds = [f["type"] for f in facts]
    assert list(dict.fromkeys(kinds)) == ["ImagePulling", "ImagePulled", "JobStarted", "JobFinished"]
    entry = next(e for e in (await agent.get("/commands")).json()["commands"] if e["commandType"] == "RunJob")
    document = (await agent.http.get(entry["dataschema"])).json()
    assert set(kinds) <= set(document["produces"])
    for fact in facts:
        Draft202012Validator(await schema_of(agent, fact)).validate(fact["data"])
    assert facts[-1]["data"]["output"] == ["echo hi"]
    assert facts[-1]["data"]["exit_code"] == 0
    assert (await agent.query("get-workloads"))["jobs"] == []


@pytest.mark.parametrize(
    ("command", "kind", "expected"),
    [
        (["exit", "3"], "JobFinished", {"exit_code": 3}),
        (["oom"], "JobFailed", {"code": "OUT_OF_MEMORY", "exit_code": 137}),
    ],
)
async def test_every_end_fits_its_document(
    agent: Agent, command: list[str], kind: str, expected: dict[str, Any]
) -> None:
    fact = await agent.wait_for(kind, await agent.command("RunJob", {"image": "busybox", "command": command}))
    Draft202012Validator(await schema_of(agent, fact)).validate(fact["data"])
    assert fact["data"].items() >= expected.items()


async def test_a_job_that_runs_is_listed_and_stopped(door: OpenDoor, agent: Agent) -> None:
    correlation, job = await run(door, agent, memory_bytes=MIB)
    row = (await agent.query("get-workloads", job=job))["jobs"][0]
    assert row | {"since": ""} == {
        "job": job,
        "image": "busybox",
        "device": "cpu",
        "memory_bytes": MIB,
        "boxed": False,
        "phase": "running",
        "holder": agent.holder,
        "correlationId": correlation,
        "since": "",
    }
    stop = await agent.command("StopJob", {"job": job})
    for under in (stop, correlation):
        fact = await agent.wait_for("JobStopped", under)
        Draft202012Validator(await schema_of(agent, fact)).validate(fact["data"])
    listed = await agent.query("get-workloads")
    assert (listed["jobs"], listed["held_bytes"]) == ([], 0)
    assert code(await agent.send("StopJob", {"job": job}), 404) == "UNKNOWN_JOB"


async def test_what_is_listed_fits_its_document_and_one_may_be_asked_for(
    door: OpenDoor, agent: Agent
) -> None:
    deployment = await door.deploy(agent)
    (_, first), (_, second) = await run(door, agent), await run(door, agent, memory_bytes=MIB)
    entries = (await agent.get("/queries")).json()["queries"]
    document = next(e["dataschema"] for e in entries if e["schema"] == "get-workloads")
    response = (await agent.http.get(document)).json()["response"]
    listed = await agent.query("get-workloads")
    Draft202012Validator(response).validate(listed)
    assert [j["job"] for j in listed["jobs"]] == [first, second], "oldest first"
    for asked, expected in (
        ({"job": first}, ([], [first])),
        ({"deployment": deployment}, ([deployment], [])),
        ({"deployment": deployment, "job": second}, ([deployment], [second])),
    ):
        found = await agent.query("get-workloads", **asked)
        Draft202012Validator(response).validate(found)
        shown = [d["deployment"] for d in found["deployments"]], [j["job"] for j in found["jobs"]]
        assert shown == expected
    unknown = await agent.get("/queries/get-workloads", job="job-none-of-this-name")
    assert code(unknown, 404) == "UNKNOWN_JOB"


async def test_another_keys_jobs_are_neither_listed_nor_stopped_nor_read(
    door: OpenDoor, agent: Agent
) -> None:
    """A key approved for everything reads and stops them all the same."""
    tenant = await door.sign_in("tenant", memory_bytes=MIB * 8)
    other = await door.sign_in("other", memory_bytes=MIB * 8)
    correlation, job = await run(door, tenant, memory_bytes=MIB)
    assert (await other.query("get-workloads"))["jobs"] == []
    assert code(await other.get("/queries/get-workloads", job=job), 404) == "UNKNOWN_JOB"
    assert code(await other.send("StopJob", {"job": job}), 404) == "UNKNOWN_JOB"
    assert await other.events() == []
    assert [j["boxed"] for j in (await agent.query("get-workloads"))["jobs"]] == [True]
    stop = await agent.command("StopJob", {"job": job})
    await agent.wait_for("JobStopped", stop)
    fact = await tenant.wait_for("JobStopped", correlation)
    assert "everybody's" in fact["data"]["reason"]
    assert {f["type"] for f in await agent.events()} >= {"ImagePulled", "JobStarted", "JobStopped"}
    assert [f["type"] for f in await tenant.events()].count("JobStopped") == 1


@pytest.mark.parametrize(
    ("grant", "data", "refused", "status"),
    [
        ({"memory_bytes": 8 * MIB}, {}, "JOB_NEEDS_DEVICE", 422),
        ({"memory_bytes": 8 * MIB}, {"memory_bytes": 9 * MIB}, "SHARE_EXCEEDED", 422),
        ({"memory_bytes": 8 * MIB, "jobs": 0}, {"memory_bytes": MIB}, "JOBS_EXCEEDED", 422),
        ({"scopes": ["deploy", "prompt"]}, {}, "FORBIDDEN", 403),
        ({"accelerators_only": True}, {}, "ACCELERATORS_ONLY", 403),
        ({}, {"memory_bytes": 1 << 50}, "INSUFFICIENT_MEMORY", 422),
        ({}, {"device": "gpu-9"}, "UNKNOWN_DEVICE", 422),
        ({}, {"isolation": "vm"}, "ISOLATION_UNAVAILABLE", 422),
        ({}, {"image": "No Image"}, "INVALID_IMAGE", 422),
        ({}, {"image": ""}, "SCHEMA_VALIDATION", 400),
        ({}, {"command": []}, "SCHEMA_VALIDATION", 400),
        ({}, {"queue_seconds": 5}, "SCHEMA_VALIDATION", 400),
    ],
)
async def test_what_is_refused_says_why_and_leaves_nothing(
    door: OpenDoor, grant: dict[str, Any], data: dict[str, Any], refused: str, status: int
) -> None:
    key = await door.sign_in("asker", **grant)
    answer = await key.send("RunJob", {"image": "busybox", **data})
    assert code(answer, status) == refused
    assert answer.json()["error"]["message"]
    assert await key.events() == []
    assert (await key.query("get-workloads"))["jobs"] == []


async def test_the_machine_says_whether_it_runs_jobs(agent: Agent) -> None:
    assert (await agent.query("get-hardware-state"))["jobs"] is True


async def test_a_key_taken_back_takes_its_jobs_with_it_before_the_owner_is_answered(door: OpenDoor) -> None:
    tenant = await door.sign_in("tenant", memory_bytes=MIB * 8)
    await run(door, tenant, memory_bytes=MIB)
    answer = await door.admin("POST", "revoke", json={"name": "tenant"})
    assert answer.json()["still_running"] == []
    assert await door.runtime.running() == ()
    keys = (await door.admin("GET", "status")).json()["keys"]
    assert [(k["jobs"], k["held_bytes"]) for k in keys] == [(0, 0)]
