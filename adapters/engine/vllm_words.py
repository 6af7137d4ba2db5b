"""What the end of a vLLM means, by its last lines.

The cause stands well above its last line as a rule, in the words of one of its processes; then its end is
told by its code.
"""

from collections.abc import Callable
from typing import Final

from adapters.engine.ends import explain_signs
from adapters.engine.port import (
    EngineEnded,
    EngineFault,
    EngineOutOfMemory,
    ModelNotFound,
    ModelNotPulled,
    ModelTooLarge,
    ModelUnusable,
)
from adapters.runtime.port import Exit

_IMAGE: Final = "BEST_PEER_VLLM_IMAGE"


def _driver(words: str) -> EngineFault:
    return EngineEnded(
        f"this vLLM needs a newer driver than the card has{words}",
        fix="the owner of this machine updates the NVIDIA driver to 580 or newer, or names an older build in "
        f"{_IMAGE}",
    )


def _no_card(words: str) -> EngineFault:
    return EngineEnded(
        f"vLLM sees no card{words}",
        fix="the owner of this machine looks whether the NVIDIA container toolkit is set up "
        "(docker run --rm --gpus all ubuntu nvidia-smi)",
    )


def _old_card(words: str) -> EngineFault:
    return ModelUnusable(
        f"the card is too old for this model or this vLLM{words}",
        fix="deploy the model on a newer card, another build of it, or with the engine ollama",
    )


def _not_free(words: str) -> EngineFault:
    return EngineOutOfMemory(
        f"the card has less free memory than was promised{words}",
        fix="read get-hardware-state for what is free and deploy again; another program may use the card",
    )


def _too_large(words: str) -> EngineFault:
    return ModelTooLarge(
        f"the model needs more memory than it was promised{words}",
        fix="deploy it with more memory_bytes, or deploy a smaller model",
    )


def _no_memory(words: str) -> EngineFault:
    return EngineOutOfMemory(
        f"the engine got no more memory{words}",
        fix="deploy the model with more memory_bytes, or a smaller model; the owner of this machine may "
        "raise BEST_PEER_ENGINE_MEMORY where it is set",
    )


def _gated(words: str) -> EngineFault:
    return ModelNotFound(f"the hub does not show this model to everybody{words}", fix="deploy a public model")


def _unknown(words: str) -> EngineFault:
    return ModelNotFound(
        f"the hub has no such model that vLLM serves{words}",
        fix="look the name up on huggingface.co: organization/model",
    )


def _no_way(words: str) -> EngineFault:
    return ModelNotPulled(
        f"the model could not be fetched from the hub{words}",
        fix="deploy the model again; if that fails too, look at this machine's way to the hub",
    )


def _no_room(words: str) -> EngineFault:
    return ModelNotPulled(
        f"the engine's disk has no room for the model{words}",
        fix="the owner of this machine frees room where its container engine keeps its files; or deploy a "
        "smaller model",
    )


def _broken(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model's files are broken or incomplete{words}", fix="deploy the model again, or another"
    )


def _unsupported(words: str) -> EngineFault:
    return ModelUnusable(
        f"this vLLM does not serve the model{words}",
        fix=f"deploy another model; the owner of this machine can name a newer build in {_IMAGE}",
    )


def _too_old(words: str) -> EngineFault:
    return EngineEnded(
        f"this vLLM does not know an option that the peer needs{words}",
        fix=f"the owner of this machine names a newer build in {_IMAGE}, or unsets it",
    )


SIGNS: Final[tuple[tuple[tuple[str, ...], Callable[[str], EngineFault]], ...]] = (
    (("unrecognized arguments", "invalid choice", "error: argument"), _too_old),
    (
        (
            "driver version is insufficient", "nvidia driver on your system is too old",
            "unsatisfied condition", "forward compatibility was attempted",
        ),
        _driver,
    ),
    (
        (
            "no cuda gpus are available", "failed to infer device type", "libcuda.so", "cuda_error_no_device",
            "no cuda-capable device",
        ),
        _no_card,
    ),
    (("compute capability", "no kernel image is available"), _old_card),
    (("less than desired gpu memory utilization",), _not_free),
    (
        ("no available memory for the cache blocks", "kv cache is needed", "not enough gpu memory"),
        _too_large,
    ),
    (("cuda out of memory", "torch.outofmemoryerror", "cuda error: out of memory"), _no_memory),
    (("gated repo", "gatedrepoerror", "access to model", "401 client error"), _gated),
    (("no space left on device",), _no_room),
    (
        (
            "not a valid model identifier", "repository not found", "repositorynotfounderror",
            "does not appear to have a file named", "invalid repository id or local directory",
        ),
        _unknown,
    ),
    (
        (
            "localentrynotfounderror", "couldn't connect to", "failed to establish a new connection",
            "max retries exceeded", "name resolution", "connecttimeout", "consistency check failed",
        ),
        _no_way,
    ),
    (("safetensorerror", "incomplete metadata", "invalidheader", "header too large"), _broken),
    (("are not supported for now", "is not supported", "trust_remote_code", "has no vllm"), _unsupported),
)  # fmt: skip
"""In small letters; the more telling stand first."""


def explain_vllm(ended: Exit) -> EngineFault:
    """The end of a vLLM that nobody asked for. It ends with 0 when one of its own processes was killed."""
    if ended.out_of_memory:
        return _no_memory(": its container had no more, or the machine had none")
    if ended.code == 0:
        return EngineEnded(
            "the engine ended by itself, as it does when one of its processes was lost",
            fix="deploy the model again; if nobody ended that process, the machine lacks memory",
        )
    return explain_signs(ended, SIGNS)
