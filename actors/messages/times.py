"""Times on the wire: RFC 3339, UTC, milliseconds, `Z`. Their text sorts as they do."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    # Not strftime, which writes the year 999 in three digits and so sorts it behind the others.
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def time_text(ms: int) -> str:
    """Milliseconds since the epoch as `2026-10-19T12:00:00.123Z`."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


def time_ms(text: str) -> int:
    """RFC 3339 text with any offset as milliseconds since the epoch.

    Raises:
        ValueError: it is not a time, or has no offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs its offset, Z or +hh:mm")
    return round(moment.timestamp() * 1000)
