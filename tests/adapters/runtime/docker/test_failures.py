"""What an engine's refusals mean: its words as engines and toolkits really say them."""

import pytest

from adapters.runtime.docker.failures import OpenFilesRefused, SeccompNameRefused, start_failed

RUNC = "failed to create shim task: OCI runtime create failed: runc create failed: "
HOOK = f"{RUNC}unable to start container process: error during container init: error running hook #0: "
CLI = f"{HOOK}exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: "
EXEC = f"{RUNC}unable to start container process: exec: "
MOUNT = f'{RUNC}error mounting "tmpfs" to rootfs at "/etc/passwd": mount tmpfs:/etc/passwd: '
NO_POOL = "could not find an available, non-overlapping IPv4 address pool among the defaults to assign"
NO_FILTER = (
    "cannot restrict inter-container communication: please ensure that br_netfilter kernel module is loaded"
)
NO_CHAIN = (
    "driver failed programming external connectivity on endpoint bp-p-1-dep-1 (12ab): (iptables failed:"
    " iptables -t nat -A DOCKER -p tcp: iptables: No chain/target/match by that name. (exit status 1))"
)
TOO_OLD = "requirement error: unsatisfied condition: cuda>=13.0, please update your driver to a newer version"


@pytest.mark.parametrize(
    ("message", "code", "fix"),
    [
        (
            'could not select device driver "nvidia" with capabilities: [[gpu compute utility]]',
            "DEVICE_UNAVAILABLE",
            "nvidia-ctk runtime configure --runtime=docker",
        ),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            "DEVICE_UNAVAILABLE",
            "nvidia-ctk runtime configure --runtime=docker",
        ),
        (
            f"{CLI}{TOO_OLD}, or use an earlier cuda container: unknown",
            "DEVICE_UNAVAILABLE",
            "BEST_PEER_VLLM_IMAGE",
        ),
        (
            f"{CLI}initialization error: nvml error: driver not loaded: unknown",
            "DEVICE_UNAVAILABLE",
            "nvidia-smi",
        ),
        (
            f"{CLI}device error: GPU-1: unknown device",
            "DEVICE_UNAVAILABLE",
            "nvidia-smi lists it",
        ),
        (
            f"{CLI}mount error: /x",
            "DEVICE_UNAVAILABLE",
            "update the NVIDIA container toolkit",
        ),
        ("No command specified", "NO_COMMAND", "send a command"),
        ("no command specified", "NO_COMMAND", "send a command"),
        (
            f'{EXEC}"/bin/nope": stat /bin/nope: no such file or directory: unknown',
            "COMMAND_NOT_FOUND",
            "a command that the image has",
        ),
        (
            f'{EXEC}"nope": executable file not found in $PATH: unknown',
            "COMMAND_NOT_FOUND",
            "a command that the image has",
        ),
        ("exec /serve: exec format error", "COMMAND_NOT_FOUND", "a command that the image has"),
        (
            'exec: "docker-init": executable file not found in $PATH',
            "START_FAILED",
            "install Docker from its own packages",
        ),
        ("unable to find user anna: no matching entries in passwd file", "START_FAILED", "/etc/passwd"),
        ("mkdir /var/lib/docker/overlay2/1-init: no space left on device", "NO_ROOM", "docker system df"),
        (
            "container init: error running hook #0: write /x/local-kv.db: no space left on device",
            "NO_ROOM",
            "docker system df",
        ),
        (
            "chown /var/lib/docker/overlay2/1/work/work: no such file or directory",
            "NO_ROOM",
            "docker system df",
        ),
        ("write /var/lib/docker/x: disk quota exceeded", "NO_ROOM", "docker system df"),
        (
            f"{MOUNT}not a directory: unknown: Are you trying to mount a directory onto a file?",
            "START_FAILED",
            "with a folder there",
        ),
        (
            'invalid mount config for type "bind": bind source path does not exist: /home/ann/models',
            "START_FAILED",
            "on the peer's machine",
        ),
        ("Minimum memory limit allowed is 6MB", "START_FAILED", "BEST_PEER_JOB_MEMORY"),
        ("driver failed programming external connectivity: address already in use", "START_FAILED", "again"),
        (NO_POOL, "START_FAILED", "docker network prune"),
        ("all predefined address pools have been fully subnetted", "START_FAILED", "default-address-pools"),
        (NO_FILTER, "START_FAILED", "modprobe br_netfilter"),
        (NO_CHAIN, "START_FAILED", "systemctl restart docker"),
        ("network bp-p-1 not found", "START_FAILED", "again"),
        ("listen tcp4 10.0.0.7:0: bind: cannot assign requested address", "START_FAILED", "ENGINE_HOST"),
    ],
)
def test_what_is_known_is_said_with_what_to_do(message: str, code: str, fix: str) -> None:
    failed = start_failed(message)

    assert failed.code == code
    assert fix in failed.fix
    assert "/home" not in failed.reason
    assert "/var" not in failed.reason


def test_what_the_engine_cannot_give_is_known_apart() -> None:
    files = start_failed(f"{RUNC}error setting rlimits: error setting rlimit type 7: operation not permitted")
    name = start_failed(
        "Decoding seccomp profile failed: invalid character 'b' looking for beginning of value"
    )

    assert type(files) is OpenFilesRefused
    assert type(name) is SeccompNameRefused


def test_what_is_not_known_is_said_without_the_engines_paths_and_noise() -> None:
    words = "the moon is full over /var/lib/docker/overlay2/12ab/merged and /home/ann, sk-1\x1b[2J: unknown"

    failed = start_failed(f"{RUNC}{words}", hidden=["sk-1", ""])

    assert failed.reason == (
        "the container engine did not start it: the moon is full over [path] and [path], [hidden] [2J"
    )
    assert "journalctl" in failed.fix


def test_what_the_engine_says_is_bounded() -> None:
    assert len(start_failed("x" * 5000).reason) < 400
    assert "no reason" in start_failed("").reason
