"""Calls to an engine over real sockets: each on a connection of its own, which is dropped when it is left."""

import gc
import json
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import Endpoint, unix_endpoint
from adapters.runtime.docker.faults import EngineGone

VERSION = {
    "Version": "20.10.24",
    "ApiVersion": "1.41",
    "MinAPIVersion": "1.12",
    "Os": "linux",
    "Arch": "amd64",
}
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]
Script = Callable[[Stream, bytes], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(body: object) -> bytes:
    raw = json.dumps(body).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw


def served(script: Script) -> Callable[[Stream], Awaitable[None]]:
    """One request a connection: `/version` is answered, any other is for the script, with its head."""

    async def handle(stream: Stream) -> None:
        head = b""
        try:
            while b"\r\n\r\n" not in head:
                piece = await stream.receive_some(65536)
                if not piece:
                    return
                head += piece
            if head.startswith(b"GET /version "):
                await stream.send_all(whole(VERSION))
            else:
                await script(stream, head)
        except trio.BrokenResourceError:
            # Whoever asked has gone: that is what these tests do.
            return

    return handle


@asynccontextmanager
async def engine_at(path: Path, script: Script) -> AsyncIterator[Endpoint]:
    """An engine behind a socket, in this process."""
    async with trio.open_nursery() as nursery:
        listening = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        await listening.bind(str(path))
        listening.listen(1000)
        nursery.start_soon(trio.serve_listeners, served(script), [trio.SocketListener(listening)])
        yield unix_endpoint(path)
        nursery.cancel_scope.cancel()


async def answer_here(stream: Stream, head: bytes) -> None:
    await stream.send_all(whole({"is": "here"}))


async def test_a_stream_hands_out_pieces_as_they_come(tmp_path: Path) -> None:
    async def script(stream: Stream, head: bytes) -> None:
        await stream.send_all(CHUNKED + chunk(b"first\n"))
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_all(chunk(b"second\n") + chunk(b""))

    async with (
        engine_at(tmp_path / "s", script) as endpoint,
        DockerClient(endpoint) as client,
        client.stream("GET", "/events") as pieces,
    ):
        assert [piece async for piece in pieces] == [b"first\n", b"second\n"]


async def test_a_stream_that_breaks_off_says_so(tmp_path: Path) -> None:
    async def script(stream: Stream, head: bytes) -> None:
        await stream.send_all(CHUNKED + chunk(b"first\n"))

    async with (
        engine_at(tmp_path / "s", script) as endpoint,
        DockerClient(endpoint) as client,
        client.stream("GET", "/events") as pieces,
    ):
        assert await anext(pieces) == b"first\n"
        with pytest.raises(EngineGone) as caught:
            await anext(pieces)
        assert caught.value.may_have_acted
        with pytest.raises(StopAsyncIteration):
            await anext(pieces)


async def test_an_engine_that_goes_while_it_is_told_something_leaves_nothing_behind(tmp_path: Path) -> None:
    async def close(stream: Stream, head: bytes) -> None:
        """Its end of the connection, with most of the body unsent."""

    with warnings.catch_warnings(record=True) as said, trio.fail_after(30):
        warnings.simplefilter("always")
        async with engine_at(tmp_path / "s", close) as endpoint, DockerClient(endpoint) as client:
            with pytest.raises(EngineGone):
                await client.call("POST", "/containers/create", json="x" * (4 << 20))
        gc.collect()

    assert [str(each.message) for each in said] == []


async def test_leaving_a_stream_drops_its_connection(tmp_path: Path) -> None:
    dropped = trio.Event()

    async def script(stream: Stream, head: bytes) -> None:
        await stream.send_all(CHUNKED + chunk(b"first\n") + chunk(b"second\n"))
        assert await stream.receive_some() == b""
        dropped.set()

    async with engine_at(tmp_path / "s", script) as endpoint, DockerClient(endpoint) as client:
        async with client.stream("GET", "/events") as pieces:
            await anext(pieces)
        with trio.fail_after(10):
            await dropped.wait()


async def test_no_number_of_streams_keeps_a_short_call_waiting(tmp_path: Path) -> None:
    async def script(stream: Stream, head: bytes) -> None:
        if b"/events" in head:
            await stream.send_all(CHUNKED)
            await trio.sleep_forever()
        await stream.send_all(whole({"is": "here"}))

    async with engine_at(tmp_path / "s", script) as endpoint, DockerClient(endpoint) as client:

        async def listen(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            async with client.stream("GET", "/events") as pieces:
                task_status.started()
                await anext(pieces)

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(150):
                    await nursery.start(listen)
                assert await client.call("GET", "/info", timeout=10) == {"is": "here"}
                nursery.cancel_scope.cancel()


async def test_a_burst_of_cancelled_calls_costs_no_later_one_its_connection(tmp_path: Path) -> None:
    """encode/httpcore#1093: a client's pool is full for good of what was cancelled while it connected."""
    open_now = 0

    async def script(stream: Stream, head: bytes) -> None:
        nonlocal open_now
        open_now += 1
        try:
            if b"/hang" in head:
                await stream.receive_some()
                return
            await stream.send_all(whole({}))
            await stream.receive_some()
        finally:
            open_now -= 1

    async with engine_at(tmp_path / "s", script) as endpoint, DockerClient(endpoint) as client:
        for checkpoints in range(30):
            async with trio.open_nursery() as nursery:
                for path in ("/hang", "/info") * 5:
                    nursery.start_soon(client.call, "GET", path)
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        assert await client.call("GET", "/info", timeout=10) == {}
        with trio.fail_after(10):
            while open_now:
                await trio.lowlevel.checkpoint()


async def test_an_engine_is_reached_over_tcp() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, served(answer_here), listeners)
        async with DockerClient(Endpoint(f"http://127.0.0.1:{port}")) as client:
            assert await client.call("GET", "/info") == {"is": "here"}
        nursery.cancel_scope.cancel()


async def test_an_engine_over_tls_has_to_prove_who_it_is() -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_ssl_over_tcp_listeners(0, theirs, host="127.0.0.1", https_compatible=True)
        inner = listeners[0].transport_listener
        assert isinstance(inner, trio.SocketListener)
        port = inner.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, served(answer_here), listeners)
        trusting, doubting = ssl.create_default_context(), ssl.create_default_context()
        authority.configure_trust(trusting)
        stranger.configure_trust(doubting)
        async with DockerClient(Endpoint(f"https://127.0.0.1:{port}", tls=trusting)) as client:
            assert await client.call("GET", "/info") == {"is": "here"}
        with pytest.raises(EngineGone, match="certificate verify failed"):
            async with DockerClient(Endpoint(f"https://127.0.0.1:{port}", tls=doubting), patience_seconds=0):
                raise AssertionError
        nursery.cancel_scope.cancel()


async def test_a_socket_that_is_not_there_is_told_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(
        EngineGone, match=f"unix://{tmp_path}/none does not answer: No such file or directory"
    ):
        async with DockerClient(unix_endpoint(tmp_path / "none"), patience_seconds=0):
            raise AssertionError


async def test_an_engine_that_restarts_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with engine_at(path, answer_here) as endpoint:
        client = DockerClient(endpoint, patience_seconds=10)
        await client.__aenter__()
    path.unlink()
    async with trio.open_nursery() as nursery:

        async def come_back() -> None:
            await trio.testing.wait_all_tasks_blocked()
            async with engine_at(path, answer_here):
                await answered.wait()

        answered = trio.Event()
        nursery.start_soon(come_back)
        assert await client.call("GET", "/info") == {"is": "here"}
        answered.set()
    await client.__aexit__(None, None, None)
