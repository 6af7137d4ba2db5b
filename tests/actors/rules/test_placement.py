"""Where a workload goes, and why it goes nowhere (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import events as e
from actors.messages.commands import Accepted, DeployModel
from actors.messages.envelope import Fact
from actors.rules.availability import ALL_FREE, Availability
from actors.rules.placement import ISOLATION_LEVELS, place
from actors.rules.refusal import Refusal
from actors.rules.room import room_on
from actors.state.keys import Grant
from actors.state.world import World
from adapters.gpu.port import Api, Device

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
ANY_API = frozenset({"cuda", "rocm", "cpu"})


def card(number: int, total: int, free: int | None = None, **more: Any) -> Device:
    return Device(
        id=f"gpu-{number}",
        uuid=f"GPU-{number}",
        name="card",
        vendor="nvidia",
        apis=(Api("cuda"),),
        memory_total_bytes=total,
        memory_free_bytes=total if free is None else free,
        **more,
    )


def cpu(total: int = 64 * GIB, free: int | None = 64 * GIB) -> Device:
    return Device("cpu", "cpu", "cpu", "x", (Api("cpu"),), total, free)


def promise(world: World, device: Device, size: int, *, ready: bool = False, name: str = "dep-1") -> None:
    """Let a deployment hold memory there."""
    accepted = Accepted(
        f"cmd-{name}",
        "h",
        "c",
        "t",
        DeployModel("m", "vllm", size),
        name,
        device.id,
        device.uuid,
    )
    world.accept(accepted)
    if ready:
        started = e.DeploymentStarted(name, "m", "x", device.id, device.uuid, size, "process", "h")
        world.apply(Fact(started, "h", "c", accepted.id), "t")
        world.apply(Fact(e.DeploymentReady(name, "m", "x", device.id), "h", "c", accepted.id), "t")


def put(
    devices: list[Device],
    size: int,
    *,
    world: World | None = None,
    apis: frozenset[str] = ANY_API,
    wanted: str | None = None,
    isolation: str | None = None,
    offered: str = "process",
    grant: Grant | None = None,
    availability: Mapping[str, Availability] = ALL_FREE,
) -> Device:
    return place(
        engine="some-engine",
        apis=apis,  # type: ignore[arg-type]
        memory_bytes=size,
        wanted_device=wanted,
        wanted_isolation=isolation,
        isolation=offered,
        devices=devices,
        grant=grant or Grant(),
        world=world or World(),
        availability=availability,
    )


def refusal(*args: Any, **kwargs: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        put(*args, **kwargs)
    return refused.value


def test_the_smallest_card_that_fits_is_taken() -> None:
    devices = [card(0, 80 * GIB), card(1, 24 * GIB), card(2, 16 * GIB), cpu()]
    assert put(devices, 20 * GIB).id == "gpu-1"
    assert put(devices, 10 * GIB).id == "gpu-2"
    assert put(devices, 40 * GIB).id == "gpu-0"


def test_cards_come_first_and_the_cpu_last_however_small() -> None:
    assert put([cpu(4 * GIB, 4 * GIB), card(0, 80 * GIB)], GIB).id == "gpu-0"
    assert put([card(0, 8 * GIB), cpu()], 16 * GIB).id == "cpu"


def test_of_two_alike_the_first_is_taken() -> None:
    assert put([card(0, 8 * GIB), card(1, 8 * GIB)], GIB).id == "gpu-0"


def test_a_card_that_is_full_is_passed_over() -> None:
    world = World()
    small, large = card(0, 8 * GIB), card(1, 80 * GIB)
    promise(world, small, 6 * GIB)
    assert put([small, large], 4 * GIB, world=world) == large


def test_room_is_what_is_not_promised() -> None:
    """Promised whether started or not; by UUID."""
    world = World()
    device = card(0, 10 * GIB)
    promise(world, device, 4 * GIB, ready=True)
    renumbered = attrs.evolve(device, id="gpu-7")
    assert room_on(renumbered, world).by_promises == 6 * GIB


def test_room_is_also_what_the_driver_sees_free_less_what_is_still_to_come() -> None:
    """We add the driver's half: another program's use counts, and our own promises not yet used."""
    world = World()
    device = card(0, 10 * GIB, free=7 * GIB)
    promise(world, device, 2 * GIB, name="dep-loading")
    promise(world, device, 1 * GIB, name="dep-ready", ready=True)
    room = room_on(device, world)
    assert room.by_promises == 7 * GIB
    assert room.by_driver == 5 * GIB
    assert room.bytes == 5 * GIB


def test_what_a_ready_deployment_was_promised_and_does_not_use_is_still_to_come() -> None:
    world = World()
    host = cpu(24 * GIB, 20 * GIB)
    promise(world, host, 15 * GIB, name="dep-small", ready=True)
    promise(world, host, 2 * GIB, name="dep-large", ready=True)
    promise(world, host, 1 * GIB, name="dep-unknown", ready=True)
    uses = {"dep-small": 1 * GIB, "dep-large": 3 * GIB}
    assert room_on(host, world, uses).by_driver == 6 * GIB
    assert room_on(host, world).by_driver == 20 * GIB
    on_a_card = World()
    device = card(0, 24 * GIB, free=20 * GIB)
    promise(on_a_card, device, 15 * GIB, name="dep-small", ready=True)
    assert room_on(device, on_a_card, uses).by_driver == 6 * GIB, "of a card as of the host"


def test_the_smaller_half_decides_either_way() -> None:
    world = World()
    device = card(0, 10 * GIB)
    promise(world, device, 9 * GIB, ready=True)
    assert room_on(device, world).bytes == 1 * GIB
    assert room_on(card(0, 10 * GIB, free=GIB // 2), World()).bytes == GIB // 2


def test_a_figure_that_the_driver_does_not_give_is_neither_zero_nor_fine() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1073: then promises decide, and the refusal says so."""
    unknown = attrs.evolve(card(0, 10 * GIB), memory_free_bytes=None)
    assert put([unknown], 10 * GIB) == unknown
    refused = refusal([unknown], 11 * GIB)
    assert refused.details["driver_bytes"] is None
    assert "the driver gives no figure" in refused.message


