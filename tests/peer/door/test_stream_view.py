"""Event streams at a door that serves: how many, how they end, and that leaving costs nobody (F6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from adapters.clock.fake import FakeClock
from tests.support.agents import HANG, Listener, connect
from tests.support.answers import code
from tests.support.peers import MODEL_BYTES, OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def none_open(door: OpenDoor) -> None:
    """Wait until the door has let go of every stream."""
    with trio.fail_after(HANG):
        while len(door.peer.streams):
            await trio.lowlevel.checkpoint()


async def test_a_fifth_stream_ends_the_oldest_and_misses_nothing(door: OpenDoor) -> None:
    tenant = await door.sign_in("tenant", memory_bytes=1 << 30)
    async with (
        tenant.stream() as first,
        tenant.stream() as second,
        tenant.stream() as third,
        tenant.stream() as fourth,
    ):
        await door.deploy(tenant)  # which waits on a stream of its own: the first has to go for it
        seen = [event async for event in to_the_end(first)]
        for listener in (second, third, fourth):
            assert (await listener.until("DeploymentReady"))[-1]
        async with tenant.stream(first.ids[-1] if seen else "evt-none") as again:
            if not seen or seen[-1]["type"] != "DeploymentReady":
                seen += await again.until("DeploymentReady")
        assert [e["type"] for e in seen] == ["DeploymentStarted", "WeightsLoading", "DeploymentReady"]


async def to_the_end(listener: Listener) -> AsyncIterator[dict[str, Any]]:
    while (event := await listener.next()) is not None:
        yield event


async def test_streams_are_counted_by_key_and_the_owners_are_not(tmp_path: Path) -> None:
    async with open_door(tmp_path, settings={"BEST_PEER_STREAMS_PER_CREDENTIAL": "1"}) as door:
        owner = await door.sign_in("owner")
        one, two = [await door.sign_in(name, memory_bytes=1 << 30) for name in ("one", "two")]
        async with owner.stream() as first, owner.stream() as second, one.stream() as its, two.stream():
            async with one.stream():
                assert await its.next() is None
                assert its.comments[-1] == "closed"
                assert len(door.peer.streams) == 4
            correlation = await owner.command("DeployModel", DEPLOY)
            for listener in (first, second):
                assert (await listener.until("DeploymentReady"))[-1]["correlationid"] == correlation


async def test_a_stream_ends_when_its_key_runs_out(tmp_path: Path, mock_clock: MockClock) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        agent = await door.sign_in(expires_seconds=3600)
        clock.advance(600_000)
        async with agent.stream() as listener:
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(2999)
            await door.deploy(await door.sign_in("other"))
            assert len(await listener.until("DeploymentReady")) == 3
            mock_clock.jump(1)
            assert await listener.next() is None
            assert listener.comments[-1] == "closed"
        clock.advance(3_000_000)
        assert code(await agent.get("/events/stream"), 401) == "UNAUTHORIZED"


async def test_a_machine_that_slept_through_a_keys_end_tells_its_stream_nothing_more(tmp_path: Path) -> None:
    """Timers stand still while it sleeps, and the clock goes on."""
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        agent, other = await door.sign_in(expires_seconds=3600), await door.sign_in("other")
        async with agent.stream() as listener:
            clock.advance(3_600_000)
            await door.deploy(other)
            assert await listener.next() is None
            assert listener.comments[-1] == "closed"
        clock.advance(-3_600_000)
        assert code(await agent.get("/commands"), 401) == "UNAUTHORIZED"


async def test_a_key_that_was_seen_to_end_is_told_nothing_more_though_the_clock_is_set_back(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        agent, other = await door.sign_in(expires_seconds=3600), await door.sign_in("other")
        async with agent.stream() as listener:
            clock.advance(3_600_000)
            assert code(await agent.get("/commands"), 401) == "UNAUTHORIZED"
            clock.advance(-3_600_000)
            await door.deploy(other)
            assert await listener.next() is None


@pytest.mark.parametrize("how", ["revoke", "revoke-agent"])
async def test_a_stream_opened_as_its_key_closes_is_refused_or_ends(door: OpenDoor, how: str) -> None:
    """Whichever comes first, none stays open."""
    agent = await door.sign_in("lab")
    ended: list[int] = []

    async def one() -> None:
        async with await connect(agent.endpoint, agent.tls) as wire:
            listener = Listener(wire)
            status = await listener.ask("/events/stream", {"x-api-key": agent.key})
            if status == 200:
                async for _ in to_the_end(listener):
                    pass
            ended.append(status)

    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(one)
            if number == 15:
                if how == "revoke":
                    nursery.start_soon(lambda: door.admin("POST", "revoke", json={"name": "lab"}))
                else:
                    nursery.start_soon(agent.send, "RevokeAgent", {})
    assert set(ended) <= {200, 401}
    assert len(ended) == 30
    await none_open(door)


async def test_a_revoked_keys_stream_ends_and_is_counted_no_more(door: OpenDoor) -> None:
    agent = await door.sign_in("lab")
    async with agent.stream() as listener:
        await door.admin("POST", "revoke", json={"name": "lab"})
        assert await listener.next() is None
    assert len(door.peer.streams) == 0


async def test_a_client_that_leaves_gives_its_stream_back_at_once(door: OpenDoor) -> None:
    """pgjones/hypercorn#210: a client that left was not noticed."""
    agent = await door.sign_in()
    async with agent.stream():
        assert len(door.peer.streams) == 1
    await none_open(door)
    async with await connect(door.endpoint, door.tls) as wire:
        listener = Listener(wire)
        assert await listener.ask("/events/stream", {"x-api-key": agent.key}) == 200
        assert await listener.comment() == "open"
        assert isinstance(wire, trio.SocketStream)
        await wire.send_eof()  # half closed: it will say no more
        await none_open(door)


