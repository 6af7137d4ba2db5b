"""Whose the programs on the cards are: the peer's own, by workload, or somebody else's (F17, F18, F28)."""

from collections.abc import Iterable, Mapping
from functools import partial

import attrs
import trio

from actors.house import House
from actors.looks import CardUse, OwnProcess, Uses
from actors.state.holds import HOST
from actors.state.workloads import Workload
from adapters.gpu.port import Device, DeviceProcess, Program
from adapters.runtime.port import RuntimeUnavailable

__all__ = ["CardUse", "Owned", "attribution", "owned_processes"]

SECONDS = 3.0
"""Whose a program is that is not known by then stays unknown."""


@attrs.define
class Owned:
    """The processes of the peer's workloads, as what runs them says.

    Args:
        untold: workloads whose processes are not known.
        by_pid: whose each is.
    """

    untold: set[str]
    by_pid: Mapping[int, str]


async def attribution(house: House) -> Uses:
    """Who is on each accelerator now; read after this call, in one go for all who ask meanwhile.

    A number is the peer's only if it names the same process when the driver lists it and when what runs the
    workloads does: what has it since belongs to nobody here. Bounded by the driver's own patience and
    `SECONDS`.
    """
    return await house.looks.now(partial(_look, house))


async def owned_processes(
    house: House, workloads: Iterable[str], among: frozenset[int] | None = None
) -> Owned:
    """Ask for the processes of workloads; one that has none it can be told by is untold.

    Args:
        house: whose workloads.
        workloads: which must be told.
        among: the processes that are meant; None is every one.
    """
    found: Mapping[str, frozenset[int]] = {}
    with trio.move_on_after(SECONDS):
        try:
            found = await house.runtime.all_processes(among)
        except RuntimeUnavailable:
            found = {}
    # Also of one that no fact knows any more: it is the peer's until it has ended.
    return Owned(
        untold={one for one in workloads if one not in found},
        by_pid={pid: workload for workload, pids in found.items() for pid in pids},
    )


async def _look(house: House) -> Uses:
    listed, devices = await _driver(house)
    pids = frozenset(one.pid for found in listed.values() for one in found or ())
    workloads = _on_cards(house)
    owned = Owned(set(), {})
    if pids or workloads:
        # After the driver was asked: a workload's new process is then known to be its.
        owned = await owned_processes(house, [one.id for one in workloads], pids)
    programs = await house.gpu.programs(pids) if pids else {}
    if programs is None:
        # The driver may number them in another way than what runs them: one that is not found may be there.
        owned.untold |= {one.id for one in workloads} - {owned.by_pid.get(pid) for pid in pids}
    untold = [one for one in workloads if one.started and one.id in owned.untold]

    def use(uuid: str, found: tuple[DeviceProcess, ...]) -> CardUse:
        hidden = frozenset(w.id for w in untold if w.device_uuid == uuid)
        has_own = any(one.device_uuid == uuid for one in workloads)
        sorted_out = _use(found, owned, programs, hidden, has_own=has_own)
        return attrs.evolve(sorted_out, unlisted=_unlisted(devices.get(uuid), found))

    uses = {uuid: None if found is None else use(uuid, found) for uuid, found in listed.items()}
    house.looks.keep(_on_cards(house), uses)
    return uses


async def _driver(
    house: House,
) -> tuple[Mapping[str, tuple[DeviceProcess, ...] | None], Mapping[str, Device]]:
    """What runs on the cards and what they have, in one stay in the driver."""
    listed: dict[str, tuple[DeviceProcess, ...] | None] = {}
    devices: dict[str, Device] = {}

    async def figures() -> None:
        devices.update((device.uuid, device) for device in await house.gpu.devices())

    async def programs() -> None:
        listed.update(await house.gpu.processes())

    # Begun at the same moment, both: the driver is entered once for what is asked of it by then.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(figures)
        nursery.start_soon(programs)
    return listed, devices


def _unlisted(device: Device | None, found: Iterable[DeviceProcess]) -> int | None:
    if device is None or device.total_bytes is None or device.memory_free_bytes is None:
        return None
    held = [one.memory_bytes for one in found]
    known = [size for size in held if size is not None]
    return device.total_bytes - device.memory_free_bytes - sum(known) if len(known) == len(held) else None


def _on_cards(house: House) -> list[Workload]:
    world = house.store.world
    everything: list[Workload] = [*world.deployments.values(), *world.jobs.values()]
    return [one for one in everything if one.device_uuid not in (None, HOST)]


def _use(
    found: Iterable[DeviceProcess],
    owned: Owned,
    programs: Mapping[int, Program] | None,
    untold: frozenset[str],
    *,
    has_own: bool,
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
        elif untold or (has_own and one.program is None):
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
