"""A wall clock that tests and demonstrations set."""

import attrs


@attrs.define
class FakeClock:
    """Stands still until told; may be set backwards, as a real one may."""

    ms: int = 1_796_000_000_000

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Move by `ms` milliseconds; negative is a clock that jumped back."""
        self.ms += ms
