"""What a promise gives of a model."""

from collections.abc import Mapping

import pytest

from adapters.engine.fit import MIB, Fit, Needs, fit, needs_of, served_tokens, why_no_chat
from adapters.engine.port import ModelUnusable, PromiseTooSmall
from adapters.models.gguf import Facts, Value

LLAMA: Mapping[str, Value] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.context_length": 131072,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}


def facts(size: int = 5 * 1024 * MIB, **more: Value) -> Facts:
    values = {**LLAMA, **{key.replace("__", "."): value for key, value in more.items()}}
    return Facts(values, {"tokenizer.ggml.tokens": 128_256}, 291, size)


def test_a_known_model_needs_its_weights_its_cache_and_some_more() -> None:
    needs = needs_of(facts())

    # 32 layers, 8 heads of 128 for keys and for values, two bytes each.
    assert needs.token_bytes == 131_072
    assert 5 * 1024 * MIB < needs.fixed_bytes < 5 * 1024 * MIB + 300 * MIB
    assert needs.slot_bytes == 0
    assert needs.context_tokens == 131_072
    assert needs.least_bytes % MIB == 0


def test_lists_a_layer_and_stated_lengths_count() -> None:
    heads = (8,) * 16 + (0,) * 16
    needs = needs_of(facts(llama__attention__head_count_kv=heads, llama__attention__key_length=64))

    assert needs.token_bytes == 16 * 8 * (64 + 128) * 2


def test_a_recurrent_model_keeps_a_state_a_slot() -> None:
    needs = needs_of(
        facts(
            llama__attention__head_count=0,
            llama__attention__head_count_kv=0,
            llama__ssm__inner_size=1000,
            llama__ssm__state_size=16,
            llama__ssm__conv_kernel=4,
        )
    )

    assert needs.token_bytes == 0
    assert needs.slot_bytes == 32 * 1000 * 20 * 4
    assert fit(needs, needs.least_bytes + 10 * MIB).slots == 4


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"general.architecture": "bert"}, "embedding model"),
        ({"llama.pooling_type": 3}, "embedding model"),
        ({"llama.attention.causal": False}, "embedding model"),
        ({"general.architecture": "clip"}, "only a part of a model"),
        ({"general.type": "adapter"}, "only a part of a model"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"tokenizer.ggml.model": None}, "no tokenizer"),
    ],
)
def test_what_holds_no_conversation_is_refused(more: dict[str, Value], reason: str) -> None:
    values = {key: value for key, value in {**LLAMA, **more}.items() if value is not None}
    made = Facts(values, {}, 1, 1)

    assert reason in (why_no_chat(made) or "")
    with pytest.raises(ModelUnusable, match=reason):
        needs_of(made)


def test_a_model_for_conversations_is_not_refused() -> None:
    assert why_no_chat(facts(llama__pooling_type=0, split__count=1)) is None


@pytest.mark.parametrize("layers", [None, 0, 2**32 - 1])
def test_a_model_that_does_not_say_what_it_is_made_of_is_refused(layers: int | None) -> None:
    with pytest.raises(ModelUnusable, match="does not say its layers"):
        needs_of(facts(llama__block_count=layers))


NEEDS = Needs(fixed_bytes=100 * MIB, slot_bytes=0, token_bytes=1024, context_tokens=16384)


@pytest.mark.parametrize(
    ("spare_kib", "expected"),
    [
        (512, Fit(1, 512)),
        (767, Fit(1, 512)),
        (768, Fit(1, 768)),
        (4096, Fit(1, 4096)),
        (8191, Fit(1, 7936)),
        (8192, Fit(2, 4096)),
        (16384, Fit(4, 4096)),
        (20480, Fit(4, 5120)),
        (10**6, Fit(4, 16384)),
    ],
)
def test_one_conversation_has_a_good_context_before_another_slot_is_made(
    spare_kib: int, expected: Fit
) -> None:
    promise = 100 * MIB + spare_kib * 1024
    found = fit(NEEDS, promise)

    assert found == expected
    assert NEEDS.total(found.slots, found.context_tokens) <= promise


@pytest.mark.parametrize("promise", [0, 1, 100 * MIB, 100 * MIB + 511 * 1024])
def test_a_promise_under_the_least_is_refused_with_it(promise: int) -> None:
    with pytest.raises(PromiseTooSmall) as caught:
        fit(NEEDS, promise)

    assert caught.value.least_bytes == 101 * MIB
    assert fit(NEEDS, caught.value.least_bytes).slots == 1


def test_a_model_of_few_tokens_is_served_with_all_it_has() -> None:
    small = Needs(fixed_bytes=MIB, slot_bytes=0, token_bytes=1024, context_tokens=300)

    found = fit(small, small.least_bytes)

    # llama.cpp takes 512 for 300, and that is what memory is counted for.
    assert small.least_bytes == 2 * MIB
    assert found.context_tokens == 300
    assert served_tokens(found) == found.slots * 512


def test_all_slots_together_are_told_as_one_context() -> None:
    assert served_tokens(Fit(4, 4096)) == 16384


@pytest.mark.parametrize(("spare_mib", "slots"), [(10, 1), (19, 1), (20, 2), (40, 4), (90, 4)])
def test_a_recurrent_models_slots_are_what_its_states_leave_room_for(spare_mib: int, slots: int) -> None:
    needs = Needs(fixed_bytes=100 * MIB, slot_bytes=10 * MIB, token_bytes=0, context_tokens=4096)

    assert fit(needs, (100 + spare_mib) * MIB) == Fit(slots, 4096)
    with pytest.raises(PromiseTooSmall):
        fit(needs, 109 * MIB)
