"""Which devices a peer is composed with, and when its start is refused over them (F17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from peer.devices import BLIND, DriverRefused, open_gpu
from peer.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.nvml.driver import NvmlDriver


def settings(tmp_path: Path, **variables: str) -> Settings:
    named = {f"BEST_PEER_{name}": value for name, value in variables.items()}
    return Settings.read({"HOME": str(tmp_path), **named})


async def test_the_cards_come_first_and_the_processor_last(nvml: NvmlDriver, tmp_path: Path) -> None:
    async with open_gpu(settings(tmp_path)) as gpu:
        assert [device.id for device in await gpu.devices()] == ["gpu-0", "cpu"]
        assert gpu.state.driver_version == nvml.version


async def test_without_a_driver_the_start_is_refused_with_what_serves_without_it(
    nvml: NvmlDriver, tmp_path: Path
) -> None:
    nvml.session = None
    nvml.write()
    with pytest.raises(DriverRefused, match=r"is installed and not loaded.*BEST_PEER_GPU=none"):
        async with open_gpu(settings(tmp_path)):
            pass


async def test_a_driver_without_a_card_refuses_the_start_too(nvml: NvmlDriver, tmp_path: Path) -> None:
    nvml.cards.clear()
    nvml.write()
    with pytest.raises(DriverRefused, match=r"lists no card.*BEST_PEER_GPU=none"):
        async with open_gpu(settings(tmp_path)):
            pass


async def test_a_driver_that_comes_up_late_is_waited_for(
    nvml: NvmlDriver, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.session = None
    nvml.write()
    caplog.set_level("INFO", "best_peer")

    async def come_up(seconds: float) -> None:
        nvml.session = 2
        nvml.write()
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr("adapters.gpu.nvml.trio.sleep", come_up)
    async with open_gpu(settings(tmp_path, DRIVER_WAIT="2m")) as gpu:
        assert [device.id for device in await gpu.devices()] == ["gpu-0", "cpu"]
    assert "waiting for the NVIDIA driver, 120 s at most" in caplog.text


async def test_with_none_no_driver_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.devices.NvmlGpu", None)
    async with open_gpu(settings(tmp_path, GPU="none")) as gpu:
        assert [device.id for device in await gpu.devices()] == ["cpu"]
        assert gpu.state.condition == "none"


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_peer_that_does_not_see_the_machines_processes_says_so(
    nvml: NvmlDriver,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_seen: bool,
) -> None:
    monkeypatch.setattr("peer.devices.are_the_machines", lambda proc: is_seen)
    async with open_gpu(settings(tmp_path)):
        assert (BLIND in caplog.text) is not is_seen
