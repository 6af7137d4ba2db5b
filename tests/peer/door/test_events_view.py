"""Who reads which facts, on the page and on the stream alike (F5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.rules.visibility import WORKLOAD_FACTS
from adapters.engine.port import EngineUnreachable
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.agents import Agent

SECRET = "the words of a conversation"


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def live_and_learn(door: OpenDoor, agent: Agent) -> None:
    """Facts of each kind: deployed, prompted well and badly, undeployed."""
    deployment = await door.deploy(agent)
    prompt = {"deployment": deployment, "messages": [{"role": "user", "content": SECRET}]}
    await agent.wait_for("PromptAnswered", await agent.command("Prompt", prompt))
    door.engine().fail_next_answer(EngineUnreachable(f"it choked on {SECRET}", fix="ask again"))
    await agent.wait_for("PromptFailed", await agent.command("Prompt", prompt))
    await agent.wait_for("Undeployed", await agent.command("UndeployModel", {"deployment": deployment}))


async def told_to(agent: Agent, **parameters: str) -> list[dict[str, Any]]:
    """What the page says, which must be what a replayed stream says."""
    page = await agent.events(**parameters)
    streamed: list[dict[str, Any]] = []
    if "from" in parameters:  # no filter of a stream
        return page
    if page:
        async with agent.stream("evt-none", **parameters) as listener:
            while len(streamed) < len(page):
                event = await listener.next()
                assert event is not None
                streamed.append(event)
    assert streamed == page
    return page


async def test_who_reads_what(door: OpenDoor) -> None:
    tenant = await door.sign_in("tenant", memory_bytes=1 << 30)
    scoped = await door.sign_in("scoped", scopes=["deploy", "prompt"])
    owner = await door.sign_in("owner")
    for agent in (tenant, scoped, owner):
        await live_and_learn(door, agent)
    everything = {"DeploymentStarted", "WeightsLoading", "DeploymentReady", "Undeployed"}
    everything |= {"PromptAnswered", "PromptFailed"}
    for agent in (tenant, scoped):
        own = await told_to(agent)
        assert {event["type"] for event in own} == everything
        assert {event["holder"] for event in own} == {agent.holder}
    seen = await told_to(owner)
    for holder in (tenant.holder, scoped.holder):
        theirs = {event["type"] for event in seen if event["holder"] == holder}
        assert theirs == everything - {"PromptAnswered", "PromptFailed"}
        assert theirs <= WORKLOAD_FACTS
    assert {event["type"] for event in seen if event["holder"] == owner.holder} == everything


async def test_no_filter_opens_what_is_closed(door: OpenDoor) -> None:
    tenant, other = [await door.sign_in(name, memory_bytes=1 << 30) for name in ("one", "two")]
    owner = await door.sign_in("owner")
    await live_and_learn(door, tenant)
    theirs = await tenant.events()
    for event in theirs:
        for parameters in (
            {"correlationId": event["correlationid"]},
            {"type": event["type"]},
            {"source": event["source"]},
            {"from": event["time"], "to": event["time"]},
            {"type": event["type"], "correlationId": event["correlationid"], "source": event["source"]},
        ):
            assert await told_to(other, **parameters) == []
            for seen in await told_to(owner, **parameters):
                assert seen["type"] in WORKLOAD_FACTS
                assert SECRET not in str(seen)


async def test_no_cursor_opens_what_is_closed(door: OpenDoor) -> None:
    tenant = await door.sign_in("one", memory_bytes=1 << 30)
    other = await door.sign_in("two", memory_bytes=1 << 30)
    await live_and_learn(door, tenant)
    cursor = (await tenant.get("/events", limit=1)).json()["nextCursor"]
    assert (await other.get("/events", after=cursor)).json() == {"events": []}


async def test_a_page_ends_where_its_limit_does_also_for_a_reader_of_a_part(door: OpenDoor) -> None:
    tenant, owner = await door.sign_in("tenant", memory_bytes=1 << 30), await door.sign_in("owner")
    await live_and_learn(door, tenant)
    await live_and_learn(door, owner)
    for agent in (tenant, owner):
        whole = await agent.events()
        for limit in (1, 3, 500):
            assert await agent.events(limit=limit) == whole
