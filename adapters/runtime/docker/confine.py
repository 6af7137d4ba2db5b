"""What a container may do: the body of its creation, in which neither image nor job has a say (F30, F31)."""

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from adapters.runtime.docker.info import EngineInfo
from adapters.runtime.port import Container, StartFailed, WorkloadSpec

NOBODY: Final = 65534
TMPFS_BYTES: Final = 1 << 30
SHM_BYTES: Final = 1 << 30
"""What a box's /dev/shm holds, which counts in its memory. Programs that share tensors between processes need
more than an engine's own 64 MiB."""
MOST_VOLUMES: Final = 64
"""Far more than any image declares for a good reason; each is a mount."""
LOG_SIZE: Final = "10m"
LOG_FILES: Final = "2"
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
DRIVER: Final = ("compute", "utility")
"""The driver's capabilities that a container is handed: no display, no graphics, no video."""

_ABOUT_DEVICES: Final = re.compile(
    r"NVIDIA_.*|DOCKER_RESOURCE_.*|.*_VISIBLE_(DEVICES|CORES|MODULES)|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK"
)
"""Variables that say which devices a container is handed, or sees of those. NVIDIA's toolkit hands over more
than cards for some (GDS, MOFED, IMEX channels), and for others tomorrow."""
_ABOUT_SOFTWARE: Final = re.compile(
    r"NVIDIA_(REQUIRE_.*|DISABLE_REQUIRE|TF32_OVERRIDE|PRODUCT_NAME|BUILD_.*|.*_VERSION)"
)
"""Those that only say what the software is and which driver it needs."""
_SYSTEM_FOLDERS: Final = ("/dev", "/proc", "/sys")


@attrs.frozen
class ImageConfig:
    """What an image says of how it is run, as far as it concerns its confinement."""

    volumes: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    @classmethod
    def read(cls, inspected: Mapping[str, Any]) -> "ImageConfig":
        """Read it from what `GET /images/{name}/json` answered."""
        config = inspected.get("Config") or {}
        return cls(
            volumes=tuple(config.get("Volumes") or ()),
            variables=tuple(line.partition("=")[0] for line in config.get("Env") or ()),
        )


def creation(
    spec: WorkloadSpec,
    container: Container,
    image: ImageConfig,
    engine: EngineInfo,
    *,
    labels: Mapping[str, str],
    network: str,
    publish_on: str,
) -> dict[str, Any]:
    """The body of `POST /containers/create`.

    Args:
        spec: the workload.
        container: its program.
        image: of the image it runs.
        engine: where it is to run.
        labels: what it is found by.
        network: the peer's own, which what is not boxed is on.
        publish_on: the address its port is bound to, on the engine's machine.

    Raises:
        StartFailed: its variables, or its image's volumes, cannot be had so.
    """
    body: dict[str, Any] = {
        "Image": container.image,
        "Labels": dict(labels),
        "Env": _environment(spec, container, image),
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "OpenStdin": False,
        "HostConfig": _host_config(spec, container, image, engine, network, publish_on),
    }
    if container.command:
        body["Cmd"] = list(container.command)
    if container.is_boxed:
        body["User"] = f"{NOBODY}:{NOBODY}"
    if container.port is not None:
        body["ExposedPorts"] = {f"{container.port}/tcp": {}}
    return body


def bind_address(engine_host: str) -> str:
    """Where ports are bound for a peer that reaches them at `engine_host`: there and nowhere else.

    A name of another machine may be any of its addresses, which are not to be known from here: then at all.
    """
    try:
        return str(ipaddress.ip_address(engine_host))
    except ValueError:
        return "127.0.0.1" if engine_host == "localhost" else "0.0.0.0"  # noqa: S104


