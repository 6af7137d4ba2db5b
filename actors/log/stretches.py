"""A file of facts read in blocks: what stands in it, and what stands between.

A start reads millions of lines, so no Python runs here for each: a block of them is read, checked and decoded
by one call each. Only a block that holds anything else is looked at line by line.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import msgspec

from actors.messages.envelope import Head

BLOCK_BYTES = 1 << 16
"""How much of a file is read at once, so that its lines stay in a core's cache. One line may be longer."""


@attrs.frozen
class Stretch:
    """Facts that stand side by side: where the first begins, their lengths with newlines, their heads."""

    offset: int
    lengths: list[int]
    heads: list[Head]


@attrs.frozen
class Gap:
    """Bytes that are no fact."""

    start: int
    end: int


def stretches_of(path: Path, *, torn_is_fact: bool) -> Iterator[Stretch | Gap]:
    """What stands in a file, from its start to its end, every byte once.

    Args:
        path: the file.
        torn_is_fact: whether a last line without a newline counts where it decodes.

    Raises:
        OSError: the file cannot be read.
    """
    decode = msgspec.json.Decoder(Head).decode
    gap_start, at = -1, 0
    with open(path, "rb", buffering=BLOCK_BYTES) as file:
        while lines := file.readlines(BLOCK_BYTES):
            for found in _read_block(lines, at, decode, torn_is_fact=torn_is_fact):
                if isinstance(found, Gap):
                    # Told when it ends, which may be blocks later.
                    gap_start = found.start if gap_start < 0 else gap_start
                    continue
                if gap_start >= 0:
                    yield Gap(gap_start, found.offset)
                    gap_start = -1
                yield found
            at += sum(map(len, lines))
    if gap_start >= 0:
        yield Gap(gap_start, at)


def _read_block(
    lines: list[bytes], at: int, decode: Callable[[bytes], Head], *, torn_is_fact: bool
) -> Iterator[Stretch | Gap]:
    if (torn_is_fact or lines[-1].endswith(b"\n")) and all(map(bytes.isascii, lines)):
        try:
            heads = list(map(decode, lines))
        except msgspec.DecodeError:
            pass
        else:
            yield Stretch(at, list(map(len, lines)), heads)
            return
    for line in lines:
        is_whole = torn_is_fact or line.endswith(b"\n")
        head = _decoded(line, decode) if is_whole else None
        yield Gap(at, at + len(line)) if head is None else Stretch(at, [len(line)], [head])
        at += len(line)


def _decoded(line: bytes, decode: Callable[[bytes], Head]) -> Head | None:
    try:
        # The decoder skips what it does not need; readers would be served it, text or not.
        if not line.isascii():
            line.decode()
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
