"""Writes a real model of half a megabyte: its words are noise, all else of it is true."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH = 64
LAYERS = 2
HEADS = 4
SHARED_HEADS = 2
FEED_FORWARD = 128
CONTEXT = 512
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
"""A token a byte, so that the length of a prompt is known."""

_WORDS = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
_UNKNOWN, _CONTROL, _BYTE = 2, 3, 6


def write_tiny_model(
    path: Path,
    *,
    context: int = CONTEXT,
    template: str | None = TEMPLATE,
    architecture: str = "llama",
    extra: dict[str, Any] | None = None,
) -> Path:
    """A llama of two layers with a vocabulary of bytes.

    Args:
        path: where to write it.
        context: the context it says it has.
        template: its chat template, None for none.
        architecture: what it says it is; only a `llama` can be loaded.
        extra: whole numbers and booleans under further keys.
    """
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name("tiny")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_WORDS)
    writer.add_token_scores([0.0] * len(_WORDS))
    writer.add_token_types([_UNKNOWN, _CONTROL, _CONTROL] + [_BYTE] * 256)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    if template is not None:
        writer.add_chat_template(template)
    for key, value in (extra or {}).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        else:
            writer.add_string(key, value)
    _add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensors(writer: Any) -> None:
    random = np.random.default_rng(7)

    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, (random.standard_normal((rows, columns)) * 0.05).astype(np.float32))

    def ones(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    shared = WIDTH // HEADS * SHARED_HEADS
    matrix("token_embd.weight", len(_WORDS), WIDTH)
    ones("output_norm.weight")
    matrix("output.weight", len(_WORDS), WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight")
        matrix(f"{block}.attn_q.weight", WIDTH, WIDTH)
        matrix(f"{block}.attn_k.weight", shared, WIDTH)
        matrix(f"{block}.attn_v.weight", shared, WIDTH)
        matrix(f"{block}.attn_output.weight", WIDTH, WIDTH)
        ones(f"{block}.ffn_norm.weight")
        matrix(f"{block}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        matrix(f"{block}.ffn_up.weight", FEED_FORWARD, WIDTH)
        matrix(f"{block}.ffn_down.weight", WIDTH, FEED_FORWARD)
