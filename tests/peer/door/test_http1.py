"""What passes between a client's bytes and an app: HTTP/1.1 alone, whole answers, and their records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import httpx
import pytest
import trio

from peer.door.limits import Limits, RequestRecord
from tests.support.doorapps import Waiting, ok, quart_app, reply, ticking
from tests.support.rawhttp import GET, HANG, HOST, QUICK, Pki, post, serving, within

if TYPE_CHECKING:
    from tests.support.doorapps import Receive, Scope, Send


# Guard B: HTTP/1.1 only


async def test_tls_agrees_on_http_1_1_and_not_on_h2(some_pki: Pki) -> None:
    client = some_pki.client
    client.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(ok, pki=some_pki, limits=QUICK) as door, door.dial(client=client) as wire:
        assert isinstance(wire.stream, trio.SSLStream)
        assert wire.stream.selected_alpn_protocol() == "http/1.1"
        await wire.send(GET)
        assert (await wire.answer()).status == 200


async def test_http2_by_prior_knowledge_is_answered_as_http_1_1(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        answer = await wire.answer()
        assert (answer.status, answer.code) == (505, "HTTP_VERSION_NOT_SUPPORTED")


async def test_an_upgrade_to_h2c_is_ignored(pki: Pki | None) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        for _ in range(2):
            await wire.send(b"GET / HTTP/1.1\r\n" + HOST + upgrade + b"\r\n")
            assert (await wire.answer()).status == 200


async def test_a_websocket_is_refused_and_its_junk_harms_nobody(pki: Pki | None) -> None:
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    async with serving(ok, pki=pki, limits=QUICK) as door:
        async with door.dial() as wire:
            await wire.send(b"GET / HTTP/1.1\r\n" + HOST + upgrade + b"\r\n" + b"\xff" * 4096)
            assert (await wire.answer()).code == "NOT_IMPLEMENTED"
            assert await wire.until_closed() == b""
        assert (await door.get()).status == 200
        assert door.server.statistics().crashed_connections == 0


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET  / HTTP/1.1\r\n", 400, "BAD_REQUEST"),
        (b"GET http://door/ HTTP/1.1\r\n" + HOST, 400, "BAD_REQUEST"),
        (b"GET / HTTP/1.1\r\n", 400, "BAD_REQUEST"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n", 400, "BAD_REQUEST"),
        (b"GET / HTTP/1.1\r\nHost: door/path\r\n", 400, "BAD_REQUEST"),
        (b"GET / HTTP/1.1\r\nHost:\r\n", 400, "BAD_REQUEST"),
        (b"CONNECT door:443 HTTP/1.1\r\n" + HOST, 501, "NOT_IMPLEMENTED"),
        (b"TRACE / HTTP/1.1\r\n" + HOST, 501, "NOT_IMPLEMENTED"),
        (b"get / HTTP/1.1\r\n" + HOST, 501, "NOT_IMPLEMENTED"),
        (b"GET / HTTP/3.0\r\n" + HOST, 505, "HTTP_VERSION_NOT_SUPPORTED"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" + HOST, 501, "NOT_IMPLEMENTED"),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n" + HOST,
            400,
            "BAD_REQUEST",
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" + HOST, 400, "BAD_REQUEST"),
    ],
)
async def test_what_the_server_does_not_serve_is_refused_in_json(
    pki: Pki | None, sent: bytes, status: int, code: str
) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(sent + b"\r\n")
        answer = await wire.answer()
        assert (answer.status, answer.code) == (status, code)
        assert await wire.until_closed() == b""
        assert [record.status for record in door.records] == [status]


async def test_a_refusal_never_repeats_what_was_sent(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"GET / HTTP/1.1\r\nX-Api-Key : bp_secret\r\n" + HOST + b"\r\n")
        answer = await wire.answer()
        assert answer.code == "BAD_REQUEST"
        assert b"bp_secret" not in answer.body
        [record] = door.records
        assert (record.method, record.path, record.status) == ("-", "-", 400)


@pytest.mark.parametrize(
    "line",
    [b"GET http://me:secret@door/ HTTP/1.1", b"secret / HTTP/1.1", b"CONNECT me:secret@door:1 HTTP/1.1"],
)
async def test_what_is_no_path_and_no_method_is_in_no_record(line: bytes) -> None:
    async with serving(ok, limits=QUICK) as door, door.dial() as wire:
        await wire.send(line + b"\r\n" + HOST + b"\r\n")
        assert b"secret" not in await wire.until_closed()
        [record] = door.records
        assert "secret" not in record.method + record.path


# Guard D: quart-trio's answers end


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nConnection: close\r\n" + HOST, b"GET / HTTP/1.0\r\n"], ids=["close", "1.0"]
)
async def test_after_the_last_answer_of_a_quart_app_the_connection_closes(
    pki: Pki | None, head: bytes
) -> None:
    async with serving(quart_app(), pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(head + b"\r\n")
        assert (await wire.until_closed()).endswith(b'{"ok":true}\n')
        await door.settled()


async def test_after_an_answer_of_a_quart_app_the_idle_time_runs(pki: Pki | None) -> None:
    limits = attrs.evolve(QUICK, keep_alive_seconds=0.2)
    async with serving(quart_app(), pki=pki, limits=limits) as door, door.dial() as wire:
        await wire.send(GET)
        assert (await wire.answer()).status == 200
        assert await wire.until_closed() == b""
        await door.settled()


async def test_a_connection_serves_one_request_after_another(pki: Pki | None) -> None:
    async with serving(quart_app(), pki=pki, limits=QUICK) as door, door.dial() as wire:
        for body in (b"", b"abc", b"x" * 200_000):
            await wire.send(post(b"/", body))
            assert (await wire.answer(b"POST")).body == b'{"size":%d}\n' % len(body)
        await wire.send(GET + post(b"/", b"four") + GET)
        assert [(await wire.answer(method)).status for method in (b"GET", b"POST", b"GET")] == [200] * 3
        assert door.server.statistics().accepted == 1


async def test_more_requests_at_once_than_are_kept_are_answered_in_turn(pki: Pki | None) -> None:
    sizes = range(100, 4000, 100)  # together far more than header_bytes
    limits = attrs.evolve(QUICK, header_bytes=1024)
    async with serving(quart_app(), pki=pki, limits=limits) as door, door.dial() as wire:
        await wire.send(b"".join(post(b"/", bytes(size)) for size in sizes))
        for size in sizes:
            assert (await wire.answer(b"POST")).body == b'{"size":%d}\n' % size
        wire.close()
        await door.settled()


async def test_leaving_is_noticed_behind_bytes_that_wait_for_their_turn(pki: Pki | None) -> None:
    app = Waiting()
    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(GET + GET)
        await within(app.began)
        wire.close()
        await within(app.cancelled)


async def test_an_app_may_ask_on_after_its_answer(pki: Pki | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send)
        while (await receive())["type"] == "http.disconnect":
            pass

    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(GET)
        assert (await wire.answer()).status == 200
        wire.close()
        await door.settled()


async def test_a_client_with_a_pool_reuses_its_connection(some_pki: Pki) -> None:
    async with serving(quart_app(), pki=some_pki, limits=QUICK) as door:
        host, port = door.server.address
        async with httpx.AsyncClient(verify=some_pki.client, trust_env=False) as client:
            for _ in range(3):
                answer = await client.post(f"https://{host}:{port}/", content=b"abc")
                assert answer.json() == {"size": 3}
        assert door.server.statistics().accepted == 1


# Apps that fail


async def test_an_app_that_raises_is_answered_500_and_logged(
    pki: Pki | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])

    async with serving(app, pki=pki, limits=QUICK) as door:
        answer = await door.get(b"/a%0Ab?secret")
        assert (answer.status, answer.code) == (500, "INTERNAL")
        assert [record.status for record in door.records] == [500]
    [line] = caplog.records
    assert line.getMessage() == "the app failed on GET /a%0Ab"
    assert line.exc_info
    assert line.levelno == logging.ERROR


async def test_an_app_that_returns_without_an_answer_is_answered_500(pki: Pki | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.lowlevel.checkpoint()

    async with serving(app, pki=pki, limits=QUICK) as door:
        assert (await door.get()).code == "INTERNAL"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_app_that_raises_in_the_middle_of_its_answer_leaves_it_visibly_cut(
    pki: Pki | None,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("later")

    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(GET)
        answer = await wire.until_closed()
        assert b"half" in answer
        assert b"\r\n0\r\n" not in answer
        assert door.server.statistics().crashed_connections == 0


async def test_an_answer_that_http_does_not_allow_is_a_fault_of_the_app(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await reply(send, headers=((b"bad name", b"x"),))

    async with serving(app, limits=QUICK) as door:
        assert (await door.get()).code == "INTERNAL"
        assert [record.status for record in door.records] == [500]
    assert caplog.records[0].exc_info


# Streams and records


async def test_a_stream_is_not_cut_by_any_deadline(pki: Pki | None) -> None:
    limits = Limits(
        header_seconds=0.2, body_seconds=0.2, keep_alive_seconds=0.2, write_seconds=0.2, grace_seconds=3.0
    )
    async with serving(ticking, pki=pki, limits=limits) as door, door.dial() as wire:
        await wire.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await wire.until(b": hello\n\n")
        [record] = door.records  # told when the stream opens, not when it ends
        assert record.status == 200
        await trio.sleep(0.6)
        assert door.server.statistics().open == 1
        door.server.stop()
        assert (await wire.until_closed()).endswith(b": bye\n\n\r\n0\r\n\r\n")
        assert len(door.records) == 1


async def test_the_head_of_a_stream_does_not_wait_for_its_first_event(pki: Pki | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await trio.sleep_forever()

    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(GET)
        await wire.until(b"\r\n\r\n")


async def test_a_record_says_who_asked_for_what_and_what_they_got(pki: Pki | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["holder"] = "h-1234"
        await reply(send, status=404)

    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(b"GET /a%2Fb%C3%A9/?key=secret HTTP/1.1\r\n" + HOST + b"\r\n")
        await wire.answer()
        host, port = wire.transport.socket.getsockname()
        [record] = door.records
        assert attrs.evolve(record, seconds_to_headers=0.0) == RequestRecord(
            host, port, "GET", "/a%2Fb%C3%A9/", 404, 0.0, "h-1234"
        )
        assert 0 <= record.seconds_to_headers < HANG


async def test_each_request_has_its_own_state(pki: Pki | None) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert set(scope["state"]) == {"stopping"}
        scope["state"]["holder"] = scope["path"]
        await reply(send)

    async with serving(app, pki=pki, limits=QUICK) as door, door.dial() as wire:
        await wire.send(GET.replace(b"/ ", b"/1 ", 1) + GET.replace(b"/ ", b"/2 ", 1))
        assert [(await wire.answer()).status for _ in range(2)] == [200, 200]
        assert [record.holder for record in door.records] == ["/1", "/2"]


async def test_the_scope_is_what_asgi_says(pki: Pki | None) -> None:
    scopes = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await reply(send)

    async with serving(app, pki=pki, limits=QUICK) as door:
        await door.get(b"/a%20b?c=%20", headers=b"X-A: 1\r\nx-a: 2\r\n")
        [scope] = scopes
        assert scope["type"] == "http"
        assert scope["http_version"] == "1.1"
        assert scope["method"] == "GET"
        assert scope["scheme"] == ("http" if pki is None else "https")
        assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=%20")
        assert scope["headers"] == [(b"host", b"door"), (b"x-a", b"1"), (b"x-a", b"2")]
        assert scope["server"] == door.server.address
        assert scope["client"][0] == "127.0.0.1"


async def test_after_so_many_requests_the_answer_says_close(pki: Pki | None) -> None:
    limits = attrs.evolve(QUICK, requests_per_connection=2)
    async with serving(ok, pki=pki, limits=limits) as door, door.dial() as wire:
        answers = []
        for _ in range(2):
            await wire.send(GET)
            answers.append(await wire.answer())
        assert [answer.headers.get(b"connection") for answer in answers] == [None, b"close"]
        assert await wire.until_closed() == b""


async def test_a_head_request_gets_headers_and_no_body(pki: Pki | None) -> None:
    async with serving(ok, pki=pki, limits=QUICK) as door, door.dial() as wire:
        for path in (b"/", b"/" + b"x" * 10_000):
            await wire.send(b"HEAD " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await wire.answer(b"HEAD")).status == 200
        assert (await wire.answer(b"HEAD")).status == 414
        assert await wire.until_closed() == b""
