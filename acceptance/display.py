"""What a person sees while the agent works: plain lines, and on a terminal one that moves.

The answer alone goes to standard output, everything else to standard error.
"""

import os
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from acceptance.names import Names

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
BAR_CELLS = 20
LABEL = 9
WIDTH = 78


def printable(text: str) -> str:
    """A text with what is no character for people escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Display:
    """Writes to two streams, terminals or not.

    Nothing secret is shown: `names` hides it. Nothing that a service says moves a terminal's cursor.
    """

    def __init__(self, out: TextIO, answers: TextIO, names: Names) -> None:
        self._out = out
        self._answers = answers
        self._names = names
        self._moves = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._colours = self._moves and "NO_COLOR" not in os.environ
        self._lock = threading.Lock()
        self._moving = ""
        self._bar = ""

    def say(self, label: str, text: str) -> None:
        """One line about what is done."""
        self._line(f"  {self._styled(f'{label:<{LABEL}}', '1')} {printable(text)}")

    def detail(self, text: str) -> None:
        """Lines under the last."""
        for line in textwrap.wrap(printable(self._names.hide(text)), WIDTH):
            self._line(f"  {' ' * LABEL} {self._styled(line, '2')}")

    def fact(self, seconds: float, kind: str, text: str) -> None:
        """One fact as it came."""
        since = self._styled(f"{seconds:6.1f} s", "2")
        self._line(f"  {' ' * LABEL} {since}  {self._styled(kind, '36')}  {printable(text)}".rstrip())

    def answer(self, text: str, counts: Mapping[str, int]) -> None:
        """What was asked for, as it came; set apart where a person reads it."""
        numbers = ", ".join(f"{name} {count}" for name, count in counts.items())
        said = [printable(line) for line in self._names.hide(text.strip()).splitlines()]
        if self._answers.isatty():
            margin = " " * (LABEL + 3)
            body = [f"{margin}│ {line}" for part in said for line in textwrap.wrap(part, WIDTH) or [""]]
            self._answers.write("\n".join(("", *body, f"{margin}  ({numbers})", "", "")))
        else:
            self._answers.write("\n".join((*said, f"({numbers})", "")))
        self._answers.flush()

    def progress(self, percent: int | None) -> None:
        """How far the thing waited for has come; shown while waiting, on a terminal alone."""
        if percent is None:
            self._bar = ""
            return
        percent = max(0, min(100, percent))
        done = percent * BAR_CELLS // 100
        self._bar = f" {'█' * done}{'░' * (BAR_CELLS - done)} {percent} %"

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """While inside, a terminal shows what is waited for, and for how long."""
        self.progress(None)
        if not self._moves:
            yield
            return
        stop = threading.Event()
        mover = threading.Thread(target=self._move, args=(text, stop), daemon=True)
        mover.start()
        try:
            yield
        finally:
            stop.set()
            mover.join()

    def _move(self, text: str, stop: threading.Event) -> None:
        began = time.monotonic()
        turn = 0
        while True:
            waited = time.monotonic() - began
            line = f"  {FRAMES[turn % len(FRAMES)]:<{LABEL}} {text}, {waited:.1f} s{self._bar}"
            with self._lock:
                self._moving = line
                self._out.write(f"\r\x1b[2K{line}")
                self._out.flush()
            turn += 1
            if stop.wait(FRAME_SECONDS):
                break
        with self._lock:
            self._moving = ""
            self._out.write("\r\x1b[2K")
            self._out.flush()

    def _line(self, text: str) -> None:
        shown = self._names.hide(text)
        with self._lock:
            # The moving line gives way and is drawn again under the new one.
            self._out.write(f"\r\x1b[2K{shown}\n{self._moving}" if self._moving else f"{shown}\n")
            self._out.flush()

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text
