"""The facts of a GGUF file that decide whether and how it can be served (GGUF versions 2 and 3).

The file comes from anywhere, so every length in it is checked against the bytes that are there, and the
tensors against the file's end: a file that was copied half way is found before anything is promised.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from adapters.models.faults import NotAModel, NotReadable

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_HEADER: Final = 256 * 1024 * 1024
"""Bytes before the tensors; a vocabulary of a quarter million words with its merges takes 16 MiB."""
MAX_PAIRS: Final = 65_536
MAX_TENSORS: Final = 65_536
MAX_KEY: Final = 65_535
MAX_TEXT: Final = 512
"""Bytes of a text value that are kept; longer ones, chat templates among them, only count as present."""
MAX_LIST: Final = 4096
"""Numbers of an array that are kept, one a layer; longer ones only count."""
MAX_DIMENSIONS: Final = 8
ALIGNMENT: Final = 32

Value = int | float | bool | str | tuple[int, ...] | None

_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_TEXT: Final = 8
_ARRAY: Final = 9
_ARCHITECTURE: Final = "general.architecture"
_LAYERS: Final = ".block_count"
"""What every architecture's own keys have one of."""
_MAX_SHOWN: Final = 40
TENSOR_SIZES: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8),
    29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Of each ggml tensor type: numbers in a block, and bytes of it. An unknown type is not measured."""


@attrs.frozen
class Facts:
    """What a GGUF file says of itself, as far as it was asked. `lengths` are those of its arrays."""

    values: Mapping[str, Value]
    lengths: Mapping[str, int]
    tensors: int
    size_bytes: int

    @property
    def architecture(self) -> str:
        """`llama`, `qwen3`, ...: the prefix of the model's own keys."""
        found = self.values.get(_ARCHITECTURE)
        return found if isinstance(found, str) else ""

    def number(self, key: str, default: int | None = None) -> int | None:
        """A whole number under `<architecture>.<key>`."""
        found = self.values.get(f"{self.architecture}.{key}")
        return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default

    def per_layer(self, key: str, layers: int) -> tuple[int, ...] | None:
        """A number a layer under `<architecture>.<key>`, whether the file says one for all or a list."""
        found = self.values.get(f"{self.architecture}.{key}")
        if isinstance(found, tuple):
            return found[:layers] + found[-1:] * (layers - len(found)) if found else None
        single = self.number(key)
        return None if single is None else (single,) * layers

    def has(self, key: str) -> bool:
        """Whether the file has this full key at all."""
        return key in self.values or key in self.lengths


def read_facts(path: Path, name: str | None = None) -> Facts:
    """Read what a GGUF file says of itself. Blocks: tenths of a second for a large vocabulary.

    Args:
        path: the file.
        name: what errors call it; its own name where not said.

    Raises:
        NotAModel: it is no GGUF file, of an unknown version, broken or cut short.
        NotReadable: the system does not let it be read.
    """
    try:
        with path.open("rb") as file:
            return _Reader(file, name or path.name).read()
    except OSError as error:
        raise NotReadable(
            f"{name or path.name} cannot be read: {error.strerror or error}",
            fix="let the user that runs the peer read it",
        ) from error


