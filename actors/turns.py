"""Turns in the order they were asked for, so many at once (F23).

Trio's own limiter is fair to tasks, not to commands: tasks started together run in no certain order, so what
was accepted first could ask last. Here the place in the line is taken when the command is accepted.
"""

from collections import OrderedDict
from types import TracebackType

import trio


class Turn:
    """A place in the line. `async with` waits for the turn and gives it back."""

    __slots__ = ("_turns", "come")

    def __init__(self, turns: "Turns") -> None:
        self._turns = turns
        self.come = trio.Event()

    async def __aenter__(self) -> None:
        try:
            await self.come.wait()
        except BaseException:
            self.give_back()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Let the next have it, or leave the line; twice is harmless."""
        self._turns._leave(self)  # noqa: SLF001 - one thing in two classes


class Turns:
    """A line before so many places."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        # In order, and left from anywhere at the same cost: a stop cancels thousands.
        self._waiting: OrderedDict[Turn, None] = OrderedDict()
        self._taken: set[Turn] = set()

    def line_up(self) -> Turn:
        """Take the next place in the line. Never a checkpoint."""
        turn = Turn(self)
        self._waiting[turn] = None
        self._call()
        return turn

    def statistics(self) -> tuple[int, int]:
        """How many have their turn, and how many wait."""
        return len(self._taken), len(self._waiting)

    def _call(self) -> None:
        while self._free and self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            self._free -= 1
            self._taken.add(turn)
            turn.come.set()

    def _leave(self, turn: Turn) -> None:
        if turn in self._taken:
            self._taken.remove(turn)
            self._free += 1
            self._call()
        else:
            self._waiting.pop(turn, None)
