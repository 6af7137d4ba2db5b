"""Ends the work of keys that were taken back, and tries again until the runtime confirms (F13)."""

import contextlib

import trio

from actors.ending import REVOKED, End
from actors.house import House
from actors.kernel.child import ChildSpec, Restart
from actors.kernel.mailbox import Mailbox, MailboxFull
from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.pull import end_pulls
from actors.state.keys import WorkEnded
from actors.tree import Tree

NAME = "revoker"
RETRY_SECONDS = 5.0


class Revoker:
    """Looks when a key was taken back, and every few seconds while work of such keys still runs.

    Also while the disk has not kept that one was.
    """

    def __init__(self, house: House, tree: Tree) -> None:
        self._house = house
        self._tree = tree
        self._noting: set[str] = set()

    async def run(self, inbox: Mailbox[None]) -> None:
        """Serve for ever."""
        ends = self._tree.registrar.ends
        async with trio.open_nursery() as notes:
            while True:
                for holder in [h for h in self._house.store.ring.ending() if self._end_work(h)]:
                    # Beside this: a disk that hangs over one may not keep the work of the next one running.
                    if holder not in self._noting:
                        self._noting.add(holder)
                        notes.start_soon(self._note_end, holder)
                is_done = ends.keep_again() and not self._house.store.ring.ending()
                wait = float("inf") if is_done else RETRY_SECONDS
                with trio.move_on_after(wait):
                    await inbox.receive()

    def _end_work(self, holder: str) -> bool:
        """Ask what runs under a key to end; whether nothing does any more."""
        world = self._house.store.world
        holding = world.holding(holder)
        deployments, jobs = tuple(holding.deployments), tuple(holding.jobs)
        for deployment in deployments:
            self._tree.end_deployment(deployment, End(REVOKED))
        for job in jobs:
            self._tree.end_job(job, End(REVOKED))
        return not end_pulls(self._house, holder) and not deployments and not jobs

    async def _note_end(self, holder: str) -> None:
        try:
            # Only behind the revoke: alone on the disk it would spare the work of a key that opens again from
            # the next one.
            if await self._tree.registrar.ends.was_kept(holder):
                ended = WorkEnded(holder=holder, at_ms=self._house.clock.now_ms())
                # What is not written down is looked at again until it is.
                with contextlib.suppress(NoRoom, JournalUnavailable):
                    await self._house.store.keys.append(ended)
        finally:
            self._noting.discard(holder)


def revoker_spec(house: House, tree: Tree) -> ChildSpec:
    """How it is supervised: always there."""
    return ChildSpec(NAME, lambda: Revoker(house, tree), restart=Restart.PERMANENT, capacity=1)


def wake_revoker(house: House) -> None:
    """A key was taken back: look now."""
    worker = house.workers.get(NAME)
    if worker is not None:
        with contextlib.suppress(MailboxFull):  # a look is due already
            worker.mailbox.tell_nowait(None)
