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


async def stop_or_sweep(house: House, workload: str) -> bool:
    """End a program whose actor is given up; whether it ended.

    Its work ends though its program may not: that is then tried on apart.
    """
    try:
        await house.runtime.stop(workload, grace_seconds=house.bounds.stop)
    except Exception:
        logger.exception("%s could not be stopped; that is tried on", workload)
        house.workers.spawn(sweep_spec(house, workload))
        return False
    return True


async def discard(house: House, workload: str) -> None:
    """Remove what is kept of a workload that has ended and whose end was told.

    What cannot be removed costs room on a disk and nothing else, so it is said and let be. What runs programs
    may be away, and is waited for.
    """
    patience = Patience()
    while True:
        try:
            await house.runtime.discard(workload)
        except RuntimeUnavailable as away:
            if patience.is_first:
                logger.warning("%s is removed later: %s", workload, away)
            await patience.wait(away)
        except RuntimeFault as fault:
            logger.warning("%s", fault)
            return
        else:
            return


def sweep_spec(house: House, workload: str) -> ChildSpec:
    """Ends a program that runs and belongs to no workload; the door does not wait for it."""

    class Sweep:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            await stop_for_good(house, workload)
            await discard(house, workload)

    return ChildSpec(f"sweep {workload}", Sweep, budget=TRIED_ON, backoff=Backoff(1, 60), capacity=0)


def orphans_spec(house: House) -> ChildSpec:
    """Looks once, after a start, for what is kept of workloads that no fact knows of any more.

    What runs is ended; what has ended is removed: its peer was killed between its last fact and that.
    """

    class Orphans:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            kept, running = await self._look()
            for workload in kept:
                # One made meanwhile is known: a workload stands in the fold before anything is made for it.
                if _is_known(house, workload):
                    continue
                if workload in running:
                    logger.warning("%s runs and nothing is known of it: ending it", workload)
                    house.workers.spawn(sweep_spec(house, workload))
                else:
                    logger.info("%s has ended and was not removed: removing it", workload)
                    await discard(house, workload)

        async def _look(self) -> tuple[tuple[str, ...], frozenset[str]]:
            patience = Patience()
            while True:
                try:
                    return await house.runtime.kept(), frozenset(await house.runtime.running())
                except RuntimeUnavailable as away:
                    if patience.is_first:
                        logger.warning("what is left of earlier workloads is not known yet: %s", away)
                    await patience.wait(away)

    return ChildSpec("orphans", Orphans, capacity=0)


def _is_known(house: House, workload: str) -> bool:
    world = house.store.world
    return workload in world.deployments or workload in world.jobs