def test_of_a_card_of_unknown_size_nothing_is_promised_and_the_refusal_says_why() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1073: "not supported", says a unified-memory card."""
    unknown = card(0, 0, is_total_known=False)
    unknown = attrs.evolve(unknown, memory_free_bytes=None)
    assert room_on(unknown, World()).bytes == 0
    refused = refusal([unknown], GIB, wanted="gpu-0")
    assert refused.code == "INSUFFICIENT_MEMORY"
    assert refused.details == {
        "requested_bytes": GIB,
        "available_bytes": 0,
        "unpromised_bytes": None,
        "driver_bytes": None,
        "device": "gpu-0",
    }
    assert "does not say how much memory it has" in refused.message
    assert put([unknown, cpu()], GIB).id == "cpu", "another takes it"


def test_room_is_never_negative() -> None:
    world = World()
    device = card(0, 10 * GIB, free=1)
    promise(world, device, 9 * GIB)
    assert room_on(device, world).bytes == 0


def test_a_refusal_for_memory_says_both_figures_and_what_would_fit() -> None:
    """Haidra-Org/AI-Horde#161: what no card could ever hold waited like any other."""
    refused = refusal([card(0, 8 * GIB, free=3 * GIB), cpu(2 * GIB, 2 * GIB)], 16 * GIB)
    assert refused.code == "INSUFFICIENT_MEMORY"
    assert refused.details == {
        "requested_bytes": 16 * GIB,
        "available_bytes": 3 * GIB,
        "unpromised_bytes": 8 * GIB,
        "driver_bytes": 3 * GIB,
        "device": "gpu-0",
    }
    assert f"ask for {3 * GIB} at most" in refused.message


@pytest.mark.parametrize("name", ["gpu-1", "GPU-1"])
def test_a_device_is_named_by_its_id_or_its_uuid(name: str) -> None:
    devices = [card(0, 8 * GIB), card(1, 80 * GIB), cpu()]
    assert put(devices, GIB, wanted=name).id == "gpu-1"


def test_a_named_device_without_room_is_not_replaced_by_another() -> None:
    refused = refusal([card(0, 8 * GIB), card(1, 80 * GIB)], 16 * GIB, wanted="gpu-0")
    assert refused.code == "INSUFFICIENT_MEMORY"
    assert refused.details["device"] == "gpu-0"


def test_an_unknown_device_is_refused_with_those_there_are() -> None:
    refused = refusal([card(0, 8 * GIB), cpu()], GIB, wanted="gpu-9")
    assert refused.code == "UNKNOWN_DEVICE"
    assert refused.details["devices"] == ["gpu-0", "cpu"]


def test_an_engine_goes_where_its_api_is() -> None:
    devices = [card(0, 8 * GIB), cpu()]
    assert put(devices, GIB, apis=frozenset({"cpu"})).id == "cpu"
    refused = refusal(devices, GIB, apis=frozenset({"rocm", "metal"}))
    assert refused.code == "ENGINE_NEEDS_DEVICE"
    assert refused.details["needs"] == ["metal", "rocm"]
    named = refusal(devices, GIB, apis=frozenset({"cpu"}), wanted="gpu-0")
    assert named.details["devices"] == ["gpu-0"]


