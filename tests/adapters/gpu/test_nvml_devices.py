"""NVIDIA cards as devices: every figure true or unknown, and one bad card hides no other."""

from pathlib import Path

import attrs
import pynvml
import pytest

from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.port import Api, Condition
from tests.support.nvml.driver import GIB, UNKNOWN, Card, Instance, NvmlDriver, card, error
from tests.support.nvml.library import compiled

FIGURES = ("temperature_celsius", "power_watts", "utilisation_ratio", "energy_joules")
FIGURE_CALLS = (
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTotalEnergyConsumption",
)


async def test_a_card_is_a_device_with_all_that_the_driver_says(nvml: NvmlDriver) -> None:
    gpu = NvmlGpu(patience=60)

    (device,) = await gpu.devices()

    assert (device.id, device.uuid) == ("gpu-0", nvml.cards[0].uuid)
    assert (device.name, device.vendor, device.slicing) == ("NVIDIA H200", "nvidia", "none")
    assert device.apis == (Api("cuda", "13.0"),)
    assert not device.is_cpu
    assert (device.total_bytes, device.memory_free_bytes) == (140 * GIB, 100 * GIB)
    assert [getattr(device, name) for name in FIGURES] == [41.0, 75.5, 0.12, 123456.789]
    assert device.is_ready
    assert gpu.state.condition == "ready"
    assert gpu.state.driver_version == "580.65.06"
    assert gpu.state.unreadable == 0


async def test_readings_are_live(nvml: NvmlDriver) -> None:
    gpu = NvmlGpu(patience=60)
    await gpu.devices()
    nvml.cards[0].memory = (140 * GIB, 7 * GIB, 132 * GIB, GIB)
    nvml.write()

    assert (await gpu.devices())[0].memory_free_bytes == 7 * GIB


async def test_sixteen_cards_keep_the_drivers_order(nvml: NvmlDriver) -> None:
    nvml.cards = [card(n) for n in range(16)]
    nvml.write()

    devices = await NvmlGpu(patience=60).devices()

    assert [device.id for device in devices] == [f"gpu-{n}" for n in range(16)]
    assert [device.uuid for device in devices] == [one.uuid for one in nvml.cards]


async def test_what_the_driver_does_not_support_is_unknown(nvml: NvmlDriver) -> None:
    nvml.cards = [Card("GPU-bare", None, None, None, None, None, None, None)]
    nvml.version = nvml.cuda = None
    nvml.write()
    gpu = NvmlGpu(patience=60)

    (device,) = await gpu.devices()

    # A card with the host's memory in place of its own answers so; it is shown all the same.
    assert device.total_bytes is None
    assert device.memory_free_bytes is None
    assert [getattr(device, name) for name in FIGURES] == [None] * 4
    assert device.apis == (Api("cuda", None),)
    assert device.name
    assert device.is_ready
    assert gpu.state.driver_version is None


async def test_a_sentinel_is_unknown(nvml: NvmlDriver) -> None:
    nvml.cards[0] = Card(
        "GPU-x",
        memory=(UNKNOWN, UNKNOWN, UNKNOWN, 0),
        temperature=UNKNOWN,
        power=UNKNOWN,
        energy=UNKNOWN,
        utilisation=(UNKNOWN, UNKNOWN),
    )
    nvml.cuda = UNKNOWN
    nvml.write()

    (device,) = await NvmlGpu(patience=60).devices()

    assert device.total_bytes is None
    assert device.memory_free_bytes is None
    assert [getattr(device, name) for name in FIGURES] == [None] * 4
    assert device.apis[0].version is None


@pytest.mark.parametrize(
    ("memory", "total", "free"),
    [
        ((0, 0, 0, 0), None, None),
        ((GIB, 2 * GIB, 0, 0), GIB, None),
        ((GIB, 0, GIB, 0), GIB, 0),
        ((2**60, GIB, GIB, 0), None, GIB),
    ],
    ids=["no memory at all", "more free than there is", "full", "more than any card has"],
)
async def test_memory_that_cannot_be_is_unknown(
    nvml: NvmlDriver, memory: tuple[int, int, int, int], total: int | None, free: int | None
) -> None:
    nvml.cards[0].memory = memory
    nvml.write()

    (device,) = await NvmlGpu(patience=60).devices()

    assert (device.total_bytes, device.memory_free_bytes) == (total, free)


@pytest.mark.parametrize("code", [3, 4, 7, 13, 17, 999])
async def test_a_figure_that_fails_is_unknown_and_hides_nothing(nvml: NvmlDriver, code: int) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].rules = [error(call, code) for call in FIGURE_CALLS]
    nvml.write()

    first, second = await NvmlGpu(patience=60).devices()

    assert [getattr(first, name) for name in FIGURES] == [None] * 4
    assert first.memory_free_bytes == 100 * GIB
    assert first.is_ready
    assert None not in [getattr(second, name) for name in FIGURES]


