"""What may stand in a log line: bounded, on one line, and never a key (F35).

Everything a client sends can reach the log, so no text enters it as it came.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Final

REMOVED: Final = "[key removed]"
# Keys are bp_ and 43 url-safe characters, the admin token bpa_ and device codes bpd_ and as many.
_SECRET = re.compile(r"bp[ad]?_[A-Za-z0-9_-]{43,}")
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+", re.ASCII)


def stamp(seconds: float) -> str:
    """Wall time as a line begins with it: ``2026-10-19T12:00:00.123Z``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def without_keys(text: str) -> str:
    """The text with whatever looks like a key taken out. A second line of defence: none should come here."""
    return _SECRET.sub(REMOVED, text)


def clean(text: str, limit: int) -> str:
    """A text for people on one line: no key, nothing unprintable, ``limit`` characters at most."""
    # Cut after the keys are gone, or a key across the cut would leave most of itself behind.
    safe = cut(without_keys(text), limit)
    return safe if safe.isprintable() else "".join(map(_escaped, safe))


def field_text(value: object, limit: int) -> str:
    """A field's value: plain where it is ASCII with no space, quote, backslash or ``=``, else a JSON string.

    What is beyond ASCII is escaped, so that the value can be read back and hides nothing on a terminal.
    """
    if value is None:
        return "-"
    text = cut(without_keys(str(value)), limit)
    if _PLAIN.fullmatch(text):
        return text
    return json.dumps(text).replace("\x7f", "\\u007f")


def cut(text: str, limit: int) -> str:
    """The text's first ``limit`` characters, and how many there were."""
    return text if len(text) <= limit else f"{text[:limit]}...({len(text)} characters)"


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
