"""What a peer leaves running as it stops, and finds again at its next start, as its log tells (F37)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from actors.kernel.child import ChildSpec
from actors.patience import Patience
from adapters.runtime.port import RuntimeUnavailable
from peer.logs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from actors.house import House
    from actors.kernel.mailbox import Mailbox
    from actors.state.workloads import Workload
    from actors.state.world import World

logger = logging.getLogger(f"{ROOT}.peer")

NAME: Final = "found again"
MAX_NAMED: Final = 5
"""Workloads that ended meanwhile which are named."""


@attrs.frozen
class Carried:
    """What there is of work while no peer runs, by what the facts say."""

    deployments: frozenset[str] = frozenset()
    """The ids of those that were started and whose end nobody has asked for."""
    jobs: frozenset[str] = frozenset()
    """As of deployments."""
    ending: int = 0
    """Workloads that are being ended."""
    commands: int = 0
    """Those that are not done, without what began a workload that runs and what ends one."""

    @classmethod
    def of(cls, world: World) -> Self:
        """What the fold knows now."""
        workloads: tuple[Workload, ...] = (*world.deployments.values(), *world.jobs.values())
        started = {each.id for each in workloads if each.started and each.phase != "ending"}
        ending = [each for each in workloads if each.phase == "ending"]
        enders = {each.ended_by.id for each in ending if each.ended_by is not None}
        accounted = started | {each.id for each in ending}
        commands = [
            each
            for each in world.unfinished.values()
            if each.subject not in accounted and each.id not in enders
        ]
        return cls(
            frozenset(started & world.deployments.keys()),
            frozenset(started & world.jobs.keys()),
            len(ending),
            len(commands),
        )

    def __bool__(self) -> bool:
        return bool(self.deployments or self.jobs or self.ending or self.commands)


def left_words(carried: Carried) -> str:
    """What the log is told as a peer stops: what runs on, and what the next start has to do."""
    count = len(carried.deployments) + len(carried.jobs)
    words = "nothing runs on"
    if count:
        verb, them = ("runs", "it") if count == 1 else ("run", "them")
        words = f"{_workloads(carried)} {verb} on, and the next start finds {them} again"
    if carried.ending:
        words += f"; {_counted(carried.ending, 'workload')} being ended, and the next start goes on with that"
    if carried.commands:
        words += f"; {_counted(carried.commands, 'command')} not done, and the next start goes on with that"
    return words


def found_words(carried: Carried, running: Iterable[str]) -> str:
    """What the log is told after a start.

    Args:
        carried: as the facts had it before this start did anything.
        running: the ids of the workloads that do run.
    """
    there = frozenset(running)
    found = Carried(carried.deployments & there, carried.jobs & there)
    lost = sorted((carried.deployments | carried.jobs) - there)
    words = f"found again from before this start: {_workloads(found)}"
    if lost:
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        words += f"; ended meanwhile: {', '.join(lost[:MAX_NAMED])}{more} (best-peer events says how)"
    if carried.ending:
        words += f"; {_counted(carried.ending, 'workload')} being ended"
    if carried.commands:
        words += f"; {_counted(carried.commands, 'command')} gone on with"
    return words


def found_again_spec(house: House, carried: Carried) -> ChildSpec:
    """Looks once, after a start, which workloads run still, and tells the log."""

    class FoundAgain:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            patience = Patience()
            while True:
                try:
                    running = await house.runtime.running()
                except RuntimeUnavailable as away:
                    # Those who end what is left over, and the workloads' own actors, say that it is away.
                    await patience.wait(away)
                else:
                    logger.info("%s", found_words(carried, running))
                    return

    return ChildSpec(NAME, FoundAgain, capacity=0)


def _workloads(carried: Carried) -> str:
    parts = [
        f"{len(each)} {noun}{'' if len(each) == 1 else 's'}"
        for each, noun in ((carried.deployments, "deployment"), (carried.jobs, "job"))
        if each
    ]
    return " and ".join(parts) or "nothing"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun} is" if count == 1 else f"{count} {noun}s are"
