"""Ending programs for good: a wish to stop is kept until the runtime confirms it (rule 5 of the house)."""

import logging

import trio

from actors.house import House
from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Mailbox
from adapters.runtime.port import NotEnded, RuntimeFault

logger = logging.getLogger("best_peer.peer")

RETRY_SECONDS = 5.0
"""Between two tries to end a program that was killed and is still there."""


async def stop_for_good(house: House, workload: str) -> None:
    """Return when the program is gone, however often it has to be asked. Ending what does not run is done."""
    while True:
        try:
            await house.runtime.stop(workload, grace_seconds=house.bounds.stop)
        except NotEnded as still:
            logger.warning("%s; trying again in %.0f s", still, RETRY_SECONDS)
            await trio.sleep(RETRY_SECONDS)
        else:
            return


async def discard(house: House, workload: str) -> None:
    """Remove what is kept of a workload that has ended and whose end was told.

    What cannot be removed costs room on a disk and nothing else, so it is said and let be.
    """
    try:
        await house.runtime.discard(workload)
    except RuntimeFault as fault:
        logger.warning("%s", fault)


def sweep_spec(house: House, workload: str) -> ChildSpec:
    """Ends a program that runs and belongs to no workload; the door does not wait for it."""

    class Sweep:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            await stop_for_good(house, workload)
            await discard(house, workload)

    return ChildSpec(f"sweep {workload}", Sweep, capacity=0)
