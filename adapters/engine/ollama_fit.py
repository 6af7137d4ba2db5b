"""What a promise gives an Ollama: the context of each conversation, and how many it holds at once."""

from typing import Final

import attrs

from adapters.engine.fit import Fit, fit, needs_of, why_no_chat
from adapters.engine.port import ModelUnusable, PromiseTooSmall
from adapters.models.ollama_store import NAMED, StoredModel

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
LEAST_BYTES: Final = 128 * MIB
"""The smallest promise that is taken for a model of which nothing is known yet."""
CARD_BYTES: Final = 512 * MIB
"""What a card's own libraries take of a promise, beside what the model takes on a CPU."""

LEAST: Final = Fit(1, 4096)
SIZES: Final = ((48 * GIB, Fit(4, 32_768)), (24 * GIB, Fit(2, 16_384)), (12 * GIB, Fit(2, 8192)))
"""For a model of which nothing is known yet, by the promise. The cache of one of eight thousand million
parameters then takes a third of it at most, and commonly a sixth."""


def fit_promise(stored: StoredModel | None, memory_bytes: int) -> Fit:
    """Context and slots for a promise: by what the model is made of, or by its size while that is unknown.

    Args:
        stored: the model as the store holds it, None for one that is to be pulled.
        memory_bytes: the promise.

    Raises:
        PromiseTooSmall: the model cannot be served so.
    """
    if memory_bytes < LEAST_BYTES:
        raise PromiseTooSmall(
            f"no model can be served within {memory_bytes} bytes",
            fix=f"send memory_bytes of {LEAST_BYTES} or more",
            least_bytes=LEAST_BYTES,
        )
    if stored is not None and stored.facts is not None:
        try:
            needs = needs_of(stored.facts)
        except ModelUnusable:
            pass  # It does not say what it is made of; Ollama may know its kind all the same.
        else:
            # Projectors and adapters are loaded beside the weights.
            beside = max(0, stored.weights_bytes - stored.facts.size_bytes)
            needs = attrs.evolve(needs, fixed_bytes=needs.fixed_bytes + beside)
            least = fit(needs, memory_bytes)
            try:
                return fit(needs, memory_bytes - min(CARD_BYTES, memory_bytes // 8))
            except PromiseTooSmall:
                return least
    return next((found for least_bytes, found in SIZES if memory_bytes >= least_bytes), LEAST)


def check_stored(stored: StoredModel) -> None:
    """Refuse a model of the store that can hold no conversation.

    Raises:
        ModelUnusable: so it is.
    """
    problem = _why_not(stored)
    if problem is not None:
        raise ModelUnusable(
            f"the model {stored.name.short}, which is in {NAMED}, {problem}",
            fix="deploy a model made for conversations",
        )


def _why_not(stored: StoredModel) -> str | None:
    embedding = "is an embedding model and holds no conversations"
    if stored.is_remote:
        return "is served by other machines"
    if stored.facts is None:
        return embedding if "bert" in stored.family else None
    # Ollama itself goes by this key, whatever it says.
    if stored.facts.has(f"{stored.facts.architecture}.pooling_type"):
        return embedding
    return why_no_chat(stored.facts)
