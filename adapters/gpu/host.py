"""The host's own processor with its memory, as a device (F16, F17): what a machine with no card serves on.

All of it is read from /proc and the control groups: a few milliseconds on a machine with many cores, so
that a thread reads them.
"""

import os
import platform
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from adapters.gpu.port import Api, Device, DeviceProcess, GpuState, Program
from adapters.pids import are_the_machines

KIB: Final = 1024
LEAST_SECONDS: Final = 0.2
"""Between two readings of use: the kernel counts in hundredths of a second."""
MAX_NAME: Final = 128
MAX_FILE: Final = 1024 * 1024
"""Bytes read of one kernel file; a machine with very many cores says much of each."""
MAX_STATUS: Final = 64 * 1024
"""Bytes read of what the kernel says of one process: some 1,500, and more for each group of its user's.

To make room for much more takes as long as the rest, each of hundreds of times.
"""

_HELD: Final = re.compile(rb"^Rss(?:Anon|Shmem):\s*(\d+)", re.MULTILINE)

_STATE: Final = 0
_START: Final = 19
"""Fields of /proc/PID/stat counted from the one after the name (proc_pid_stat(5): 3 and 22)."""

_VENDORS: Final = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "Apple": "apple"}


@attrs.frozen
class _Use:
    at: float
    busy: int
    total: int


