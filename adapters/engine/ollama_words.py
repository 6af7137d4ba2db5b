"""What Ollama's own words mean: it tells most errors by their text alone."""

from collections.abc import Callable
from typing import Final

from adapters.engine.ends import explain_signs
from adapters.engine.json_http import Reply
from adapters.engine.port import (
    EngineEnded,
    EngineFault,
    EngineOutOfMemory,
    EngineUnreachable,
    ModelNotFound,
    ModelNotPulled,
    ModelTooLarge,
    ModelUnusable,
    PromptRefused,
)
from adapters.runtime.port import Exit

Make = Callable[[str], EngineFault]
Signs = tuple[tuple[tuple[str, ...], Make], ...]


def _unknown(words: str) -> EngineFault:
    return ModelNotFound(
        f"the model's registry has no such model{words}",
        fix="look the name and its tag up in Ollama's library, ollama.com/library",
    )


def _private(words: str) -> EngineFault:
    return ModelNotFound(
        f"the model's registry does not show this model to everybody{words}",
        fix="deploy a public model, or have the owner of this machine keep it in the model store",
    )


def _needs_newer(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model needs a newer Ollama{words}",
        fix="the owner of this machine can name a newer one (BEST_PEER_OLLAMA_IMAGE, or update the one "
        "that is installed); or deploy another model",
    )


def _no_room(words: str) -> EngineFault:
    return ModelNotPulled(
        f"the engine's disk has no room for the model{words}",
        fix="the owner of this machine frees room where its container engine, or its Ollama, keeps its "
        "files; or deploy a smaller model",
    )


def _read_only(words: str) -> EngineFault:
    return ModelUnusable(
        f"the operator's model store has this model and the engine cannot use it{words}",
        fix="the owner of this machine lets everybody read the store's files (chmod -R o+rX)",
    )


def _given_up(words: str) -> EngineFault:
    return ModelNotPulled(
        f"the engine gave the pull of the model up{words}",
        fix="deploy the model again; if that fails too, look at this machine's way to the model's registry",
    )


_PULL_SIGNS: Final[Signs] = (
    (("file does not exist", "manifest unknown", "not found", "invalid model name"), _unknown),
    (("unauthorized", "access denied", "authentication", "forbidden"), _private),
    (("newer version of ollama", "requires mlx"), _needs_newer),
    (("no space left", "disk quota"), _no_room),
    (("read-only file system", "permission denied"), _read_only),
)
"""A pull that ended so ends so again."""


def pull_fault(words: str) -> tuple[EngineFault, bool]:
    """Why a pull failed by the line that says so, and whether it may be resumed."""
    found = _by_words(words, _PULL_SIGNS)
    return (_given_up(_said(words)), True) if found is None else (found, False)


def _no_memory(words: str) -> EngineFault:
    return EngineOutOfMemory(
        f"the engine got no more memory{words}",
        fix="deploy the model with more memory_bytes, or a smaller model; the owner of this machine may "
        "raise BEST_PEER_ENGINE_MEMORY where it is set",
    )


def _too_large(words: str) -> EngineFault:
    return ModelTooLarge(
        f"the model needs more memory than there is for it{words}",
        fix="deploy it with more memory_bytes, on a device with more memory, or deploy a smaller model",
    )


def _no_chat(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model holds no conversations{words}", fix="deploy a model made for conversations"
    )


def _runner_ended(words: str) -> EngineFault:
    return EngineUnreachable(
        f"the part of the engine that runs the model ended{words}",
        fix="send the prompt again: the engine loads the model anew; if it fails again, deploy a smaller "
        "model, or with more memory_bytes",
    )


def _gone(words: str) -> EngineFault:
    return EngineUnreachable(
        f"the engine does not have the model any more{words}", fix="undeploy it and deploy it again"
    )


def _broken(words: str) -> EngineFault:
    return ModelUnusable(
        f"the engine cannot load the model{words}",
        fix="deploy another model, or have the owner of this machine remove this one and pull it anew",
    )