@pytest.mark.parametrize("name", ["x" * 90, "a\tb", "", "\udcff\udcfe"])
async def test_a_name_is_text_or_nobodys(nvml: NvmlDriver, name: str) -> None:
    nvml.cards[0].name = name
    nvml.write()

    (device,) = await NvmlGpu(patience=60).devices()

    assert device.name == (name if name.startswith("x") else "NVIDIA card")


async def test_a_split_card_is_its_instances(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [
        Instance("MIG-a", 0, "NVIDIA H200 MIG 3g.71gb", (70 * GIB, 60 * GIB, 10 * GIB, 0), (1, 0)),
        Instance("MIG-b", 5, ids=(2, 0)),
    ]
    nvml.write()

    first, second, whole = await NvmlGpu(patience=60).devices()

    assert (first.id, first.uuid, first.slicing) == ("gpu-0/mig-0", "MIG-a", "mig")
    assert first.name == "NVIDIA H200 MIG 3g.71gb"
    assert (first.total_bytes, first.memory_free_bytes) == (70 * GIB, 60 * GIB)
    assert first.apis == (Api("cuda", "13.0"),)
    # Its card's heat, power and use are not its own.
    assert [getattr(first, name) for name in FIGURES] == [None] * 4
    assert (second.id, second.uuid) == ("gpu-0/mig-5", "MIG-b")
    assert (whole.id, whole.slicing) == ("gpu-1", "none")


async def test_an_instance_is_not_asked_for_what_is_its_cards(nvml: NvmlDriver) -> None:
    """Here it would be lost for having been asked (dask/distributed#8739: none of it is defined)."""
    lost = [error(call, pynvml.NVML_ERROR_GPU_IS_LOST) for call in FIGURE_CALLS]
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [Instance("MIG-a", rules=lost)]
    nvml.write()

    (instance,) = await NvmlGpu(patience=60).devices()

    assert instance.is_ready
    assert [getattr(instance, name) for name in FIGURES] == [None] * 4


async def test_a_card_with_mig_on_and_no_instances_offers_nothing(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].mig = (1, 7)
    nvml.write()
    gpu = NvmlGpu(patience=60)

    assert [device.id for device in await gpu.devices()] == ["gpu-1"]
    assert gpu.state.condition == "ready"
    assert gpu.state.unreadable == 0


async def test_instances_come_and_go_with_their_card(nvml: NvmlDriver) -> None:
    gpu = NvmlGpu(patience=60)
    assert [device.id for device in await gpu.devices()] == ["gpu-0"]
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [Instance("MIG-a", 0), Instance("MIG-b", 1, ids=(2, 0))]
    nvml.write()
    # Nothing is lost: the card is there, cut up.
    assert [device.id for device in await gpu.devices()] == ["gpu-0/mig-0", "gpu-0/mig-1"]
    del nvml.cards[0].instances[0]
    nvml.write()
    assert [device.id for device in await gpu.devices()] == ["gpu-0/mig-1"]


async def test_an_instance_that_cannot_be_asked_stays_and_hides_no_other(nvml: NvmlDriver) -> None:
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [Instance("MIG-a", 0), Instance("MIG-b", 1, ids=(2, 0))]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    await gpu.devices()
    nvml.cards[0].instances[0].rules = [error("nvmlDeviceGetMigDeviceHandleByIndex", 999)]
    nvml.write()

    devices = {device.uuid: device for device in await gpu.devices()}

    assert devices["MIG-a"].condition == "unreadable"
    assert devices["MIG-a"].total_bytes == 16 * GIB
    assert devices["MIG-a"].memory_free_bytes is None
    assert devices["MIG-b"].is_ready
    assert gpu.state.unreadable == 0


async def test_an_instance_that_was_never_named_is_counted(nvml: NvmlDriver) -> None:
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [
        Instance("MIG-a", 0, rules=[error("nvmlDeviceGetUUID", 999)]),
        Instance("MIG-b", 1, ids=(2, 0)),
    ]
    nvml.write()
    gpu = NvmlGpu(patience=60)

    assert [device.uuid for device in await gpu.devices()] == ["MIG-b"]
    assert gpu.state.unreadable == 1


async def test_memory_that_two_instances_share_is_offered_once(nvml: NvmlDriver) -> None:
    nvml.cards[0].mig = (1, 7)
    nvml.cards[0].instances = [Instance("MIG-a", 0, ids=(1, 0)), Instance("MIG-b", 1, ids=(1, 1))]
    nvml.write()

    first, second = await NvmlGpu(patience=60).devices()

    assert first.is_ready
    assert second.condition == "unreadable"
    assert second.condition_reason is not None
    assert "gpu-0/mig-0" in second.condition_reason


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, "lost"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "lost"),
        (pynvml.NVML_ERROR_UNKNOWN, "unreadable"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "unreadable"),
    ],
)
async def test_a_card_that_cannot_be_asked_stays_as_it_was_last_known(
    nvml: NvmlDriver, code: int, condition: Condition
) -> None:
    nvml.cards = [card(0), card(1), card(2)]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    before = (await gpu.devices())[1]
    nvml.cards[1].rules = [error("*", code)]
    nvml.write()

    first, second, third = await gpu.devices()

    assert (first.is_ready, third.is_ready) == (True, True)
    assert second.condition == condition
    assert second.condition_reason
    assert (second.id, second.uuid, second.name) == (before.id, before.uuid, before.name)
    assert second.total_bytes == before.total_bytes
    assert second.memory_free_bytes is None
    assert [getattr(second, name) for name in FIGURES] == [None] * 4
    assert gpu.state.condition == "ready"
    # Every card is shown, so none is only counted.
    assert gpu.state.unreadable == 0

    nvml.cards[1].rules = []
    nvml.write()
    assert (await gpu.devices())[1] == before


