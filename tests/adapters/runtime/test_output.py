"""A program's output as a few safe lines."""

from pathlib import Path

import pytest

from adapters.runtime.output import KEPT, SHORTEN_AT, last_lines, read_tail, shorten


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"", ()),
        (b"\n\n", ()),
        (b"one\ntwo", ("one", "two")),
        (b"one\n\ntwo\n", ("one", "", "two")),
        (b"one\r\ntwo\r\n", ("one", "two")),
        (b" 10%\r 50%\r100%\ndone\n", ("100%", "done")),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\n", ("red plain",)),
        (b"bell\x07 tab\there \xff\n", ("bell\ufffd tab here \ufffd",)),
        ("turned \u202eround, caf\u00e9\u00a0au lait".encode(), ("turned \ufffdround, café au lait",)),
    ],
)
def test_lines_are_safe_to_show(raw: bytes, lines: tuple[str, ...]) -> None:
    assert last_lines(raw) == lines


def test_twenty_lines_at_most_are_shown() -> None:
    raw = b"".join(b"%d\n" % number for number in range(50))

    assert last_lines(raw) == tuple(str(number) for number in range(30, 50))


def test_two_thousand_characters_at_most_are_shown() -> None:
    lines = last_lines(b"\n".join(b"x" * 300 for _ in range(20)))

    assert lines == ("x" * 300,) * 6
    assert last_lines(b"y" * 5000 + b"z") == ("y" * 1999 + "z",)


def test_a_tail_begins_with_a_whole_line(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"a" * 20_000 + b"\nwhole\nlast")

    assert read_tail(tmp_path) == ("whole", "last")


def test_a_short_output_is_left_whole(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"x\n" * 100)

    assert not shorten(tmp_path)
    assert (tmp_path / "output").stat().st_size == 200


def test_a_long_output_keeps_its_newest_lines_and_counts_what_it_drops(tmp_path: Path) -> None:
    """docker/for-linux#985: one talkative program filled the disk with what it wrote."""
    output = tmp_path / "output"
    output.write_bytes(b"x" * 99 + b"\n" + b"y" * SHORTEN_AT + b"\nlast\n" + b"z\n" * 1000)

    assert shorten(tmp_path)
    kept = output.read_bytes()
    dropped = 100 + SHORTEN_AT + 1
    assert kept.startswith(b"... %d bytes of older output were dropped ...\nlast\nz\n" % dropped)
    assert len(kept) <= KEPT

    written = dropped + 5 + 2000
    for _ in range(2):
        with output.open("ab") as file:
            file.write(b"y" * SHORTEN_AT + b"\nmore\n")
        written += SHORTEN_AT + 6
        assert shorten(tmp_path)
        assert output.read_bytes() == b"... %d bytes of older output were dropped ...\nmore\n" % (written - 5)


def test_no_output_is_no_error(tmp_path: Path) -> None:
    assert read_tail(tmp_path) == ()
    assert not shorten(tmp_path)