_ASKED_SIGNS: Final[Signs] = (
    (("requires more system memory", "too large for system memory"), _too_large),
    (
        ("out of memory", "failed to allocate", "cudamalloc failed", "insufficient memory", "signal: killed"),
        _no_memory,
    ),
    (("newer version of ollama", "may be incompatible with your version"), _needs_newer),
    (("does not support chat", "does not support generate"), _no_chat),
    (("not found",), _gone),
    (("error loading model", "unable to load model", "failed to load model", "invalid magic"), _broken),
    (
        ("has terminated", "unexpectedly stopped", "no longer running", "connection refused", "eof"),
        _runner_ended,
    ),
)

TOO_LONG: Final = (
    "context length", "context size", "exceeds the available context", "exceed_context_size", "num_ctx",
)  # fmt: skip
"""Words of a refusal because of the conversation's length."""


def is_too_long(reply: Reply) -> bool:
    """Whether a conversation was refused because of its length."""
    return reply.status == 400 and any(sign in reply.words.lower() for sign in TOO_LONG)


def asked_fault(reply: Reply) -> EngineFault:
    """Why a model was not loaded, or did not answer, by an answer that is no 200."""
    words = reply.words
    if reply.status == 503:
        return EngineUnreachable(
            f"the engine has too many prompts waiting{_said(words)}", fix="send the prompt again in a while"
        )
    if reply.status == 403:
        return EngineUnreachable(
            "the engine does not take questions that come under this machine's name",
            fix="the owner of this machine sets BEST_PEER_ENGINE_HOST to an address the engine takes, "
            "127.0.0.1 as a rule",
        )
    found = _by_words(words, _ASKED_SIGNS)
    if found is not None:
        return found
    if reply.status == 400:
        return PromptRefused(
            f"the engine refused the prompt{_said(words)}", fix="change it and send it again"
        )
    return EngineUnreachable(
        f"the engine failed with status {reply.status}{_said(words)}",
        fix="send the prompt again; if it fails again, undeploy and deploy the model",
    )


def of_the_cloud() -> ModelUnusable:
    """A model that other machines serve."""
    return ModelUnusable(
        "this is a model of Ollama's cloud: other machines would answer, and read what is asked",
        fix="deploy a model that runs here",
    )


def too_long(context_tokens: int) -> PromptRefused:
    """A conversation that does not fit. Ollama does not say how many tokens it has."""
    return PromptRefused(
        f"the conversation is too long: there is room for {context_tokens} tokens, the answer's included",
        fix="send fewer or shorter messages, or deploy the model with more memory_bytes",
    )


def _ended_driver(words: str) -> EngineFault:
    return EngineEnded(
        f"the engine cannot use the card{words}",
        fix="the owner of this machine updates its driver, or names an older build in BEST_PEER_OLLAMA_IMAGE",
    )


def _ended_store(words: str) -> EngineFault:
    return EngineEnded(
        f"the engine cannot use its folder of models{words}",
        fix="the owner of this machine lets everybody read the model store's files (chmod -R o+rX)",
    )


def _ended_installed(words: str) -> EngineFault:
    return EngineEnded(
        words.removeprefix(": "),
        fix="deploy the model again, once the owner of this machine has Ollama running",
    )


_END_SIGNS: Final[Signs] = (
    # What the native runtime itself says of an end.
    (("ollama that is installed",), _ended_installed),
    (("out of memory", "cannot allocate memory", "cudamalloc failed"), _no_memory),
    (("no space left",), _no_room),
    (("driver version is insufficient", "cuda driver version"), _ended_driver),
    (("permission denied", "read-only file system"), _ended_store),
)


def explain_ollama(ended: Exit) -> EngineFault:
    """The end of an Ollama in a container that nobody asked for."""
    if ended.out_of_memory:
        return _no_memory(": its container had no more, or the machine had none")
    return explain_signs(ended, _END_SIGNS)


def _by_words(words: str, signs: Signs) -> EngineFault | None:
    low = words.lower()
    return next((make(_said(words)) for texts, make in signs if any(text in low for text in texts)), None)


def _said(words: str) -> str:
    return f": {words}" if words else ""
