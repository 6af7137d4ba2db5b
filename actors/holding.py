"""The owner takes devices for themselves, and gives them back (F29).

An act is durable before it has an effect: it is told first, and what follows is read from the fold, by the
desk, by the keeper below and after a restart. Each fact is told by a worker of its own, so that a client
that leaves takes nothing away, and no hold is told to be over twice.
"""

import contextlib
import math
from collections.abc import Sequence
from typing import Literal

import attrs
import trio
from msgspec import UNSET

from actors.ending import TRIED_ON, End
from actors.house import House
from actors.kernel.child import Backoff, ChildSpec, Restart
from actors.kernel.mailbox import Mailbox, MailboxFull, Reply
from actors.kernel.workers import Worker
from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.messages import events as e
from actors.messages.envelope import Fact
from actors.messages.times import time_text
from actors.rules.holding import check_until, clean_reason
from actors.rules.refusal import Refusal
from actors.state.holds import Hold
from actors.tree import Tree
from adapters.gpu.port import Device

NAME = "holds"

TAKE = "hold "
"""Begins the names of the workers that tell of an act."""

PERIOD_SECONDS = 5.0
"""Between two looks whether a hold's time has come, and whether what is to end has ended."""

KEEP_SECONDS = 10.0
"""How long an act waits for room on the disk before it is refused."""


@attrs.frozen
class Wanted:
    """What an owner asks for.

    Args:
        id: of the act, `hold-…`; the same again is the same act.
        device: by id or UUID; None is every device, the host's processor included.
        until_ms: when it ends by itself, milliseconds since the epoch.
        reason: in the owner's words.
        ends_work: what runs there ends, and what was starting as soon as it starts.
    """

    id: str
    device: str | None = None
    until_ms: int | None = None
    reason: str | None = None
    ends_work: bool = False


async def hold(house: House, wanted: Wanted) -> tuple[Hold, ...]:
    """Hold devices: durable on return, and every decision from then on knows it.

    A device that was held already is held anew: the newer hold alone stands.

    Raises:
        Refusal: INVALID_HOLD, UNKNOWN_DEVICE; NO_ROOM, LOG_UNAVAILABLE where the disk did not take it.
    """
    holds = house.store.world.holds
    before = holds.of(wanted.id)
    if before:
        return before
    reason = clean_reason(wanted.reason)
    if wanted.until_ms is not None:
        check_until(wanted.until_ms, house.clock.now_ms())
    facts = [Fact(_held(wanted, reason, device)) for device in await meant(house, wanted.device)]
    if before := holds.of(wanted.id):  # told for who sent the same act first, while the devices were read
        return before
    kept = Reply[None]()
    worker = _spawn(house, _hold_spec(house, wanted.id, facts, kept))
    with trio.move_on_after(2 * KEEP_SECONDS) as waited:
        await worker.wait_ended()
    if waited.cancelled_caught:
        raise Refusal(
            "LOG_UNAVAILABLE",
            "the disk has not answered yet: best-peer status shows whether the hold was kept",
            retry_after_seconds=30,
        )
    held = holds.of(wanted.id)
    if not held and not kept.is_set:
        raise Refusal(
            "NO_ROOM",
            "nothing is held, since the disk did not keep it; free room on the file system of the data "
            "folder and hold again",
            retry_after_seconds=30,
        )
    return held


async def release(
    house: House, *, device: str | None = None, identifier: str | None = None
) -> tuple[Hold, ...]:
    """Release devices: durable on return; the holds that stood and are over.

    Args:
        house: whose devices.
        device: this one alone, by id or UUID.
        identifier: what one act holds still, and no newer hold in its place.

    Raises:
        Refusal: UNKNOWN_DEVICE; NO_ROOM, LOG_UNAVAILABLE where the disk did not take it yet.
    """
    await _until_settled(house, identifier)
    now = time_text(house.clock.now_ms())
    over = [h for h in await _on(house, device) if identifier in (None, h.id) and h.stands_at(now)]
    workers = [_spawn(house, release_spec(house, each, "released")) for each in over]
    with trio.move_on_after(KEEP_SECONDS):
        for worker in workers:
            await worker.wait_ended()
    still = [each for each in over if _is_held(house, each)]
    if still:
        raise Refusal(
            "NO_ROOM",
            f"{_names(still)} is still held: the disk has not kept the release, which is told as soon as it "
            "can be; free room on the file system of the data folder",
            retry_after_seconds=30,
        )
    return tuple(over)


async def _until_settled(house: House, identifier: str | None) -> None:
    """Wait until what is being told was kept or refused: this act, or every one.

    Who gave one up before its answer would else be told that nothing is held, and it would stand after.
    """
    with trio.move_on_after(KEEP_SECONDS) as waited:
        for worker in _being_told(house, identifier):
            await worker.wait_ended()
    if waited.cancelled_caught:
        raise Refusal(
            "LOG_UNAVAILABLE",
            "the disk has not answered yet whether it keeps a hold; release it again in a moment",
            retry_after_seconds=30,
        )


def _being_told(house: House, identifier: str | None) -> list[Worker]:
    names = (
        [each.name for each in house.workers.statistics()] if identifier is None else [_take_name(identifier)]
    )
    found = [house.workers.get(name) for name in names if name.startswith(TAKE)]
    return [worker for worker in found if worker is not None]


