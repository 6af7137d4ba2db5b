"""Asking what runs programs while it may be away: what is unknown then is not over (rule 8 of the house)."""

import logging

from actors.house import House
from actors.patience import Patience
from adapters.runtime.port import Handle, RuntimeUnavailable, StartFailed, WorkloadSpec

logger = logging.getLogger("best_peer.engine")

UNAVAILABLE = "RUNTIME_UNAVAILABLE"
"""The code of a start that nobody knows about: it may have happened all the same."""


async def find(house: House, workload: str, *, seconds: float) -> Handle | None:
    """The running program of a workload, None when there is none. What runs it may be away meanwhile.

    Args:
        house: whose runtime is asked.
        workload: its id.
        seconds: for how long at most.

    Raises:
        RuntimeUnavailable: longer than that; nothing is known of the program.
    """
    patience = Patience(seconds)
    while True:
        try:
            return await house.runtime.find(workload)
        except RuntimeUnavailable as away:
            if patience.is_first:
                logger.warning("nothing is known of %s: %s", workload, away)
            await patience.wait(away)


async def start(house: House, spec: WorkloadSpec) -> Handle:
    """Start a workload's program, or find it running. What runs it may be away for `Bounds.away`.

    Raises:
        StartFailed: it could not be started; with `UNAVAILABLE` it may have been.
    """
    patience = Patience(house.bounds.away)
    while True:
        try:
            return await house.runtime.start(spec)
        except StartFailed as fault:
            if fault.code != UNAVAILABLE:
                raise
            if patience.is_first:
                logger.warning("%s waits to be started: %s", spec.workload, fault.reason)
            await patience.wait(fault)
