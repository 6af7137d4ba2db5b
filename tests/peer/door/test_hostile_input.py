"""Nothing a client sends ends the server, keeps a connection, or costs the next client its answer."""

from __future__ import annotations

import os
import random
import re
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from peer.door.limits import Limits
from tests.support.doorapps import Flood, quart_app, reply, ticking
from tests.support.hostile import CASES, GOOD, HELLO, LEFT, Case, Drip, Move, Step, chunked, play, post
from tests.support.rawhttp import HANG, Door, Pki, serving

if TYPE_CHECKING:
    from peer.door.http1 import AsgiApp
    from tests.support.doorapps import Receive, Scope, Send

SEED = int(os.environ.get("HOSTILE_SEED", "20261129"))
MUTATIONS = 100  # of each share
# For what only a deadline ends.
HASTY = Limits(
    handshake_seconds=0.8, header_seconds=0.3, body_seconds=0.3, keep_alive_seconds=0.5, linger_seconds=2.0,
    write_seconds=1.0, grace_seconds=0.2,
)  # fmt: skip
# For what is to be answered however slow the machine is.
PATIENT = Limits(
    handshake_seconds=HANG, header_seconds=HANG, body_seconds=HANG, linger_seconds=HANG, grace_seconds=0.2
)
STATUS = re.compile(rb"HTTP/1\.1 ([2-5]\d\d) ")
OURS = {400, 408, 413, 414, 431, 501, 503, 505}
"""Statuses that only the server's own refusals have here."""


def target_app() -> AsgiApp:
    """A small door: quart-trio, and paths that wait, stream, fail or answer before the body."""
    quart, flood = quart_app(), Flood()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/early":
            await reply(send, status=401)
        elif path == "/boom":
            raise ValueError("boom")
        elif path == "/wait":
            await trio.sleep_forever()
        elif path == "/sse":
            await ticking(scope, receive, send)
        elif path == "/flood":
            await flood(scope, receive, send)
        else:
            await quart(scope, receive, send)

    return app


async def assert_well(door: Door) -> None:
    """No connection is left, none crashed, and the next client is served."""
    await door.settled()
    answer = await door.get()
    assert (answer.status, answer.body) == (200, b'{"ok":true}\n')
    assert door.server.statistics().crashed_connections == 0


def statuses_in(received: bytes) -> tuple[int, ...]:
    return tuple(int(status) for status in STATUS.findall(received))


async def run_case(door: Door, case: Case) -> None:
    gone = Move.CLOSE in case.steps or Move.RESET in case.steps
    async with door.dial() as wire:
        received = await play(wire, case.steps)
        while not gone and (not case.statuses or len(statuses_in(received)) < len(case.statuses)):
            data = await wire.receive()
            if not data:
                break
            received += data
    if case.statuses is not None and not gone:
        assert statuses_in(received) == case.statuses, (case.name, received[:300])
    if OURS & set(statuses_in(received)):
        assert b"content-type: application/json" in received
        assert b'{"error":{"code":"' in received


def limits_for(case: Case) -> Limits:
    return PATIENT if case.statuses and 408 not in case.statuses else HASTY


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_hostile_request_harms_nobody(case: Case) -> None:
    async with serving(target_app(), limits=limits_for(case)) as door:
        await run_case(door, case)
        await assert_well(door)


@pytest.mark.parametrize("limits", [HASTY, PATIENT], ids=["hasty", "patient"])
async def test_all_of_them_at_once_over_tls_harm_nobody(some_pki: Pki, limits: Limits) -> None:
    turn = trio.CapacityLimiter(10)
    # Several handshakes at once on a busy machine take a while, and make the requests behind them late.
    kind = attrs.evolve(
        limits,
        handshake_seconds=HANG,
        header_seconds=max(limits.header_seconds, 1.5),
        body_seconds=max(limits.body_seconds, 1.5),
    )

    async def one(case: Case) -> None:
        async with turn:
            await run_case(door, case)

    async with serving(target_app(), pki=some_pki, limits=kind) as door:
        async with trio.open_nursery() as nursery:
            for case in CASES:
                if limits_for(case) is limits:
                    nursery.start_soon(one, case)
        await assert_well(door)


@pytest.mark.parametrize("move", [Move.CLOSE, Move.RESET, Move.HALF_CLOSE])
async def test_a_client_may_leave_at_any_byte(pki: Pki | None, move: Move) -> None:
    requests = (
        post(b"hello", b"Content-Length: 5") + GOOD,
        chunked(b"5\r\nhello\r\n0\r\n\r\n", target=b"/early"),
    )
    step = 3 if pki is None else 17  # a handshake costs more than all the rest
    async with serving(target_app(), pki=pki, limits=HASTY) as door:
        for whole in requests:
            for length in range(1, len(whole), step):
                async with door.dial() as wire:
                    await play(wire, (whole[:length], move))
        await assert_well(door)


# Below HTTP

