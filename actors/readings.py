"""The devices and what is used of them, as an admission needs them (F18)."""

from collections.abc import Awaitable, Callable, Mapping

import attrs

from actors.house import House
from actors.rules.room import NOTHING_KNOWN, say_of_use
from actors.uses import Use, UseReader
from adapters.gpu.port import Device

MOST_LOOKS = 3
"""At the devices for one command: where workloads end faster than that, the last one decides."""


@attrs.frozen
class Reading:
    """What the world showed.

    Args:
        devices: every one, read after the last release.
        uses: what workloads use, in bytes, as far as that has a say; see `room_on`.
    """

    devices: tuple[Device, ...] = ()
    uses: Mapping[str, int] = NOTHING_KNOWN


class Readings:
    """Reads for the admissions of one house."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._uses = UseReader(house)

    async def for_promise(self, memory_bytes: int) -> Reading:
        """The devices, and what the workloads use of them where that has a say.

        Where it decides whether a promise is given, it was asked for after this call. Where promises and free
        memory refuse it whatever is used, what is used is only told, and may be a moment old. No checkpoint
        stands between what is found here and the return.
        """
        world = self._house.store.world
        reading = await self._read(None)
        say = say_of_use(reading.devices, world, memory_bytes)
        if say == "words":
            latest = self._uses.latest()
            if latest is not None:
                return attrs.evolve(reading, uses=latest.among(world))
            reading = await self._read(self._uses.recent)
            # What was refused whatever is used may fit by now.
            say = say_of_use(reading.devices, world, memory_bytes)
            if say != "verdict":
                return reading
        return reading if say == "none" else await self._read(self._uses.now)

    async def _read(self, ask: Callable[[], Awaitable[Use]] | None) -> Reading:
        # A reading that began before a promise came back may show memory that is free by now.
        world = self._house.store.world
        for _ in range(MOST_LOOKS):
            releases = world.releases
            # The devices last: see `room_on`.
            use = None if ask is None else await ask()
            devices = await self._house.gpu.devices()
            if releases == world.releases:
                break
        return Reading(devices, NOTHING_KNOWN if use is None else use.among(world))
