"""What a GGUF model needs of a promise, and what context and slots a promise gives (F18, F19).

llama.cpp holds the weights as they lie in the file, a cache of keys and values for every token of every
slot, and working memory. The first two are exact; the last is bounded from above by what was measured, so
that a deployment stays within what it was promised.
"""

from typing import Final

import attrs

from adapters.engine.port import ModelUnusable, PromiseTooSmall
from adapters.models.gguf import Facts

MIB: Final = 1024 * 1024
PROGRAM_BYTES: Final = 64 * MIB
"""The program with its libraries, its HTTP threads and their first requests; 40 MiB measured."""
WORD_BYTES: Final = 320
"""A word of the vocabulary in the tokenizer's tables and in the samplers of four slots; 290 measured."""
BATCH_TOKENS: Final = 512
"""Tokens of a prompt that llama.cpp works on at once (its `--ubatch-size`, which is left as it is)."""
ACTIVATION_BYTES: Final = 4
ROWS_OF_WIDTH: Final = 6
ROWS_OF_FEED_FORWARD: Final = 3
"""Vectors of the model's width, and of its feed-forward width, that are alive for a token at once."""
CACHE_BYTES: Final = 2
"""Bytes of one number in the key and value cache, 16 bit floating point."""
STATE_BYTES: Final = 4

STEP_TOKENS: Final = 256
"""llama.cpp rounds a slot's context up to a multiple of this."""
LEAST_TOKENS: Final = 512
"""Context below which a conversation is not worth serving, where the model itself has more."""
GOOD_TOKENS: Final = 4096
"""Context that each slot has before memory goes to another slot."""
MAX_SLOTS: Final = 4
"""Conversations answered at once: past that a CPU only divides its time further."""

MAX_SIZE: Final = 1_000_000
"""Layers, or width: what a broken file may say must not cost memory here."""

ENCODERS: Final = frozenset(
    {
        "bert", "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3",
        "eurobert", "gemma-embedding", "t5", "t5encoder",
    }
)  # fmt: skip
"""Architectures that turn text into vectors, or into other text, and continue no conversation."""
PARTS_OF_MODELS: Final = frozenset({"adapter", "mmproj", "vocab", "imatrix", "controlvector"})


@attrs.frozen
class Needs:
    """What a model takes, in bytes: once, for each slot, and for each token of a slot's context."""

    fixed_bytes: int
    slot_bytes: int
    token_bytes: int
    context_tokens: int

    def total(self, slots: int, tokens: int) -> int:
        """Bytes for so many slots of so many tokens."""
        return self.fixed_bytes + slots * (self.slot_bytes + tokens * self.token_bytes)

    @property
    def least_bytes(self) -> int:
        """The smallest promise under which it can be served: one slot, the least context, whole MiB."""
        return -(-self.total(1, _step_up(min(LEAST_TOKENS, self.context_tokens))) // MIB) * MIB


@attrs.frozen
class Fit:
    """Slots, and the context of each in tokens."""

    slots: int
    context_tokens: int


def why_no_chat(facts: Facts) -> str | None:
    """Why a file cannot hold conversations; None when it can.

    A model without a chat template of its own can: llama.cpp then uses a common one.
    """
    kind = facts.values.get("general.type")
    if kind in PARTS_OF_MODELS or facts.architecture == "clip":
        return f"is only a part of a model ({kind or facts.architecture})"
    parts = facts.values.get("split.count")
    if isinstance(parts, int) and parts > 1:
        return f"is one of {parts} parts; join them with llama-gguf-split --merge"
    causal = facts.values.get(f"{facts.architecture}.attention.causal", True)
    if facts.architecture in ENCODERS or facts.number("pooling_type") or causal is False:
        return "is an embedding model and holds no conversations"
    if not facts.has("tokenizer.ggml.model"):
        return "has no tokenizer"
    return None


def needs_of(facts: Facts) -> Needs:
    """What a model needs.

    Raises:
        ModelUnusable: it cannot hold conversations, or does not say what it is made of.
    """
    problem = why_no_chat(facts)
    layers = facts.number("block_count")
    width = facts.number("embedding_length")
    context = facts.number("context_length")
    if problem is None and not (layers and width and context and max(layers, width) <= MAX_SIZE):
        problem = "does not say its layers, width and context, or says what no model has"
    if problem is not None:
        raise ModelUnusable(f"the model {problem}", fix="deploy a model made for conversations")
    assert layers
    assert width
    assert context
    heads = facts.per_layer("attention.head_count", layers) or (1,) * layers
    shared = facts.per_layer("attention.head_count_kv", layers) or heads
    whole = max(1, *heads)
    key = facts.number("attention.key_length", width // whole) or 0
    value = facts.number("attention.value_length", width // whole) or 0
    feed_forward = max(facts.per_layer("feed_forward_length", layers) or (4 * width,))
    words = max(facts.lengths.get("tokenizer.ggml.tokens", 0), facts.number("vocab_size") or 0)
    activations = ROWS_OF_WIDTH * width + ROWS_OF_FEED_FORWARD * feed_forward
    return Needs(
        fixed_bytes=facts.size_bytes
        + PROGRAM_BYTES
        + words * WORD_BYTES
        + BATCH_TOKENS * ACTIVATION_BYTES * activations,
        slot_bytes=_state_bytes(facts, layers),
        token_bytes=sum(shared) * (key + value) * CACHE_BYTES,
        context_tokens=context,
    )


def fit(needs: Needs, memory_bytes: int) -> Fit:
    """The slots and context that a promise gives: first a good context for one, then more slots.

    Raises:
        PromiseTooSmall: not even the least context fits.
    """
    most = _step_up(needs.context_tokens)
    least = min(_step_up(LEAST_TOKENS), most)
    good = min(GOOD_TOKENS, most)
    for slots in range(MAX_SLOTS, 0, -1):
        tokens = most
        if needs.token_bytes:
            left = (memory_bytes - needs.fixed_bytes) // slots - needs.slot_bytes
            tokens = min(most, left // needs.token_bytes // STEP_TOKENS * STEP_TOKENS)
        fits = needs.total(slots, tokens) <= memory_bytes
        if fits and tokens >= (good if slots > 1 else least):
            return Fit(slots, min(tokens, needs.context_tokens))
    raise PromiseTooSmall(
        f"the model needs {needs.least_bytes} bytes at least and was promised {memory_bytes}",
        fix=f"send memory_bytes of {needs.least_bytes} or more, or deploy a smaller model",
        least_bytes=needs.least_bytes,
    )


def served_tokens(found: Fit) -> int:
    """What llama.cpp is told as its whole context: it divides that by the slots."""
    return found.slots * _step_up(found.context_tokens)


def _state_bytes(facts: Facts, layers: int) -> int:
    """The state that a recurrent model keeps for each conversation."""
    inner = facts.number("ssm.inner_size", 0) or 0
    state = facts.number("ssm.state_size", 0) or 0
    kernel = facts.number("ssm.conv_kernel", 0) or 0
    return layers * inner * (state + kernel) * STATE_BYTES


def _step_up(tokens: int) -> int:
    return -(-tokens // STEP_TOKENS) * STEP_TOKENS
