"""What engines say of themselves, and which of them are refused."""

from typing import Any

import pytest

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.info import EngineInfo, EngineRefused, examine
from tests.support.docker.bed import DockerBed

DEBIAN: dict[str, Any] = {
    "CgroupDriver": "cgroupfs",
    "CgroupVersion": "1",
    "CpuCfsPeriod": True,
    "CpuCfsQuota": True,
    "DockerRootDir": "/var/lib/docker",
    "LiveRestoreEnabled": False,
    "MemoryLimit": True,
    "NCPU": 2,
    "OSType": "linux",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "PidsLimit": True,
    "Runtimes": {"io.containerd.runc.v2": {"path": "runc"}, "runc": {"path": "runc"}},
    "SecurityOptions": ["name=seccomp,profile=default"],
    "SwapLimit": True,
}
"""Docker 20.10 as Debian 12 ships it."""
UBUNTU: dict[str, Any] = {
    **DEBIAN,
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
    "LiveRestoreEnabled": True,
    "NCPU": 64,
    "OperatingSystem": "Ubuntu 24.04.2 LTS",
    "Runtimes": {"io.containerd.runc.v2": {}, "nvidia": {"path": "nvidia-container-runtime"}, "runc": {}},
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
}
"""Docker 28 from Docker's own packages, with NVIDIA's toolkit."""
ROOTLESS: dict[str, Any] = {
    **UBUNTU,
    "DockerRootDir": "/home/ann/.local/share/docker",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"],
}
VERSION: dict[str, Any] = {
    "Version": "28.3.2",
    "ApiVersion": "1.51",
    "Components": [{"Name": "Engine", "Version": "28.3.2"}, {"Name": "containerd", "Version": "1.7.27"}],
}


def test_debians_engine_confines_with_a_profile_that_has_no_name() -> None:
    assert examine(DEBIAN, {**VERSION, "Version": "20.10.24+dfsg1"}) == EngineInfo(
        version="20.10.24+dfsg1", cores=2, isolation="container"
    )


def test_newer_engines_are_given_their_profiles_by_name() -> None:
    assert examine(UBUNTU, VERSION) == EngineInfo(
        version="28.3.2",
        cores=64,
        isolation="container",
        seccomp="builtin",
        has_apparmor=True,
        survives_restart=True,
        has_nvidia=True,
    )


def test_a_profile_of_the_owners_own_is_not_undone_by_naming_another() -> None:
    info = {**UBUNTU, "SecurityOptions": ["name=seccomp,profile=/etc/docker/strict.json"]}

    assert examine(info, VERSION).seccomp is None


@pytest.mark.parametrize("option", ["name=userns", "name=rootless"])
def test_users_mapped_to_unprivileged_ones_are_a_user_namespace(option: str) -> None:
    info = {**UBUNTU, "SecurityOptions": ["name=seccomp,profile=builtin", option]}

    assert examine(info, VERSION).isolation == "user-namespace"


def test_the_toolkit_is_known_by_the_devices_that_it_describes() -> None:
    described = {**DEBIAN, "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}
    other = {**DEBIAN, "DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]}

    assert examine(described, VERSION).has_nvidia
    assert not examine(other, VERSION).has_nvidia


@pytest.mark.parametrize(
    ("info", "version", "reason", "fix"),
    [
        ({"OSType": "windows", "CgroupDriver": ""}, {}, "windows containers", "Linux containers"),
        ({"OSType": None}, {}, "unknown containers", "Linux containers"),
        ({}, {"Components": [{"Name": "Podman Engine"}]}, "Podman", "install Docker Engine"),
        ({"MemoryLimit": False}, {}, "limits of memory$", "cgroup_enable=memory"),
        ({"PidsLimit": False}, {}, "limits of tasks$", "pids"),
        ({"CpuCfsQuota": False}, {}, "limits of processor time$", "cpu"),
        ({"PidsLimit": None, "MemoryLimit": None}, {}, "limits of memory, tasks$", "pids"),
        ({"SecurityOptions": None}, {}, "has no seccomp", "kernel with seccomp"),
        ({"SecurityOptions": "name=seccomp"}, {}, "has no seccomp", "kernel with seccomp"),
        ({"SecurityOptions": ["name=seccomp,profile=unconfined"]}, {}, "unconfined", "seccomp-profile"),
    ],
)
def test_an_engine_that_cannot_keep_the_promises_is_refused(
    info: dict[str, Any], version: dict[str, Any], reason: str, fix: str
) -> None:
    with pytest.raises(EngineRefused, match=reason) as refused:
        examine({**DEBIAN, **info}, {**VERSION, **version})

    assert fix in refused.value.fix


def test_rootless_on_the_first_control_groups_is_refused_and_says_what_to_do() -> None:
    limits = {"MemoryLimit": False, "PidsLimit": False, "CpuCfsQuota": False}
    info = {**ROOTLESS, **limits, "CgroupDriver": "none", "CgroupVersion": "1"}

    with pytest.raises(EngineRefused, match="rootless without control groups") as refused:
        examine(info, VERSION)

    assert "cgroup v2" in refused.value.fix


def test_rootless_without_a_delegated_controller_is_refused() -> None:
    with pytest.raises(EngineRefused, match="processor time") as refused:
        examine({**ROOTLESS, "CpuCfsQuota": False}, VERSION)

    assert "delegate" in refused.value.fix


def test_the_owner_is_told_what_the_engine_does_not_do() -> None:
    assert examine(UBUNTU, VERSION).remarks() == ()
    restart, swap, files = EngineInfo("1", 2, "container", counts_swap=False, open_files=None).remarks()
    assert "live-restore" in restart
    assert "swapaccount=1" in swap
    assert "65536" in files


async def test_the_engine_of_the_tests_is_taken(docker_bed: DockerBed) -> None:
    async with DockerClient(unix_endpoint(docker_bed.socket)) as client:
        info = examine(await client.call("GET", "/info"), await client.call("GET", "/version"))

    assert info.isolation == "container"
    assert info.cores >= 1
    assert not info.has_nvidia
    assert info.root.startswith(str(docker_bed.disk))
