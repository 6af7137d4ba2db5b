"""What the end of an engine's program means, read from its exit code and its last lines."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from adapters.engine.port import EngineEnded, EngineFault, EngineOutOfMemory, ModelUnusable, PortTaken
from adapters.runtime.port import Exit

MAX_WORDS: Final = 300
"""Characters of a program's own words in a reason."""

_STAMP: Final = re.compile(r"[0-9.]+ [A-Z] +")
"""How today's llama.cpp begins its lines: the time since its start, and a level."""
_AGAIN: Final = "deploy the model again"
_CODES: Final = {
    None: ("the engine ended; its exit code is not known", _AGAIN),
    0: ("the engine ended by itself", _AGAIN),
    # 128 and the signal: illegal instruction, killed, asked to end.
    132: (
        "the engine's program is built for another processor (illegal instruction)",
        "install a build for this machine's processor",
    ),
    137: (
        "the engine was killed by signal 9; nobody recorded why, want of memory is the usual cause",
        f"{_AGAIN} if somebody killed it; else free memory on the machine, or deploy a smaller model",
    ),
    143: ("the engine was asked to end by another program", _AGAIN),
}


def _out_of_memory(words: str) -> EngineFault:
    return EngineOutOfMemory(
        f"the engine got no more memory{words}",
        fix="free memory on the machine, or deploy a smaller model",
    )


def _port_taken(words: str) -> EngineFault:
    return PortTaken(f"another program took the engine's port{words}", fix="deploy the model again")


def _no_file(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model's file is gone or cannot be read{words}",
        fix="look with best-peer models, and add the model again",
    )


def _broken(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model's file is broken or incomplete{words}",
        fix="remove the model and add it again from its source, with its digest",
    )


def _damaged(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model's file is damaged, or made for another version of llama.cpp{words}",
        fix="remove the model and add it again from its source, with its digest; if that is the same, "
        "take another build of the model",
    )


def _template(words: str) -> EngineFault:
    return ModelUnusable(
        f"the model's chat template cannot be used{words}",
        fix="take another build of the model, or deploy another model",
    )


def _too_new(words: str) -> EngineFault:
    return ModelUnusable(
        f"this llama.cpp does not know the model's kind{words}",
        fix="update llama-server or the xllamacpp package, or deploy another model",
    )


def _too_old(words: str) -> EngineFault:
    return EngineEnded(
        f"this llama-server does not know an option that the peer needs{words}",
        fix="update llama-server, or unset BEST_PEER_LLAMA_SERVER to use the xllamacpp package",
    )


def _cannot_load(words: str) -> EngineFault:
    return EngineEnded(
        f"the engine's program lacks a library{words}",
        fix="install llama-server or the xllamacpp package again",
    )


LLAMACPP_SIGNS: Final[tuple[tuple[tuple[str, ...], Callable[[str], EngineFault]], ...]] = (
    # A file that is cut short fails to allocate nothing, and a cache that does not fit is no broken file:
    # the more telling sign stands first.
    (("couldn't bind", "address already in use"), _port_taken),
    (("no such file or directory", "permission denied"), _no_file),
    (
        ("invalid magic", "corrupted or incomplete", "failed to read magic", "unexpectedly reached end"),
        _broken,
    ),
    (("jinja exception", "chat template parsing error", "failed to initialize chat template"), _template),
    (("unknown model architecture", "unknown pre-tokenizer", "unknown tokenizer"), _too_new),
    (
        (
            "failed to allocate",
            "unable to allocate",
            "out of memory",
            "bad_alloc",
            "memoryerror",
            "cannot allocate memory",
        ),
        _out_of_memory,
    ),
    (
        (
            "check_tensor_dims",
            "missing tensor",
            "wrong number of tensors",
            "duplicate tensor name",
            "invalid ggml type",
            "has offset",
            "key not found in model",
            "cannot find tokenizer",
        ),
        _damaged,
    ),
    # What names no reason of its own; the loader's other refusals are about the file as well.
    (("error loading model",), _damaged),
    (("error: invalid argument", "unrecognized arguments"), _too_old),
    (("error while loading shared libraries", "no module named", "cannot open shared object"), _cannot_load),
)
"""Words that llama.cpp's servers end with, in the order they are looked for."""


def explain_llamacpp(ended: Exit) -> EngineFault:
    """The end of a llama.cpp server that nobody asked for, as a fault that is told and not raised."""
    lines = tuple(_STAMP.sub("", line) for line in ended.output)
    return explain_signs(attrs.evolve(ended, output=lines), LLAMACPP_SIGNS)


def explain_signs(
    ended: Exit, signs: Sequence[tuple[Sequence[str], Callable[[str], EngineFault]]]
) -> EngineFault:
    """The end of any program by the first sign that is in its last lines, the newest line first.

    Args:
        ended: how it ended.
        signs: words in small letters, and what they mean; the more telling stand first.
    """
    if ended.out_of_memory:
        return explain_code(ended)
    for texts, make in signs:
        for line in reversed((*ended.before, *ended.output)):
            if any(text in line.lower() for text in texts):
                return make(f": {line.strip()[:MAX_WORDS]}")
    return explain_code(ended)


def explain_code(ended: Exit) -> EngineFault:
    """What an exit code alone says of any engine."""
    if ended.out_of_memory:
        return _out_of_memory(": the system ended it")
    last = next((line.strip()[:MAX_WORDS] for line in reversed(ended.output) if line.strip()), None)
    words = "" if last is None else f"; it said last: {last}"
    reason, fix = _CODES.get(
        ended.code, (f"the engine failed with code {ended.code}", "mend that and deploy the model again")
    )
    return EngineEnded(f"{reason}{words}", fix=fix)
