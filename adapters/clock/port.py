"""What the rest of the house knows of wall time."""

from typing import Protocol


class Clock(Protocol):
    """Wall time for facts and for people. Lateness is measured on Trio's clock, never here."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC. May jump either way."""
        ...
