"""One reading of all cards, made in a thread; others may look at what it has found before it ends."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

import attrs

from adapters.gpu.nvml_faults import card_reason
from adapters.gpu.nvml_library import (
    GPU_IS_LOST,
    NO_FUNCTION,
    NO_LIBRARY,
    NO_PERMISSION,
    NOT_LOADED,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNINITIALIZED,
    VERSION_MISMATCH,
    Handle,
    InstanceIds,
    Kind,
    Library,
    Memory,
    NvmlFailure,
    Use,
)
from adapters.gpu.port import Api, Condition, Device, DeviceProcess, ProcessKind, Slicing

MAX_CARDS: Final = 64
MAX_SLOTS: Final = 32
"""Instances on one card; NVIDIA's cards of today have seven at most."""
SHARE_SECONDS: Final = 5
"""How far back a program's use of a card is looked for."""

VENDOR: Final = "nvidia"
NAMELESS: Final = "NVIDIA card"

_DRIVER_GONE: Final = frozenset({UNINITIALIZED, NOT_LOADED, VERSION_MISMATCH, NO_LIBRARY})
_CARD_GONE: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})
_NEVER_TOLD: Final = frozenset({NOT_SUPPORTED, NO_FUNCTION, NO_PERMISSION})
"""Answered to what this driver, card or user has not: the next reading would be answered the same."""

T = TypeVar("T")
Processes = tuple[DeviceProcess, ...] | None


@attrs.define
class CardReading:
    """What one card offers: itself, its instances, or nothing.

    Where `condition` is not `ready`, `devices` lacks what could not be read, and `reason` says why;
    `nameless` counts instances that are there and have no UUID. The processes are by the device's UUID.
    """

    index: int
    uuid: str
    devices: tuple[Device, ...] = ()
    processes: dict[str, Processes] = attrs.field(factory=dict)
    condition: Condition = "ready"
    reason: str = ""
    nameless: int = 0


@attrs.frozen
class Unnamed:
    """A card that the driver counts and whose UUID it does not tell."""

    index: int
    condition: Condition
    reason: str


@attrs.define(eq=False)
class Sweep:
    """What a reading has found so far.

    Args:
        resting: UUIDs of cards that are not asked: they answered late a moment ago.
        in_hand: the card that is being asked now; None between cards.
        failure: why there is nothing: the driver itself cannot be asked.
    """

    resting: frozenset[str] = frozenset()
    count: int | None = None
    cards: list[CardReading] = attrs.field(factory=list)
    unnamed: list[Unnamed] = attrs.field(factory=list)
    driver_version: str | None = None
    cuda_version: str | None = None
    in_hand: str | None = None
    failure: NvmlFailure | None = None
    is_complete: bool = False


@attrs.frozen
class _Place:
    """A device that can be asked: a card, or an instance by its slot.

    `beside` is the instance whose memory this one shares.
    """

    id: str
    uuid: str
    handle: Handle
    slicing: Slicing = "none"
    ids: InstanceIds | None = None
    beside: str | None = None


