"""Calls to an engine: answered, refused, too long, late, again."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import attrs
import httpx
import orjson
import pytest
import trio
import trio.testing

from adapters.runtime.docker.client import NEWEST_API, DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.faults import (
    BadAnswer,
    EngineError,
    EngineForbidden,
    EngineGone,
    EngineHung,
    EngineTooOld,
)

VERSION = {
    "Version": "20.10.24",
    "ApiVersion": "1.41",
    "MinAPIVersion": "1.12",
    "Os": "linux",
    "Arch": "amd64",
}
SECRET = "a-token-nobody-may-see"

Answer = Callable[[httpx.Request], Awaitable[httpx.Response]]


@attrs.frozen
class Sent(httpx.AsyncByteStream):
    """A body as it comes over a connection: a ready response would be read already."""

    body: bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body


def reply(status: int, *, json: object = None, content: bytes = b"") -> httpx.Response:
    return httpx.Response(status, stream=Sent(content if json is None else orjson.dumps(json)))


@attrs.define
class Carrier(httpx.AsyncBaseTransport):
    """Answers `/version`, and everything else as the test says."""

    answer: Answer
    version: Mapping[str, str] = attrs.field(factory=lambda: dict(VERSION))
    requests: list[httpx.Request] = attrs.field(factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/version":
            return reply(200, json=dict(self.version))
        self.requests.append(request)
        return await self.answer(request)


def client_of(answer: Answer, **version: str) -> DockerClient:
    carrier = Carrier(answer, {**VERSION, **version})
    return DockerClient(unix_endpoint(), transport=carrier)


def paths(client: DockerClient) -> list[str]:
    assert isinstance(client.transport, Carrier)
    return [request.url.path for request in client.transport.requests]


async def answer_object(request: httpx.Request) -> httpx.Response:
    return reply(200, json={"path": request.url.path})


async def answer_nothing(request: httpx.Request) -> httpx.Response:
    return reply(204)


def refused(request: httpx.Request) -> httpx.ConnectError:
    return httpx.ConnectError("connection refused", request=request)


async def test_a_call_gives_the_answers_json() -> None:
    async with client_of(answer_object) as client:
        assert await client.call("GET", "/info") == {"path": "/v1.41/info"}


async def test_a_call_with_no_answer_to_read_gives_none() -> None:
    async with client_of(answer_nothing) as client:
        assert await client.call("POST", "/containers/x/start", ok=(304,)) is None


async def test_a_call_says_who_asks_and_sends_json() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["user-agent"].startswith("best-peer/")
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["content-type"] == "application/json"
        assert request.url.query == b"name=bp-1&v=1"
        return reply(200, content=await request.aread())

    async with client_of(answer) as client:
        sent = {"Image": "x", "Labels": {"a": "ü"}}
        assert (
            await client.call("POST", "/containers/create", params={"name": "bp-1", "v": 1}, json=sent)
            == sent
        )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "No such image: x"}', "No such image: x"),
        (b'{"message": ""}', "no reason was given"),
        (b"", "no reason was given"),
        (b"404 page not found", "404 page not found"),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        (b'"text"', "text"),
        (b'{"message": "' + b"m" * 10_000 + b'"}', "m" * 2000),
        (b" " * 100_000, "an error too long to be shown"),
    ],
)
async def test_an_error_carries_its_status_and_the_engines_words(body: bytes, said: str) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return reply(404, content=body)

    async with client_of(answer) as client:
        with pytest.raises(EngineError) as caught:
            await client.call("GET", "/images/x/json")
        assert (caught.value.status, caught.value.message) == (404, said)


async def test_a_status_that_is_fine_is_no_error() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return reply(404, json={"message": "No such container"})

    async with client_of(answer) as client:
        assert await client.call("DELETE", "/containers/x", ok=(404,)) is None
        with pytest.raises(EngineError):
            await client.call("DELETE", "/containers/x", ok=(304,))


async def test_an_answer_longer_than_its_bound_is_not_read() -> None:
    @attrs.define
    class Endless(httpx.AsyncByteStream):
        sent: int = 0

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while self.sent < 1_000_000:
                await trio.lowlevel.checkpoint()
                self.sent += 1000
                yield b"x" * 1000

    body = Endless()

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=body)

    async with client_of(answer) as client:
        with pytest.raises(BadAnswer, match="longer than 5000 bytes"):
            await client.call("GET", "/containers/json", most_bytes=5000)
    assert body.sent < 20_000


@pytest.mark.parametrize("body", [b"OK", b"{", b"\xff", b"[" * 100_000])
async def test_an_answer_that_is_no_json_is_a_bad_one(body: bytes) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return reply(200, content=body)

    async with client_of(answer) as client:
        with pytest.raises(BadAnswer, match="GET /info is no JSON"):
            await client.call("GET", "/info")


async def test_an_engine_that_takes_a_call_and_does_not_answer_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    async with client_of(answer) as client:
        began = trio.current_time()
        with pytest.raises(EngineHung, match="did not answer GET /info within 7 s") as caught:
            await client.call("GET", "/info", timeout=7)
        # Asked once: a second time would double a bound that its caller chose.
        assert trio.current_time() - began == pytest.approx(7)
        assert caught.value.may_have_acted
        assert len(paths(client)) == 1


async def test_an_engine_that_is_away_for_a_while_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if trio.current_time() < back_at:
            raise refused(request)
        return reply(201, json={"Id": "x"})

    async with client_of(answer) as client:
        back_at = trio.current_time() + 20
        # It was never reached, so nothing can have been done twice: this holds for every method.
        assert await client.call("POST", "/containers/create") == {"Id": "x"}
        assert 10 < len(paths(client)) < 40


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_engine_that_stays_away_is_gone(method: str, autojump_clock: trio.testing.MockClock) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise refused(request)

    async with client_of(answer) as client:
        began = trio.current_time()
        with pytest.raises(EngineGone, match="does not answer") as caught:
            await client.call(method, "/info")
        assert 25 < trio.current_time() - began <= 31
        assert not caught.value.may_have_acted
        assert "DOCKER_HOST" in caught.value.fix


@pytest.mark.parametrize(
    ("method", "again", "asked"), [("GET", None, 2), ("POST", None, 1), ("POST", True, 2), ("GET", False, 1)]
)
async def test_a_call_that_broke_off_is_made_again_only_when_that_does_no_harm(
    method: str, again: bool | None, asked: int, autojump_clock: trio.testing.MockClock
) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if len(paths(client)) == 1:
            raise httpx.RemoteProtocolError(
                "Server disconnected without sending a response.", request=request
            )
        return reply(200, json={})

    async with client_of(answer) as client:
        if asked == 2:
            assert await client.call(method, "/x", again=again) == {}
        else:
            with pytest.raises(EngineGone) as caught:
                await client.call(method, "/x", again=again)
            assert caught.value.may_have_acted
        assert len(paths(client)) == asked


async def test_a_socket_that_is_not_for_us_is_told_at_once() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise refused(request) from PermissionError(13, "Permission denied")

    async with client_of(answer) as client:
        with pytest.raises(EngineForbidden, match="Permission denied") as caught:
            await client.call("GET", "/info")
        assert "group docker" in caught.value.fix
        assert len(paths(client)) == 1


@pytest.mark.parametrize(
    ("theirs", "spoken"),
    [("1.41", "1.41"), ("1.43", "1.43"), ("1.99", f"{NEWEST_API[0]}.{NEWEST_API[1]}"), ("2.0", "1.47")],
)
async def test_the_newest_version_that_both_know_is_spoken(theirs: str, spoken: str) -> None:
    async with client_of(answer_object, ApiVersion=theirs) as client:
        assert client.engine.api == spoken
        assert (client.engine.os, client.engine.architecture) == ("linux", "amd64")
        assert await client.call("GET", "/info") == {"path": f"/v{spoken}/info"}


@pytest.mark.parametrize(
    "version",
    [
        {"ApiVersion": "1.40"},
        {"ApiVersion": "1.60", "MinAPIVersion": "1.50"},
        {"ApiVersion": "soon"},
        {"ApiVersion": "1.4²"},
        {"ApiVersion": ""},
    ],
)
async def test_an_engine_with_no_version_in_common_is_refused(version: dict[str, str]) -> None:
    with pytest.raises(EngineTooOld, match=r"Docker 20\.10 or newer"):
        async with client_of(answer_object, **version):
            pass


async def test_an_engine_that_was_exchanged_is_asked_for_its_version_again() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/v1.43/"):
            message = "client version 1.43 is too old. Minimum supported API version is 1.44"
            return reply(400, json={"message": message})
        return await answer_object(request)

    client = client_of(answer, ApiVersion="1.43")
    async with client:
        assert isinstance(client.transport, Carrier)
        client.transport.version = {**VERSION, "ApiVersion": "1.52", "MinAPIVersion": "1.44"}
        assert await client.call("POST", "/containers/create") == {"path": "/v1.47/containers/create"}


async def test_a_bad_request_of_another_kind_is_told() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return reply(400, json={"message": "invalid reference format"})

    async with client_of(answer) as client:
        with pytest.raises(EngineError, match="invalid reference format"):
            await client.call("GET", "/images/x/json")
        assert len(paths(client)) == 1


async def test_a_credential_is_in_no_error_and_no_log(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["x-registry-auth"] == SECRET
        raise refused(request)

    caplog.set_level(logging.DEBUG)
    async with client_of(answer) as client:
        with pytest.raises(EngineGone) as caught:
            await client.call("GET", "/distribution/x/json", headers={"X-Registry-Auth": SECRET})
        assert SECRET not in repr(caught.value) + str(caught.value) + repr(client)
    assert "asking it again" in caplog.text
    assert SECRET not in caplog.text


async def test_a_stream_that_is_refused_is_an_error() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return reply(404, json={"message": "pull access denied"})

    async with client_of(answer) as client:
        with pytest.raises(EngineError, match="pull access denied"):
            async with client.stream("POST", "/images/create"):
                raise AssertionError


async def test_a_stream_is_never_made_again() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise refused(request)

    async with client_of(answer) as client:
        with pytest.raises(EngineGone):
            async with client.stream("GET", "/events"):
                raise AssertionError
        assert len(paths(client)) == 1
