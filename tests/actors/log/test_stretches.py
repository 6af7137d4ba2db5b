"""Every byte of a file is in a stretch of facts or in a gap between, whatever stands in it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.log import stretches as module
from actors.log.stretches import Gap, Stretch, stretches_of
from actors.messages.envelope import Head
from tests.support.logs import ENCODER, answered

GOOD = st.builds(
    lambda seq, text: ENCODER.line(answered(text), seq, 1_796_000_000_000),
    st.integers(0, 99),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
ODD = st.one_of(
    st.binary(max_size=80).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from(
        [b"", b"{}", b"[]", b"\0" * 300, b'{"id":"evt-1"', b'{"id":"evt-1","type":"X","time":"\xff"}']
    ),
)


def _is_fact(line: bytes) -> bool:
    try:
        line.decode()
        msgspec.json.decode(line, type=Head)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return False
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lines=st.lists(st.one_of(GOOD, GOOD, GOOD, ODD), max_size=30),
    is_torn=st.booleans(),
    torn_is_fact=st.booleans(),
    block_bytes=st.sampled_from([2, 100, 700, 1 << 16]),
)
def test_it_tells_facts_from_all_else_as_a_look_at_each_line_would(
    tmp_path: Path, lines: list[bytes], is_torn: bool, torn_is_fact: bool, block_bytes: int
) -> None:
    path = tmp_path / "it.jsonl"
    text = b"".join(line + b"\n" for line in lines)
    if is_torn:
        text = text[:-1]
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        found = list(stretches_of(path, torn_is_fact=torn_is_fact))
    at = 0
    facts: dict[int, Head] = {}
    for part in found:
        if isinstance(part, Gap):
            assert part.start == at < part.end
            at = part.end
            continue
        assert part.offset == at
        assert len(part.lengths) == len(part.heads) > 0
        for length, head in zip(part.lengths, part.heads, strict=True):
            facts[at] = head
            at += length
    assert at == len(text)
    for one, other in pairwise(found):
        assert isinstance(one, Stretch) or isinstance(other, Stretch), "two gaps would be one"

    expected: dict[int, bytes] = {}
    offset = 0
    for number, line in enumerate(lines):
        is_whole = torn_is_fact or not is_torn or number < len(lines) - 1
        if _is_fact(line) and is_whole:
            expected[offset] = line
        offset += len(line) + 1
    assert list(facts) == list(expected)
    assert [head.id for head in facts.values()] == [
        msgspec.json.decode(line, type=Head).id for line in expected.values()
    ]


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "it.jsonl").touch()
    assert list(stretches_of(tmp_path / "it.jsonl", torn_is_fact=False)) == []


def test_facts_that_stand_side_by_side_are_read_together(tmp_path: Path) -> None:
    line = ENCODER.line(answered("x"), 0, 0) + b"\n"
    (tmp_path / "it.jsonl").write_bytes(line * 100)
    (stretch,) = stretches_of(tmp_path / "it.jsonl", torn_is_fact=False)
    assert isinstance(stretch, Stretch)
    assert stretch.lengths == [len(line)] * 100
