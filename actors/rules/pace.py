"""How fast a key with a share may send new commands (F7)."""

from collections import deque
from math import ceil

from actors.rules.refusal import Refusal

WINDOW_SECONDS = 60.0


class Pace:
    """Counts accepted commands by holder over a sliding minute; memory is bounded by the limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: dict[str, deque[float]] = {}

    def check(self, holder: str, now: float) -> None:
        """Whether one more may be accepted at `now`, on a monotonic clock in seconds.

        Raises:
            Refusal: TOO_MANY_COMMANDS, with the seconds to wait.
        """
        times = self._times.get(holder)
        if times is None:
            return
        while times and now - times[0] >= WINDOW_SECONDS:
            times.popleft()
        if not times:
            del self._times[holder]
        elif len(times) >= self._most:
            wait = max(1, ceil(WINDOW_SECONDS - (now - times[0])))
            raise Refusal(
                "TOO_MANY_COMMANDS",
                f"this key may send {self._most} new commands a minute; wait {wait} s and send it again",
                limit=self._most,
                retry_after_seconds=wait,
            )

    def count(self, holder: str, now: float) -> None:
        """Note an accepted command."""
        self._times.setdefault(holder, deque()).append(now)

    def take_back(self, holder: str) -> None:
        """Uncount the newest: it was not kept after all."""
        times = self._times.get(holder)
        if times:
            times.pop()