def _host_config(
    spec: WorkloadSpec,
    container: Container,
    image: ImageConfig,
    engine: EngineInfo,
    network: str,
    publish_on: str,
) -> dict[str, Any]:
    host: dict[str, Any] = {
        "AutoRemove": False,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "Init": True,
        "IpcMode": "private",
        "LogConfig": {"Type": "json-file", "Config": {"max-size": LOG_SIZE, "max-file": LOG_FILES}},
        "Mounts": [_mount(mount.source, mount.target, mount.is_read_only) for mount in container.mounts],
        "NetworkMode": "none" if container.is_boxed else network,
        "PidsLimit": container.tasks,
        "Privileged": False,
        "PublishAllPorts": False,
        "RestartPolicy": {"Name": "no"},
        "SecurityOpt": _security(engine),
        "Ulimits": [_ulimit("core", 0)],
    }
    if container.port is not None:
        host["PortBindings"] = {f"{container.port}/tcp": [{"HostIp": publish_on, "HostPort": "0"}]}
    if spec.memory_bytes is not None:
        host["Memory"] = host["MemorySwap"] = spec.memory_bytes
        if not engine.counts_swap:
            # The engine drops the ceiling on memory and swap together; so it may not swap at all.
            host["MemorySwappiness"] = 0
    if spec.device_uuids:
        host["DeviceRequests"] = [
            {
                "Driver": "nvidia",
                "DeviceIDs": list(spec.device_uuids),
                "Capabilities": [["gpu", *DRIVER]],
            }
        ]
    if container.is_boxed:
        host["ShmSize"] = SHM_BYTES
    elif container.shared_memory_bytes is not None:
        host["ShmSize"] = container.shared_memory_bytes
    if container.is_boxed:
        host["ReadonlyRootfs"] = True
        host["Tmpfs"] = _private_folders(container, image)
        host["NanoCpus"] = max(1, engine.cores * 1_000_000_000 // 2)
        if engine.open_files is not None:
            host["Ulimits"].append(_ulimit("nofile", engine.open_files))
    return host


def _security(engine: EngineInfo) -> list[str]:
    options = ["no-new-privileges"]
    if engine.seccomp is not None:
        options.append(f"seccomp={engine.seccomp}")
    if engine.has_apparmor:
        options.append("apparmor=docker-default")
    return options


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Soft": value, "Hard": value}


def _mount(source: object, target: str, is_read_only: bool) -> dict[str, Any]:
    # Not in Binds, which would make a source that is missing.
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": target,
        "ReadOnly": is_read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }


def _private_folders(container: Container, image: ImageConfig) -> dict[str, str]:
    """Where a box may write: /tmp, and what the image declares a volume, else a folder of the host's disk."""
    # Executable: what compiles at run time (Triton, Numba) loads it from there. Owned by its user, since an
    # older runc gives a tmpfs the mode that the folder has in the image.
    options = f"rw,exec,nosuid,nodev,size={TMPFS_BYTES},mode=1777,uid={NOBODY},gid={NOBODY}"
    mounted = {posixpath.normpath(mount.target) for mount in container.mounts}
    folders = {"/tmp": options}  # noqa: S108 - the container's own
    if len(image.volumes) > MOST_VOLUMES:
        raise StartFailed(
            f"the image declares {len(image.volumes)} volumes, and a box has {MOST_VOLUMES} at most",
            fix="build the image with fewer folders in VOLUME",
        )
    for volume in image.volumes:
        folder = posixpath.normpath(volume)
        is_system = any(folder == top or folder.startswith(f"{top}/") for top in _SYSTEM_FOLDERS)
        if not volume.startswith("/") or folder in ("/", "//") or is_system:
            raise StartFailed(
                f"the image declares the volume {volume[:200]!r}, which cannot be kept off the host's disk",
                fix="build the image with absolute paths in VOLUME, and none of / or under /dev, /proc, /sys",
            )
        if folder not in mounted:
            folders[folder] = options
    return folders


def _environment(spec: WorkloadSpec, container: Container, image: ImageConfig) -> list[str]:
    given = {name: value for name, value in container.environment.items() if not is_about_devices(name)}
    if container.is_boxed:
        given.setdefault("HOME", "/tmp")  # noqa: S108 - the container's own
    if container.secret is not None:
        given[container.secret[0]] = container.secret[1]
    for name, value in given.items():
        # `A=B` as a name would set A.
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise StartFailed(
                f"{name[:100]!r} is no name of a variable, or its value cannot be one",
                fix="name variables without = and keep the byte 0 out of names and values",
            )
    given[VISIBLE] = ",".join(spec.device_uuids) or "void"
    if spec.device_uuids:
        given[CAPABILITIES] = ",".join(DRIVER)
    lines = [f"{name}={value}" for name, value in given.items()]
    # A name alone unsets what the image set.
    unset = {name for name in image.variables if is_about_devices(name)} - given.keys()
    return lines + sorted(unset)


def is_about_devices(name: str) -> bool:
    """Whether a variable says which devices a container is handed or sees: neither image nor job may."""
    return _ABOUT_DEVICES.fullmatch(name) is not None and _ABOUT_SOFTWARE.fullmatch(name) is None
