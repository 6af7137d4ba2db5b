"""What a caller can mend: a code, what happened, and what to do instead."""

from typing import Any


class Refusal(Exception):
    """Raised when a request is understood and not granted.

    Args:
        code: machine-readable, UPPER_CASE; listed with its HTTP status in `docs/errors.md`.
        message: for people: what happened, what was expected, what to do.
        details: figures and names that a program may use; nothing the caller may not see.
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    @property
    def fix(self) -> str:
        """What to do, where the rule names it apart from the message."""
        fix = self.details.get("fix")
        return fix if isinstance(fix, str) else self.message
