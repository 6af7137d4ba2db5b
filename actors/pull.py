"""A pull-image: fetches the image whatever is held, and tells how that goes (F22)."""

import contextlib

import trio

from actors.ending import named
from actors.house import House
from actors.image import ensure_image
from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Mailbox, MailboxFull
from actors.messages import events as e
from actors.messages.commands import Accepted, PullImage
from actors.messages.envelope import Fact
from adapters.images.port import ImageFault

REVOKED = ("KEY_REVOKED", "its credential was taken back by the owner of this machine", "ask for another key")


def pull_spec(house: House, accepted: Accepted) -> ChildSpec:
    """How a pull is supervised. After a crash or a restart it begins anew."""

    async def exhausted(crash: BaseException) -> None:
        await PullActor(house, accepted).give_up(crash)

    return ChildSpec(
        name=_name(accepted),
        make=lambda: PullActor(house, accepted),
        capacity=1,
        exhausted=exhausted,
    )


def end_pulls(house: House, holder: str) -> bool:
    """Ask every pull-image of a holder to end, since the key was taken back; False when there is none."""
    pulls = [
        accepted
        for accepted in house.store.world.unfinished.values()
        if accepted.holder == holder and isinstance(accepted.body, PullImage)
    ]
    for accepted in pulls:
        worker = house.workers.get(_name(accepted))
        if worker is not None:
            with contextlib.suppress(MailboxFull):  # asked before, it knows
                worker.mailbox.tell_nowait(None)
    return bool(pulls)


def _name(accepted: Accepted) -> str:
    return f"command {accepted.id}"


class PullActor:
    """One pull-image from its acceptance to its end."""

    def __init__(self, house: House, accepted: Accepted) -> None:
        assert isinstance(accepted.body, PullImage)
        self._house = house
        self._accepted = accepted
        self._image = accepted.body.image
        # Held while a fact is told: an end that cut in there would not know what had been told.
        self._pen = trio.Lock()

    async def run(self, inbox: Mailbox[None]) -> None:
        """Fetch it, and tell its end."""
        if not self._is_open():
            return
        is_ending = self._accepted.holder in self._house.store.ring.ending()
        if not is_ending:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, inbox, nursery.cancel_scope)
                await self._pull()
                nursery.cancel_scope.cancel("it has ended")
        if self._is_open():
            await self._fail(*REVOKED)

    async def give_up(self, crash: BaseException) -> None:
        """Fail it after repeated crashes."""
        if self._is_open():
            await self._fail("INTERNAL", f"this peer failed over it: {named(crash)}", "send it again")

    async def _listen(self, inbox: Mailbox[None], scope: trio.CancelScope) -> None:
        await inbox.receive()
        async with self._pen:
            scope.cancel("its key was taken back")

    async def _pull(self) -> None:
        try:
            await ensure_image(self._house, self._image, self._tell, afresh=True)
        except ImageFault as fault:
            await self._fail(fault.code, fault.reason, fault.fix)

    def _is_open(self) -> bool:
        return self._accepted.id in self._house.store.world.unfinished

    async def _fail(self, code: str, reason: str, fix: str) -> None:
        accepted = self._accepted
        await self._tell(e.CommandFailed(accepted.id, accepted.type, code, reason, fix))

    async def _tell(self, event: e.Event) -> None:
        accepted = self._accepted
        async with self._pen:
            await self._house.store.events.tell(
                Fact(event, accepted.holder, accepted.correlation, accepted.id)
            )
