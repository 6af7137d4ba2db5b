"""The host's processor and memory as a device."""

import os
import time
from pathlib import Path

import pytest

from adapters.gpu.fake import FakeGpu, cpu_device, cuda_device
from adapters.gpu.host import HostGpu, boot_ticks
from adapters.gpu.port import Device, Program
from adapters.pids import MACHINES

MIB = 1024**2
GIB = 1024**3

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: A Processor @ 3.00GHz

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Another
"""
MEMINFO = f"""MemTotal:       {16 * MIB} kB
MemFree:        1000 kB
MemAvailable:   {12 * MIB} kB
HugePages_Total: 0
"""


class Kernel:
    """A made-up /proc and control groups."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("proc/cpuinfo", CPUINFO)
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3 4\n")
        self.write("proc/self/cgroup", "0::/\n")
        self.gpu = HostGpu(folder / "proc", folder / "groups")
        (folder / "proc/self/ns").mkdir()
        self.name_pids(MACHINES)
        self.run(1, "init", 1)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def name_pids(self, name: str) -> None:
        """Have processes be numbered in this namespace."""
        link = self.folder / "proc/self/ns/pid"
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def run(self, pid: int, name: str, started: int, state: str = "S") -> None:
        """Have a process live."""
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {state} {'0 ' * 18}{started} 0 0\n")

    async def read(self) -> Device:
        (device,) = await self.gpu.devices()
        return device


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


async def test_the_processor_is_a_device_with_the_machines_memory(kernel: Kernel) -> None:
    device = await kernel.read()

    assert (device.id, device.uuid) == ("cpu", "cpu")
    assert (device.name, device.vendor) == ("A Processor @ 3.00GHz", "intel")
    assert device.is_cpu
    assert device.offers(frozenset({"cpu"}))
    assert device.memory_total_bytes == 16 * GIB
    assert device.memory_free_bytes == 12 * GIB
    assert device.temperature_celsius is None


@pytest.mark.parametrize(
    ("where", "files"),
    [
        (
            "0::/system.slice/best-peer.service\n",
            {
                "system.slice/best-peer.service/memory.max": "max\n",
                "system.slice/memory.max": f"{4 * GIB}\n",
                "system.slice/memory.current": f"{3 * GIB}\n",
                "system.slice/memory.stat": f"anon 5\ninactive_file {GIB}\n",
            },
        ),
        (
            "2:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n",
            {
                "memory/memory.limit_in_bytes": f"{4 * GIB}\n",
                "memory/memory.usage_in_bytes": f"{3 * GIB}\n",
                "memory/memory.stat": f"total_inactive_file {GIB}\n",
            },
        ),
    ],
    ids=["version 2, above the own group", "version 1, in a container"],
)
async def test_a_lower_limit_of_a_control_group_counts(
    kernel: Kernel, where: str, files: dict[str, str]
) -> None:
    kernel.write("proc/self/cgroup", where)
    for name, text in files.items():
        kernel.write(f"groups/{name}", text)

    device = await kernel.read()

    assert device.memory_total_bytes == 4 * GIB
    assert device.memory_free_bytes == 2 * GIB


async def test_no_limit_is_no_limit(kernel: Kernel) -> None:
    # What version 1 says where none is set.
    kernel.write("proc/self/cgroup", "4:memory:/\n")
    kernel.write("groups/memory/memory.limit_in_bytes", f"{2**63 - 4096}\n")
    kernel.write("groups/memory/memory.usage_in_bytes", f"{3 * GIB}\n")

    device = await kernel.read()

    assert device.memory_total_bytes == 16 * GIB
    assert device.memory_free_bytes == 12 * GIB


