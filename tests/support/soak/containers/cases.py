"""Who is killed, when, and under what; and what is right to be told afterwards."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Literal, get_args

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

Work = Literal["deploy", "job"]
Victim = Literal["peer", "engine", "registry"]
Phase = Literal["start of pull", "mid-pull", "created", "starting", "running", "exiting"]
Way = Literal["", "ended", "stopping", "removing", "back", "away"]

WORKS: tuple[Work, ...] = get_args(Work)
VICTIMS: tuple[Victim, ...] = get_args(Victim)
PHASES: tuple[Phase, ...] = get_args(Phase)
PULLS = PHASES[:2]
EXITS: tuple[Way, ...] = ("ended", "stopping", "removing")
MOMENTS = (*PHASES[:-1], *(f"exiting, {way}" for way in EXITS))
"""Phases, with the ways of the last told apart."""

ROUNDS = 2
"""Each kill is made with an engine whose containers outlive it, and with one whose containers do not."""

FULL = len(WORKS) * len(VICTIMS) * len(PHASES) * ROUNDS

NO_REGISTRY = frozenset({"REGISTRY_UNREACHABLE", "PULL_FAILED"})


@attrs.frozen
class Case:
    """One kill.

    Args:
        work: what is under way.
        victim: who is killed.
        phase: how far the work has come by then.
        is_kept: the engine leaves its containers running when it ends (`--live-restore`).
        way: of the end, where `phase` is exiting: it ended by itself and the peer has not heard of it; it was
            told to stop and the peer has no answer; its end is told and the container is still there. Of a
            registry that is killed under a pull: it comes back at once, or once the work is over.
        again: a peer is killed again that long after it was started anew; 0 where it is not.
        pause: how long the victim is away, in seconds.
    """

    work: Work
    victim: Victim
    phase: Phase
    is_kept: bool
    way: Way = ""
    again: float = 0.0
    pause: float = 0.0

    def __str__(self) -> str:
        how = f", {self.way}" if self.way else ""
        again = f", killed again after {self.again:.2f} s" if self.again else ""
        return f"{self.victim} killed under a {self.work}: {self.phase}{how}, kept={self.is_kept}{again}"

    @property
    def moment(self) -> str:
        """Which of `MOMENTS` it is."""
        return f"{self.phase}, {self.way}" if self.is_over else self.phase

    @property
    def is_over(self) -> bool:
        """Whether the work was ending already."""
        return self.phase == "exiting"

    @property
    def may_break_off(self) -> bool:
        """Whether the kill takes the container with it."""
        return self.victim == "engine" and not self.is_kept and self.phase in ("starting", "running")

    def right_ends(self) -> frozenset[str]:
        """Facts of which one is right as the last of the work's own; a deploy that goes on is ready."""
        is_job = self.work == "job"
        if self.way == "stopping":
            return frozenset({"JobStopped" if is_job else "Undeployed"})
        if self.way == "removing":
            return frozenset({"JobFinished" if is_job else "Undeployed"})
        if self.way == "ended":
            return frozenset({"JobFinished" if is_job else "DeploymentEnded"})
        if self.way == "away":
            return frozenset({"JobFailed" if is_job else "DeploymentFailed"})
        goes_well = {"JobFinished" if is_job else "DeploymentReady"}
        if self.way == "back":
            # Docker may have noticed, or have asked again when it was back.
            return frozenset(goes_well | {"JobFailed" if is_job else "DeploymentFailed"})
        if not self.may_break_off:
            return frozenset(goes_well)
        if is_job:
            return frozenset({"JobFailed"})
        if self.phase == "running":
            return frozenset({"DeploymentEnded"})
        # The peer did not know that it had been started; it may start it again, a job never.
        return frozenset(goes_well | {"DeploymentFailed"})

    def right_codes(self) -> frozenset[str]:
        """Codes of which one is right in a failure."""
        if self.way in ("back", "away"):
            return NO_REGISTRY
        return frozenset({"INTERRUPTED", "ENGINE_ENDED", "START_FAILED"})


def cases_of(seed: int, count: int) -> list[Case]:
    """So many cases, six of which meet every phase, both works and each victim; `FULL` are all of them."""
    chance = random.Random(f"{seed}/containers")
    works = chance.sample(WORKS, len(WORKS))
    victims = chance.sample(VICTIMS, len(VICTIMS))
    phases = chance.sample(PHASES, len(PHASES))
    is_kept = chance.random() < 0.5
    cases: list[Case] = []
    for number in range(count):
        turn, place = divmod(number, len(phases))
        all_met, shift = divmod(turn, len(WORKS) * len(VICTIMS))
        work = works[(place + shift // len(victims)) % len(works)]
        victim, phase = victims[(place + shift) % len(victims)], phases[place]
        cases.append(
            Case(
                work,
                victim,
                phase,
                is_kept=is_kept != (all_met % ROUNDS == 1),
                way=_way(chance, victim, phase),
                again=chance.uniform(0.05, 1.2) if victim == "peer" and chance.random() < 0.25 else 0.0,
                pause=chance.choice((0.0, 0.3, 1.5)),
            )
        )
    return cases


def _way(chance: random.Random, victim: Victim, phase: Phase) -> Way:
    ways: Sequence[Way] = ("",)
    if phase == "exiting":
        ways = EXITS
    elif victim == "registry" and phase in PULLS:
        ways = ("back", "away")
    return chance.choice(ways)