class _Reader:
    """Reads forward through one file; every read is bounded by what is left of it."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._size = file.seek(0, 2)
        self._end = min(self._size, MAX_HEADER)
        self._at = 0
        file.seek(0)

    def read(self) -> Facts:
        if self._size < len(MAGIC) or self._take(4) != MAGIC:
            raise NotAModel(
                f"{self._name} is no GGUF file",
                fix="take a model in the GGUF format: its file begins with the letters GGUF",
            )
        version = self._number("<I")
        if version not in VERSIONS:
            raise NotAModel(
                f"{self._name} is GGUF of version {version}; this peer reads 2 and 3, little-endian",
                fix="convert the model anew with today's llama.cpp",
            )
        tensors = self._count("<Q", MAX_TENSORS, "tensors")
        pairs = self._count("<Q", MAX_PAIRS, "metadata pairs")
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(pairs):
            key = self._key()
            kind = int(self._number("<I"))
            if kind == _ARRAY:
                lengths[key], kept = self._array()
                if kept is not None:
                    values[key] = kept
            else:
                values[key] = self._value(kind)
        self._check_tensors(tensors, values)
        self._check_architecture(values)
        return Facts(values, lengths, tensors, self._size)

    def _check_architecture(self, values: Mapping[str, Value]) -> None:
        """Hold the architecture to the keys it is the prefix of: the model's facts stand under them."""
        others = [key.removesuffix(_LAYERS) for key in values if key.endswith(_LAYERS)]
        found = values.get(_ARCHITECTURE)
        if others and found not in others:
            said = _shown(found) if isinstance(found, str) else "nothing"
            raise self._broken(
                f"it calls its architecture {said}, and its keys are those of {_shown(others[0])}"
            )

    def _check_tensors(self, count: int, values: Mapping[str, Value]) -> None:
        last = 0
        for _ in range(count):
            self._key()
            dimensions = self._count("<I", MAX_DIMENSIONS, "dimensions")
            numbers = 1
            for _ in range(dimensions):
                numbers *= int(self._number("<Q"))
            block, size = TENSOR_SIZES.get(int(self._number("<I")), (1, 0))
            last = max(last, int(self._number("<Q")) + -(-numbers // block) * size)
        alignment = values.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= MAX_KEY:
            raise self._broken("its alignment is no number")
        needed = -(-self._at // alignment) * alignment + last if count else 0
        if needed > self._size:
            raise NotAModel(
                f"{self._name} is incomplete: it has {self._size} bytes of {needed}",
                fix="copy or fetch the file again, to its end",
            )

    def _array(self) -> tuple[int, tuple[int, ...] | None]:
        kind = int(self._number("<I"))
        length = self._count("<Q", self._end, "values")
        if kind == _TEXT:
            self._skip_texts(length)
            return length, None
        code = _SCALARS.get(kind)
        if code is None:
            raise self._broken(f"an array of the unknown type {kind}")
        if length > MAX_LIST or code in ("<f", "<d"):
            self._skip(length * struct.calcsize(code))
            return length, None
        raw = self._take(length * struct.calcsize(code))
        return length, tuple(int(one) for (one,) in struct.iter_unpack(code, raw))

    def _value(self, kind: int) -> Value:
        if kind == _TEXT:
            length = self._count("<Q", self._end, "bytes of text")
            if length > MAX_TEXT:
                self._skip(length)
                return None
            return self._take(length).decode("utf-8", "replace")
        code = _SCALARS.get(kind)
        if code is None:
            raise self._broken(f"a value of the unknown type {kind}")
        found: Value = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        return found

    def _skip_texts(self, count: int) -> None:
        """Walk over an array of texts: a vocabulary is the one long thing before the tensors."""
        for _ in range(count):
            self._skip(self._count("<Q", self._end, "bytes of text"))

    def _key(self) -> str:
        return self._take(self._count("<Q", MAX_KEY, "bytes of a name")).decode("utf-8", "replace")

    def _number(self, code: str) -> int:
        found: int = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        return found

    def _count(self, code: str, most: int, what: str) -> int:
        found = self._number(code)
        if found > most:
            raise self._broken(f"it speaks of {found} {what}")
        return found

    def _take(self, size: int) -> bytes:
        self._advance(size)
        raw = self._file.read(size)
        if len(raw) < size:
            raise self._broken("it became shorter while it was read")
        return raw

    def _skip(self, size: int) -> None:
        self._advance(size)
        self._file.seek(size, 1)

    def _advance(self, size: int) -> None:
        self._at += size
        if self._at > self._end:
            raise self._broken("it ends before its own description does")

    def _broken(self, what: str) -> NotAModel:
        return NotAModel(f"{self._name} is broken: {what}", fix="copy or fetch the file again")


def _shown(name: str) -> str:
    """A name out of a file, which may hold anything."""
    return ascii(name[:_MAX_SHOWN])
