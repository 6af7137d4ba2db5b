"""An image that wants everything a container could be given, with a program in it that tries to take it."""

from __future__ import annotations

from pathlib import Path

from tests.support.docker import attack
from tests.support.docker.contents import files_layer, python_layer, shell_layer
from tests.support.docker.images import Image, make_image
from tests.support.docker.ready import rising_layer

WANTED = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "NVIDIA_DRIVER_CAPABILITIES": "all",
    "NVIDIA_GDS": "enabled",
    "CUDA_VISIBLE_DEVICES": "0,1",
}


def hostile() -> Image:
    """Wants to be root, a volume, every card, and to be looked at by the engine as root."""
    return make_image(
        [
            shell_layer(),
            python_layer(),
            rising_layer(),
            files_layer({"/attack.py": Path(attack.__file__).read_bytes(), "/data/kept": b"x"}),
        ],
        {
            "User": "0:0",
            "Volumes": {"/data": {}, "/var/lib/kept": {}},
            "Healthcheck": {"Test": ["CMD-SHELL", "touch /tmp/healthy"], "Interval": 1_000_000_000},
            "Env": [
                "PATH=/bin:/usr/bin",
                "HOME=/root",
                *(f"{name}={value}" for name, value in WANTED.items()),
            ],
            "StopSignal": "SIGCONT",
        },
    )
