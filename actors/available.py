"""Which devices take new work at this moment: their holds and their use by others (F28, F29)."""

from collections.abc import Iterable

from actors.house import House
from actors.messages.times import time_text
from actors.rules.availability import Availability, availability_of
from actors.state.holds import HOST
from adapters.gpu.port import Device


def available_now(house: House, devices: Iterable[Device]) -> dict[str, Availability]:
    """By UUID, of these devices and the host's processor. Never a checkpoint: decide in the same moment."""
    holds, now = house.store.world.holds, time_text(house.clock.now_ms())
    found = {}
    for uuid in (HOST, *(device.uuid for device in devices)):
        hold = holds.on(uuid)
        stands = hold if hold is not None and hold.stands_at(now) else None
        found[uuid] = availability_of(stands, is_used=house.occupied.is_busy(uuid))
    return found
