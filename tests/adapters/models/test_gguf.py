"""Reading what a GGUF file says, whole, broken or hostile."""

import struct
from pathlib import Path

import gguf
import pytest

from adapters.models.faults import NotAModel, NotReadable
from adapters.models.gguf import TENSOR_SIZES, read_facts
from tests.support.tinymodel import write_tiny_model


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(pairs: int, tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def written(folder: Path, raw: bytes) -> Path:
    path = folder / "made.gguf"
    path.write_bytes(raw)
    return path


def test_a_model_is_read(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", extra={"general.type": "model", "llama.flag": True})

    facts = read_facts(path)

    assert facts.architecture == "llama"
    assert facts.size_bytes == path.stat().st_size
    assert facts.number("context_length") == 512
    assert facts.number("flag") is None
    assert facts.number("missing", 7) == 7
    assert facts.values["general.type"] == "model"
    assert facts.lengths["tokenizer.ggml.tokens"] == 259
    assert facts.has("tokenizer.chat_template")
    assert not facts.has("tokenizer.other")
    assert facts.tensors == 21


@pytest.mark.parametrize(
    ("was", "is_now", "said"),
    [
        (text("llama"), text("llamb"), "calls its architecture 'llamb'"),
        (text("llama"), text("\x1b[2Ja"), r"calls its architecture '\\x1b\[2Ja'"),
        (text("general.architecture"), text("general.architexture"), "calls its architecture nothing"),
    ],
)
def test_an_architecture_that_is_not_that_of_its_keys_is_said_and_cannot_act(
    tmp_path: Path, was: bytes, is_now: bytes, said: str
) -> None:
    whole = write_tiny_model(tmp_path / "tiny.gguf").read_bytes()

    with pytest.raises(NotAModel, match=f"{said}, and its keys are those of 'llama'") as caught:
        read_facts(written(tmp_path, whole.replace(was, is_now, 1)))

    assert caught.value.reason.isprintable()


def test_a_number_a_layer_may_be_one_or_a_list(tmp_path: Path) -> None:
    raw = (
        header(3)
        + text("general.architecture") + struct.pack("<I", 8) + text("llama")
        + text("llama.heads") + struct.pack("<IIQ", 9, 4, 2) + struct.pack("<II", 8, 4)
        + text("llama.layers") + struct.pack("<II", 4, 3)
    )  # fmt: skip

    facts = read_facts(written(tmp_path, raw))

    assert facts.per_layer("heads", 2) == (8, 4)
    assert facts.per_layer("heads", 4) == (8, 4, 4, 4)
    assert facts.per_layer("layers", 2) == (3, 3)
    assert facts.per_layer("missing", 2) is None


def test_a_long_text_counts_as_present_and_is_not_kept(tmp_path: Path) -> None:
    raw = header(1, version=2) + text("tokenizer.chat_template") + struct.pack("<I", 8) + text("x" * 10_000)

    facts = read_facts(written(tmp_path, raw))

    assert facts.has("tokenizer.chat_template")
    assert facts.values["tokenizer.chat_template"] is None


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "no GGUF file"),
        (b"GG", "no GGUF file"),
        (b"PK\x03\x04" + b"x" * 100, "no GGUF file"),
        (header(0, version=1), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
        (b"GGUF\x03", "ends before"),
        (header(1), "ends before"),
        (header(1) + text("key"), "ends before"),
        (header(2**40), "1099511627776 metadata pairs"),
        (header(0, tensors=2**40), "1099511627776 tensors"),
        (header(1) + struct.pack("<Q", 2**62), "bytes of a name"),
        (header(1) + text("key") + struct.pack("<IQ", 8, 2**62), "bytes of text"),
        (header(1) + text("key") + struct.pack("<I", 99), "unknown type 99"),
        (header(1) + text("key") + struct.pack("<IIQ", 9, 9, 1), "array of the unknown type 9"),
        (header(1) + text("key") + struct.pack("<IIQ", 9, 10, 2**50) + b"x" * 100, "values"),
        (header(1) + text("key") + struct.pack("<IIQ", 9, 10, 20) + b"x" * 100, "ends before"),
        (header(1) + text("key") + struct.pack("<IIQ", 9, 8, 20) + text("one"), "ends before"),
        (header(1) + text("general.alignment") + struct.pack("<II", 4, 0), "alignment"),
        (header(0, tensors=1) + text("t") + struct.pack("<I", 99), "99 dimensions"),
        (header(0, tensors=1) + text("t") + struct.pack("<IQIQ", 1, 100, 0, 0), "is incomplete"),
        (header(0, tensors=1) + text("t") + struct.pack("<IQIQ", 1, 1, 0, 2**60), "is incomplete"),
    ],
)
def test_what_is_no_model_is_refused_with_the_reason(tmp_path: Path, raw: bytes, reason: str) -> None:
    with pytest.raises(NotAModel, match=reason) as caught:
        read_facts(written(tmp_path, raw))

    assert caught.value.reason.startswith("made.gguf")
    assert caught.value.fix


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "tiny.gguf").read_bytes()

    for size in (10, 100, 2_000, len(whole) // 2, len(whole) - 64):
        with pytest.raises(NotAModel):
            read_facts(written(tmp_path, whole[:size]))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match=r"none.gguf cannot be read: No such file"):
        read_facts(tmp_path / "none.gguf")


def test_tensor_sizes_are_those_of_the_format() -> None:
    stated = {int(kind): tuple(sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}

    assert {kind: sizes for kind, sizes in TENSOR_SIZES.items() if stated[kind] != sizes} == {}
