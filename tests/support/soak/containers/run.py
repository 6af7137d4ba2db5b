"""All kills of a plan, one after the other, on a ground that is made anew now and then."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from tests.standins.images import ollama_image
from tests.support.soak.containers.ground import open_ground
from tests.support.soak.containers.kill import Kill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.docker.bed import DockerBed
    from tests.support.soak.containers.cases import Case, Victim, Work


@attrs.define
class Kills:
    """What the kills came to.

    Args:
        made: how many, by moment, victim and work.
        again: how many peers were killed again in the start that came after.
        ends: what the work came to, how often.
        runs: how often jobs' programs ran.
        facts: how many were told.
        forgotten: processes of containerd's that engines which were killed left of containers that are gone.
    """

    made: Counter[tuple[str, Victim, Work]] = attrs.field(factory=Counter)
    again: int = 0
    ends: Counter[str] = attrs.field(factory=Counter)
    runs: int = 0
    facts: int = 0
    forgotten: int = 0
    seconds: float = 0.0
    problems: list[str] = attrs.field(factory=list)


async def kill_all(
    bed: DockerBed, cases: list[Case], folder: Path, seed: int, say: Callable[[str], None]
) -> Kills:
    """Make every kill of a plan; stops at the first after which something is wrong."""
    kills, begun = Kills(), time.monotonic()
    ollama = ollama_image()
    for is_kept, part in groupby(cases, key=lambda case: case.is_kept):
        chance = random.Random(f"{seed}/noise/{is_kept}")
        here = folder / f"containers-{'kept' if is_kept else 'ended'}"
        async with open_ground(bed, here, ollama, chance, is_kept=is_kept) as ground:
            for case in part:
                number = sum(kills.made.values())
                came = await Kill(ground, case, f"work-{number}").run()
                kills.made[case.moment, case.victim, case.work] += 1
                kills.again += case.again > 0
                kills.ends[came.end] += 1
                kills.seconds = time.monotonic() - begun
                say(f"containers: {number + 1} of {len(cases)}, {kills.seconds:.0f} s: {case}: {came.end}")
                if came.problems:
                    words = ground.peer.log.read_text().splitlines()[-30:]
                    kills.problems += [*came.problems, "\n".join(words)]
                    return kills
            kills.runs += len(ground.runs.told)
            kills.facts += len(ground.facts())
            kills.forgotten += len(ground.forgotten)
    return kills
