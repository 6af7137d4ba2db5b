"""What an owner may ask of a hold: how long, and with which words (F29)."""

from typing import Final

from actors.rules.refusal import Refusal

MOST_SECONDS: Final = 366 * 86_400
"""The longest that a hold may be said to last. One without an end lasts until it is released."""

MOST_REASON: Final = 200
"""Characters of a reason."""


def check_until(until_ms: int, now_ms: int) -> None:
    """See that a hold's end is one.

    Raises:
        Refusal: INVALID_HOLD.
    """
    if until_ms <= now_ms:
        raise _invalid("until is past already; name a time to come, or leave it out and release by hand")
    if until_ms > now_ms + MOST_SECONDS * 1000:
        raise _invalid("a hold ends within 366 days; name an end within them, or none and release by hand")


def clean_reason(text: str | None) -> str | None:
    """A reason as every approved client may read it: one line, nothing that acts on a terminal; None is none.

    Raises:
        Refusal: INVALID_HOLD.
    """
    cleaned = " ".join((text or "").split())
    if len(cleaned) > MOST_REASON:
        raise _invalid(
            f"a reason is one line of {MOST_REASON} characters at most, and this has {len(cleaned)}; "
            "say it shorter"
        )
    unprintable = next((each for each in cleaned if not each.isprintable()), None)
    if unprintable is not None:
        raise _invalid(
            f"a reason is printable characters alone, and this has U+{ord(unprintable):04X}; leave that out"
        )
    return cleaned or None


def _invalid(message: str) -> Refusal:
    return Refusal("INVALID_HOLD", message)
