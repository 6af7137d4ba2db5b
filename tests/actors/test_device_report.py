"""What is shown of devices and their driver: unknown is never zero, strangers are for their owner (F16)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from jsonschema import Draft202012Validator

from actors.devicereport import cards_report
from actors.reports import Machine, hardware_state
from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device, mig_device
from adapters.gpu.port import Api, DeviceProcess, DriverFault, GpuState, Program
from tests.support.houses import Household, open_house

if TYPE_CHECKING:
    from adapters.gpu.port import Condition, Device

SCHEMA = Path("peer/door/schemas/queries/get-hardware-state-1.0.json")
ROOT = Path(__file__).parents[2]
CHANGING = ("temperature_celsius", "power_watts", "utilisation_ratio", "energy_joules")


async def state(house: Household) -> dict[str, Any]:
    """What get-hardware-state answers, true to its document."""
    found = await hardware_state(Machine(house.house), None, instance="p-1", version="1")
    document = json.loads((ROOT / SCHEMA).read_text())
    assert [e.message for e in Draft202012Validator(document["response"]).iter_errors(found)] == []
    return found


async def test_every_figure_of_a_card_is_shown(tmp_path: Path) -> None:
    card = attrs.evolve(cuda_device(), memory_free_bytes=20 * GIB, power_watts=71.5, energy_joules=9.0)
    async with open_house(tmp_path, gpu=FakeGpu((card, cpu_device()))) as house:
        shown = await state(house)
    device, cpu = shown["devices"]
    assert device["apis"] == [{"api": "cuda", "version": "13.0"}]
    assert (device["memory_total_bytes"], device["memory_free_bytes"]) == (24 * GIB, 20 * GIB)
    assert [device[name] for name in CHANGING] == [40.0, 71.5, 0.0, 9.0]
    assert (device["condition"], "condition_reason" in device) == ("ready", False)
    assert cpu["condition"] == "ready"
    assert shown["driver"] == {"condition": "ready", "version": "580.00"}


async def test_a_machine_that_asks_no_driver_shows_none(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        assert "driver" not in await state(house)


@pytest.mark.parametrize("condition", ["late", "lost", "unreadable"])
async def test_a_card_that_cannot_be_read_says_why_and_has_no_figures(
    tmp_path: Path, condition: Condition
) -> None:
    gpu = FakeGpu((cuda_device(0), mig_device(1), cpu_device()))
    async with open_house(tmp_path, gpu=gpu) as house:
        gpu.lose(cuda_device(0).uuid, condition, "it fell off the bus")
        card, instance, _ = (await state(house))["devices"]
    assert (card["condition"], card["condition_reason"]) == (condition, "it fell off the bus")
    assert card["memory_total_bytes"] == 24 * GIB, "what does not change is still known"
    assert card["memory_free_bytes"] is None
    assert not set(CHANGING) & set(card)
    assert instance["condition"] == "ready", "it hides no other"


@pytest.mark.parametrize("condition", ["late", "lost"])
async def test_what_is_wrong_with_the_driver_is_shown_with_its_remedy(tmp_path: Path, condition: str) -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    async with open_house(tmp_path, gpu=gpu) as house:
        if condition == "late":
            gpu.delay_driver()
        else:
            gpu.lose_driver()
        shown = await state(house)
    assert shown["driver"]["condition"] == condition
    assert set(shown["driver"]["fault"]) == {"code", "reason", "fix"}
    assert [d["condition"] for d in shown["devices"]] == [condition, "ready"]


async def test_a_figure_that_is_not_supported_is_null_or_absent_and_never_zero(tmp_path: Path) -> None:
    """One figure that a driver does not support took down the whole list of cards (dra-driver #1073)."""
    bare: Device = attrs.evolve(
        cuda_device(),
        apis=(Api("cuda"),),
        memory_total_bytes=0,
        is_total_known=False,
        memory_free_bytes=None,
        temperature_celsius=None,
        power_watts=None,
        utilisation_ratio=None,
        energy_joules=None,
    )
    async with open_house(tmp_path, gpu=FakeGpu((bare, cuda_device(1), cpu_device()))) as house:
        card, other, _ = (await state(house))["devices"]
    assert (card["memory_total_bytes"], card["memory_free_bytes"]) == (None, None)
    assert not set(CHANGING) & set(card)
    assert card["apis"] == [{"api": "cuda"}]
    assert other["memory_total_bytes"] == 24 * GIB


async def test_cards_that_are_counted_and_not_named_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = DriverFault("DRIVER_LATE", "late", "wait")
    monkeypatch.setattr(FakeGpu, "state", GpuState("late", None, fault, unreadable=2))
    async with open_house(tmp_path, gpu=FakeGpu((cuda_device(), cpu_device()))) as house:
        driver = (await state(house))["driver"]
    assert driver == {
        "condition": "late",
        "unreadable": 2,
        "fault": {"code": "DRIVER_LATE", "reason": "late", "fix": "wait"},
    }


async def test_the_owner_is_shown_who_is_on_each_card(tmp_path: Path) -> None:
    gpu = FakeGpu((cuda_device(0), cuda_device(1), cpu_device()))
    async with open_house(tmp_path, gpu=gpu) as house:
        name = await house.running(await house.key(), memory_bytes=GIB, device="gpu-0")
        house.runtime.set_processes(name, frozenset({7}))
        gpu.others[9] = Program(5, "blender")
        stranger = DeviceProcess(9, None, "graphics")
        gpu.hold(cuda_device(0).uuid, DeviceProcess(7, GIB, "compute", 0.5), stranger)
        gpu.held[cuda_device(1).uuid] = None

        first, second = await cards_report(house.house)

    assert first == {
        "uuid": cuda_device(0).uuid,
        "known": True,
        "own": [
            {
                "workload": name,
                "pid": 7,
                "kind": "compute",
                "memory_bytes": GIB,
                "name": "program-7",
                "utilisation_ratio": 0.5,
            }
        ],
        "others": [{"pid": 9, "kind": "graphics", "memory_bytes": None, "name": "blender"}],
        "unsure": [],
        "gone": [],
    }
    assert second == {"uuid": cuda_device(1).uuid, "known": False}
