"""What the agent writes: names for what chance made, nothing secret, nothing longer than it need be."""

import io
import json
from pathlib import Path

import pytest

from acceptance.__main__ import read_arguments
from acceptance.display import Display, printable
from acceptance.names import Names
from acceptance.problems import Unreachable
from acceptance.recipe import likeness
from acceptance.shorten import LONGEST_TEXT, pretty, readable, shorten
from acceptance.transcript import Transcript


class Terminal(io.StringIO):
    """A text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_secret_is_hidden_before_a_text_is_cut() -> None:
    names = Names()
    names.keep_secret("bp_0123456789abcdef", "key")
    transcript = Transcript(names)
    transcript.answer(
        200, "application/json", {"config": "x" * (LONGEST_TEXT - 8) + "bp_0123456789abcdef" * 4}
    )
    assert "bp_" not in transcript.text()


def test_a_secret_that_could_be_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        Names().keep_secret("a", "key")


def test_ids_are_numbered_in_the_order_they_came_and_times_have_one_name() -> None:
    names = Names()
    names.learn({"room": "room-0123456789abcdef", "list": [{"other": "room-fedcba9876543210"}]})
    text = "room-fedcba9876543210 room-0123456789abcdef 2026-10-19T12:00:00.123Z room-x"
    assert names.apply(text) == "<room 2> <room 1> <time> room-x"


def test_one_name_within_another_leaves_nothing_standing() -> None:
    names = Names()
    names.number("abcdefgh", "event")
    names.number("abcdefgh-and-more", "event")
    assert names.apply("abcdefgh-and-more abcdefgh") == "<event 2> <event 1>"


def test_long_texts_and_lists_are_cut_and_say_so() -> None:
    cut = shorten(
        {"text": "x" * 500, "list": [{"n": n} for n in range(9)], "deep": {"a": {"b": {"c": {"d": 1}}}}}
    )
    assert cut["text"].endswith(f"… ({500 - LONGEST_TEXT} more)")
    assert cut["list"][-1] == "… (5 more)"
    assert cut["deep"] == {"a": {"b": {"c": "{…}"}}}


def test_pretty_is_the_same_document() -> None:
    document = {"a": [1, {"b": "ü" * 90}], "c": {}, "d": [], "e": None, "f": {"g": [True, "x" * 80]}}
    assert json.loads(pretty(document)) == document
    assert max(len(line) for line in pretty(document).splitlines()) <= 110


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("memory_bytes", 209715200, "200 MiB"),
        ("bytes", 0, "0 bytes"),
        ("bytes", 1 << 50, "1024 TiB"),
        ("tokens", 5000, "5000"),
        ("bytes", None, "None"),
        ("is_bytes", True, "True"),
    ],
)
def test_sizes_are_shown_as_sizes(name: str, value: object, shown: str) -> None:
    assert readable(name, value) == shown


def test_a_transcript_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="cannot be written to"):
        Transcript(Names()).write(tmp_path)


def test_a_fence_in_an_answer_stays_inside_its_quote() -> None:
    transcript = Transcript(Names())
    transcript.quote("```\n# not a heading\n```")
    assert all(line.startswith(">") for line in transcript.text().strip().splitlines())


def test_likeness_counts_words_and_not_their_endings() -> None:
    entry = {"id": "serve-a-model", "name": "Serve a model and prompt it", "description": "Ask it questions."}
    assert likeness("please ask the served models a question", entry) == 4
    assert likeness("pay my fine", entry) == 0


def test_what_a_service_says_moves_no_cursor() -> None:
    assert printable("a\x1b[2Jb\r\x9bc ü") == "a\\x1b[2Jb\\r\\x9bc ü"
    out, answers = Terminal(), Terminal()
    display = Display(out, answers, Names())
    display.fact(1.0, "Told", "\x1b]0;title\x07")
    display.answer("one\x1b[31m\ntwo", {})
    assert "\x1b]0" not in out.getvalue()
    assert "\x1b" not in answers.getvalue()
    assert "│ two" in answers.getvalue()


def test_a_terminal_sees_what_is_waited_for_and_a_file_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for out, moves in ((Terminal(), True), (io.StringIO(), False)):
        display = Display(out, io.StringIO(), Names())
        with display.waiting("waiting for it"):
            display.say("said", "meanwhile")
        assert ("waiting for it" in out.getvalue()) is moves
        assert "meanwhile" in out.getvalue()


def test_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    display = Display(out, io.StringIO(), Names())
    display.progress(140)
    assert display._bar.endswith("100 %")
    display.progress(None)
    assert display._bar == ""


@pytest.mark.parametrize(
    "arguments",
    [["--with", "memory"], ["--with", "memory=lots"], ["--connection", "Not One Word"], []],
)
def test_a_call_that_makes_no_sense_ends_with_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    address = ["https://there.example"] if arguments else []
    with pytest.raises(SystemExit) as ended:
        read_arguments([*address, *arguments])
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_sizes_are_read_as_people_say_them() -> None:
    order, _, _ = read_arguments(["https://there.example", "--with", "memory=512M", "--with", "heat=0.5"])
    assert order.wishes.numbers == {"memory": 512 * 1024 * 1024, "heat": 0.5}
