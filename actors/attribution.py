"""Whose the programs on the cards are: the peer's own, by workload, or somebody else's (F17, F18, F28).

What is somebody else's is for the owner's eyes and the peer's own decisions: it is told in no event, no log
line and no answer to a key.
"""

from collections.abc import Iterable, Mapping

import attrs
import trio

from actors.house import House
from actors.state.workloads import Workload
from adapters.gpu.port import DeviceProcess, Program
from adapters.runtime.port import RuntimeUnavailable

AT_ONCE = 8
"""Workloads that are looked at side by side: a container engine is asked for each."""

SECONDS = 3.0
"""Whose a program is that is not known by then stays unknown."""


@attrs.frozen
class OwnProcess:
    """A program on a card that belongs to one of the peer's workloads."""

    workload: str
    process: DeviceProcess


@attrs.frozen
class CardUse:
    """Who is on a card now.

    Args:
        own: programs of the peer's workloads.
        others: programs of somebody else.
        unsure: programs that may be either: a workload on this card whose processes cannot be told, as those
            of an Ollama that serves its owner as well, or a system that does not say which process is which.
        gone: programs that the driver still lists and that have ended: their memory is being given back, or
            is stuck.
        untold: workloads on this card whose processes cannot be told.
    """

    own: tuple[OwnProcess, ...] = ()
    others: tuple[DeviceProcess, ...] = ()
    unsure: tuple[DeviceProcess, ...] = ()
    gone: tuple[DeviceProcess, ...] = ()
    untold: frozenset[str] = frozenset()

    def held_by(self, workload: str) -> int | None:
        """What a workload holds of the card, in bytes; None where that is not known of all of it."""
        if workload in self.untold:
            return None
        sizes = [one.process.memory_bytes for one in self.own if one.workload == workload]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


@attrs.define
class Owned:
    """The processes of the peer's workloads, as what runs them says.

    Args:
        untold: workloads whose processes are not known.
        by_pid: whose each is.
    """

    untold: set[str]
    by_pid: dict[int, str] = attrs.field(factory=dict)


async def attribution(house: House) -> Mapping[str, CardUse | None]:
    """Who is on each accelerator now, by UUID; None where its driver does not say.

    A number is the peer's only if it names the same process when the driver lists it and when what runs the
    workloads does: what has it since belongs to nobody here. Bounded by the driver's own patience and
    `SECONDS`.
    """
    listed = await house.gpu.processes()
    pids = frozenset(one.pid for found in listed.values() for one in found or ())
    workloads = _on_cards(house)
    if not pids and not workloads:
        return {uuid: None if found is None else CardUse() for uuid, found in listed.items()}
    # After the driver was asked: a workload's new process is then known to be its.
    owned = await owned_processes(house, (one.id for one in workloads))
    programs = await house.gpu.programs(pids)
    if programs is None:
        # The driver may number them in another way than what runs them: one that is not found may be there.
        owned.untold |= {one.id for one in workloads} - {owned.by_pid.get(pid) for pid in pids}
    untold = [one for one in workloads if one.started and one.id in owned.untold]

    def use(uuid: str, found: Iterable[DeviceProcess]) -> CardUse:
        return _use(found, owned, programs, frozenset(one.id for one in untold if one.device_uuid == uuid))

    return {uuid: None if found is None else use(uuid, found) for uuid, found in listed.items()}


async def owned_processes(house: House, workloads: Iterable[str]) -> Owned:
    """Ask for the processes of workloads; one that has none it can be told by is untold."""
    owned = Owned(set(workloads))
    turns = trio.CapacityLimiter(AT_ONCE)

    async def look(workload: str) -> None:
        async with turns:
            try:
                pids = await house.runtime.processes(workload)
            except RuntimeUnavailable:
                return
            if pids:
                owned.untold.discard(workload)
                owned.by_pid.update(dict.fromkeys(pids, workload))

    with trio.move_on_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for workload in tuple(owned.untold):
                nursery.start_soon(look, workload)
    return owned


def _on_cards(house: House) -> list[Workload]:
    world = house.store.world
    everything: list[Workload] = [*world.deployments.values(), *world.jobs.values()]
    return [one for one in everything if one.device_uuid not in (None, "cpu")]


def _use(
    found: Iterable[DeviceProcess],
    owned: Owned,
    programs: Mapping[int, Program] | None,
    untold: frozenset[str],
) -> CardUse:
    own: list[OwnProcess] = []
    others: list[DeviceProcess] = []
    unsure: list[DeviceProcess] = []
    gone: list[DeviceProcess] = []
    for one in found:
        workload = owned.by_pid.get(one.pid)
        if one.is_gone or _has_ended(one, programs):
            gone.append(one)
        elif workload is not None:
            own.append(OwnProcess(workload, one))
        elif untold or one.program is None:
            unsure.append(one)
        else:
            others.append(one)
    return CardUse(tuple(own), tuple(others), tuple(unsure), tuple(gone), untold)


def _has_ended(one: DeviceProcess, programs: Mapping[int, Program] | None) -> bool:
    """Whether the process that the driver listed is not the one that its number names now."""
    if one.program is None or programs is None:
        return False
    now = programs.get(one.pid)
    return now is None or now.started != one.program.started