async def test_a_command_whose_sender_left_before_the_answer_runs_and_its_retry_is_answered(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pgjones/hypercorn#210: a client's leaving broke what it had ordered."""
    agent = await door.sign_in()
    sent = agent.envelope("DeployModel", DEPLOY)
    accepted = door.peer.house.store.accepted
    put = accepted.put
    was_put = trio.Event()

    def note(record: Any) -> Any:
        batch = put(record)
        was_put.set()
        return batch

    monkeypatch.setattr(accepted, "put", note)
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            await agent.http.post("/commands", json=sent)

        nursery.start_soon(send)
        with trio.fail_after(HANG):
            await was_put.wait()
        nursery.cancel_scope.cancel()
    again = await agent.http.post("/commands", json=sent)
    assert (again.status_code, again.json()["id"]) == (201, sent["id"])
    await agent.wait_for("DeploymentReady", sent["id"])
    assert len(door.runtime.starts) == 1


async def test_a_reader_that_reads_nothing_holds_up_nobody(door: OpenDoor) -> None:
    agent = await door.sign_in()
    async with await connect(door.endpoint, door.tls) as wire:
        stalled = Listener(wire)
        assert await stalled.ask("/events/stream", {"x-api-key": agent.key}) == 200
        deployment = await door.deploy(agent)
        text = "word " * 3000
        for _ in range(20):
            prompt = {"deployment": deployment, "messages": [{"role": "user", "content": text}]}
            asked = await agent.command("Prompt", prompt)
            await agent.wait_for("PromptAnswered", asked)


async def test_an_id_of_another_log_begins_at_the_beginning(door: OpenDoor) -> None:
    agent = await door.sign_in()
    await door.deploy(agent)
    for identifier in ("evt-999999", "evt--1", "evt-x", "7", "evt-" + "9" * 40):
        async with agent.stream(identifier) as listener:
            assert len(await listener.until("DeploymentReady")) == 3


async def test_a_stream_that_is_refused_is_counted_nowhere(door: OpenDoor) -> None:
    agent = await door.sign_in()
    assert code(await agent.get("/events/stream", limit="5"), 400) == "INVALID_PARAMETERS"
    assert len(door.peer.streams) == 0
