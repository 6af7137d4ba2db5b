"""Where a job goes, and when it goes to no device at all (F18, F25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest

from actors.messages import events as e
from actors.messages.commands import Accepted, RunJob
from actors.messages.envelope import Fact
from actors.rules.availability import ALL_FREE, Availability
from actors.rules.placement import ISOLATION_LEVELS, place_job
from actors.rules.refusal import Refusal
from actors.rules.room import room_on
from actors.state.holds import HOST
from actors.state.keys import Grant
from actors.state.world import World
from adapters.gpu.fake import GIB, cpu_device, cuda_device

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.gpu.port import Device

SMALL, LARGE, CPU = cuda_device(0, 8 * GIB), cuda_device(1, 24 * GIB), cpu_device(64 * GIB)
DEVICES = (SMALL, LARGE, CPU)


def put(
    size: int | None,
    *,
    devices: tuple[Device, ...] = DEVICES,
    world: World | None = None,
    wanted: str | None = None,
    isolation: str | None = None,
    offered: str = "container",
    availability: Mapping[str, Availability] = ALL_FREE,
    **grant: Any,
) -> str | None:
    """The id of the device it goes to."""
    placed = place_job(
        memory_bytes=size,
        wanted_device=wanted,
        wanted_isolation=isolation,
        isolation=offered,
        devices=devices,
        grant=Grant(**grant),
        world=world or World(),
        availability=availability,
    )
    return None if placed is None else placed.id


def refusal(*args: Any, **kwargs: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        put(*args, **kwargs)
    return refused.value


def running(world: World, device: Device, size: int, *, started: bool) -> None:
    """Let a job hold memory there."""
    accepted = Accepted("run", "h", "c", "t", RunJob("i", memory_bytes=size), "job-1", device.id, device.uuid)
    world.accept(accepted)
    if started:
        fact = e.JobStarted("job-1", "i", False, "container", "h", device.id, device.uuid, memory_bytes=size)
        world.apply(Fact(fact, "h", "c", "run"), "t")


@pytest.mark.parametrize(
    ("size", "device"), [(4 * GIB, "gpu-0"), (8 * GIB, "gpu-0"), (9 * GIB, "gpu-1"), (30 * GIB, "cpu")]
)
def test_a_promise_goes_to_the_smallest_card_that_has_it_and_to_the_cpu_last(size: int, device: str) -> None:
    """Whatever API the device offers: only the job knows what it computes with."""
    assert put(size) == device


@pytest.mark.parametrize("name", ["gpu-1", LARGE.uuid])
def test_a_named_device_is_taken_and_no_other(name: str) -> None:
    assert put(GIB, wanted=name) == "gpu-1"
    refused = refusal(30 * GIB, wanted=name)
    assert (refused.code, refused.details["device"]) == ("INSUFFICIENT_MEMORY", "gpu-1")
    assert refusal(GIB, wanted="gpu-9").code == "UNKNOWN_DEVICE"


def test_without_a_promise_and_a_device_it_runs_on_the_host() -> None:
    assert put(None) is None
    assert put(None, devices=()) is None


def test_a_device_named_without_a_promise_is_handed_over_however_full_it_is() -> None:
    world = World()
    running(world, SMALL, 8 * GIB, started=True)
    assert put(None, wanted="gpu-0", world=world) == "gpu-0"
    assert refusal(None, wanted="gpu-9").code == "UNKNOWN_DEVICE"


def test_a_key_for_accelerators_alone_never_gets_nor_hears_of_the_cpu() -> None:
    assert put(GIB, accelerators_only=True) == "gpu-0"
    for refused in (
        refusal(None, accelerators_only=True),
        refusal(GIB, wanted="cpu", accelerators_only=True),
        refusal(None, wanted="cpu", accelerators_only=True),
    ):
        assert refused.code == "ACCELERATORS_ONLY"
        assert refused.details["devices"] == ["gpu-0", "gpu-1"]
    assert refusal(30 * GIB, accelerators_only=True).details["device"] == "gpu-1"
    assert refusal(GIB, devices=(CPU,), accelerators_only=True).details["devices"] == []


@pytest.mark.parametrize("wanted", ISOLATION_LEVELS)
@pytest.mark.parametrize("size", [None, GIB])
def test_isolation_is_given_up_to_what_is_offered(wanted: str, size: int | None) -> None:
    """With a device and without."""
    if ISOLATION_LEVELS.index(wanted) <= ISOLATION_LEVELS.index("container"):
        assert put(size, isolation=wanted) == (None if size is None else "gpu-0")
    else:
        assert refusal(size, isolation=wanted).code == "ISOLATION_UNAVAILABLE"


@pytest.mark.parametrize(("started", "left"), [(False, 1), (True, 3)])
def test_the_promise_of_a_job_that_runs_is_in_the_drivers_figure(started: bool, left: int) -> None:
    """Before it was started it is still to come; by promises it counts to its end."""
    world = World()
    device = attrs.evolve(SMALL, memory_free_bytes=3 * GIB)
    running(world, device, 2 * GIB, started=started)
    room = room_on(device, world)
    assert (room.by_promises, room.by_driver) == (6 * GIB, left * GIB)


def test_a_held_processor_takes_no_job_without_a_device_either() -> None:
    """Easily missed 5; a job that names a card still goes there."""
    held = {HOST: Availability(is_free=False, is_held=True)}
    assert refusal(None, availability=held).code == "DEVICE_BUSY"
    assert put(GIB, availability=held) == SMALL.id
    assert put(None, availability={SMALL.uuid: Availability(is_free=False)}) is None