def test_a_key_for_accelerators_alone_never_gets_nor_hears_of_the_cpu() -> None:
    """Easily missed 26: a refusal names only what the key may see."""
    grant = Grant(accelerators_only=True)
    devices = [card(0, 8 * GIB), cpu()]
    assert refusal(devices, 16 * GIB, grant=grant).details["device"] == "gpu-0"
    assert refusal(devices, GIB, grant=grant, wanted="gpu-9").details["devices"] == ["gpu-0"]
    assert refusal(devices, GIB, grant=grant, apis=frozenset({"cpu"})).details["devices"] == ["gpu-0"]
    named = refusal(devices, GIB, grant=grant, wanted="cpu")
    assert named.code == "ACCELERATORS_ONLY"
    assert named.details["devices"] == ["gpu-0"]
    assert refusal([cpu()], GIB, grant=grant).code == "ACCELERATORS_ONLY"


@pytest.mark.parametrize("offered", ISOLATION_LEVELS)
@pytest.mark.parametrize("wanted", ISOLATION_LEVELS)
def test_isolation_is_given_up_to_what_is_offered(wanted: str, offered: str) -> None:
    """Weakest first: process, container, user-namespace, vm (F32)."""
    if ISOLATION_LEVELS.index(wanted) <= ISOLATION_LEVELS.index(offered):
        assert put([cpu()], GIB, isolation=wanted, offered=offered).id == "cpu"
    else:
        refused = refusal([cpu()], GIB, isolation=wanted, offered=offered)
        assert refused.code == "ISOLATION_UNAVAILABLE"
        assert refused.details == {"requested": wanted, "offered": offered}


sizes = st.integers(1, 64)
cards = st.lists(st.tuples(sizes, st.none() | st.integers(0, 64)), min_size=1, max_size=5).map(
    lambda figures: [
        attrs.evolve(card(n, total * GIB), memory_free_bytes=None if free is None else min(free, total) * GIB)
        for n, (total, free) in enumerate(figures)
    ]
)


@given(cards, st.booleans(), st.lists(st.tuples(st.integers(0, 5), sizes, st.booleans()), max_size=6), sizes)
@settings(max_examples=150, deadline=None)
def test_what_is_placed_fits_and_is_the_smallest_that_does(
    devices: list[Device], with_cpu: bool, promises: list[tuple[int, int, bool]], size: int
) -> None:
    devices = [*devices, *([cpu()] if with_cpu else [])]
    world = World()
    for number, (at, promised, ready) in enumerate(promises):
        promise(world, devices[at % len(devices)], promised * GIB, name=f"dep-{number}", ready=ready)
    rooms = {d.uuid: room_on(d, world).bytes for d in devices}
    if max(rooms.values()) < size * GIB:
        refused = refusal(devices, size * GIB, world=world)
        assert refused.code == "INSUFFICIENT_MEMORY"
        assert refused.details["available_bytes"] == max(rooms.values())
        return
    placed = put(devices, size * GIB, world=world)
    assert rooms[placed.uuid] >= size * GIB
    fitting = [d for d in devices if rooms[d.uuid] >= size * GIB]
    assert placed.is_cpu == all(d.is_cpu for d in fitting)
    if not placed.is_cpu:
        assert placed.memory_total_bytes == min(d.memory_total_bytes for d in fitting if not d.is_cpu)


def test_a_device_that_cannot_be_read_is_passed_over_and_alone_is_refused_with_the_reason() -> None:
    lost = card(0, 80 * GIB).not_ready("lost", "it fell off the bus")
    assert put([lost, card(1, 24 * GIB)], GIB).id == "gpu-1"
    refused = refusal([lost, card(1, 24 * GIB)], GIB, wanted="gpu-0")
    assert refused.code == "DEVICE_NOT_READY"
    assert "it fell off the bus" in refused.message
    assert refused.details == {"device": "gpu-0", "condition": "lost"}


def test_a_busy_device_is_passed_over_and_alone_is_refused_with_what_is_known() -> None:
    busy = {"GPU-0": Availability(is_free=False, until="2026-10-20T22:00:00.000Z", reason="maintenance")}
    assert put([card(0, 8 * GIB), card(1, 24 * GIB)], GIB, availability=busy).id == "gpu-1"
    refused = refusal([card(0, 8 * GIB), card(1, 24 * GIB)], GIB, wanted="gpu-0", availability=busy)
    assert refused.code == "DEVICE_BUSY"
    assert refused.details == {
        "device": "gpu-0",
        "until": "2026-10-20T22:00:00.000Z",
        "reason": "maintenance",
    }


def test_of_busy_devices_the_one_that_frees_first_is_named() -> None:
    busy = {
        "GPU-0": Availability(is_free=False),
        "GPU-1": Availability(is_free=False, until="2026-10-20T22:00:00.000Z"),
        "GPU-2": Availability(is_free=False, until="2026-10-20T21:00:00.000Z"),
    }
    refused = refusal([card(n, 8 * GIB) for n in range(3)], GIB, availability=busy)
    assert refused.details == {"device": "gpu-2", "until": "2026-10-20T21:00:00.000Z"}
