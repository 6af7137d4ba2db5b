"""What is remembered of the cards between readings, so that none is forgotten because it cannot be read."""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from adapters.gpu.nvml_faults import fault_of
from adapters.gpu.nvml_sweep import MAX_CARDS, NAMELESS, VENDOR, CardReading, Processes, Sweep
from adapters.gpu.port import Api, Condition, Device, DriverFault, GpuState

MAX_KNOWN: Final = 2 * MAX_CARDS
"""Cards kept in mind; the one not seen for longest is forgotten first."""

_Placed = tuple[int, Device]
"""A device with its card's number."""


@attrs.frozen
class _Card:
    """What a card offered when it was last read."""

    index: int
    devices: tuple[Device, ...] = ()


@attrs.define
class Picture:
    """The cards as they are shown, and what is said of their driver.

    Args:
        state: as of the latest reading.
        is_lacking: whether a card is lost that the driver may find when it is begun with anew.
    """

    state: GpuState = attrs.field(factory=lambda: GpuState("unread"), init=False)
    is_lacking: bool = attrs.field(default=False, init=False)
    # By UUID, the one seen last at the end.
    _cards: dict[str, _Card] = attrs.field(factory=dict, init=False)

    def devices(self, sweep: Sweep | None, late: DriverFault) -> tuple[Device, ...]:
        """What to show after a reading of the devices.

        Args:
            sweep: the reading, ended or not; None when none could be begun.
            late: what is wrong when it has not ended.
        """
        shown: list[_Placed] = []
        absent: list[_Placed] = []
        nameless = 0
        read = _readings(sweep)
        for reading in read:
            missing = self._remember(reading)
            shown += ((reading.index, device) for device in reading.devices)
            absent += ((reading.index, d.not_ready(reading.condition, reading.reason)) for d in missing)
            nameless += max(0, reading.nameless - len(missing))
        seen = {reading.uuid for reading in read}
        unseen = [card for uuid, card in self._cards.items() if uuid not in seen]
        for card in unseen:
            why = _why_unseen(card, sweep, late)
            absent += ((card.index, device.not_ready(*why)) for device in card.devices)
        self._judge(sweep, late)
        if self.state.condition == "ready" and sweep is not None:
            places = {card.index for card in unseen}
            nameless += sum(1 for one in sweep.unnamed if one.index not in places)
            nameless += max(0, (sweep.count or 0) - MAX_CARDS)
            self.state = attrs.evolve(self.state, unreadable=nameless)
            self.is_lacking = not sweep.count or any(d.condition == "lost" for _, d in absent)
        return tuple(_named(shown, absent))

    def processes(self, sweep: Sweep | None, late: DriverFault) -> dict[str, Processes]:
        """What runs on each device after a reading of the processes; None where that is not known."""
        found: dict[str, Processes] = {d.uuid: None for card in self._cards.values() for d in card.devices}
        for reading in _readings(sweep):
            found.update(reading.processes)
        self._judge(sweep, late)
        return found

    def _remember(self, reading: CardReading) -> list[Device]:
        """Keep what a card offers now; gives what it offered before and should have said now."""
        before = self._cards.pop(reading.uuid, None)
        missing: list[Device] = []
        if reading.condition != "ready":
            if before is not None:
                own = {device.uuid for device in reading.devices}
                missing = [device for device in before.devices if device.uuid not in own]
            elif not reading.devices:
                missing = [_stranger(reading)]
        self._cards[reading.uuid] = _Card(reading.index, (*reading.devices, *missing))
        while len(self._cards) > MAX_KNOWN:
            del self._cards[next(iter(self._cards))]
        return missing

    def _judge(self, sweep: Sweep | None, late: DriverFault) -> None:
        if sweep is None or not sweep.is_complete:
            self.state = attrs.evolve(self.state, condition="late", fault=late)
        elif sweep.failure is not None:
            self.state = GpuState("lost", None, fault_of(sweep.failure))
        else:
            self.state = GpuState("ready", sweep.driver_version, None, self.state.unreadable)


def _readings(sweep: Sweep | None) -> list[CardReading]:
    """The cards that a reading is done with, now: it may go on."""
    return [] if sweep is None or sweep.failure is not None else list(sweep.cards)


def _why_unseen(card: _Card, sweep: Sweep | None, late: DriverFault) -> tuple[Condition, str]:
    if sweep is None or not sweep.is_complete:
        return "late", late.reason
    if sweep.failure is not None:
        return "lost", fault_of(sweep.failure).reason
    for one in sweep.unnamed:
        if one.index == card.index:
            return one.condition, one.reason
    return "lost", "the driver no longer lists the card"


def _stranger(reading: CardReading) -> Device:
    """A card of which nothing but its UUID was ever read."""
    return Device(
        id=f"gpu-{reading.index}",
        uuid=reading.uuid,
        name=NAMELESS,
        vendor=VENDOR,
        apis=(Api("cuda"),),
        memory_total_bytes=0,
        is_total_known=False,
    )


def _named(shown: Iterable[_Placed], absent: Iterable[_Placed]) -> Iterator[Device]:
    """All of them by their card's number, none twice and no id twice.

    A card that could not be read bears the number it had. Where another has it by now, its UUID is its id:
    who means that number means the card that has it.
    """
    placed = list(shown)
    taken = {name for _, device in placed for name in (device.id, device.uuid)}
    for index, device in absent:
        if device.uuid in taken:
            continue
        one = attrs.evolve(device, id=device.uuid) if device.id in taken else device
        taken |= {one.id, one.uuid}
        placed.append((index, one))
    # Sorted by the number alone: among a card's own the order stays.
    return (device for _, device in sorted(placed, key=lambda pair: pair[0]))
