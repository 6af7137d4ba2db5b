"""Which series there are of what, and for whom, over a fold and a reading made up here (F36)."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

import attrs
import pytest

from actors.counts import UNKNOWN, CommandCounts
from actors.messages.commands import COMMANDS, Accepted, DeployModel, RunJob
from actors.metrics import SERIES, Eyes, Sample, Scene, samples
from actors.reports import Hardware
from actors.state.keys import Grant, Key
from actors.state.world import World
from adapters.gpu.fake import LOST, cpu_device, cuda_device, mig_device
from adapters.gpu.port import Api, Device, GpuState

AT = "2026-11-30T00:00:00.000Z"
EVERYTHING = Eyes("h-owner", sees_all=True, sees_cpu=True)
FIGURES = (
    *("memory_total_bytes", "memory_free_bytes", "utilisation_ratio"),
    *("temperature_celsius", "power_watts", "energy_joules_total"),
)


def world(*accepted: Accepted) -> World:
    made = World()
    for each in accepted:
        made.accept(each)
    return made


def deployment(number: int, device: Device, holder: str = "h-1") -> Accepted:
    body = DeployModel("small", "ollama", 1 << 20)
    return Accepted(f"c-{number}", holder, "x", AT, body, f"dep-{number}", device.id, device.uuid)


def job(number: int, device: Device | None = None, holder: str = "h-1") -> Accepted:
    body = RunJob("busybox", memory_bytes=None if device is None else 1 << 20)
    made = Accepted(f"c-{number}", holder, "x", AT, body, f"job-{number}", boxed=True)
    return made if device is None else attrs.evolve(made, device=device.id, device_uuid=device.uuid)


def scene(*devices: Device, of: World | None = None, driver: GpuState | None = None, **more: Any) -> Scene:
    hardware = Hardware(devices, driver or GpuState("ready", "580.1"))
    made = Scene("1.2.3", of or World(), hardware, CommandCounts(), ("JobStarted", "Undeployed"), streams=4)
    return attrs.evolve(made, **more)


def seen(scene: Scene, eyes: Eyes = EVERYTHING) -> dict[str, list[Sample]]:
    return {series.name: found for series, found in samples(scene, eyes)}


def figures_of(found: dict[str, list[Sample]], device: str) -> dict[str, float]:
    """By the series' name, what there is of one device."""
    return {
        name: value
        for name, rows in found.items()
        for labels, value in rows
        if name.startswith("best_peer_device_") and labels[0] == device
    }


def test_names_labels_and_words_are_what_both_texts_take() -> None:
    names = [series.name for series in SERIES]
    assert len(set(names)) == len(names)
    for series in SERIES:
        assert re.fullmatch(r"best_peer_[a-z]+(_[a-z]+)*", series.name)
        assert series.name.endswith("_total") == (series.kind == "counter")
        assert series.name.endswith("_info") == (series.kind == "info")
        if series.unit is not None:
            assert series.name.removesuffix("_total").endswith(f"_{series.unit}")
        assert not set(series.about) & set('\\"\n')
        assert not series.about.endswith(".")
        assert not {"pid", "correlation", "user"} & set(series.labels)


def test_every_series_is_there_once_there_is_something_of_it() -> None:
    counts = CommandCounts()
    counts.refuse(None, "UNAUTHORIZED")
    card = attrs.evolve(cuda_device(), energy_joules=1.0)
    found = seen(scene(card, of=world(deployment(1, card), job(2, card)), commands=counts))
    assert list(found) == [series.name for series in SERIES]
    for series in SERIES:
        assert all(len(labels) == len(series.labels) for labels, _ in found[series.name])


def test_a_figure_that_is_unknown_is_absent_and_zero_is_a_figure() -> None:
    known = cuda_device(0)
    unknown = cuda_device(1).not_ready("lost", "it fell off the bus")
    of_nan = attrs.evolve(cuda_device(2), power_watts=nan, temperature_celsius=inf)
    idle = attrs.evolve(cuda_device(3), memory_free_bytes=0, utilisation_ratio=0.0)
    unsized = attrs.evolve(cuda_device(4), memory_total_bytes=0, is_total_known=False)
    found = seen(scene(known, unknown, of_nan, idle, unsized))
    shown = {d: set(figures_of(found, d)) for d in ("gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4")}
    every = {f"best_peer_device_{figure}" for figure in FIGURES}
    always = {"best_peer_device_info", "best_peer_device_memory_promised_bytes"}
    assert shown["gpu-0"] == shown["gpu-3"] == every | always
    assert shown["gpu-1"] == {"best_peer_device_memory_total_bytes"} | always
    assert every - shown["gpu-2"] == {"best_peer_device_power_watts", "best_peer_device_temperature_celsius"}
    assert every - shown["gpu-4"] == {"best_peer_device_memory_total_bytes"}
    assert figures_of(found, "gpu-3")["best_peer_device_memory_free_bytes"] == 0


def test_an_instance_has_no_utilisation_temperature_or_power_of_its_own() -> None:
    found = seen(scene(mig_device(), cpu_device()))
    assert dict(found["best_peer_device_memory_total_bytes"])["gpu-0/mig-0", "nvidia", "cuda"] == 18 << 30
    assert "mig" in found["best_peer_device_info"][0][0]
    assert not set(found) & {f"best_peer_device_{figure}" for figure in FIGURES[2:]}


