"""What is said of cards and their driver."""

from __future__ import annotations

import ctypes

import attrs
import pynvml
import pytest

from adapters.gpu.fake import cuda_device, mig_device
from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.nvml_faults import late_fault
from adapters.gpu.port import GpuState
from peer.checks import driver
from peer.checks.driver import judge, no_driver_wanted, read
from tests.support.nvml.driver import NvmlDriver, card

READY = GpuState("ready", driver_version="580.95.05")


def test_every_card_is_listed_with_its_memory() -> None:
    devices = [cuda_device(), mig_device(1, 0)]
    lines = judge(devices, READY)
    assert [line.state for line in lines] == ["ok", "ok", "ok"]
    assert lines[0].what == "NVIDIA driver 580.95.05 (CUDA 13.0) answers, 2 devices"
    assert lines[1].what == "gpu-0: Fake Card, 24 GiB, 24 GiB free"
    assert lines[2].what == "gpu-1/mig-0: Fake Card MIG 1g.18gb, 18 GiB, 18 GiB free"


def test_a_driver_fault_is_told_with_its_own_remedy() -> None:
    fault = late_fault(20, "GPU-1")
    (line,) = judge([], GpuState("late", fault=fault))
    assert (line.state, line.what, line.remedy) == ("problem", fault.reason, fault.fix)


def test_no_card_is_a_problem() -> None:
    (line,) = judge([], READY)
    assert line.state == "problem"
    assert "lists no card" in line.what
    assert line.remedy is not None
    assert "BEST_PEER_GPU=none" in line.remedy


def test_a_card_that_is_lost_is_a_problem_and_the_others_are_still_listed() -> None:
    lost = cuda_device(0).not_ready("lost", "the driver lost the card")
    lines = judge([lost, cuda_device(1)], READY)
    assert [line.state for line in lines] == ["ok", "problem", "ok"]
    assert "the driver lost the card" in lines[1].what


def test_memory_that_is_unknown_is_not_zero_and_not_fine() -> None:
    unknown = attrs.evolve(cuda_device(), memory_total_bytes=0, is_total_known=False)
    line = judge([unknown], READY)[1]
    assert line.state == "warning"
    assert "does not say how much memory" in line.what


def test_cards_that_the_driver_does_not_name_are_a_warning() -> None:
    lines = judge([cuda_device()], attrs.evolve(READY, unreadable=1))
    assert [line.state for line in lines] == ["ok", "ok", "warning"]


def test_a_machine_told_to_have_no_card_is_fine() -> None:
    (line,) = no_driver_wanted()
    assert line.state == "ok"
    assert "BEST_PEER_GPU=none" in line.what


async def test_a_driver_is_read_through_its_library(nvml: NvmlDriver) -> None:
    nvml.cards = [card(0), card(1)]
    nvml.write()
    lines = await driver.look()
    assert [line.state for line in lines] == ["ok", "ok", "ok"]


async def test_a_machine_without_the_library_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    (line,) = await read(NvmlGpu(patience=10))
    assert line.state == "problem"
    assert "libnvidia-ml.so.1" in line.what
