"""What an engine's refusal to create or start a container means, and what to do about it (F19, F25).

The engine's own words name paths of its machine; what is told names none.
"""

import re
from collections.abc import Iterable
from typing import Final

import attrs

from adapters.runtime.port import StartFailed

MAX_REASON: Final = 300
CONFIGURE_TOOLKIT: Final = (
    "install the NVIDIA container toolkit, run `nvidia-ctk runtime configure --runtime=docker`, and restart"
    " Docker (systemctl restart docker)"
)
UPDATE_DRIVER: Final = (
    "update the NVIDIA driver, or name a build for this one: for a deployment on vLLM by"
    " BEST_PEER_VLLM_IMAGE, for a job by its image"
)

_NOISE: Final = re.compile(
    r"failed to create (shim )?task( for container)?: |OCI runtime create failed: |runc create failed: |"
    r"unable to start container process: |: unknown\s*$"
)
_PATH: Final = re.compile(r"(?<![\w.\]])/[^\s:\"',]*")


class OpenFilesRefused(StartFailed):
    """Raised when the engine cannot give a container so many open files; its own limit is lower."""


class SeccompNameRefused(StartFailed):
    """Raised when the engine knows no seccomp profile of the name it was given."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


@attrs.frozen
class _Known:
    pattern: re.Pattern[str] = attrs.field(converter=_pattern)
    reason: str
    fix: str
    code: str = "START_FAILED"
    kind: type[StartFailed] = StartFailed


_TABLE: Final = (
    # First: whatever is under way when the disk is full says so in its own words as well.
    _Known(
        r"no space left on device|disk quota exceeded",
        "the disk of the container engine is full",
        "free room on the engine's disk: docker system df says what fills it",
        code="NO_ROOM",
    ),
    _Known(
        # The kernel mounts an overlay whose own folder it cannot make read-only, and says nothing; the engine
        # then misses that folder.
        r"chown \S+/work/work: no such file or directory",
        "the disk of the container engine takes no more folders: it is full, or was mounted read-only",
        "free room on the engine's disk: docker system df says what fills it",
        code="NO_ROOM",
    ),
    _Known(
        r"could not select device driver|unknown or invalid runtime name: nvidia|unresolvable CDI devices",
        "the container engine cannot hand over the card: it knows no NVIDIA container toolkit",
        CONFIGURE_TOOLKIT,
        code="DEVICE_UNAVAILABLE",
    ),
    _Known(
        r"unsatisfied condition|please update your driver|requirement error",
        "this machine's NVIDIA driver is too old for the image",
        UPDATE_DRIVER,
        code="DEVICE_UNAVAILABLE",
    ),
    _Known(
        r"driver rpc error|load library failed: libnvidia-ml|driver not loaded|nvml error|"
        r"nvidia-container-cli: initialization error",
        "the NVIDIA driver does not answer the container toolkit",
        "look whether nvidia-smi works on this machine, and load the driver or restart the machine",
        code="DEVICE_UNAVAILABLE",
    ),
    _Known(
        r"nvidia-container-cli: device error|unknown device",
        "the card is not there any more",
        "look whether nvidia-smi lists it, and send the command again",
        code="DEVICE_UNAVAILABLE",
    ),
    _Known(
        r"nvidia-container|nvidia-ctk|error running (prestart )?hook",
        "the NVIDIA container toolkit could not hand over the card",
        "update the NVIDIA container toolkit, and look at the peer's log for its own words",
        code="DEVICE_UNAVAILABLE",
    ),
    _Known(
        r"docker-init",
        "the container engine has no docker-init, the small first process of every container",
        "install Docker from its own packages, or Debian's tini",
    ),
    _Known(
        r"setting rlimit type 7",
        "the container engine cannot give the job as many open files as a box has",
        "restart best-peer, which learns the engine's limit when it starts",
        kind=OpenFilesRefused,
    ),
    _Known(
        r"decoding seccomp profile failed|seccomp profile .*(invalid|not found)",
        "the container engine does not know its own seccomp profile by the name it tells",
        "restart best-peer, which learns that when it starts",
        kind=SeccompNameRefused,
    ),
    _Known(
        r"no command specified",
        "the image has no command of its own, and none was given",
        "send a command",
        code="NO_COMMAND",
    ),
    _Known(
        r"exec: .*(not found|no such file|permission denied|is a directory|exec format error)|"
        r"exec format error",
        "the command is not in the image, or is no program there",
        "send a command that the image has, by its full path or found by its PATH",
        code="COMMAND_NOT_FOUND",
    ),
    _Known(
        r"unable to find (user|group)|no matching entries in (passwd|group) file",
        "the image names a user that it does not have",
        "build the image with a USER that its /etc/passwd has, or a number",
    ),
    _Known(
        r"not a directory|mount a directory onto a file",
        "the image has a file where a folder is to be mounted",
        "build the image with a folder there: in VOLUME, at /tmp, and where a job's disk is",
    ),
    _Known(
        r"bind source path does not exist",
        "a folder of this machine that the container is to see is not there for the container engine",
        "run the container engine on the peer's machine, and look whether the folder is still there",
    ),
    _Known(
        r"minimum memory limit|memory limit .*too (low|small)|out of memory allocating|"
        r"container init was OOM-killed",
        "its ceiling on host memory is lower than a container needs to start",
        "raise BEST_PEER_JOB_MEMORY or BEST_PEER_ENGINE_MEMORY, or ask for more",
    ),
    _Known(
        r"non-overlapping IPv4 address pool|predefined address pools have been fully subnetted",
        "the container engine has no addresses left for a network of the peer's own",
        "remove networks that nobody uses (docker network prune), or give Docker more by"
        ' "default-address-pools" in /etc/docker/daemon.json and restart it',
    ),
    _Known(
        r"cannot restrict inter-container communication|br_netfilter",
        "this machine's kernel cannot keep containers from each other: it lacks br_netfilter",
        "load it (modprobe br_netfilter), and have it loaded at each boot: its name on a line of its own in"
        " /etc/modules-load.d/docker.conf",
    ),
    _Known(
        r"iptables.*no chain/target/match by that name|chain '?DOCKER[^']*'? does not exist",
        "the container engine's firewall rules are gone: somebody loaded others in their place",
        "restart Docker (systemctl restart docker), which sets them again",
    ),
    _Known(
        r"network \S+ not found|network \S+ is ambiguous",
        "the peer's network was removed, or made again, while it was being started",
        "send the command again",
    ),
    _Known(
        r"cannot assign requested address",
        "the container engine's machine has no such address as its port was to be bound to",
        "set BEST_PEER_ENGINE_HOST to an address of the machine that Docker runs on",
    ),
    _Known(
        r"address already in use|port is already allocated",
        "the port it was to be reached on was taken at the same moment",
        "send the command again",
    ),
)


def image_gone() -> StartFailed:
    """The engine holds the image no longer."""
    return StartFailed(
        "the image was removed from the container engine before it was started",
        fix="send the command again: the image is then pulled",
        code="IMAGE_GONE",
    )


def start_failed(message: str, hidden: Iterable[str] = ()) -> StartFailed:
    """What an engine's words on a failed creation or start mean.

    Args:
        message: the words.
        hidden: texts that are not told on: secrets, and paths beyond those that look like one.
    """
    for known in _TABLE:
        if known.pattern.search(message):
            return known.kind(known.reason, fix=known.fix, code=known.code)
    words = _told(message, hidden)
    return StartFailed(
        f"the container engine did not start it: {words}",
        fix="look at the peer's log and the engine's (journalctl -u docker) for more",
    )


def _told(message: str, hidden: Iterable[str]) -> str:
    for text in hidden:
        if text:
            message = message.replace(text, "[hidden]")
    message = _PATH.sub("[path]", _NOISE.sub("", message))
    words = "".join(c if c.isprintable() else " " for c in message).strip()
    return words[:MAX_REASON] or "it gave no reason"
