"""What a container engine says of itself, and whether it can keep what the peer promises (F21, F30-F32).

An engine takes limits that it cannot enforce without a word; only what it says of itself tells.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from adapters.runtime.port import Isolation, RuntimeFault

OPEN_FILES: Final = 65536
"""Files a box may have open (F31)."""
_NAMED_SECCOMP: Final = "builtin"
"""The one profile that can be named: engines since 23 call their own so, older ones know no name for it."""


class EngineRefused(RuntimeFault):
    """Raised when a container engine cannot keep what the peer promises; `fix` says what to do."""

    def __init__(self, reason: str, *, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@attrs.frozen
class EngineInfo:
    """A container engine that can keep the promises.

    Args:
        version: its own.
        cores: how many it has for containers; at least one.
        isolation: what stands between a container's user and the host's.
        root: where its data lie, by its own paths.
        seccomp: the profile each container is given by name; None where the engine's default has no name.
        has_apparmor: each container is given docker-default by name.
        counts_swap: a memory ceiling holds swap too; where it does not, containers are kept from swapping.
        survives_restart: containers run on while the engine restarts.
        has_nvidia: it says that it knows NVIDIA's container toolkit. One that does not say so may know it.
        open_files: what a box is given; None where the engine cannot give so many and its own limit holds.
    """

    version: str
    cores: int
    isolation: Isolation
    root: str = "/var/lib/docker"
    seccomp: str | None = None
    has_apparmor: bool = False
    counts_swap: bool = True
    survives_restart: bool = False
    has_nvidia: bool = False
    open_files: int | None = OPEN_FILES

    def remarks(self) -> tuple[str, ...]:
        """What the owner should know of this engine when the peer starts, one line each."""
        said = []
        if not self.survives_restart:
            said.append(
                "containers end when the container engine restarts; to have them run on, set"
                ' "live-restore": true in /etc/docker/daemon.json'
            )
        if not self.counts_swap:
            said.append(
                "this kernel does not count swap: what has a memory ceiling is kept from swapping instead;"
                " to have it counted, boot with swapaccount=1"
            )
        if self.open_files is None:
            said.append(
                f"the container engine cannot give a job {OPEN_FILES} open files, so its own limit, which is"
                " lower, holds: raise LimitNOFILE of docker.service and containerd.service"
            )
        return tuple(said)


def examine(info: Mapping[str, Any], version: Mapping[str, Any]) -> EngineInfo:
    """Read what `GET /info` and `GET /version` answered.

    Raises:
        EngineRefused: the engine cannot keep what the peer promises.
    """
    name = f"the container engine ({info.get('OperatingSystem') or 'unknown'}, {version.get('Version')})"
    options = _security_options(info.get("SecurityOptions"))
    _check_kind(name, info, version)
    _check_limits(name, info, is_rootless="rootless" in options)
    return EngineInfo(
        version=str(version.get("Version", "")),
        cores=max(1, _number(info.get("NCPU"))),
        isolation="user-namespace" if options.keys() & {"userns", "rootless"} else "container",
        root=str(info.get("DockerRootDir") or "/var/lib/docker"),
        seccomp=_seccomp(name, options),
        has_apparmor="apparmor" in options,
        counts_swap=info.get("SwapLimit") is True,
        survives_restart=info.get("LiveRestoreEnabled") is True,
        has_nvidia=_has_nvidia(info),
    )


def _check_kind(name: str, info: Mapping[str, Any], version: Mapping[str, Any]) -> None:
    components = version.get("Components") or ()
    if any("podman" in str(component.get("Name", "")).lower() for component in components):
        # It ignores device requests and tells nothing of memory that ran out.
        raise EngineRefused(
            f"{name} is Podman, which takes Docker's calls without keeping what they ask for",
            fix="install Docker Engine 20.10 or newer, or name one by DOCKER_HOST",
        )
    if info.get("OSType") != "linux":
        raise EngineRefused(
            f"{name} runs {info.get('OSType') or 'unknown'} containers, and the peer runs Linux ones",
            fix="switch Docker Desktop to Linux containers, or name another engine by DOCKER_HOST",
        )


def _check_limits(name: str, info: Mapping[str, Any], *, is_rootless: bool) -> None:
    if info.get("CgroupDriver") == "none" and is_rootless:
        raise EngineRefused(
            f"{name} runs rootless without control groups: it takes every limit and enforces none",
            fix="boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) and delegate cpu, memory and pids"
            " to its user (docs.docker.com/engine/security/rootless), or use an engine that runs as root",
        )
    wanted = {"MemoryLimit": "memory", "PidsLimit": "tasks", "CpuCfsQuota": "processor time"}
    missing = [what for key, what in wanted.items() if info.get(key) is not True]
    if not missing:
        return
    limits = ", ".join(missing)
    if is_rootless:
        fix = (
            "delegate cpu, memory and pids to its user (docs.docker.com/engine/security/rootless), or use"
            " an engine that runs as root"
        )
    else:
        fix = (
            "boot a kernel with the control groups memory, pids and cpu (on Debian and Raspberry Pi OS:"
            " cgroup_enable=memory on the kernel's command line), then restart Docker"
        )
    raise EngineRefused(f"{name} cannot hold a container to limits of {limits}", fix=fix)


def _seccomp(name: str, options: Mapping[str, str]) -> str | None:
    profile = options.get("seccomp")
    if profile is None or profile == "unconfined":
        what = "has no seccomp" if profile is None else "filters no system calls (seccomp is unconfined)"
        raise EngineRefused(
            f"{name} {what}, so a container may make every call the kernel has",
            fix="use a kernel with seccomp, and take seccomp-profile out of /etc/docker/daemon.json and of"
            " dockerd's arguments",
        )
    # A profile of the owner's own is in force where none is named, and naming the built-in one would undo it.
    return _NAMED_SECCOMP if profile == _NAMED_SECCOMP else None


def _security_options(raw: object) -> dict[str, str]:
    """`name=seccomp,profile=builtin` as `{"seccomp": "builtin"}`; an option without a profile has ""."""
    options: dict[str, str] = {}
    for line in raw if isinstance(raw, Sequence) and not isinstance(raw, str) else ():
        fields = dict(field.partition("=")[::2] for field in str(line).split(","))
        if "name" in fields:
            options[fields["name"]] = fields.get("profile", "")
    return options


def _has_nvidia(info: Mapping[str, Any]) -> bool:
    devices = info.get("DiscoveredDevices") or ()
    runtimes = info.get("Runtimes") or {}
    return "nvidia" in runtimes or any(
        str(device.get("ID", "")).startswith("nvidia.com/") for device in devices
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
