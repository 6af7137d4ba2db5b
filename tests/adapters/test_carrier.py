"""Requests that are left while their body is being sent: nothing is left behind for the garbage collector."""

import gc
import warnings
from collections.abc import Awaitable, Callable
from functools import partial

import httpx
import pytest
import trio
import trio.testing

from adapters.carrier import Carrier

HANG = 30
LONG = bytes(16 << 20)
"""More than the kernel keeps for a peer that does not read."""

Peer = Callable[[trio.SocketStream, bytes], Awaitable[None]]


async def serve(peer: Peer, nursery: trio.Nursery) -> str:
    """A server of this process: what each connection brings up to its body's begin is for the test."""

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            got = b""
            while b"\r\n\r\n" not in got:
                got += await stream.receive_some(65536)
            await peer(stream, got)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, handle, [listener])
    return f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"


async def close(stream: trio.SocketStream, got: bytes) -> None:
    """What was sent and not read makes it a reset."""


async def hang(stream: trio.SocketStream, got: bytes) -> None:
    await trio.sleep_forever()


async def answer_with_its_length(stream: trio.SocketStream, got: bytes) -> None:
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.lower().splitlines()
    length = int(next(line for line in lines if line.startswith(b"content-length:")).partition(b":")[2])
    while len(body) < length:
        body += await stream.receive_some(65536)
    text = str(len(body)).encode()
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


@pytest.mark.parametrize("peer", [close, hang])
async def test_a_body_that_is_left_half_sent_leaves_nothing_behind(peer: Peer) -> None:
    with warnings.catch_warnings(record=True) as said, trio.fail_after(HANG):
        warnings.simplefilter("always")
        async with (
            trio.open_nursery() as nursery,
            httpx.AsyncClient(transport=Carrier(), timeout=None) as client,
        ):
            url = await serve(peer, nursery)
            if peer is close:
                with pytest.raises(httpx.TransportError):
                    await client.post(url, content=LONG)
            else:
                async with trio.open_nursery() as sending:
                    sending.start_soon(partial(client.post, url, content=LONG))
                    await trio.testing.wait_all_tasks_blocked()
                    sending.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        gc.collect()

    assert [str(each.message) for each in said] == []


async def test_a_body_is_sent_whole_however_often() -> None:
    with trio.fail_after(HANG):
        async with trio.open_nursery() as nursery, httpx.AsyncClient(transport=Carrier()) as client:
            url = await serve(answer_with_its_length, nursery)

            request = client.build_request("POST", url, content=b"x" * 100_000)
            answers = [(await client.send(request)).text, (await client.send(request)).text]
            empty = (await client.post(url)).text
            nursery.cancel_scope.cancel()

    assert (answers, empty) == (["100000", "100000"], "0")
