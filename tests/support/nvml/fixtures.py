"""The made-up NVIDIA driver, loaded into this process's pynvml."""

from pathlib import Path

import pytest

from tests.support.nvml.driver import NvmlDriver, card
from tests.support.nvml.library import compiled


@pytest.fixture(scope="session")
def nvml_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled libraries are kept: the workers of one run share it."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / "nvml"


@pytest.fixture(scope="session")
def nvml_library(nvml_cache: Path) -> Path:
    """The library of a driver of today."""
    return compiled(nvml_cache)


@pytest.fixture
def nvml(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlDriver:
    """A driver with one card, which pynvml finds in this test."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    driver = NvmlDriver(folder, nvml_library, [card(0)])
    driver.load(monkeypatch)
    return driver