class _CardGone(Exception):
    """Raised when a card has to be left: the rest of it would say the same."""

    def __init__(self, failure: NvmlFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def read_devices(library: Library, sweep: Sweep) -> None:
    """Fill a sweep with every card's devices and their figures."""
    _read(library, sweep, _devices_of)


def read_processes(library: Library, sweep: Sweep) -> None:
    """Fill a sweep with what runs on every card."""
    _read(library, sweep, _processes_of)


_Ask = Callable[["_Reader", CardReading, list[_Place]], None]


def _read(library: Library, sweep: Sweep, ask: _Ask) -> None:
    try:
        try:
            _Reader(library, sweep, is_strict=True).all(ask)
        except NvmlFailure:
            if not library.is_open:
                raise
            # It may be back already, and then wants to be begun with anew. What still fails after that is
            # one figure's affair and not the driver's, and hides nothing else.
            library.close()
            sweep.cards, sweep.unnamed = [], []
            _Reader(library, sweep, is_strict=False).all(ask)
    except NvmlFailure as failure:
        library.close()
        sweep.failure = failure
    sweep.in_hand = None
    sweep.is_complete = True


@attrs.define
class _Reader:
    library: Library
    sweep: Sweep
    is_strict: bool
    """Whether a driver that seems to be gone ends the reading."""
    seen: set[str] = attrs.field(factory=set, init=False)

    def all(self, ask: _Ask) -> None:
        """Read every card.

        Raises:
            NvmlFailure: the driver cannot be asked.
        """
        self.library.open()
        self.sweep.count = count = self.library.count()
        self.sweep.driver_version = self.of_driver(self.library.driver_version)
        self.sweep.cuda_version = self.of_driver(self.library.cuda_version)
        for index in range(min(count, MAX_CARDS)):
            self.sweep.in_hand = None
            try:
                card = self.library.card(index)
                uuid = self.library.uuid(card)
            except NvmlFailure as failure:
                self.check(failure)
                self.sweep.unnamed.append(Unnamed(index, _condition(failure), card_reason(failure)))
                continue
            if uuid in self.seen:
                self.sweep.unnamed.append(Unnamed(index, "unreadable", "it bears another's UUID"))
                continue
            self.seen.add(uuid)
            self.sweep.in_hand = uuid
            self.sweep.cards.append(self.card(CardReading(index, uuid), card, ask))
        self.sweep.in_hand = None

    def card(self, reading: CardReading, card: Handle, ask: _Ask) -> CardReading:
        """One card with all that it offers."""
        if reading.uuid in self.sweep.resting:
            reading.condition, reading.reason = "late", "it answered late and is asked again in a moment"
            return reading
        try:
            ask(self, reading, self.places(reading, card))
        except _CardGone as gone:
            reading.devices, reading.processes = (), {}
            reading.condition, reading.reason = _condition(gone.failure), card_reason(gone.failure)
        return reading

    def places(self, reading: CardReading, card: Handle) -> list[_Place]:
        """What can be asked on a card; an instance that cannot is left out, and the reading says so."""
        name = f"gpu-{reading.index}"
        try:
            if not self.library.is_split(card):
                return [_Place(name, reading.uuid, card)]
            slots = min(self.library.slots(card), MAX_SLOTS)
        except NvmlFailure as failure:
            # Whether it is split is not known, so neither is what it offers.
            self.check(failure)
            raise _CardGone(failure) from None
        places: list[_Place] = []
        for slot in range(slots):
            try:
                instance = self.library.instance(card, slot)
                if instance is None:
                    continue
                uuid = self.library.uuid(instance)
            except NvmlFailure as failure:
                self.check_card(failure)
                reading.condition, reading.reason = "unreadable", card_reason(failure)
                reading.nameless += 1
                continue
            if uuid in self.seen:
                reading.condition, reading.reason = "unreadable", "an instance of it bears another's UUID"
                reading.nameless += 1
                continue
            self.seen.add(uuid)
            ids = self.figure(partial(self.library.instance_ids, instance))
            beside = next((p.id for p in places if p.ids and ids and p.ids.gpu == ids.gpu), None)
            places.append(_Place(f"{name}/mig-{slot}", uuid, instance, "mig", ids, beside))
        return places

    def of_driver(self, read: Callable[[], T]) -> T | None:
        """What a call about no card gives, None where it gives nothing."""
        try:
            return read()
        except NvmlFailure as failure:
            self.check(failure)
            return None

    def figure(self, read: Callable[[], T]) -> T | None:
        """What a call about a card gives, None where it gives nothing."""
        try:
            return read()
        except NvmlFailure as failure:
            self.check_card(failure)
            return None

    def check(self, failure: NvmlFailure) -> None:
        """Raise a failure that is the driver's."""
        if self.is_strict and failure.code in _DRIVER_GONE:
            raise failure

    def check_card(self, failure: NvmlFailure) -> None:
        """Raise a failure that is the driver's or the whole card's."""
        self.check(failure)
        if failure.code in _CARD_GONE:
            raise _CardGone(failure)


def _condition(failure: NvmlFailure) -> Condition:
    return "lost" if failure.code in _CARD_GONE else "unreadable"


def _devices_of(reader: _Reader, reading: CardReading, places: list[_Place]) -> None:
    reading.devices = tuple(_device(reader, place) for place in places)


def _device(reader: _Reader, place: _Place) -> Device:
    library, handle = reader.library, place.handle
    name = reader.figure(lambda: library.name(handle))
    memory = reader.figure(lambda: library.memory(handle)) or Memory(None, None)
    device = Device(
        id=place.id,
        uuid=place.uuid,
        name=name or NAMELESS,
        vendor=VENDOR,
        apis=(Api("cuda", reader.sweep.cuda_version),),
        memory_total_bytes=memory.total or 0,
        is_total_known=memory.total is not None,
        memory_free_bytes=memory.free,
        slicing=place.slicing,
    )
    if place.beside is not None:
        # Its memory would be promised twice.
        return device.not_ready(
            "unreadable",
            f"it shares its memory with {place.beside}: make one compute instance in each GPU instance",
        )
    if place.slicing == "mig":
        # Of an instance the driver knows none of these; its card's are not its own.
        return device
    return attrs.evolve(
        device,
        temperature_celsius=reader.figure(lambda: library.temperature(handle)),
        power_watts=reader.figure(lambda: library.power(handle)),
        utilisation_ratio=reader.figure(lambda: library.utilisation(handle)),
        energy_joules=reader.figure(lambda: library.energy(handle)),
    )


def _processes_of(reader: _Reader, reading: CardReading, places: list[_Place]) -> None:
    for place in places:
        reading.processes[place.uuid] = _processes(reader, place)


def _processes(reader: _Reader, place: _Place) -> Processes:
    compute = _uses(reader, place, "compute")
    if compute is None:
        return None
    graphics = _uses(reader, place, "graphics")
    if graphics is None:
        return None
    return tuple(_merged(compute, graphics, _shares(reader, place)))


def _uses(reader: _Reader, place: _Place, kind: Kind) -> list[Use] | None:
    try:
        uses = reader.library.uses(place.handle, kind)
    except NvmlFailure as failure:
        reader.check_card(failure)
        # A card that cannot draw has no list of programs that do. Any other list that cannot be had may hold
        # somebody.
        return [] if kind == "graphics" and failure.code == NOT_SUPPORTED else None
    # Some drivers list all of the card's programs for each of its instances.
    return [use for use in uses if None in (place.ids, use.instance) or use.instance == place.ids]


def _shares(reader: _Reader, place: _Place) -> dict[int, float] | None:
    """What programs use of a device's compute; nothing where that is never told, None where it failed."""
    if place.slicing != "none":
        return {}
    since = time.time_ns() // 1000 - SHARE_SECONDS * 1_000_000
    try:
        return reader.library.shares(place.handle, since)
    except NvmlFailure as failure:
        reader.check_card(failure)
        return {} if failure.code in _NEVER_TOLD else None


def _merged(
    compute: list[Use], graphics: list[Use], shares: dict[int, float] | None
) -> Iterator[DeviceProcess]:
    """One entry for a program. The driver lists one that does both twice, each time with all its memory."""
    found: dict[int, tuple[int | None, ProcessKind]] = {}
    for kind, uses in (("compute", compute), ("graphics", graphics)):
        for use in uses:
            memory, before = found.get(use.pid, (None, None))
            known = [size for size in (memory, use.memory) if size is not None]
            now: ProcessKind = "compute" if kind == "compute" else "graphics"
            found[use.pid] = (max(known, default=None), now if before in (None, now) else "both")
    for pid, (memory, kind_of) in found.items():
        share = None if shares is None else shares.get(pid)
        yield DeviceProcess(pid, memory, kind_of, share, utilisation_failed=shares is None)
