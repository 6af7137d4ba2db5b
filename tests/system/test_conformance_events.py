"""BEST 0.9.18, section 9: the page of events and the stream."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from peer.door import stream as stream_module
from tests.support.answers import code, error
from tests.support.best_schemas import best_errors
from tests.support.peers import MODEL_BYTES

if TYPE_CHECKING:
    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor

DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
NEVER_BEFORE, LONG_AFTER = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


async def two_deployments(door: OpenDoor, agent: Agent) -> tuple[list[dict[str, Any]], str]:
    """Six facts under two correlations; the second one."""
    await door.deploy(agent)
    correlation = await agent.command("DeployModel", DEPLOY)
    await agent.wait_for("DeploymentReady", correlation)
    return await agent.events(), correlation


async def test_e01_a_page_is_closed_and_has_a_cursor_only_when_there_is_more(
    door: OpenDoor, agent: Agent
) -> None:
    everything, _ = await two_deployments(door, agent)
    assert len(everything) == 6
    for limit in (1, 2, 5, 6, 7, 100_000):
        seen: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        for _ in range(10):
            page = (await agent.get("/events", limit=limit, **after)).json()
            assert best_errors("agents/events.json#/$defs/eventList", page) == []
            assert len(page["events"]) <= limit
            seen += page["events"]
            if "nextCursor" not in page:
                break
            after = {"after": page["nextCursor"]}
        assert seen == everything


async def test_e02_every_filter_works_alone_and_with_every_other(door: OpenDoor, agent: Agent) -> None:
    everything, correlation = await two_deployments(door, agent)
    at = everything[2]["time"]
    filters: dict[str, tuple[str, Any]] = {
        "type": ("DeploymentReady", lambda e: e["type"] == "DeploymentReady"),
        "correlationId": (correlation, lambda e: e["correlationid"] == correlation),
        "source": (everything[0]["source"], lambda e: True),
        "from": (at, lambda e: e["time"] >= at),
        "to": (at, lambda e: e["time"] <= at),
    }
    for size in (1, 2, 3):
        for names in itertools.combinations(filters, size):
            wanted = [e for e in everything if all(filters[name][1](e) for name in names)]
            assert await agent.events(**{name: filters[name][0] for name in names}) == wanted, names
    for nothing in (
        {"type": "Nothing"},
        {"correlationId": "nothing"},
        {"source": "urn:nothing"},
        {"from": LONG_AFTER},
        {"to": NEVER_BEFORE},
    ):
        assert await agent.events(**nothing) == []
    for same in (at.replace("Z", "+00:00"), at.replace("Z", " 00:00")):  # a plus unescaped is a space
        assert (await agent.events(**{"from": same}))[0]["time"] >= at
    assert await agent.events(**{"from": "0001-01-01T00:00:00Z"}) == everything


async def test_e02_what_is_no_filter_is_refused_with_every_fault(agent: Agent) -> None:
    for path in ("/events", "/events/stream"):
        answer = await agent.get(path, type="", nothing="1", correlationId="x" * 257)
        problems = error(answer, 400)["details"]["problems"]
        assert {one["parameter"] for one in problems} == {"type", "nothing", "correlationId"}
        assert code(await agent.http.get(f"{path}?type=A&type=B"), 400) == "INVALID_PARAMETERS"
        many = "&".join(f"a{i}=1" for i in range(200))
        assert code(await agent.http.get(f"{path}?{many}"), 400) == "INVALID_PARAMETERS"
    for wrong in (
        {"limit": "0"},
        {"limit": "-1"},
        {"limit": "ten"},
        {"limit": "٣"},
        {"from": "yesterday"},
        {"to": "2026-10-19T12:00:00"},
        {"after": "!"},
        {"after": "LTU"},  # "-5"
        {"after": "x" * 200},
    ):
        assert code(await agent.get("/events", **wrong), 400) == "INVALID_PARAMETERS"


async def test_e03_every_event_of_a_command_bears_its_correlation(door: OpenDoor, agent: Agent) -> None:
    everything, correlation = await two_deployments(door, agent)
    under = [e for e in everything if e["correlationid"] == correlation]
    assert [e["type"] for e in under] == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]
    assert all(e["correlationid"] for e in everything)


async def test_e04_e05_each_event_fits_the_document_that_it_names(door: OpenDoor, agent: Agent) -> None:
    everything, _ = await two_deployments(door, agent)
    for event in everything:
        assert best_errors("cloudEvent.json#/$defs/cloudEvent", event) == []
        answer = await agent.http.get(event["dataschema"])
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/schema+json"
        Draft202012Validator(answer.json()).validate(event["data"])
    assert code(await agent.get("/events/none/1.0"), 404) == "NOT_FOUND"
    assert code(await agent.get("/events/deployment-ready/9.0"), 404) == "NOT_FOUND"


async def test_e06_s10_events_are_for_who_has_a_key(door: OpenDoor, agent: Agent) -> None:
    await door.deploy(agent)
    for path in ("/events", "/events/stream", "/events/deployment-ready/1.0"):
        answer = await door.client().get(path)
        assert code(answer, 401) == "UNAUTHORIZED"
        assert "DeploymentReady" not in answer.text


async def test_e07_a_stream_tells_what_comes_from_now_on(door: OpenDoor, agent: Agent) -> None:
    await door.deploy(agent)
    async with agent.stream() as listener:
        correlation = await agent.command("DeployModel", DEPLOY)
        told = await listener.until("DeploymentReady")
        assert {e["correlationid"] for e in told} == {correlation}
        assert listener.ids == [e["id"] for e in told]
        assert told == await agent.events(correlationId=correlation)


async def test_e07_a_streams_filters_hold_for_what_is_missed_and_what_is_live(
    door: OpenDoor, agent: Agent
) -> None:
    await door.deploy(agent)
    async with (
        agent.stream("evt-none", type="DeploymentReady") as ready,
        agent.stream("evt-none", correlationId="the-second") as second,
        agent.stream("evt-none", source="urn:nobody", type="DeploymentReady") as nothing,
    ):
        await agent.command("DeployModel", DEPLOY, correlationid="the-second")
        assert [(await ready.next() or {})["type"] for _ in range(2)] == ["DeploymentReady"] * 2
        told = await second.until("DeploymentReady")
        assert {e["correlationid"] for e in told} == {"the-second"}
        door.peer.streams.end_everything()
        assert await nothing.next() is None


async def test_e08_a_reader_that_comes_back_gets_all_that_it_missed_once(
    door: OpenDoor, agent: Agent
) -> None:
    async with agent.stream() as listener:
        await door.deploy(agent)
        first = await listener.until("DeploymentStarted")
    await door.deploy(agent)
    async with agent.stream(listener.ids[len(first) - 1]) as again:
        rest = await again.until("DeploymentReady")
        rest += await again.until("DeploymentReady")
    assert first + rest == await agent.events()


async def test_e09_a_quiet_stream_is_kept_alive_by_comments(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "QUIET_SECONDS", 0.01)
    async with agent.stream() as listener:
        assert await listener.comment() == "keepalive"
        assert await listener.comment() == "keepalive"


async def test_e10_the_list_holds_envelopes_and_nothing_else(door: OpenDoor, agent: Agent) -> None:
    assert (await agent.get("/events")).json() == {"events": []}
    await door.deploy(agent)
    for event in (await agent.get("/events")).json()["events"]:
        assert event["specversion"] == "1.0"


async def test_the_stream_answers_no_other_method(agent: Agent) -> None:
    for method in ("POST", "HEAD", "DELETE"):
        answer = await agent.http.request(method, "/events/stream")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET"
