"""How large, how slow and how many: each limit holds, and its refusal says what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from peer.door.limits import Gate, Limits, address_key, plain_address
from tests.support.doorapps import Waiting, measure, ok, quart_app, reply
from tests.support.rawhttp import GET, HANG, HOST, QUICK, Pki, post, serving, within

if TYPE_CHECKING:
    from tests.support.doorapps import Receive, Scope, Send


# The size of a request


@pytest.mark.parametrize("size", [255, 256, 257])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_is_taken_up_to_its_limit(pki: Pki | None, size: int, chunked: bool) -> None:
    body = b"x" * size
    coded = b"".join(b"1\r\nx\r\n" for _ in range(size)) + b"0\r\n\r\n"
    framed = (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + coded
        if chunked
        else post(b"/", body)
    )
    async with serving(measure, pki=pki, limits=attrs.evolve(QUICK, body_bytes=256)) as door:
        answer = await door.ask(framed)
        if size <= 256:
            assert (answer.status, answer.body) == (200, b"%d" % size)
        else:
            assert (answer.status, answer.code) == (413, "PAYLOAD_TOO_LARGE")
            assert answer.details == {"limit_bytes": 256}
            assert answer.headers[b"connection"] == b"close"
        assert [record.status for record in door.records] == [answer.status]


async def test_the_body_limit_holds_for_an_app_that_never_reads(pki: Pki | None) -> None:
    app = Waiting()
    endless = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(9):
            await wire.try_send(endless)
        assert (await wire.answer(b"POST")).code == "PAYLOAD_TOO_LARGE"
        await within(app.cancelled)


async def test_an_app_may_lower_the_limit_for_one_request(pki: Pki | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/small":
            scope["state"]["body_limit_bytes"] = 10
        await measure(scope, receive, send)

    chunked = b"POST /small HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    async with serving(app, pki=pki, limits=QUICK) as door:
        assert (await door.ask(post(b"/small", b"x" * 10))).body == b"10"
        assert (await door.ask(post(b"/", b"x" * 11))).body == b"11"
        for framed in (post(b"/small", b"x" * 11), chunked + b"b\r\nxxxxxxxxxxx\r\n0\r\n\r\n"):
            answer = await door.ask(framed)
            assert (answer.status, answer.code, answer.details["limit_bytes"]) == (
                413,
                "PAYLOAD_TOO_LARGE",
                10,
            )


async def test_who_expects_100_is_refused_before_the_body(pki: Pki | None) -> None:
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    async with serving(measure, pki=pki, limits=attrs.evolve(QUICK, body_bytes=256)) as door:
        async with door.dial() as wire:
            await wire.send(head % 257)
            assert (await wire.until_closed()).startswith(b"HTTP/1.1 413")
        async with door.dial() as wire:
            await wire.send(head % 4)
            assert (await wire.receive()).startswith(b"HTTP/1.1 100")
            await wire.send(b"body")
            assert (await wire.answer(b"POST")).body == b"4"


async def test_who_expects_100_gets_an_answer_at_once_where_the_app_needs_no_body(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        answer = await wire.until_closed()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer.lower()


async def test_an_early_answer_does_not_cost_the_connection(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 8\r\n\r\nhalf")
        assert (await wire.answer(b"POST")).status == 200
        await wire.send(b"half" + GET)
        assert (await wire.answer()).status == 200


async def test_after_an_early_answer_an_endless_body_is_not_read(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        assert (await wire.answer(b"POST")).status == 200
        with trio.fail_after(HANG):
            while await wire.try_send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n"):
                pass
        await door.settled()


async def test_what_came_before_an_early_answer_counts_too(pki: Pki | None) -> None:
    limits = attrs.evolve(QUICK, body_bytes=1000, linger_seconds=2 * HANG)
    async with serving(ok, pki=pki, limits=limits) as door, door.dial() as wire:
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        await wire.send(b"384\r\n" + bytes(900) + b"\r\n")
        assert (await wire.answer(b"POST")).status == 200
        await wire.send(b"c8\r\n" + bytes(200) + b"\r\n")
        assert await wire.until_closed() == b""


async def test_after_an_early_answer_a_body_that_never_ends_is_not_awaited(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 8\r\n\r\nhalf")
        assert (await wire.answer(b"POST")).status == 200
        assert await wire.until_closed() == b""


@pytest.mark.parametrize("pieces", [1, 40])
@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET /" + b"a" * 600 + b" HTTP/1.1\r\n", 414, "TARGET_TOO_LONG"),
        (b"GET /" + b"a" * 6000 + b" HTTP/1.1\r\n", 414, "TARGET_TOO_LONG"),
        (b"GET /" + b"a" * 6000, 414, "TARGET_TOO_LONG"),
        (b"GET / HTTP/1.1\r\nX-Big: " + b"a" * 2100 + b"\r\n", 431, "HEADERS_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 21, 431, "HEADERS_TOO_LARGE"),
        (b"GET / HTTP/1.1\r\n" + b"X-Some: things\r\n" * 2000, 431, "HEADERS_TOO_LARGE"),
    ],
    ids=["target", "huge target", "endless target", "header", "many headers", "very many headers"],
)
async def test_a_head_beyond_its_limits_is_refused(
    pki: Pki | None, head: bytes, status: int, code: str, pieces: int
) -> None:
    limits = attrs.evolve(QUICK, target_bytes=512, header_bytes=2048, header_count=20)
    sent = head + HOST + b"\r\n" if head.endswith(b"\n") else head
    step = len(sent) // pieces + 1
    async with serving(ok, pki=pki, limits=limits) as door, door.dial() as wire:
        for start in range(0, len(sent), step):
            if not await wire.try_send(sent[start : start + step]):
                break
            await trio.lowlevel.checkpoint()
        answer = await wire.answer()
        assert (answer.status, answer.code) == (status, code)


# The time of a request


async def test_a_head_that_drips_is_timed_out(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=attrs.evolve(QUICK, header_seconds=0.3)) as door:
        async with door.dial() as wire:
            await wire.send(b"GET / HT")
            answer = await wire.answer()
            assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")
        async with door.dial() as wire:
            await wire.send(GET + b"GET")
            assert (await wire.answer()).status == 200
            assert (await wire.answer()).code == "REQUEST_TIMEOUT"


async def test_a_connection_that_says_nothing_is_closed_without_a_word(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=attrs.evolve(QUICK, header_seconds=0.2)) as door:
        async with door.dial() as wire:
            assert await wire.until_closed() == b""
        assert door.records == []


async def test_a_body_that_drips_is_timed_out(pki: Pki | None) -> None:
    async with serving(quart_app(), pki=pki, limits=attrs.evolve(QUICK, body_seconds=0.3)) as door:
        async with door.dial() as wire:
            await wire.send(post(b"/", b"1234")[:-1])
            answer = await wire.answer(b"POST")
            assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")
            assert await wire.until_closed() == b""
        assert [record.status for record in door.records] == [408]


@pytest.mark.parametrize(
    "following", [b"", GET, b"GET", GET * 50], ids=["alone", "pipelined", "half pipelined", "much pipelined"]
)
async def test_the_time_of_a_request_is_not_the_time_of_its_answer(pki: Pki | None, following: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(0.5)
        await reply(send)

    limits = attrs.evolve(
        QUICK, header_seconds=0.3, body_seconds=0.3, keep_alive_seconds=0.3, header_bytes=1024
    )
    async with serving(app, pki=pki, limits=limits) as door, door.dial() as wire:
        await wire.send(post(b"/", b"1234") + following)
        assert (await wire.answer(b"POST")).status == 200


async def test_a_client_that_stalls_in_the_handshake_is_dropped(some_pki: Pki) -> None:
    limits = attrs.evolve(QUICK, handshake_seconds=0.2)
    async with (
        serving(ok, pki=some_pki, limits=limits) as door,
        door.dial(plain=True),
        door.dial(plain=True) as wire,
    ):
        await wire.send(b"\x16\x03\x01\x02\x00\x01")
        assert await wire.until_closed() == b""
        await door.settled()
        assert door.server.statistics().failed_handshakes == 2
        assert (await door.get()).status == 200


# Who counts as one client


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.8.8.8", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("nonsense", "unknown"),
        ("", "unknown"),
    ],
)
def test_one_client_is_an_address_or_a_64(host: str, key: str | None) -> None:
    assert address_key(host) == key


@pytest.mark.parametrize(
    ("host", "plain"),
    [("::ffff:192.0.2.7", "192.0.2.7"), ("192.0.2.7", "192.0.2.7"), ("2001:db8::1", "2001:db8::1")],
)
def test_an_ipv4_client_is_told_by_its_ipv4_address(host: str, plain: str) -> None:
    assert plain_address(host) == plain


def test_the_gate_forgets_addresses_that_left() -> None:
    gate = Gate(Limits(connections_per_address=1), total=3)
    assert gate.enter("2001:db8::1") is None
    assert gate.enter("2001:db8::2") is not None
    assert gate.enter("2001:db8:0:1::1") is None
    gate.leave("2001:db8::1")
    assert gate.enter("2001:db8::2") is None
    gate.leave("2001:db8::2")
    gate.leave("2001:db8:0:1::1")
    assert not gate._counts
