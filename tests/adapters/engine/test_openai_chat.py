"""The chat call against servers that answer as told."""

import json
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest
import trio

from adapters.engine import json_http, plain_http
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import Answer, Chat, EngineFault, EngineUnreachable, Message, PromptRefused
from adapters.runtime.port import Handle

HELLO = Chat((Message("user", "hello"),))
KEY = "sk-secret"


@attrs.define
class Asked:
    head: str
    body: Any


@attrs.define(eq=False)
class Server:
    """Answers each connection's requests by `answers`, in order, and remembers what was asked.

    An empty answer closes the connection instead; with `closes` every one is followed by that.
    """

    answers: list[bytes]
    closes: bool = False
    asked: list[Asked] = attrs.field(factory=list)
    connections: int = 0
    base_url: str = ""

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, self._connection, 0)
            for listener in listeners:
                name = listener.socket.getsockname()
                if len(name) == 2:
                    self.base_url = f"http://127.0.0.1:{name[1]}"
            task_status.started()

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        raw = b""
        while True:
            while b"\r\n\r\n" not in raw:
                part = await stream.receive_some()
                if not part:
                    return
                raw += part
            head, _, raw = raw.partition(b"\r\n\r\n")
            text = head.decode().lower()
            length = next(
                (int(line.split(":")[1]) for line in text.split("\r\n") if line.startswith("content-length")),
                0,
            )
            while len(raw) < length:
                raw += await stream.receive_some()
            body, raw = raw[:length], raw[length:]
            self.asked.append(Asked(head.decode(), json.loads(body) if body else None))
            answer = self.answers.pop(0)
            await stream.send_all(answer)
            if self.closes or not answer:
                return


def response(status: int, body: Any) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Word\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def completion(**more: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        **more,
    }


@pytest.fixture
async def chat() -> AsyncIterator[OpenAiChat]:
    async with OpenAiChat() as made:
        yield made


async def answered(
    nursery: trio.Nursery, chat: OpenAiChat, *answers: bytes, asked: Chat = HELLO, closes: bool = False
) -> Any:
    server = Server(list(answers), closes)
    await nursery.start(server.serve)
    handle = Handle("dep-1", "h-1", server.base_url, secret=KEY)
    with trio.fail_after(10):
        try:
            return await chat.answer(handle, "tiny", asked), server
        except EngineFault as fault:
            return fault, server


async def test_a_conversation_is_asked_whole_with_its_knobs_and_the_key(
    nursery: trio.Nursery, chat: OpenAiChat
) -> None:
    asked = Chat(
        (Message("system", "be brief"), Message("user", "héllo")),
        max_tokens=5,
        temperature=0.0,
        stop=("\n",),
    )

    answer, server = await answered(nursery, chat, response(200, completion()), asked=asked)

    assert answer == Answer("hi", "tiny", "stop", 3, 1)
    (seen,) = server.asked
    assert seen.head.startswith("POST /v1/chat/completions HTTP/1.1")
    assert f"authorization: bearer {KEY}" in seen.head.lower()
    assert seen.body == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "héllo"}],
        "stream": False,
        "max_tokens": 5,
        "temperature": 0.0,
        "stop": ["\n"],
    }


async def test_a_knob_that_is_not_set_is_left_to_the_engine(nursery: trio.Nursery, chat: OpenAiChat) -> None:
    _, server = await answered(nursery, chat, response(200, completion()))

    assert set(server.asked[0].body) == {"model", "messages", "stream"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (completion(usage=None, model=None), Answer("hi", "tiny", "stop", None, None)),
        (completion(usage={"prompt_tokens": True}), Answer("hi", "tiny", "stop", None, None)),
        (
            completion(choices=[{"finish_reason": "length", "message": {"content": None}}]),
            Answer("", "tiny", "length", 3, 1),
        ),
        (
            completion(choices=[{"finish_reason": "tool_calls", "message": {"content": "\ud800x"}}]),
            Answer("?x", "tiny", "other", 3, 1),
        ),
    ],
)
async def test_what_an_engine_leaves_out_is_unknown(
    nursery: trio.Nursery, chat: OpenAiChat, body: Any, expected: Answer
) -> None:
    answer, _ = await answered(nursery, chat, response(200, body))

    assert answer == expected


