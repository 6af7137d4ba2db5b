"""The code of a sign-in, as a person types it."""

from __future__ import annotations

from actors.codes import normal_user_code
from peer.cli.outcome import Refused
from peer.cli.show import safe


def read_code(text: str) -> str:
    """A code in its own form, ``BCDF-GHJK``.

    Raises:
        Refused: it can be none.
    """
    code = normal_user_code(text)
    if not code:
        raise Refused(f"{safe(text, 40)} is no code: expected eight letters, such as BCDF-GHJK")
    return code
