"""Child specifications: how a supervised task is made, restarted and stopped, as data."""

import enum
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs

from actors.kernel.mailbox import Mailbox


class Restart(enum.Enum):
    """When a child is started again after it ended.

    PERMANENT: always. TRANSIENT: only after a crash. TEMPORARY: never.
    """

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


@attrs.frozen
class Budget:
    """At most `restarts` restarts in any `seconds`; beyond it the supervisor gives the child up."""

    restarts: int = 5
    seconds: float = 60.0


@attrs.frozen
class Backoff:
    """Seconds to wait before a restart: `first`, doubled each time, `most` at most."""

    first: float = 0.05
    most: float = 10.0

    def seconds(self, attempt: int) -> float:
        """The wait before restart number `attempt`, counted from 1."""
        return float(min(self.most, self.first * 2 ** min(attempt - 1, 30)))


class Actor(Protocol):
    """One task with one inbox; its state is its own. Built anew from the fold at each start."""

    async def run(self, inbox: Mailbox[Any]) -> None:
        """Work until done; returning is an ordinary end, raising is a crash."""
        ...


@attrs.frozen
class ChildSpec:
    """A worker's specification.

    Args:
        name: unique among the living.
        make: builds the actor, from the fold, at the first start and each restart.
        restart: when it is started again.
        budget: how often, before it is given up.
        backoff: how long to wait in between.
        grace_seconds: how long a stop waits for the cancelled task to clean up.
        capacity: messages its mailbox may hold.
        exhausted: ends the work of a child that was given up, with a told fact.
    """

    name: str
    make: Callable[[], Actor]
    restart: Restart = Restart.TRANSIENT
    budget: Budget = Budget()
    backoff: Backoff = Backoff()
    grace_seconds: float = 1.0
    capacity: int = 16
    exhausted: Callable[[BaseException], Awaitable[None]] | None = None


class RestartCount:
    """Counts restarts against a budget, on the caller's monotonic clock."""

    __slots__ = ("_budget", "_times", "total")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._times: list[float] = []
        self.total = 0

    def spend(self, now: float) -> int | None:
        """Take one restart at `now`: its number within the window, None when the budget is gone."""
        self._times = [t for t in self._times if now - t < self._budget.seconds]
        if len(self._times) >= self._budget.restarts:
            return None
        self._times.append(now)
        self.total += 1
        return len(self._times)
