"""The log's lines, levels and writer: nothing blocks, nothing leaks, nothing passes for a line (F33, F35)."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import re
import subprocess
import sys
import threading
from typing import TextIO

import pytest

from peer.logs import (
    MAX_WAITING,
    Logs,
    LogSpec,
    LogSpecError,
    configure_logging,
    fields,
    parse_log_spec,
)

KEY = "bp_" + "k" * 43
START = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) \w+ ")
door = logging.getLogger("best_peer.door")
kernel = logging.getLogger("best_peer.kernel")


class Stuck(io.StringIO):
    """A stream that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.released.wait(20)
        return super().write(text)


class Broken(io.StringIO):
    """A stream whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("info", LogSpec()),
        ("debug", LogSpec("debug")),
        ("info,door=warning", LogSpec("info", (("door", "warning"),))),
        ("DOOR=Warning, kernel=debug", LogSpec("info", (("door", "warning"), ("kernel", "debug")))),
        ("log=error,warning", LogSpec("warning", (("log", "error"),))),
    ],
)
def test_log_specifications_are_read(text: str, spec: LogSpec) -> None:
    assert parse_log_spec(text) == spec
    assert parse_log_spec(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    ["", "loud", "info,", "door", "door=", "door=loud", "gate=info", "info,debug", "door=info,door=debug"],
)
def test_what_is_no_log_specification_is_refused(text: str) -> None:
    with pytest.raises(LogSpecError, match="expected"):
        parse_log_spec(text)


def test_a_line_has_time_level_part_message_and_fields() -> None:
    stream = io.StringIO()
    with configure_logging(LogSpec(), stream):
        logging.getLogger("best_peer.door.http").info(
            "taken %d", 2, extra=fields(id="c-1", note='a "b"', n=None)
        )
    assert re.fullmatch(START.pattern + r'taken 2 id=c-1 note="a \\"b\\"" n=-\n', stream.getvalue())


def test_levels_hold_per_part_and_libraries_are_heard_from_warning_up() -> None:
    stream = io.StringIO()
    with configure_logging(parse_log_spec("debug,door=warning"), stream):
        door.info("quiet")
        door.warning("heard")
        kernel.debug("heard too")
        logging.getLogger("httpx").info("GET https://store.example/?signature=1")
        logging.getLogger("hypercorn.error").warning("from a library")
    words = [line.split(" ", 3)[2:] for line in stream.getvalue().splitlines()]
    assert words == [["door", "heard"], ["kernel", "heard too"], ["hypercorn", "from a library"]]


def test_a_traceback_is_kept_and_cannot_pass_for_a_line() -> None:
    stream = io.StringIO()
    with configure_logging(LogSpec(), stream):
        try:
            raise RuntimeError(f"bad\n2026-10-19T12:00:00.000Z INFO door forged {KEY}")
        except RuntimeError:
            kernel.exception("crashed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith(" ERROR kernel crashed")
    assert rest
    assert all(line.startswith("    | ") for line in rest)
    assert "forged" in rest[-1]
    assert KEY not in stream.getvalue()


def test_keys_are_taken_out_of_messages_and_fields_and_line_breaks_escaped() -> None:
    stream = io.StringIO()
    token = "bpa_" + "t" * 43
    with configure_logging(LogSpec(), stream):
        door.info("got %s\nand\u2028more", KEY, extra=fields(key=KEY, token=token, cut="x" * 1010 + KEY))
    [line] = stream.getvalue().splitlines()
    assert "kkkk" not in line
    assert "tttt" not in line
    assert "got [key removed]\\nand\\u2028more" in line


def test_a_record_that_cannot_be_written_in_words_is_named_and_harms_nobody() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise ZeroDivisionError

    stream = io.StringIO()
    with configure_logging(LogSpec(), stream):
        door.info("value", extra=fields(value=Hostile()))
        door.info("%d", "no number")
        door.info("after")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "error=ZeroDivisionError" in lines[0]
    assert "error=TypeError" in lines[1]
    assert lines[2].endswith("after")


def test_a_stuck_stderr_stops_nobody_and_what_was_dropped_is_counted_and_told() -> None:
    stream = Stuck()
    logs = configure_logging(LogSpec(), stream)
    door.info("first")
    assert stream.entered.wait(20)
    for number in range(MAX_WAITING + 25):
        door.info("line %d", number)
    assert logs.statistics().waiting == MAX_WAITING
    assert logs.statistics().dropped == 25
    assert not logs.close(timeout=0.01)
    stream.released.set()
    logs.close(timeout=20)
    lines = stream.getvalue().splitlines()
    assert lines[1].endswith("WARNING log lines dropped count=25")
    assert len(lines) == 1 + 1 + MAX_WAITING


def test_a_gone_reader_costs_lines_and_nothing_else() -> None:
    logs = configure_logging(LogSpec(), Broken())
    door.info("lost")
    assert not logs.close()
    assert logs.statistics().dropped >= 1


def pipe(size: int) -> tuple[int, TextIO]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
    return reader, os.fdopen(writer, "w")


def test_a_non_blocking_stderr_loses_nothing_while_it_is_read() -> None:
    reader, stream = pipe(4096)
    os.set_blocking(stream.fileno(), False)
    logs = configure_logging(LogSpec(), stream)
    for number in range(400):
        door.info("line %d %s", number, "x" * 100)
    with os.fdopen(reader) as source:
        lines = [source.readline() for _ in range(400)]
        assert logs.close(timeout=20)
        stream.close()
    assert all(f"line {number} " in line for number, line in enumerate(lines))


def test_a_process_ends_although_its_stderr_is_stuck() -> None:
    program = (
        "import sys, logging\n"
        "from peer.logs import configure_logging, LogSpec\n"
        "logs = configure_logging(LogSpec())\n"
        "for n in range(3000): logging.getLogger('best_peer.door').info('line %d %s', n, 'x' * 200)\n"
        "print(logs.close(timeout=0.2), flush=True)\n"
    )
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writer, timeout=30, check=False
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"False\n")


def test_closing_gives_the_process_its_logging_back() -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), door.level, logging.getLogger("best_peer").propagate)
    logs: Logs = configure_logging(parse_log_spec("debug,door=error"), io.StringIO())
    assert door.level == logging.ERROR
    logs.close()
    logs.close()
    assert (root.level, list(root.handlers), door.level, logging.getLogger("best_peer").propagate) == before
