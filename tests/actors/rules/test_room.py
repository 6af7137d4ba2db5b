"""How much of a device may be promised, and what depends on what the workloads use of it (F18)."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import events as e
from actors.messages.envelope import Fact
from actors.rules.room import room_on, say_of_use
from actors.state.world import World
from adapters.gpu.fake import cuda_device
from adapters.gpu.port import Device

TOTAL = 100
SIZES = st.integers(0, TOTAL)


def card(free: int | None) -> Device:
    return attrs.evolve(cuda_device(0, TOTAL), memory_free_bytes=free)


def holding(device: Device, promises: list[int]) -> World:
    """A world of deployments that were started on a device, some that are ready."""
    world = World()
    for number, promise in enumerate(promises):
        name = f"dep-{number}"
        started = e.DeploymentStarted(name, "m", "vllm", device.id, device.uuid, promise, "process", "h")
        world.apply(Fact(started, "h", "c", f"cmd-{number}"), "2026-11-30T00:00:00.000Z")
        if number % 2:
            ready = e.DeploymentReady(name, "m", "vllm", device.id)
            world.apply(Fact(ready, "h", "c", f"cmd-{number}"), "2026-11-30T00:00:01.000Z")
    return world


@given(
    free=st.none() | SIZES,
    promises=st.lists(st.integers(1, 40), max_size=4),
    asked=st.integers(0, TOTAL + 20),
    uses=st.lists(st.none() | st.integers(0, 120), min_size=4, max_size=4),
)
def test_where_use_has_no_say_in_the_verdict_it_is_the_same_whatever_the_workloads_use(
    free: int | None, promises: list[int], asked: int, uses: list[int | None]
) -> None:
    device = card(free)
    world = holding(device, promises)
    known = {f"dep-{number}": use for number, use in enumerate(uses) if use is not None}
    all_used = {f"dep-{number}": promise for number, promise in enumerate(promises)}
    rooms = [room_on(device, world, each) for each in (known, {}, all_used)]
    match say_of_use([device], world, asked):
        case "none":
            assert all(room.bytes >= asked for room in rooms) or len(set(rooms)) == 1
        case "words":
            assert all(room.bytes < asked for room in rooms)
        case "verdict":
            nothing_used = room_on(device, world, dict.fromkeys(all_used, 0))
            assert nothing_used.bytes < asked <= rooms[-1].bytes, "it has a say only where it may decide"


def test_use_has_no_say_where_it_fits_and_only_words_where_promises_or_free_memory_refuse() -> None:
    world = holding(card(80), [30])
    sizes = (0, 50, 51, 70, 71)
    assert [say_of_use([card(80)], world, size) for size in sizes] == [
        "none", "none", "verdict", "verdict", "words",
    ]  # fmt: skip
    assert [say_of_use([card(60)], world, size) for size in (30, 60, 61)] == ["none", "verdict", "words"]
    assert say_of_use([card(None)], world, 90) == "none", "the driver gives no figure to tell"
    assert say_of_use([card(80)], World(), 200) == "none", "nobody uses anything"


def test_of_several_devices_the_one_counts_on_which_use_has_the_most_say() -> None:
    full, taken = card(80), attrs.evolve(cuda_device(1, TOTAL), memory_free_bytes=10)
    world = holding(full, [30, 30])
    assert say_of_use([full, taken], world, 15) == "none"
    assert say_of_use([full, taken], world, 30) == "verdict"
    assert say_of_use([full, taken], world, 50) == "words"
    assert say_of_use([], world, 50) == "none"


def test_what_asks_for_nothing_fits_on_a_device_that_is_full() -> None:
    world = holding(card(0), [90, 30])
    assert say_of_use([card(0)], world, 0) == "none"
    assert room_on(card(0), world).bytes == 0
