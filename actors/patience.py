"""How long what runs programs may be away: unknown is a state, and one that passes (rule 8 of the house)."""

import math

import attrs
import trio

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0
"""Between two tries, doubled from the first up to the longest."""

DOUBLED_AT_MOST = 16
"""By then it is the longest; a power of what may go on for days would not be a number any more."""


@attrs.define(eq=False)
class Patience:
    """Waits between two tries of what did not answer, until it has been away for too long at a stretch.

    Args:
        seconds: how long that is; without end where it is not given.
    """

    seconds: float = math.inf
    _since: float | None = attrs.field(default=None, init=False)
    _tries: int = attrs.field(default=0, init=False)

    @property
    def is_first(self) -> bool:
        """Whether it has answered since it was last waited for: the moment to say so in the log."""
        return self._since is None

    def answered(self) -> None:
        """It is there: the next absence is counted from its own start."""
        self._since = None
        self._tries = 0

    async def wait(self, why: Exception) -> None:
        """Return when it is time to try again.

        Args:
            why: what was raised for want of an answer.

        Raises:
            Exception: `why` itself, once it has been away for too long.
        """
        now = trio.current_time()
        if self._since is None:
            self._since = now
        left = self._since + self.seconds - now
        if left <= 0:
            raise why
        pause = FIRST_WAIT_SECONDS * 2.0 ** min(self._tries, DOUBLED_AT_MOST)
        self._tries += 1
        await trio.sleep(min(pause, LONGEST_WAIT_SECONDS, left))