@attrs.define(eq=False)
class HostGpu:
    """Reads the processor of this machine as its one device.

    Args:
        proc: where the kernel tells of itself.
        groups: where the control groups are mounted.
    """

    proc: Path = Path("/proc")
    groups: Path = Path("/sys/fs/cgroup")
    _name: str | None = attrs.field(default=None, init=False)
    _vendor: str = attrs.field(default="unknown", init=False)
    _last: _Use | None = attrs.field(default=None, init=False)
    _ratio: float | None = attrs.field(default=None, init=False)
    # One reader at a time: each compares with the one before.
    _thread: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(1), init=False, repr=False
    )

    async def devices(self) -> tuple[Device, ...]:
        """The processor, read now; a figure that this system does not give is None."""
        return (await trio.to_thread.run_sync(self._device, limiter=self._thread),)

    async def processes(self) -> Mapping[str, tuple[DeviceProcess, ...] | None]:
        """Nothing: a processor is nobody's alone."""
        await trio.lowlevel.checkpoint()
        return {}

    async def programs(self, pids: frozenset[int]) -> Mapping[int, Program] | None:
        """From /proc; None where that does not tell of the machine's processes."""
        return await trio.to_thread.run_sync(self._programs, pids, limiter=self._thread)

    async def host_memory(self, groups: Mapping[str, frozenset[int]]) -> Mapping[str, int]:
        """What is theirs alone or shared between programs, and no file's: a file's can be read again."""
        return await trio.to_thread.run_sync(self._held, groups, limiter=self._thread)

    @property
    def state(self) -> GpuState:
        """No driver is asked."""
        return GpuState("none")

    def _programs(self, pids: frozenset[int]) -> Mapping[int, Program] | None:
        if not are_the_machines(self.proc):
            return None
        found = ((pid, self._program(pid)) for pid in pids)
        return {pid: program for pid, program in found if program is not None}

    def _program(self, pid: int) -> Program | None:
        raw = _text(self.proc / str(pid) / "stat")
        # The name stands in brackets and may hold brackets and spaces itself: the last one closes it.
        before, _, after = raw.rpartition(")")
        fields = after.split()
        # What has ended and waits to be asked for its end holds nothing any more.
        if len(fields) <= _START or fields[_STATE] in ("Z", "X", "x"):
            return None
        name = before.partition("(")[2]
        return Program(int(fields[_START]), name if name.isprintable() else None)

    def _held(self, groups: Mapping[str, frozenset[int]]) -> dict[str, int]:
        if not self.proc.is_dir():
            return {}
        found = {name: [self._held_by(pid) for pid in pids] for name, pids in groups.items()}
        return {name: sum(one or 0 for one in held) for name, held in found.items() if None not in held}

    def _held_by(self, pid: int) -> int | None:
        # Of hundreds of processes in a row: without a path object and a buffer it takes half the time.
        try:
            with open(f"{self.proc}/{pid}/status", "rb", buffering=0) as file:
                text = file.read(MAX_STATUS)
        except (FileNotFoundError, ProcessLookupError):
            return 0
        except OSError:
            return None
        # A process that is ending has given its memory back, and has no such lines.
        return None if len(text) == MAX_STATUS else sum(map(int, _HELD.findall(text))) * KIB

    def _device(self) -> Device:
        if self._name is None:
            self._name, self._vendor = self._processor()
        total, free = self._memory()
        return Device(
            id="cpu",
            uuid="cpu",
            name=self._name,
            vendor=self._vendor,
            apis=(Api("cpu"),),
            memory_total_bytes=total,
            memory_free_bytes=free,
            utilisation_ratio=self._utilisation(),
        )

    def _processor(self) -> tuple[str, str]:
        facts: dict[str, str] = {}
        for line in self._read("cpuinfo").split("\n\n", 1)[0].splitlines():
            key, _, value = line.partition(":")
            facts[key.strip()] = value.strip()
        name = facts.get("model name") or platform.processor() or platform.machine() or "CPU"
        return name[:MAX_NAME], _VENDORS.get(facts.get("vendor_id", ""), "unknown")

    def _memory(self) -> tuple[int, int | None]:
        """Total and free, whichever is less of the machine's and of what the control groups leave."""
        facts: dict[str, int] = {}
        for line in self._read("meminfo").splitlines():
            key, _, value = line.partition(":")
            number = value.split()
            if number and number[0].isdecimal():
                facts[key] = int(number[0]) * KIB
        total = facts.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        free = facts.get("MemAvailable")
        for limit, used in self._limits():
            total = min(total, limit)
            if free is not None and used is not None:
                free = min(free, max(0, limit - used))
        return total, None if free is None else min(free, total)

    def _limits(self) -> list[tuple[int, int | None]]:
        """Limit and use of every control group this process is under; a limit above it binds as well."""
        found = []
        for line in self._read("self/cgroup").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controllers == "":
                found += self._limits_in(self.groups, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                found += self._limits_in(
                    self.groups / "memory",
                    path,
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                )
        return found

    def _limits_in(
        self, root: Path, path: str, limit_file: str, use_file: str, idle: str
    ) -> list[tuple[int, int | None]]:
        found = []
        # Inside a container the path may be the host's and not be there: its root is then the group itself.
        names = [part for part in path.split("/") if part not in ("", ".", "..")]
        for depth in range(len(names), -1, -1):
            group = root.joinpath(*names[:depth])
            limit = _number(_text(group / limit_file))
            if limit is None:
                continue
            used = _number(_text(group / use_file))
            if used is not None:
                # Pages of files that nobody uses now count as use and are given back at once.
                used = max(0, used - (_field(_text(group / "memory.stat"), idle) or 0))
            found.append((limit, used))
        return found

    def _utilisation(self) -> float | None:
        """Use of all cores since the last reading, 0 to 1; None until there is one to compare with."""
        line = self._read("stat").partition("\n")[0].split()
        if len(line) < 5 or line[0] != "cpu":
            return None
        # user nice system idle iowait irq softirq steal; what guests use stands in user already.
        ticks = [int(tick) for tick in line[1:9]]
        total = sum(ticks)
        now = _Use(time.monotonic(), total - sum(ticks[3:5]), total)
        last = self._last
        if last is None:
            self._last = now
        elif now.at - last.at >= LEAST_SECONDS and now.total > last.total:
            self._ratio = min(1.0, max(0.0, (now.busy - last.busy) / (now.total - last.total)))
            self._last = now
        return self._ratio

    def _read(self, name: str) -> str:
        return _text(self.proc / name)


def boot_ticks() -> int:
    """Now, as `Program.started` counts; it counts on while the machine sleeps."""
    if sys.platform != "linux":
        raise OSError("this system does not count ticks since its boot")
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    """A byte count; `max` and nothing are none."""
    text = text.strip()
    return int(text) if text.isdecimal() else None


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value)
    return None
