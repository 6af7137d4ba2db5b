"""Answers that come line by line."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from adapters.engine import json_http
from adapters.engine.json_http import JsonHttp
from adapters.engine.plain_http import TooMuch
from adapters.engine.port import EngineUnreachable

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Scripted:
    """A server whose every answer the test writes as it goes; None ends the connection."""

    def __init__(self) -> None:
        self.write, self._written = trio.open_memory_channel[bytes | None](100)
        self.base_url = ""
        self.left = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), self._connection, 0)
            self.base_url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            task_status.started()

    async def _connection(self, stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:

            async def notice() -> None:
                while await stream.receive_some():
                    pass
                self.left.set()
                nursery.cancel_scope.cancel("the client left")

            nursery.start_soon(notice)
            async for data in self._written:
                if data is None:
                    break
                await stream.send_all(data)
            nursery.cancel_scope.cancel("told to close")


@pytest.fixture
async def server(nursery: trio.Nursery) -> Scripted:
    made = Scripted()
    await nursery.start(made.serve)
    return made


@pytest.fixture
async def http() -> AsyncIterator[JsonHttp]:
    async with JsonHttp() as made:
        yield made


async def test_lines_come_as_they_are_sent_whatever_pieces_they_come_in(
    server: Scripted, http: JsonHttp
) -> None:
    got: list[Any] = []
    server.write.send_nowait(HEAD)
    async with http.ask_for_lines(server.base_url, "/pull", {"model": "m"}) as reply:
        assert reply.status == 200
        lines = aiter(reply)
        server.write.send_nowait(chunk(b'{"a": 1}\n{"b"'))
        got.append(await anext(lines))
        server.write.send_nowait(chunk(b": 2}\n\n"))
        got.append(await anext(lines))
        server.write.send_nowait(chunk(b"no json\n[3]") + b"0\r\n\r\n")
        got += [line async for line in lines]

    assert got == [{"a": 1}, {"b": 2}, None, [3]]


async def test_a_line_that_is_waited_for_in_vain_is_not_lost(server: Scripted, http: JsonHttp) -> None:
    server.write.send_nowait(HEAD + chunk(b'{"a"'))
    async with http.ask_for_lines(server.base_url, "/pull", {}) as reply:
        with trio.move_on_after(0) as bound:
            await anext(reply)
        assert bound.cancelled_caught
        server.write.send_nowait(chunk(b": 1}\n"))
        assert await anext(reply) == {"a": 1}


@pytest.mark.parametrize("end", [None, b"nonsense\r\n"])
async def test_an_answer_that_breaks_off_is_none(server: Scripted, http: JsonHttp, end: bytes | None) -> None:
    server.write.send_nowait(HEAD + chunk(b"{}\n"))
    server.write.send_nowait(end)
    async with http.ask_for_lines(server.base_url, "/pull", {}) as reply:
        assert await anext(reply) == {}
        with pytest.raises(EngineUnreachable, match="broke off"):
            await anext(reply)


async def test_a_line_without_end_is_cut(
    server: Scripted, http: JsonHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_http, "MAX_LINE", 100)
    server.write.send_nowait(HEAD + chunk(b"x" * 200))
    with pytest.raises(EngineUnreachable) as caught:
        async with http.ask_for_lines(server.base_url, "/pull", {}) as reply:
            await anext(reply)
    assert isinstance(caught.value.__cause__, TooMuch)


async def test_leaving_gives_the_rest_up(server: Scripted, http: JsonHttp) -> None:
    server.write.send_nowait(HEAD)
    async with http.ask_for_lines(server.base_url, "/pull", {}):
        pass

    with trio.fail_after(10):
        await server.left.wait()


async def test_nobody_listening_is_said(server: Scripted, http: JsonHttp) -> None:
    with pytest.raises(EngineUnreachable, match="did not answer"):
        async with http.ask_for_lines("http://127.0.0.1:1", "/pull", {}):
            pass
    server.write.send_nowait(None)
    with pytest.raises(EngineUnreachable, match="did not answer"):
        async with http.ask_for_lines(server.base_url, "/pull", {}):
            pass
