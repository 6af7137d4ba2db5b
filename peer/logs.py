"""The peer's log: lines on stderr, written by a thread of its own (F33 ``BEST_PEER_LOG``, F35).

A line is ``2026-10-19T12:00:00.123Z INFO door message key=value``. Parts of the peer log under
``best_peer.<part>``; structured values travel as ``extra={"fields": {...}}``, which `fields` makes.

Nothing here may stop the event loop: whoever logs only appends to a bounded queue, and one thread writes.
When stderr is not read, lines past the queue are dropped and counted, and the count is a line of its own as
soon as one fits.
"""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self, TextIO

import attrs

from peer.log_text import clean, field_text, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "best_peer"
"""The logger above every part's: ``best_peer.<part>``."""
PARTS: Final = ("door", "log", "kernel", "engine", "runtime", "signin", "peer")
"""What may be given a level of its own."""
LEVELS: Final = ("debug", "info", "warning", "error")
SPEC_EXPECTED: Final = f"a level ({', '.join(LEVELS)}), and part=level for {', '.join(PARTS)}"

MAX_WAITING: Final = 4096
"""Lines that may wait for the writer; past it they are dropped and counted."""
MAX_MESSAGE: Final = 4096
"""Characters of a message."""
MAX_FIELD: Final = 1024
"""Characters of one field's value."""
MAX_FIELDS: Final = 32
MAX_TRACE: Final = 16384
"""Characters of a traceback; its end, which names the error, is what stays."""
CLOSE_SECONDS: Final = 2.0
"""How long `Logs.close` waits for what is queued, inside the five seconds a stop may take."""


class LogSpecError(ValueError):
    """Raised when a text is no log specification; the text says what is."""


@attrs.frozen
class LogSpec:
    """How loud the log is: a level for everything, and others for single parts."""

    level: str = "info"
    parts: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return ",".join([self.level, *(f"{part}={level}" for part, level in self.parts)])


def parse_log_spec(text: str) -> LogSpec:
    """Read ``info,door=warning``: a level and, per part, another.

    Raises:
        LogSpecError: an entry is neither, or is there twice.
    """
    level = ""
    parts: dict[str, str] = {}
    for entry in text.lower().split(","):
        name, equals, value = (piece.strip() for piece in entry.partition("="))
        known = name in PARTS and value in LEVELS if equals else name in LEVELS
        if not known:
            raise LogSpecError(f"expected {SPEC_EXPECTED}")
        if name in parts or (not equals and level):
            raise LogSpecError(f"expected each part once and one level, {name!r} is one too many")
        if equals:
            parts[name] = value
        else:
            level = name
    return LogSpec(level or "info", tuple(parts.items()))


def fields(**values: object) -> dict[str, Mapping[str, object]]:
    """Structured values for a log call: ``log.info("told", extra=fields(facts=3))`` ends in ``facts=3``."""
    return {"fields": values}


@attrs.frozen
class LogStatistics:
    """What became of the lines so far."""

    written: int
    dropped: int
    """Lines lost because stderr was not read or could not be written."""
    waiting: int


class LineFormatter(logging.Formatter):
    """A record as one line, and its traceback, if any, as lines that cannot be taken for records.

    Every text is bounded, loses what looks like a key, and has its control characters escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write the record; the line has no newline at its end."""
        names = record.name.split(".")
        part = names[1] if names[0] == ROOT and len(names) > 1 else names[0]
        line = f"{stamp(record.created)} {record.levelname} {clean(part, 64)} "
        line += clean(record.getMessage(), MAX_MESSAGE)
        values: Mapping[str, object] = getattr(record, "fields", None) or {}
        for name, value in list(values.items())[:MAX_FIELDS]:
            line += f" {clean(name, 64)}={field_text(value, MAX_FIELD)}"
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            tail = trace if len(trace) <= MAX_TRACE else f"...\n{trace[-MAX_TRACE:]}"
            line += "".join(f"\n    | {clean(text, MAX_MESSAGE)}" for text in tail.splitlines())
        return line


