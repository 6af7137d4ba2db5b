"""The one OpenAI-style chat call, as llama.cpp and vLLM serve it on loopback (F23).

What is asked and answered is never logged here, and no error repeats it. Only whole answers are asked for.
"""

import re
from types import TracebackType
from typing import Any, Final, Self

import attrs

from adapters.engine.json_http import JsonHttp, Reply
from adapters.engine.port import Answer, Chat, EngineUnreachable, FinishReason, PromptRefused
from adapters.runtime.port import Handle

_TOO_LONG: Final = ("exceed_context_size_error",)
_VLLM_FIGURES: Final = re.compile(r"length is (\d{1,9}) tokens.{1,80}?(\d{1,9}) input tokens")
_TOO_LONG_WORDS: Final = ("maximum context length", "exceeds the available context", "context size")


@attrs.define(eq=False)
class OpenAiChat:
    """Asks engines that speak OpenAI's chat; one object for all of them, with its connections.

    The composition owns it and closes it: `async with OpenAiChat() as chat`.

    Args:
        http: asks; closed with it.
    """

    http: JsonHttp = attrs.field(factory=JsonHttp)

    async def __aenter__(self) -> Self:
        """Nothing is opened before the first question."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.http.close()

    async def answer(self, handle: Handle, model: str, chat: Chat) -> Answer:
        """Ask for the next turn of a conversation. The caller owns the deadline.

        Args:
            handle: the engine's program.
            model: the name the engine serves the model under.
            chat: the conversation and the knobs; a knob that is None is not sent.

        Raises:
            PromptRefused: the engine does not take this conversation.
            EngineUnreachable: it gave no answer that can be used.
        """
        reply = await self.ask_for_answer(handle, model, chat)
        if reply.status == 200:
            return _answer(reply.body, model)
        raise _refusal(reply)

    async def ask_for_answer(self, handle: Handle, model: str, chat: Chat) -> Reply:
        """As `answer`; what the engine sent, whatever that is.

        Raises:
            EngineUnreachable: the engine cannot be reached.
        """
        question: dict[str, Any] = {
            "model": model,
            "messages": [{"role": one.role, "content": one.content} for one in chat.messages],
            "stream": False,
        }
        if chat.max_tokens is not None:
            question["max_tokens"] = chat.max_tokens
        if chat.temperature is not None:
            question["temperature"] = chat.temperature
        if chat.stop:
            question["stop"] = list(chat.stop)
        return await self.ask(handle, "POST", "/v1/chat/completions", question)

    async def ask(self, handle: Handle, method: str, path: str, question: Any = None) -> Reply:
        """Any question, answered with JSON.

        Raises:
            EngineUnreachable: the engine cannot be reached, or sent more than 16 MiB.
        """
        return await self.http.ask(handle.base_url, method, path, question, key=handle.secret)


def _answer(body: Any, model: str) -> Answer:
    try:
        choice = body["choices"][0]
        content = choice["message"]["content"]
        usage = body.get("usage") or {}
        named = body.get("model")
        return Answer(
            # Null when all that a thinking model wrote was its thoughts.
            content="" if content is None else _text(content),
            model=named if isinstance(named, str) and named else model,
            finish_reason=_finish(choice.get("finish_reason")),
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise EngineUnreachable(
            "the engine's answer is not of the shape of a chat completion",
            fix="use a version of the engine that this peer knows",
        ) from error


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise TypeError(type(content).__name__)
    # A lone surrogate can be written in JSON and in nothing that the answer goes into after.
    return content.encode("utf-8", "replace").decode("utf-8")


def _finish(reason: Any) -> FinishReason:
    if reason == "stop":
        return "stop"
    return "length" if reason == "length" else "other"


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _refusal(reply: Reply) -> PromptRefused | EngineUnreachable:
    error = reply.error
    words = reply.words
    if reply.status in (400, 413, 422) and (
        error.get("type") in _TOO_LONG or any(sign in words for sign in _TOO_LONG_WORDS)
    ):
        has, most = _count(error.get("n_prompt_tokens")), _count(error.get("n_ctx"))
        said = _VLLM_FIGURES.search(words)
        if said is not None:
            has, most = int(said[2]), int(said[1])
        figures = (
            words if has is None or most is None else f"it has {has} tokens and there is room for {most}"
        )
        return PromptRefused(
            f"the conversation is too long: {figures}",
            fix="send fewer or shorter messages, or deploy the model with more memory_bytes",
        )
    if reply.status in (400, 413, 422):
        return PromptRefused(
            f"the engine refused the prompt: {words}", fix="change what it names and send again"
        )
    if reply.status in (401, 403):
        return EngineUnreachable(
            "what answers on the engine's port does not take this peer's key",
            fix="undeploy and deploy again: another program may have taken the port",
        )
    if reply.status == 503:
        return EngineUnreachable(f"the engine is not ready: {words}", fix="send the prompt again in a while")
    return EngineUnreachable(
        f"the engine failed with status {reply.status}: {words}",
        fix="send the prompt again; if it fails again, undeploy and deploy the model",
    )
