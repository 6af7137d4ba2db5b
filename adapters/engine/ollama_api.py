"""What an Ollama is asked, and what its answers say."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from adapters.engine.json_http import JsonHttp, Reply
from adapters.engine.ollama_words import of_the_cloud
from adapters.engine.port import Answer, Chat, EngineUnreachable, FinishReason, ModelUnusable
from adapters.models.ollama_name import OllamaName

ALIVE_SECONDS: Final = 5.0
SHORT_SECONDS: Final = 60.0
"""Questions that Ollama answers out of its own lists; a large library on a slow disk takes it a while."""
FOR_EVER: Final = -1
NOW: Final = 0
"""How long a model stays loaded after a question, in seconds; negative is for ever."""


@attrs.frozen
class Loaded:
    """Where a loaded model lies, in bytes; None where Ollama did not say."""

    size_bytes: int | None
    card_bytes: int | None
    context_tokens: int | None


@attrs.define(eq=False)
class OllamaApi:
    """Asks Ollamas; which one is said with each question.

    Args:
        http: asks; the composition closes it.
    """

    http: JsonHttp

    async def answers(self, base_url: str) -> bool:
        """Whether it answers at all within five seconds."""
        with trio.move_on_after(ALIVE_SECONDS):
            try:
                return (await self.http.ask(base_url, "GET", "/api/version")).status == 200
            except EngineUnreachable:
                return False
        return False

    async def entry(self, base_url: str, name: OllamaName) -> Mapping[str, Any] | None:
        """What it lists of a model; None when it does not have it.

        Raises:
            EngineUnreachable: that is not to be known.
        """
        return _listed(await self._ask(base_url, "GET", "/api/tags"), name)

    async def loaded(self, base_url: str, name: OllamaName) -> Loaded | None:
        """Where a model lies; None when it is not loaded.

        Raises:
            EngineUnreachable: that is not to be known.
        """
        entry = _listed(await self._ask(base_url, "GET", "/api/ps"), name)
        if entry is None:
            return None
        # A model that is wholly on the CPU may have no figure for the card at all.
        return Loaded(
            size_bytes=count(entry.get("size")) or None,
            card_bytes=count(entry.get("size_vram", 0)),
            context_tokens=count(entry.get("context_length")) or None,
        )

    async def check_kind(self, base_url: str, name: OllamaName, entry: Mapping[str, Any]) -> None:
        """Refuse what holds no conversations, or is served by other machines.

        Args:
            base_url: the Ollama.
            name: a model that it has.
            entry: what it lists of it; Ollamas of some age say only when asked what a model can do.

        Raises:
            ModelUnusable: so it is.
            EngineUnreachable: that is not to be known.
        """
        if entry.get("remote_host") or entry.get("remote_model"):
            raise of_the_cloud()
        can = entry.get("capabilities")
        if not isinstance(can, list) or not can:
            shown = await self._ask(base_url, "POST", "/api/show", {"model": name.short})
            can = shown.body.get("capabilities") if isinstance(shown.body, dict) else None
        # One too old to say what a model can do refuses the conversation itself.
        if isinstance(can, list) and can and "completion" not in can:
            kind = "an embedding model" if "embedding" in can else "a model"
            raise ModelUnusable(
                f"{name.short} is {kind} that holds no conversations",
                fix="deploy a model made for conversations",
            )

    async def chat(
        self, base_url: str, model: str, chat: Chat, *, context_tokens: int, is_for_cpu: bool
    ) -> Reply:
        """One question for a model; with no message it is loaded and nothing else.

        The caller owns the deadline. Every question says the same of how a model is loaded, or the model
        would be loaded anew.

        Raises:
            EngineUnreachable: there is no answer.
        """
        options: dict[str, Any] = {"num_ctx": context_tokens}
        if is_for_cpu:
            options["num_gpu"] = 0
        if chat.max_tokens is not None:
            options["num_predict"] = chat.max_tokens
        if chat.temperature is not None:
            options["temperature"] = chat.temperature
        if chat.stop:
            options["stop"] = list(chat.stop)
        question = {
            "model": model,
            "messages": [{"role": one.role, "content": one.content} for one in chat.messages],
            "stream": False,
            "keep_alive": FOR_EVER,
            # A conversation too long is refused, not shortened unsaid.
            "truncate": False,
            "shift": False,
            "options": options,
        }
        return await self.http.ask(base_url, "POST", "/api/chat", question)

    async def unload(self, base_url: str, model: str) -> Reply:
        """Let a model go once nobody is answered by it. The caller owns the deadline.

        Raises:
            EngineUnreachable: there is no answer.
        """
        return await self.http.ask(
            base_url, "POST", "/api/chat", {"model": model, "messages": [], "keep_alive": NOW}
        )

    async def _ask(self, base_url: str, method: str, path: str, question: Any = None) -> Reply:
        try:
            with trio.fail_after(SHORT_SECONDS):
                return await self.http.ask(base_url, method, path, question)
        except trio.TooSlowError as error:
            raise EngineUnreachable(
                f"the engine did not answer {path} within {SHORT_SECONDS:.0f} s", fix="deploy the model again"
            ) from error


def answer_of(body: Any, model: str) -> Answer:
    """What a whole answer says.

    Raises:
        EngineUnreachable: it is none.
    """
    message = body.get("message") if isinstance(body, dict) else None
    content = message.get("content", "") if isinstance(message, dict) else None
    if not isinstance(content, str) or body.get("done") is not True:
        raise EngineUnreachable(
            "the engine's answer is not of the shape of a whole chat answer",
            fix="use a version of the engine that this peer knows",
        )
    reason = body.get("done_reason")
    finish: FinishReason = "stop" if reason == "stop" else "length" if reason == "length" else "other"
    return Answer(
        # A lone surrogate can be written in JSON and in nothing that the answer goes into after.
        content=content.encode("utf-8", "replace").decode("utf-8"),
        model=model,
        finish_reason=finish,
        prompt_tokens=count(body.get("prompt_eval_count")),
        completion_tokens=count(body.get("eval_count")),
    )


def may_be_cut(answer: Answer, chat: Chat) -> bool:
    """Whether an older Ollama may have cut this conversation, for all that it was told; see `is_cut`.

    Hardly any text has so many bytes a token.
    """
    length = sum(len(message.content.encode("utf-8", "replace")) for message in chat.messages)
    return answer.prompt_tokens is not None and length > 12 * answer.prompt_tokens


def is_cut(answer: Answer, context_tokens: int) -> bool:
    """Whether it counted just the tokens that such an Ollama cuts a message to, which it answers with 200."""
    return answer.prompt_tokens == context_tokens - max((context_tokens - 4) // 2, 1)


def count(value: Any) -> int | None:
    """A count or a size; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _listed(reply: Reply, name: OllamaName) -> Mapping[str, Any] | None:
    """The model's entry in a list of models.

    Raises:
        EngineUnreachable: that is no list of models.
    """
    found = reply.body.get("models") if isinstance(reply.body, dict) else None
    # Ollama writes null for an empty list.
    if reply.status != 200 or not (found is None or isinstance(found, list)):
        raise EngineUnreachable(
            f"what answers on the engine's port lists no models (status {reply.status})",
            fix="undeploy and deploy again: another program may have the port, or it is an engine that "
            "this peer does not know",
        )
    for entry in found or ():
        if isinstance(entry, dict) and (
            name.is_called(entry.get("model")) or name.is_called(entry.get("name"))
        ):
            return entry
    return None
