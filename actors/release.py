"""When a card has got back what an ended workload held of it (F18).

That its processes are gone is not enough: the driver's figure has to have fallen, or a promise would be given
to the next one that the card cannot keep. What the driver does not say is not taken for free: then a bound
decides, and the workload's last fact says so.
"""

from typing import Final

import trio

from actors.attribution import attribution
from actors.house import House
from actors.looks import CardUse, Seen
from actors.state.holds import HOST
from actors.state.workloads import Workload

MIB: Final = 1 << 20

AGAIN_SECONDS: Final = 0.5
"""Between two looks at a card that has not given the memory back."""

LOOK_SECONDS: Final = 2.0
"""For the look before a workload is ended: one that hangs may not hold up its end."""

SLACK_BYTES: Final = 256 * MIB
"""What no program holds of a card goes up and down by itself."""


async def look_before(house: House, workload: Workload) -> None:
    """See what a workload that is about to be ended holds of its card."""
    if _is_on_card(workload):
        with trio.move_on_after(LOOK_SECONDS):
            await attribution(house)


async def until_released(house: House, workload: Workload) -> str | None:
    """Wait until a card has back what an ended workload held of it, `Bounds.release` at most.

    Gives what to tell where that is not known in time. Of the host, processes that are gone hold nothing.
    """
    if not _is_on_card(workload):
        return None
    why: str | None = "its driver did not answer"
    with trio.move_on_after(house.bounds.release):
        while True:
            use = (await attribution(house)).get(workload.device_uuid or "")
            why = _still(workload.id, house.looks.seen(workload.id), use)
            if why is None:
                return None
            await trio.sleep(AGAIN_SECONDS)
    return (
        f"within {house.bounds.release:g} seconds of its end {workload.device} was not known to have its "
        f"memory back: {why}"
    )


def not_waited_for(workload: Workload, *, is_gone: bool) -> str | None:
    """What the end of a workload tells whose actor is given up: nobody is left to wait for its memory."""
    if not is_gone:
        return "its program could not be ended yet and may hold its memory; that is tried on"
    if _is_on_card(workload):
        return f"{workload.device} was not asked whether it has its memory back"
    return None


def _is_on_card(workload: Workload) -> bool:
    # What was never started never held anything.
    return workload.started and workload.device_uuid not in (None, HOST)


def _still(workload: str, seen: Seen | None, use: CardUse | None) -> str | None:
    """Why a card has not got a workload's memory back; None where it has."""
    if use is None:
        return "its driver does not say what runs on it"
    everybody = (*use.of(workload), *use.gone, *use.unsure, *use.others)
    listed = {(one.pid, one.program) for one in everybody}
    # One that has ended cannot be told by its start any more.
    gone = {one.pid for one in use.gone}
    if seen is None:
        # Whose they were that have ended is not known: they may have been this one's, or a stranger's.
        return "its driver does not show that what it held is free" if gone else None
    if seen.programs & listed or any(pid in gone for pid, _ in seen.programs):
        return "its driver lists its processes still"
    if seen.held is None or seen.unlisted is None:
        return None
    if use.unlisted is None:
        # Where somebody else's program has no figure, there is none to compare with, and no word about it.
        is_cards = all(one.memory_bytes is not None for one in everybody)
        return "its driver does not say how much of its memory is used" if is_cards else None
    grown = use.unlisted - seen.unlisted
    if grown > max(SLACK_BYTES, seen.held // 4):
        return f"its driver counts {grown} bytes as used that no program holds"
    return None
