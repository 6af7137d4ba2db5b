"""Who is on a card, as it was looked at last: for admission, for the ends of workloads, for the owner (F18).

What is somebody else's is for the owner's eyes and the peer's own decisions: it is told in no event, no log
line and no answer to a key.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import attrs
import trio

from actors.shared import Shared
from actors.state.workloads import Workload
from adapters.gpu.port import DeviceProcess, Program


@attrs.frozen
class OwnProcess:
    """A program on a card that belongs to one of the peer's workloads."""

    workload: str
    process: DeviceProcess


@attrs.frozen
class CardUse:
    """Who is on a card now.

    Args:
        own: programs of the peer's workloads.
        others: programs of somebody else.
        unsure: programs that may be either: a workload on this card whose processes cannot be told, as those
            of an Ollama that serves its owner as well, or a system that does not say which process is which.
        gone: programs that the driver still lists and that have ended: their memory is being given back, or
            is stuck.
        untold: workloads on this card whose processes cannot be told.
        unlisted: bytes that the driver counts as used and that no program it lists holds, its own part among
            them; None where it does not give all the figures.
    """

    own: tuple[OwnProcess, ...] = ()
    others: tuple[DeviceProcess, ...] = ()
    unsure: tuple[DeviceProcess, ...] = ()
    gone: tuple[DeviceProcess, ...] = ()
    untold: frozenset[str] = frozenset()
    unlisted: int | None = None

    def held_by(self, workload: str) -> int | None:
        """What a workload holds of the card, in bytes; None where that is not known of all of it."""
        if workload in self.untold:
            return None
        sizes = [one.memory_bytes for one in self.of(workload)]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def of(self, workload: str) -> tuple[DeviceProcess, ...]:
        """A workload's programs on the card."""
        return tuple(one.process for one in self.own if one.workload == workload)


FIGURES_SECONDS: Final = 60.0
"""How old a card's figures may be that are compared with those after a workload's end: what no program holds
changes with time, and that would be told as if the workload had left it."""

Named = tuple[int, Program | None]
"""A process for good: its number, and when it started where that is known."""


@attrs.frozen
class Seen:
    """A workload's part of its card, as it was when it was last seen there.

    Args:
        programs: its processes.
        held: bytes they held together; None is unknown.
        unlisted: the card's, at the same time.
        at: when those figures were read, on Trio's clock.
    """

    programs: frozenset[Named]
    held: int | None
    unlisted: int | None
    at: float

    def after(self, before: "Seen | None") -> "Seen":
        """With the figures of an earlier look, where this one lacks any and that is not long ago.

        One answer that a driver left out would else let the workload's end be judged without its memory.
        """
        is_whole = self.held is not None and self.unlisted is not None
        if is_whole or before is None or self.at - before.at > FIGURES_SECONDS:
            return self
        return attrs.evolve(before, programs=self.programs)


Uses = Mapping[str, CardUse | None]
"""By the card's UUID; None where its driver does not say."""


class Looks:
    """Looks at the cards, one at a time, and what they showed of the workloads that live.

    Whoever asks is shown a look that began after that; those who ask meanwhile share the next one.
    """

    def __init__(self) -> None:
        self._shared = Shared[Uses]()
        self._seen: dict[str, Seen] = {}

    async def now(self, look: Callable[[], Awaitable[Uses]]) -> Uses:
        """What a look shows that begins after this call."""
        return await self._shared.now(look)

    def keep(self, workloads: Iterable[Workload], uses: Uses) -> None:
        """Remember what a look showed of those that live, and forget all others."""
        self._seen = dict(self._fresh(workloads, uses))

    def seen(self, workload: str) -> Seen | None:
        """How a workload was when it was last seen on its card; None for one that never was."""
        return self._seen.get(workload)

    def _fresh(self, workloads: Iterable[Workload], uses: Uses) -> Iterable[tuple[str, Seen]]:
        now = trio.current_time()
        for one in workloads:
            before = self._seen.get(one.id)
            use = uses.get(one.device_uuid or "")
            programs = () if use is None else use.of(one.id)
            if use is not None and programs:
                named = frozenset((p.pid, p.program) for p in programs)
                yield one.id, Seen(named, use.held_by(one.id), use.unlisted, now).after(before)
            elif before is not None:
                yield one.id, before
