"""Where a run was made: what a reader needs to judge its figures."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.support.bench.child import ROOT

_LIBRARIES = ("trio", "quart", "quart-trio", "hypercorn", "h11", "orjson", "msgspec", "xllamacpp")
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


def describe(scratch: Path) -> list[str]:
    """Lines about the machine, the versions and the moment."""
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    system = f"{platform.system()} {platform.release()}; scratch files on {file_system(scratch)}"
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}; load average at the start {load}",
        f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {_memory_gib():.0f} GiB; {system}",
        f"Python {sys.version.split()[0]}; {libraries}",
    ]


def file_system(path: Path) -> str:
    """The type of the file system that a path is on."""
    found, kind = Path("/"), "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, at, its_kind, *_ = line.split()
        mount = Path(at.replace("\\040", " "))
        if path.resolve().is_relative_to(mount) and len(mount.parts) >= len(found.parts):
            found, kind = mount, its_kind
    return kind


def on_disk(paths: list[Path]) -> Path:
    """The first of these folders whose files are not in memory alone; the first when none is."""
    return next((p for p in paths if p.is_dir() and file_system(p) not in _IN_MEMORY), paths[0])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