@pytest.mark.parametrize(
    ("driver", "readable"),
    [
        (GpuState("none"), 1),
        (GpuState("ready", "580.1"), 1),
        (GpuState("unread"), 0),
        (GpuState("late", "580.1", LOST), 0),
        (GpuState("lost", None, LOST), 0),
        (None, 0),
    ],
)
def test_without_the_driver_there_are_no_series_of_devices(driver: GpuState | None, readable: int) -> None:
    card = cuda_device()
    there = scene(card, cpu_device(), of=world(deployment(1, card)), driver=driver or GpuState("ready"))
    if driver is None:
        there = attrs.evolve(there, hardware=None)
    found = seen(there)
    assert found["best_peer_hardware_readable"] == [((), readable)]
    assert any(name.startswith("best_peer_device_") for name in found) == bool(readable)
    version = driver.driver_version if driver is not None else None
    assert found["best_peer_info"] == [(("1.2.3", version or ""), 1)]
    # What is promised and lives is known without it.
    assert found["best_peer_deployment_memory_promised_bytes"] == [(("dep-1", "gpu-0", "h-1"), 1 << 20)]


def test_a_device_is_named_by_the_first_interface_and_told_all_of_them() -> None:
    both = attrs.evolve(cuda_device(), apis=(Api("cuda", "13.0"), Api("vulkan")), name="A Card")
    none = attrs.evolve(cuda_device(1), apis=())
    found = seen(scene(both, none))["best_peer_device_info"]
    assert found == [
        (("gpu-0", "nvidia", "cuda", "A Card", "cuda 13.0,vulkan", "none"), 1),
        (("gpu-1", "nvidia", "", "Fake Card", "", "none"), 1),
    ]


def test_a_workload_is_on_the_card_it_was_placed_on_however_that_is_numbered_now() -> None:
    placed = cuda_device(0)
    renumbered = attrs.evolve(placed, id="gpu-1")
    there = world(deployment(1, placed), job(2, placed), job(3))
    found = seen(scene(attrs.evolve(cuda_device(1), id="gpu-0"), renumbered, of=there))
    assert found["best_peer_deployment_info"] == [(("dep-1", "gpu-1", "h-1", "small", "ollama"), 1)]
    assert found["best_peer_job_info"] == [(("job-2", "gpu-1", "h-1"), 1), (("job-3", "", "h-1"), 1)]
    assert found["best_peer_job_memory_promised_bytes"] == [(("job-2", "gpu-1", "h-1"), 1 << 20)]
    gone = seen(scene(cuda_device(1), of=there))
    assert gone["best_peer_deployment_info"][0][0][1] == "gpu-0", "as it was when it was placed there"


def eyes_of(**grant: Any) -> Eyes:
    return Eyes.of(Key("h-1", "agent", Grant(**grant), 0))


@pytest.mark.parametrize(
    ("grant", "eyes"),
    [
        ({}, Eyes("h-1", sees_all=True, sees_cpu=True)),
        ({"scopes": ("metrics",)}, Eyes("h-1", sees_all=True, sees_cpu=True)),
        ({"accelerators_only": True}, Eyes("h-1", sees_all=True, sees_cpu=False)),
        ({"scopes": ("deploy", "jobs", "prompt", "workspaces")}, Eyes("h-1", sees_all=False, sees_cpu=True)),
        ({"scopes": ("prompt",), "accelerators_only": True}, Eyes("h-1", sees_all=False, sees_cpu=False)),
    ],
)
def test_a_key_reads_here_what_it_reads_elsewhere(grant: dict[str, Any], eyes: Eyes) -> None:
    assert eyes_of(**grant) == eyes


def test_anothers_workloads_and_the_doors_own_counts_are_for_all_or_metrics_alone() -> None:
    card, cpu = cuda_device(), cpu_device()
    others = world(*(deployment(n, card, "h-2") for n in range(3)), job(3, cpu, "h-2"))
    found = seen(scene(card, cpu, of=others), eyes_of(scopes=("deploy", "jobs")))
    of_the_door = {series.name for series in SERIES if series.readers == "all or metrics"}
    assert not of_the_door & set(found)
    assert not [name for name in found if "deployment" in name or "job" in name or "prompt" in name]
    assert {labels[0] for labels, _ in found["best_peer_device_info"]} == {"gpu-0", "cpu"}
    others.accept(deployment(4, card, "h-1"))
    found = seen(scene(card, of=others), eyes_of(scopes=("deploy", "jobs")))
    assert [labels[0] for labels, _ in found["best_peer_deployment_info"]] == ["dep-4"]
    assert "h-2" not in str(found)
    assert seen(scene(card, of=others))["best_peer_device_memory_promised_bytes"][0][1] == 4 << 20


def test_only_what_a_key_may_read_at_the_door_is_counted_of_its_facts() -> None:
    """Who made a workspace and who joined one is nobody's to read there."""
    there = World()
    there.events_told.update({"JobStarted": 7, "WorkspaceCreated": 3})
    assert seen(scene(of=there))["best_peer_events_total"] == [(("JobStarted",), 7), (("Undeployed",), 0)]


def test_no_label_of_a_command_is_the_senders_own() -> None:
    counts = CommandCounts()
    for number in range(1000):
        counts.refuse(f"Made-up {number}", "UNKNOWN_COMMAND")
        counts.accept(f"Made-up {number}")
    counts.accept("RunJob")
    counts.refuse("RunJob", "FORBIDDEN")
    found = seen(scene(commands=counts))
    assert dict(found["best_peer_commands_accepted_total"]) == {
        **{(command,): 0 for command in COMMANDS},
        ("RunJob",): 1,
        (UNKNOWN,): 1000,
    }
    assert dict(found["best_peer_commands_refused_total"]) == {
        (UNKNOWN, "UNKNOWN_COMMAND"): 1000,
        ("RunJob", "FORBIDDEN"): 1,
    }
    assert UNKNOWN not in COMMANDS
