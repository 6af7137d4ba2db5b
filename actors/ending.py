"""Ending programs for good: a wish to stop is kept until the runtime confirms it (rule 5 of the house)."""

import logging

import attrs
import trio

from actors.house import House
from actors.kernel.child import Backoff, Budget, ChildSpec
from actors.kernel.mailbox import Mailbox
from actors.patience import Patience
from adapters.runtime.port import NotEnded, RuntimeFault, RuntimeUnavailable

logger = logging.getLogger("best_peer.peer")

RETRY_SECONDS = 5.0
"""Between two tries to end a program that was killed and is still there."""

REVOKED = "its credential was taken back by the owner of this machine"


@attrs.frozen
class End:
    """Sent to a workload's actor: end it. The reason is told unless a command asked for it."""

    reason: str | None = None


TRIED_ON = Budget(restarts=1000)
"""More than there can be with a minute between them: what nobody else will end is never given up."""


def named(crash: BaseException) -> str:
    """What a told fact says of a crash: the kinds of error in it, three at most, and nothing they carry."""
    leaves, kinds = [crash], dict[str, None]()
    while leaves and len(kinds) < 3:
        one = leaves.pop(0)
        if isinstance(one, BaseExceptionGroup):
            leaves += one.exceptions
        else:
            kinds[type(one).__name__] = None
    return ", ".join(kinds)


async def stop_for_good(house: House, workload: str) -> None:
    """Return when the program is gone, however often it has to be asked. Ending what does not run is done."""
    said = ""
    while True:
        try:
            await house.runtime.stop(workload, grace_seconds=house.bounds.stop)
        except NotEnded as still:
            # A container engine may be away for days: the same is said once.
            if str(still) != said:
                logger.warning("%s; trying again every %.0f s", still, RETRY_SECONDS)
            said = str(still)
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

    return ChildSpec(f"sweep {workload}", Sweep, budget=TRIED_ON, backoff=Backoff(1, 60), capacity=0)


def orphans_spec(house: House) -> ChildSpec:
    """Looks once, after a start, for programs of this peer that no deployment knows, and has each ended."""

    class Orphans:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            for workload in await _running(house):
                # One started meanwhile is known: a deployment stands in the fold before its program runs.
                if workload not in house.store.world.deployments:
                    logger.warning("%s runs and nothing is known of it: ending it", workload)
                    house.workers.spawn(sweep_spec(house, workload))

    return ChildSpec("orphans", Orphans, capacity=0)


async def _running(house: House) -> tuple[str, ...]:
    """What runs, as soon as that is to be known."""
    patience = Patience()
    while True:
        try:
            return await house.runtime.running()
        except RuntimeUnavailable as away:
            if patience.is_first:
                logger.warning("what is left of before is looked for later: %s", away)
            await patience.wait(away)
