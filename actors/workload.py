"""What every workload's actor is: found in the fold, lived, ended, told once (F19, F25, F37).

The actor's state is the fold's: at each start it looks what the fold says and what really runs, and goes on
from there. Deployments and jobs say what their lives are; this is what is the same of both.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import trio
from msgspec import UNSET, UnsetType

from actors.ending import REVOKED, End, discard, stop_or_sweep
from actors.house import House
from actors.kernel.mailbox import Mailbox
from actors.messages import events as e
from actors.messages.commands import Accepted
from actors.messages.envelope import Fact
from actors.release import not_waited_for, until_released
from actors.state.workloads import Deployment, Job
from actors.state.world import World

W = TypeVar("W", Deployment, Job)


class WorkloadActor(ABC, Generic[W]):
    """One workload from its acceptance to its end."""

    def __init__(self, house: House, identifier: str) -> None:
        self._house = house
        self._id = identifier
        self._end: End | None = None
        # Held while a fact is told: an end that cut in there would not know what had been told.
        self._pen = trio.Lock()

    async def run(self, inbox: Mailbox[End]) -> None:
        """Live until the workload has ended and that was told."""
        workload = await self._kept()
        if workload is not None:
            try:
                await self._live_and_end(workload, inbox)
            finally:
                self._leave()
        await self._complete_ends(workload)
        # Also what is left by an actor that crashed between its last fact and this.
        await discard(self._house, self._id)

    async def give_up(self, crash: BaseException) -> None:
        """End it after repeated crashes, and tell so."""
        workload = self._find(self._house.store.world)
        stopped = True
        if workload is not None:
            stopped = await stop_or_sweep(self._house, self._id)
            note = not_waited_for(workload, is_gone=stopped) or UNSET
            await self._tell(workload, self._given_up(workload, crash, note))
            self._leave()
        await self._complete_ends(workload)
        if stopped:
            await discard(self._house, self._id)

    @abstractmethod
    def _find(self, world: World) -> W | None:
        """What the fold says of it now; None once it has ended."""

    @abstractmethod
    async def _live(self, workload: W) -> None:
        """From where the fold says it is to its own end, told; cancelled when it is asked to end."""

    @abstractmethod
    async def _stop_and_tell(self, workload: W, end: End) -> None:
        """End it for good, then tell so."""

    @abstractmethod
    def _given_up(self, workload: W, crash: BaseException, note: str | UnsetType) -> e.Event:
        """Its last fact where this peer's own part of it kept failing."""

    @abstractmethod
    def _enders(self, world: World) -> Iterable[Accepted]:
        """The commands to end it that have not completed; it looks at all that is unfinished."""

    @abstractmethod
    def _ended_otherwise(self, ender: Accepted) -> Fact:
        """What completes a command to end it that came too late."""

    def _leave(self) -> None:
        """It is gone, or its actor is: nobody may be sent to it any more."""

    async def _live_and_end(self, workload: W, inbox: Mailbox[End]) -> None:
        self._end = await self._wish(workload)
        if self._end is None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, inbox, nursery.cancel_scope)
                await self._live(workload)
                nursery.cancel_scope.cancel("it has ended")
        if self._end is not None and self._find(self._house.store.world) is not None:
            await self._stop_and_tell(workload, self._end)

    async def _wish(self, workload: W) -> End | None:
        """The wish to end that outlived a restart: a command's, or the owner's that took key or device."""
        if await self._ender_of(workload) is not None:
            return End()
        if workload.owners_end is not None:
            return End(workload.owners_end.reason)
        return End(REVOKED) if workload.holder in self._house.store.ring.ending() else None

    async def _listen(self, inbox: Mailbox[End], scope: trio.CancelScope) -> None:
        end = await inbox.receive()
        async with self._pen:
            self._end = end
            scope.cancel("asked to end")

    async def _ender_of(self, workload: W) -> Accepted | None:
        """The command that was accepted to end it, once it is sure that the disk has kept it."""
        ender = workload.ended_by
        if ender is not None:
            await self._house.store.wait_settled(ender.id)
        return workload.ended_by

    async def _complete_ends(self, workload: W | None) -> None:
        """Complete the commands to end it, where it ended in another way meanwhile.

        None: it had ended when the actor began, which then crashed before it came here.
        """
        world = self._house.store.world
        for ender in self._enders(world) if workload is None else (workload.ended_by,):
            if ender is not None:
                await self._house.store.wait_settled(ender.id)
                if ender.id in world.unfinished:
                    await self._tell_facts(self._ended_otherwise(ender))

    async def _memory_note(self, workload: W) -> str | UnsetType:
        """Wait until its card has its memory back; what its last fact says where that is not known."""
        return await until_released(self._house, workload) or UNSET

    async def _tell(self, workload: W, event: e.Event) -> None:
        await self._tell_facts(self._fact(workload, event))

    async def _tell_facts(self, *facts: Fact) -> None:
        async with self._pen:
            await self._house.store.events.tell(*facts)

    def _fact(self, workload: W, event: e.Event) -> Fact:
        return Fact(event, workload.holder, workload.correlation, workload.command)

    async def _kept(self) -> W | None:
        """What the fold says of it, once it is sure that the disk has kept its command."""
        workload = self._find(self._house.store.world)
        if workload is not None:
            await self._house.store.wait_settled(workload.command)
        return self._find(self._house.store.world)
