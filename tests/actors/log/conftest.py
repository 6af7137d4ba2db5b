"""Disks that fail as told, for every test of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.logs import FullDisk, SizeLimit, SmallTmpfs, Syncs, can_mount, watched_syncs


@cache
def disk_kinds() -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder:
        return ("limit", "tmpfs") if can_mount(Path(folder)) else ("limit",)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "full_disk" in metafunc.fixturenames:
        metafunc.parametrize("full_disk", disk_kinds(), indirect=True)


@pytest.fixture
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FullDisk]:
    """A folder whose file system the test fills and frees."""
    if request.param == "tmpfs":
        with SmallTmpfs.mounted(tmp_path / "disk") as tmpfs:
            yield tmpfs
    else:
        with SizeLimit.at(tmp_path / "disk") as limit:
            yield limit


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    """Every fdatasync of this process, counted and held and failed as the test says."""
    with watched_syncs(monkeypatch) as watched:
        yield watched
