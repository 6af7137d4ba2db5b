"""One look at a time at what costs something to look at, shared by those who ask meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs
import trio

T = TypeVar("T")


@attrs.frozen
class _Look(Generic[T]):
    """A look that ended: the how manyth that was begun, when that was on Trio's clock, and what it showed."""

    number: int
    began: float
    shown: T


class Shared(Generic[T]):
    """Looks, and what the last one showed. One that is cancelled or fails shows nothing to anybody else."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._begun = 0
        self._latest: _Look[T] | None = None

    async def now(self, look: Callable[[], Awaitable[T]]) -> T:
        """What a look shows that begins after this call; those who ask meanwhile share the next one."""
        return await self._from(self._begun + 1, look)

    async def recent(self, seconds: float, look: Callable[[], Awaitable[T]]) -> T:
        """What a look shows that began at most so many seconds ago, or is in hand, or begins now."""
        latest = self.latest(seconds)
        if latest is not None:
            await trio.lowlevel.checkpoint()
            return latest
        return await self._from(self._begun + (0 if self._lock.locked() else 1), look)

    def latest(self, seconds: float) -> T | None:
        """What the last look showed, if it began at most so many seconds ago. Never a checkpoint."""
        last = self._latest
        return None if last is None or trio.current_time() - last.began > seconds else last.shown

    async def _from(self, number: int, look: Callable[[], Awaitable[T]]) -> T:
        async with self._lock:
            last = self._latest
            if last is None or last.number < number:
                self._begun += 1
                last = _Look(self._begun, trio.current_time(), await look())
                self._latest = last
            return last.shown