async def test_use_is_unknown_until_there_are_two_readings(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert (await kernel.read()).utilisation_ratio is None
    now = 101.0
    kernel.write("proc/stat", "cpu  150 0 125 900 25 0 0 0 0 0\n")
    assert (await kernel.read()).utilisation_ratio == pytest.approx(75 / 200)
    # Asked again at once, it is what it was a moment ago.
    now = 101.1
    kernel.write("proc/stat", "cpu  151 0 125 900 25 0 0 0 0 0\n")
    assert (await kernel.read()).utilisation_ratio == pytest.approx(75 / 200)


async def test_where_the_kernel_says_nothing_a_figure_is_unknown_and_not_zero(tmp_path: Path) -> None:
    (device,) = await HostGpu(tmp_path / "proc", tmp_path / "groups").devices()

    assert device.memory_total_bytes > 0
    assert device.memory_free_bytes is None
    assert device.utilisation_ratio is None
    assert device.name
    assert device.vendor == "unknown"


async def test_this_machine_is_read() -> None:
    (device,) = await HostGpu().devices()

    assert device.memory_total_bytes > 64 * MIB
    assert device.memory_free_bytes is None or device.memory_free_bytes <= device.memory_total_bytes


async def test_made_up_devices_change_as_told() -> None:
    gpu = FakeGpu((cuda_device(), cpu_device()))
    gpu.then(cpu_device())
    assert await gpu.devices() == (cpu_device(),)
    gpu.put(cpu_device(memory_bytes=GIB))

    assert (await gpu.devices())[0].memory_total_bytes == GIB
    assert gpu.reads == 2
    assert not cuda_device().is_cpu
    assert cuda_device(1).uuid != cuda_device(2).uuid


async def test_what_processes_hold_is_theirs_and_no_files(kernel: Kernel) -> None:
    kernel.write(
        "proc/7/status",
        "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 300 kB\nRssFile:\t 500 kB\nRssShmem:\t 100 kB\n",
    )
    kernel.write("proc/8/status", "Name:\tending\nState:\tZ (zombie)\n")

    groups = {"both": frozenset({7, 8}), "ended": frozenset({7, 99}), "none": frozenset[int]()}
    held = await kernel.gpu.host_memory(groups)
    assert held == {"both": 400 * 1024, "ended": 400 * 1024, "none": 0}, "one that has ended holds nothing"


async def test_what_cannot_be_read_is_unknown(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "proc/7/status").mkdir(parents=True)
    many = " ".join(str(group) for group in range(1000, 20_000))
    kernel.write("proc/8/status", f"Name:\tx\nGroups:\t{many}\nRssAnon:\t 300 kB\n")

    groups = {"unknown": frozenset({7}), "cut off": frozenset({8}), "ended": frozenset({99})}
    assert await kernel.gpu.host_memory(groups) == {"ended": 0}
    assert await HostGpu(tmp_path / "none").host_memory(groups) == {}


async def test_a_process_is_told_by_its_start_and_its_name(kernel: Kernel) -> None:
    kernel.run(7, "a (name) )", 4100)
    kernel.run(8, "ended", 4100, "Z")
    kernel.run(9, "over\x1b[31m", 4200)

    assert await kernel.gpu.programs(frozenset({7, 8, 9, 99})) == {
        7: Program(4100, "a (name) )"),
        9: Program(4200, None),
    }


async def test_a_container_that_numbers_its_own_processes_knows_no_others(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.run(7, "inside", 4100)
    kernel.name_pids("pid:[4026532900]")

    assert await kernel.gpu.programs(frozenset({7})) is None
    kernel.name_pids(MACHINES)
    assert await kernel.gpu.programs(frozenset({7})) == {7: Program(4100, "inside")}
    (kernel.folder / "proc/1/stat").unlink()
    assert await kernel.gpu.programs(frozenset({7})) is None, "others' processes are hidden (hidepid)"
    assert await HostGpu(tmp_path / "none").programs(frozenset({7})) is None


async def test_this_process_began_before_now(kernel: Kernel) -> None:
    kernel.gpu.proc = Path("/proc")
    own = kernel.gpu._program(os.getpid())
    assert own is not None
    assert 0 < own.started <= boot_ticks()
