"""The peer's own app behind its server: hostile requests, and clients that do not read, harm nobody."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from tests.support.hostile import CASES, Case, Move, play
from tests.support.peers import open_door
from tests.support.rawhttp import HANG, HOST, QUICK, Pki, serving

if TYPE_CHECKING:
    from pathlib import Path

HASTY = attrs.evolve(QUICK, header_seconds=1.5, body_seconds=1.5, keep_alive_seconds=0.5, write_seconds=1.0)
"""For what only a deadline ends."""
MANIFEST = b"/.well-known/best"
PATHS = (b"/commands", b"/oauth/token")


def at(path: bytes, case: Case) -> Case:
    """The same at a path of the door, where it has one of the little app's."""
    steps = tuple(
        step.replace(b" / HTTP/1.1", b" " + path + b" HTTP/1.1") if isinstance(step, bytes) else step
        for step in case.steps
    )
    return attrs.evolve(case, steps=steps)


@pytest.mark.parametrize("path", PATHS)
async def test_hostile_requests_harm_nobody_at_the_peers_own_door(
    tmp_path: Path, pki: Pki | None, path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    turn = trio.CapacityLimiter(10)

    async def one(case: Case) -> None:
        async with turn, wired.dial() as wire:
            await play(wire, case.steps)
            if not {Move.CLOSE, Move.RESET} & set(case.steps):
                with trio.move_on_after(HANG):
                    await wire.until_closed()

    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        async with serving(door.peer.app, pki=pki, limits=HASTY) as wired:
            async with trio.open_nursery() as nursery:
                for case in CASES:
                    nursery.start_soon(one, at(path, case))
            await wired.settled()
            assert (await wired.get(MANIFEST)).status == 200
            mine = b"X-Api-Key: " + agent.key.encode() + b"\r\n"
            assert (await wired.get(b"/commands", mine)).status == 200
            assert wired.server.statistics().crashed_connections == 0
        assert len(door.peer.streams) == 0
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_a_subscriber_that_reads_nothing_is_cut_and_gives_its_stream_back(
    tmp_path: Path, pki: Pki | None
) -> None:
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "word " * 3000}]}
    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        prompt["deployment"] = await door.deploy(agent)
        limits = attrs.evolve(HASTY, write_seconds=0.3)
        async with (
            serving(door.peer.app, pki=pki, limits=limits) as wired,
            wired.dial(receive_buffer=4096) as stalled,
            agent.stream() as other,
        ):
            asked = b"GET /events/stream HTTP/1.1\r\n" + HOST + b"X-Api-Key: " + agent.key.encode()
            await stalled.send(asked + b"\r\n\r\n")
            await stalled.until(b": open")
            assert len(door.peer.streams) == 2
            for _ in range(200):
                await agent.command("Prompt", prompt)
                await other.until("PromptAnswered")
                if len(door.peer.streams) == 1:
                    break
            await wired.settled()
            assert wired.server.statistics().dropped_slow_readers == 1
            assert len(door.peer.streams) == 1, "the one that reads"