class Logs:
    """The logging of this process while it is configured; `close` gives everything back as it was.

    Made by `configure_logging`. A context manager: leaving it closes.
    """

    def __init__(self, spec: LogSpec, stream: TextIO) -> None:
        self._writer = _Writer(stream)
        self._handler = _Handler(self._writer)
        self._before: list[tuple[logging.Logger, int, bool]] = []
        ours = logging.getLogger(ROOT)
        # What libraries say below a warning stays out: httpx would tell URLs, presigned ones too.
        quiet = max(logging.WARNING, _number(spec.level))
        self._set(logging.getLogger(), quiet, propagate=True)
        self._set(ours, _number(spec.level), propagate=False)
        chosen = dict(spec.parts)
        for part in PARTS:
            level = _number(chosen[part]) if part in chosen else logging.NOTSET
            self._set(logging.getLogger(f"{ROOT}.{part}"), level, propagate=True)
        self._handled = (logging.getLogger(), ours)
        for logger in self._handled:
            logger.addHandler(self._handler)

    def statistics(self) -> LogStatistics:
        """How many lines were written and dropped, and how many wait."""
        return self._writer.statistics()

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Write what waits, for ``timeout`` seconds at most, and stop; whether every line was written.

        Blocks its thread for that long when stderr is stuck, so it is the last thing a process does. Doing it
        twice is safe.
        """
        for logger in self._handled:
            logger.removeHandler(self._handler)
        while self._before:
            logger, level, propagate = self._before.pop()
            logger.setLevel(level)
            logger.propagate = propagate
        return self._writer.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _set(self, logger: logging.Logger, level: int, *, propagate: bool) -> None:
        self._before.append((logger, logger.level, logger.propagate))
        logger.setLevel(level)
        logger.propagate = propagate


def configure_logging(spec: LogSpec, stream: TextIO | None = None) -> Logs:
    """Send this process's log to ``stream`` (stderr when not given) at the levels of ``spec``.

    Logging is the process's own, so only its entry point does this, once; the caller closes what it gets.
    """
    return Logs(spec, sys.stderr if stream is None else stream)


class _Handler(logging.Handler):
    """Turns a record into its line where it is logged, so that nothing mutable waits in the queue."""

    def __init__(self, writer: _Writer) -> None:
        super().__init__()
        self._writer = writer
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        # The log is the process's edge: a value's own __str__ may raise anything, a log call raises nothing.
        except Exception as error:  # noqa: BLE001
            where = field_text(f"{record.name}:{record.lineno}", 128)
            line = f"{stamp(record.created)} ERROR log record not written where={where}"
            line += f" error={type(error).__name__}"
        self._writer.offer(line)


class _Writer:
    """One thread that writes lines, and the bounded queue before it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = _descriptor(stream)
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._written = 0
        self._dropped = 0
        self._untold = 0
        self._closing = False
        # A daemon: the process may end while a write to a stuck stderr never returns.
        self._thread = threading.Thread(target=self._run, name="best-peer log", daemon=True)
        self._thread.start()

    def offer(self, line: str) -> None:
        with self._changed:
            if self._closing or len(self._lines) >= MAX_WAITING:
                self._drop()
            else:
                self._lines.append(line)
                self._changed.notify()

    def statistics(self) -> LogStatistics:
        with self._changed:
            return LogStatistics(self._written, self._dropped, len(self._lines))

    def close(self, timeout: float) -> bool:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            return not self._thread.is_alive() and not self._dropped

    def _drop(self) -> None:
        self._dropped += 1
        self._untold += 1

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closing)
                untold, self._untold = self._untold, 0
                line = self._lines.popleft() if self._lines else None
            if untold and not self._write(f"{stamp(time.time())} WARNING log lines dropped count={untold}"):
                with self._changed:
                    self._untold += untold
            if line is None:
                return
            done = self._write(line)
            with self._changed:
                if done:
                    self._written += 1
                else:
                    self._drop()

    def _write(self, line: str) -> bool:
        try:
            if self._fd is None:
                self._stream.write(line + "\n")
                self._stream.flush()
            else:
                _write_all(self._fd, f"{line}\n".encode("utf-8", "backslashreplace"))
        except (OSError, ValueError):
            # The reader is gone or the stream was closed: there is nowhere left to say so.
            return False
        return True


def _descriptor(stream: TextIO) -> int | None:
    """The stream's file descriptor, if it has one.

    Written to directly: a thread stuck inside ``sys.stderr`` would hold its lock, and the interpreter aborts
    when it then cannot flush it at exit.
    """
    try:
        return stream.fileno()
    except (io.UnsupportedOperation, AttributeError, ValueError):
        return None


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            # Whoever shares the terminal may have made it non-blocking.
            ready = select.poll()
            ready.register(fd, select.POLLOUT)
            ready.poll(1000)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