async def meant(house: House, device: str | None) -> Sequence[Device]:
    """The devices that an owner names, by id or UUID; None is all.

    Raises:
        Refusal: UNKNOWN_DEVICE.
    """
    devices = await house.gpu.devices()
    named = [each for each in devices if device in (None, each.id, each.uuid)]
    if not named:
        raise _unknown_device(device, [each.id for each in devices])
    return named


async def _on(house: House, device: str | None) -> list[Hold]:
    """The holds on a device, or all: also on one that is no longer there."""
    holds = house.store.world.holds
    if device is None:
        return list(holds)
    try:
        named = await meant(house, device)
    except Refusal:
        gone = [each for each in holds if device in (each.device, each.device_uuid)]
        if not gone:
            raise
        return gone
    # By UUID: the card that has this number now may have had another when it was held. One that was first
    # seen after every device was held stands under another's name.
    found = [(each, holds.on(each.uuid)) for each in named]
    return [attrs.evolve(h, device=each.id, device_uuid=each.uuid) for each, h in found if h is not None]


def release_spec(house: House, held: Hold, cause: Literal["released", "ended"]) -> ChildSpec:
    """Tells once that a hold on one device is over, as soon as the disk takes it."""

    class Release:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            if _is_held(house, held):
                await house.store.events.tell(
                    Fact(e.DeviceReleasedV1(held.id, held.device, held.device_uuid, cause))
                )

    return ChildSpec(f"release {held.id} {held.device_uuid}", Release, capacity=0)


def _hold_spec(house: House, identifier: str, facts: Sequence[Fact], kept: Reply[None]) -> ChildSpec:
    """Tells of one act. What the disk has no room for in time is let be: later it would be a surprise."""

    class Take:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            with contextlib.suppress(NoRoom, JournalUnavailable):
                await house.store.events.tell(*facts, room_seconds=KEEP_SECONDS)
                kept.set(None)
                _wake(house)

    return ChildSpec(_take_name(identifier), Take, restart=Restart.TEMPORARY, capacity=0)


def _take_name(identifier: str) -> str:
    return f"{TAKE}{identifier}"


def _held(wanted: Wanted, reason: str | None, device: Device) -> e.DeviceHeldV1:
    return e.DeviceHeldV1(
        hold=wanted.id,
        device=device.id,
        device_uuid=device.uuid,
        ends_work=wanted.ends_work,
        every_device=wanted.device is None,
        until=UNSET if wanted.until_ms is None else time_text(wanted.until_ms),
        reason=UNSET if reason is None else reason,
    )


def _is_held(house: House, held: Hold) -> bool:
    """Whether a device is held by this act still, or was released or held anew."""
    standing = house.store.world.holds.on(held.device_uuid)
    return standing is not None and standing.id == held.id


def _spawn(house: House, spec: ChildSpec) -> Worker:
    try:
        return house.workers.spawn(spec)
    except RuntimeError as stopping:
        raise Refusal(
            "LOG_UNAVAILABLE",
            "this peer is stopping or starting; ask again in a moment",
            retry_after_seconds=2,
        ) from stopping


def _names(holds: Sequence[Hold]) -> str:
    return ", ".join(each.device for each in holds)


def _unknown_device(device: str | None, known: list[str]) -> Refusal:
    return Refusal(
        "UNKNOWN_DEVICE",
        f"there is no device {device} here; name one of: {', '.join(known)}",
        devices=known,
    )


class HoldKeeper:
    """Ends holds whose time has come, and what runs on a device that is held with its work to end.

    It looks when a hold was made, at each fact while one stands that ends what starts, and every few seconds
    while a hold has an end or something is still to be ended: a wish that the fold keeps until it has.
    """

    def __init__(self, house: House, tree: Tree) -> None:
        self._house = house
        self._tree = tree

    async def run(self, inbox: Mailbox[None]) -> None:
        """Serve for ever."""
        events = self._house.store.events
        while True:
            position = events.end
            self._end_holds()
            self._end_work()
            with trio.move_on_after(self._wait_seconds()):
                if any(each.ends_work for each in self._house.store.world.holds):
                    await events.wait_for_news(position)
                else:
                    await inbox.receive()

    def _end_holds(self) -> None:
        now = time_text(self._house.clock.now_ms())
        for each in tuple(self._house.store.world.holds):
            if not each.stands_at(now):
                with contextlib.suppress(RuntimeError):  # the peer is stopping: told after the next start
                    self._house.workers.spawn(release_spec(self._house, each, "ended"))

    def _end_work(self) -> None:
        world = self._house.store.world
        for workload, wish in tuple(world.owners_ends.items()):
            if workload in world.deployments:
                self._tree.end_deployment(workload, End(wish.reason))
            else:
                self._tree.end_job(workload, End(wish.reason))

    def _wait_seconds(self) -> float:
        world = self._house.store.world
        is_pending = bool(world.owners_ends) or any(each.until is not None for each in world.holds)
        return PERIOD_SECONDS if is_pending else math.inf


def hold_keeper_spec(house: House, tree: Tree) -> ChildSpec:
    """How it is supervised: always there."""
    return ChildSpec(
        NAME,
        lambda: HoldKeeper(house, tree),
        restart=Restart.PERMANENT,
        budget=TRIED_ON,
        backoff=Backoff(1, 60),
        capacity=1,
    )


def _wake(house: House) -> None:
    worker = house.workers.get(NAME)
    if worker is not None:
        with contextlib.suppress(MailboxFull):  # a look is due already
            worker.mailbox.tell_nowait(None)