TLS_JUNK = {
    "plain HTTP": (GOOD,),
    "nothing, then a close": (Move.CLOSE,),
    "nothing, then a reset": (Move.RESET,),
    "nothing, then a half close": (Move.HALF_CLOSE,),
    "half a hello": (HELLO[:60], Move.CLOSE),
    "half a hello, half closed": (HELLO[:60], Move.HALF_CLOSE),
    "half a hello, reset": (HELLO[:60], Move.RESET),
    "a hello and no more": (HELLO, Move.READ),
    "a hello, then junk": (HELLO, Move.READ, b"\x17\x03\x03\x00\x20" + bytes(32)),
    "a hello in drips": (Drip(HELLO),),
    "a hello of SSL 2": (b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(40),),
    "a hello of a huge length": (b"\x16\x03\x01\xff\xff" + bytes(70_000),),
    "alerts": (b"\x15\x03\x03\x00\x02\x02\x28" * 500,),
    "a heartbeat": (b"\x18\x03\x02\x00\x03\x01\x40\x00",),
    "zeros": (bytes(50_000),),
    "an h2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",),
}


@pytest.mark.parametrize("steps", TLS_JUNK.values(), ids=TLS_JUNK.keys())
async def test_what_is_no_tls_harms_nobody(some_pki: Pki, steps: tuple[Step, ...]) -> None:
    is_in_the_clear = isinstance(steps[0], bytes) and steps[0][:1].isupper()
    async with serving(target_app(), pki=some_pki, limits=HASTY) as door:
        async with door.dial(plain=True) as wire:
            await play(wire, steps)
            if not {Move.CLOSE, Move.RESET} & set(steps):
                await wire.until_closed()
        await assert_well(door)
        *refused, last = door.records
        assert last.status == 200
        # What begins as a request does is told that this is https.
        assert [record.status for record in refused] == ([400] if is_in_the_clear else [])


async def test_junk_below_an_established_tls_harms_nobody(some_pki: Pki) -> None:
    junk = (b"\x17\x03\x03\x00\x20" + bytes(32), b"\x15\x03\x03\x00\x02\x01\x00", GOOD, bytes(20_000))
    async with serving(target_app(), pki=some_pki, limits=HASTY) as door:
        for path in (b"/", b"/wait", b"/sse"):
            for data in junk:
                async with door.dial() as wire:
                    await wire.send(GOOD.replace(b"/", path, 1))
                    with suppress(*LEFT):
                        await wire.transport.send_all(data)
                    await wire.until_closed()
        await assert_well(door)


# At random


def mutate(rng: random.Random, data: bytes) -> bytes:
    """The data with a few accidents."""
    made = bytearray(data[:4096])
    tokens = (
        b"\r\n",
        b"\n",
        b"\0",
        b" ",
        b":",
        b"\xff",
        b"0",
        b"-1",
        b"chunked",
        b"HTTP/1.1",
        b"Content-Length: 9",
    )
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(6):
            case 0:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del made[at : at + rng.randint(1, 20)]
            case 2:
                made[at:at] = rng.choice(tokens)
            case 3:
                made[at:at] = made[at : at + rng.randint(1, 60)] * rng.randint(1, 5)
            case 4:
                del made[at:]
            case _:
                made[at:] = rng.choice(CASES).data[:2048][rng.randrange(40) :]
    return bytes(made)


def script(rng: random.Random) -> tuple[Step, ...]:
    """A mutated request in a few pieces, and how its client leaves."""
    data = mutate(rng, rng.choice(CASES).data)
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(3)))
    pieces = [data[start:end] for start, end in pairwise([0, *cuts, len(data)])]
    return (*pieces, rng.choice((Move.CLOSE, Move.RESET, Move.HALF_CLOSE, Move.CLOSE)))


@pytest.mark.parametrize("share", range(3))
async def test_mutated_requests_harm_nobody(pki: Pki | None, share: int) -> None:
    seed = f"{SEED}/{share}"
    print(f"HOSTILE_SEED={SEED}")
    rng = random.Random(seed)
    turn = trio.CapacityLimiter(10)

    async def one(steps: tuple[Step, ...]) -> None:
        async with turn, door.dial() as wire:
            with trio.move_on_after(HANG):
                await play(wire, steps)
                if Move.HALF_CLOSE in steps:
                    await wire.until_closed()

    async with serving(target_app(), pki=pki, limits=HASTY) as door:
        async with trio.open_nursery() as nursery:
            for _ in range(MUTATIONS if pki is None else MUTATIONS // 3):
                nursery.start_soon(one, script(rng))
        await assert_well(door)


async def test_mutated_tls_harms_nobody(some_pki: Pki) -> None:
    print(f"HOSTILE_SEED={SEED}")
    rng = random.Random(SEED)
    async with serving(target_app(), pki=some_pki, limits=HASTY) as door:
        for _ in range(MUTATIONS // 3):
            async with door.dial(plain=True) as wire:
                await play(wire, (mutate(rng, HELLO), rng.choice((Move.CLOSE, Move.RESET))))
        await assert_well(door)
