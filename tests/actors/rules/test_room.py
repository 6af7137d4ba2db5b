"""How much of a device may be promised, and when nobody has to be asked for that (F18)."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import events as e
from actors.messages.envelope import Fact
from actors.rules.room import is_certain, room_on
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
def test_what_is_certain_holds_whatever_the_workloads_use(
    free: int | None, promises: list[int], asked: int, uses: list[int | None]
) -> None:
    device = card(free)
    world = holding(device, promises)
    known = {f"dep-{number}": use for number, use in enumerate(uses) if use is not None}
    if is_certain(device, world, asked):
        all_used = {f"dep-{number}": promise for number, promise in enumerate(promises)}
        verdicts = {room_on(device, world, each).bytes >= asked for each in (known, {}, all_used)}
        assert len(verdicts) == 1


def test_it_is_certain_where_it_fits_whatever_is_used_and_never_where_it_may_be_refused() -> None:
    """A refusal says what is left, and that depends on what is used."""
    device = card(80)
    world = holding(device, [30])
    assert [is_certain(device, world, size) for size in (50, 51, 70, 71)] == [True, False, False, False]
    assert is_certain(card(None), world, 60)
    assert is_certain(device, World(), 200), "nobody uses anything"
