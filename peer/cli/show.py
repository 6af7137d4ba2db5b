"""What the commands print: words for people, JSON for programs; never a control character from elsewhere.

Agents choose names and labels that end up on the owner's terminal, so every text of theirs passes `safe`.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from peer.log_text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_TEXT: Final = 200
"""Characters of any text that came from elsewhere."""
MAX_SENTENCE: Final = 4000
"""Characters of what says why, or what to do: words to act on are not cut."""
SHORT_ID: Final = 8
"""Characters of an id that tell it apart for the eye."""


def safe(text: object, limit: int = MAX_TEXT) -> str:
    """A text from elsewhere as it may stand on a terminal: bounded, on one line, nothing that acts."""
    return clean(str(text), limit)


def is_terminal(stream: Any) -> bool:
    """Whether a person reads a stream as it is written."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def print_json(value: Any) -> None:
    """One JSON value and a newline on stdout, in ASCII so that no text in it acts on a terminal.

    At once: a command that goes on after it has a reader who waits for it.
    """
    print(json.dumps(value, indent=2 if is_terminal(sys.stdout) else None), flush=True)


def pairs(lines: Iterable[tuple[str, str]], most: int = MAX_TEXT, file: TextIO | None = None) -> None:
    """Print names and values, two columns, values cleaned and bounded, to stdout unless said otherwise."""
    filled = list(lines)
    width = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        print(f"  {name:<{width}}  {safe(value, most)}".rstrip(), file=file)


def can_ask() -> bool:
    """Whether a person can be asked.

    Both ends must be a terminal: an answer that is piped in was not given to this question.
    """
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def confirm(question: str) -> bool:
    """Ask on a terminal, no being the default; where nobody can be asked the answer is yes."""
    if not can_ask():
        return True
    sys.stdout.flush()
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline(64).strip().lower() in ("y", "yes")


def dicts(value: Any) -> list[dict[str, Any]]:
    """The JSON objects of an array; none where there is no array."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def short_id(identifier: str) -> str:
    """An id's beginning, enough to tell it apart: ``dep-AbCdEfGh``."""
    prefix, dash, rest = identifier.partition("-")
    if not dash:
        return safe(identifier, 24)
    return safe(f"{prefix}-{rest[:SHORT_ID]}", 24)


def local_time(moment: datetime) -> str:
    """A moment in this machine's zone: ``2026-10-19 14:00:03``."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def local_time_of_ms(ms: int) -> str:
    """Milliseconds since the epoch in this machine's zone."""
    try:
        return local_time(datetime.fromtimestamp(ms / 1000).astimezone())
    except (ValueError, OverflowError, OSError):
        return "unknown"