@pytest.mark.parametrize(
    "body",
    [b"no json", b"", {}, {"choices": []}, {"choices": [{"message": {"content": 7}}]}, [1], b"[" * 10_000],
)
async def test_an_answer_of_another_shape_is_no_answer(
    nursery: trio.Nursery, chat: OpenAiChat, body: Any
) -> None:
    fault, _ = await answered(nursery, chat, response(200, body))

    assert isinstance(fault, EngineUnreachable)
    assert "shape" in fault.reason


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (
            400,
            {
                "error": {
                    "code": 400,
                    "type": "exceed_context_size_error",
                    "message": "request (6031 tokens) exceeds the available context size (1024 tokens)",
                    "n_prompt_tokens": 6031,
                    "n_ctx": 1024,
                }
            },
            PromptRefused,
            "too long: it has 6031 tokens and there is room for 1024",
        ),
        (
            400,
            {"error": {"message": "This model's maximum context length is 256 tokens.", "code": 400}},
            PromptRefused,
            "too long: This model's maximum context length is 256 tokens.",
        ),
        (400, {"error": {"message": "bad\x1b[31m role"}}, PromptRefused, "refused the prompt: bad [31m role"),
        (401, {"error": "Unauthorized"}, EngineUnreachable, "does not take this peer's key"),
        (404, {"detail": "Not Found"}, EngineUnreachable, "status 404"),
        (503, {"error": {"message": "Loading model"}}, EngineUnreachable, "not ready: Loading model"),
        (500, {"error": {"message": "x" * 5000}}, EngineUnreachable, "status 500: " + "x" * 300),
        (302, b"", EngineUnreachable, "status 302"),
    ],
)
async def test_a_refusal_is_told_by_its_kind(
    nursery: trio.Nursery, chat: OpenAiChat, status: int, body: Any, kind: type[EngineFault], reason: str
) -> None:
    fault, _ = await answered(nursery, chat, response(status, body))

    assert isinstance(fault, kind)
    assert reason in fault.reason
    assert len(fault.reason) < 400
    assert fault.fix


async def test_an_answer_without_end_is_cut(
    nursery: trio.Nursery, chat: OpenAiChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_http, "MAX_ANSWER", 1000)

    fault, _ = await answered(nursery, chat, response(200, b"x" * 2000))

    assert isinstance(fault, EngineUnreachable)
    assert "longer than 1000 bytes" in fault.reason


async def test_a_connection_is_used_again_and_one_closed_meanwhile_is_replaced(
    nursery: trio.Nursery, chat: OpenAiChat
) -> None:
    fine = response(200, completion())
    server = Server([fine, fine, b"", fine])
    await nursery.start(server.serve)
    handle = Handle("dep-1", "h-1", server.base_url)

    for _ in range(3):
        assert (await chat.answer(handle, "tiny", HELLO)).content == "hi"

    assert server.connections == 2
    assert "authorization" not in server.asked[0].head.lower()


async def test_a_question_is_sent_once_more_and_no_more(nursery: trio.Nursery, chat: OpenAiChat) -> None:
    server = Server([response(200, completion()), b"", b"", response(200, completion())])
    await nursery.start(server.serve)
    handle = Handle("dep-1", "h-1", server.base_url)
    await chat.answer(handle, "tiny", HELLO)

    with pytest.raises(EngineUnreachable, match="closed before all of it"):
        await chat.answer(handle, "tiny", HELLO)

    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "raw",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{", b"HTTP/1.1 2", b"SSH-2.0\r\n\r\n", b"\0" * 100_000],
)
async def test_an_answer_that_breaks_off_or_is_none_is_said(
    nursery: trio.Nursery, chat: OpenAiChat, raw: bytes
) -> None:
    fault, server = await answered(nursery, chat, raw, closes=True)

    assert isinstance(fault, EngineUnreachable)
    assert "did not answer" in fault.reason
    assert len(server.asked) == 1


async def test_an_answer_in_pieces_and_one_without_length_are_read_whole(
    nursery: trio.Nursery, chat: OpenAiChat
) -> None:
    body = json.dumps(completion()).encode()
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])
    )

    answer, _ = await answered(nursery, chat, chunked + b"0\r\n\r\n")

    assert answer.content == "hi"


async def test_a_connection_is_not_used_again_after_it_idled(
    nursery: trio.Nursery, chat: OpenAiChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_http, "IDLE_SECONDS", -1.0)
    server = Server([response(200, completion()), response(200, completion())])
    await nursery.start(server.serve)
    for _ in range(2):
        await chat.answer(Handle("dep-1", "h-1", server.base_url), "tiny", HELLO)

    assert server.connections == 2


async def test_nobody_listening_is_said(chat: OpenAiChat) -> None:
    with pytest.raises(EngineUnreachable, match="did not answer"):
        await chat.answer(Handle("dep-1", "h-1", "http://127.0.0.1:1"), "tiny", HELLO)


async def test_a_proxy_of_the_environment_is_not_asked(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with OpenAiChat() as chat:
        answer, _ = await answered(nursery, chat, response(200, completion()))

    assert answer.content == "hi"


async def test_questions_given_up_in_a_burst_take_no_connection_from_later_ones(
    nursery: trio.Nursery, chat: OpenAiChat
) -> None:
    # encode/httpcore#1093: more than a pool has, cancelled within milliseconds.
    server = Server([response(200, completion()) for _ in range(1000)])
    await nursery.start(server.serve)
    handle = Handle("dep-1", "h-1", server.base_url)
    for _ in range(3):
        async with trio.open_nursery() as burst:
            for _ in range(100):
                burst.start_soon(chat.answer, handle, "tiny", HELLO)
            await trio.lowlevel.checkpoint()
            burst.cancel_scope.cancel()

    with trio.fail_after(30):
        assert (await chat.answer(handle, "tiny", HELLO)).content == "hi"