async def test_a_card_that_was_never_named_is_counted(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[0].lose()
    nvml.write()
    gpu = NvmlGpu(patience=60)

    assert [device.id for device in await gpu.devices()] == ["gpu-1"]
    assert gpu.state.unreadable == 1


async def test_a_card_whose_slicing_is_unknown_offers_nothing_new(nvml: NvmlDriver) -> None:
    nvml.cards[0].rules = [error("nvmlDeviceGetMigMode", 999)]
    nvml.write()

    (device,) = await NvmlGpu(patience=60).devices()

    assert (device.id, device.condition) == ("gpu-0", "unreadable")
    assert device.total_bytes is None


async def test_a_card_lost_in_the_middle_of_its_reading_is_lost(nvml: NvmlDriver) -> None:
    nvml.cards[0].rules = [error("nvmlDeviceGetPowerUsage", pynvml.NVML_ERROR_GPU_IS_LOST)]
    nvml.write()

    (device,) = await NvmlGpu(patience=60).devices()

    assert device.condition == "lost"
    assert device.memory_free_bytes is None


async def test_a_card_that_vanishes_is_lost_and_its_number_anothers(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.write()
    gpu = NvmlGpu(patience=60)
    await gpu.devices()
    gone = nvml.cards.pop(0)
    nvml.reload()

    devices = {device.uuid: device for device in await gpu.devices()}

    assert devices[nvml.cards[0].uuid].id == "gpu-0"
    assert devices[nvml.cards[0].uuid].is_ready
    assert devices[gone.uuid].condition == "lost"
    # `gpu-0` is the card that has the number now, so the lost one goes by its UUID.
    assert devices[gone.uuid].id == gone.uuid

    nvml.cards.append(gone)
    nvml.write()
    # The driver counts cards when it is begun with, so it is for as long as one is lacking.
    await gpu.devices()
    assert [(d.id, d.is_ready) for d in await gpu.devices()] == [("gpu-0", True), ("gpu-1", True)]


async def test_a_card_is_known_by_its_uuid_when_numbers_change(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.cards[1].name = "Another"
    nvml.write()
    gpu = NvmlGpu(patience=60)
    before = {device.uuid: device for device in await gpu.devices()}
    nvml.cards.reverse()
    nvml.reload()

    after = await gpu.devices()

    assert [device.id for device in after] == ["gpu-0", "gpu-1"]
    assert [device.name for device in after] == ["Another", "NVIDIA H200"]
    assert {d.uuid: attrs.evolve(d, id="") for d in after} == {
        uuid: attrs.evolve(device, id="") for uuid, device in before.items()
    }


async def test_two_cards_never_bear_one_uuid(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(0)]
    nvml.write()
    gpu = NvmlGpu(patience=60)

    assert [device.id for device in await gpu.devices()] == ["gpu-0"]
    assert gpu.state.unreadable == 1


async def test_an_older_driver_is_read_all_the_same(
    nvml_cache: Path, nvml: NvmlDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = nvml.folder.parent / "older"
    folder.mkdir()
    NvmlDriver(folder, compiled(nvml_cache, "r470"), [card(0)], version="470.1", cuda=11_040).load(
        monkeypatch
    )
    gpu = NvmlGpu(patience=60)

    (device,) = await gpu.devices()

    assert device.apis == (Api("cuda", "11.4"),)
    assert [getattr(device, name) for name in FIGURES] == [41.0, 75.5, 0.12, 123456.789]
    assert device.memory_free_bytes == 100 * GIB
    assert await gpu.processes() == {device.uuid: None}


async def test_more_cards_than_are_looked_at_are_counted(nvml: NvmlDriver) -> None:
    nvml.cards = [card(n) for n in range(80)]
    nvml.write()
    gpu = NvmlGpu(patience=60)

    assert len(await gpu.devices()) == 64
    assert gpu.state.unreadable == 16
