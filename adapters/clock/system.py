"""The machine's own wall clock."""

import time

import attrs


@attrs.frozen
class SystemClock:
    """Reads the operating system's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return time.time_ns() // 1_000_000
