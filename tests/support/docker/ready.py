"""The images that every bed has ready, by name."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.docker.contents import (
    NOBODY,
    build_image,
    build_python_image,
    files_layer,
    python_layer,
    shell_layer,
)
from tests.support.docker.images import Image, foreign_machine, machine, make_image, make_index
from tests.support.docker.layers import Entry, Layer, make_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LABEL = "io.behavioralstate.best-peer"
LAYERED_SIZES = (3_000_000, 1_500_000, 1_000_000, 500_000, 250_000)
"""The sizes of what cannot be made smaller in the layers of `layered`, the lowest first."""


def shell() -> Image:
    """Busybox under every name it has, root and nobody, /in, /out (nobody's) and /tmp; runs `sh`."""
    return build_image()


def shell_oci() -> Image:
    """The same with an OCI manifest, of which `/distribution` tells no platform."""
    return build_image(oci=True)


def python() -> Image:
    """A Python with its standard library besides the shell; runs `python3`."""
    return build_python_image()


def web() -> Image:
    """Serves /www with busybox's httpd on port 8080, nothing being there but `index.html`."""
    return build_image(
        files={"/www/index.html": b"it works\n"},
        config={"Cmd": ["httpd", "-f", "-p", "8080", "-h", "/www"], "ExposedPorts": {"8080/tcp": {}}},
    )


def grasping() -> Image:
    """Wants everything: a volume, to be root, a health check, an entry point, all GPUs."""
    return build_image(
        files={"/entry": b'#!/bin/sh\necho "entry $*"\nexec "$@"\n', "/data/kept": b"from the image\n"},
        config={
            "User": "root",
            "Volumes": {"/data": {}, "/out": {}},
            "Entrypoint": ["/entry"],
            "Cmd": ["sh", "-c", "id -u"],
            "Healthcheck": {"Test": ["CMD-SHELL", "touch /tmp/healthy"], "Interval": 1_000_000_000},
            "Env": [
                "PATH=/bin:/usr/bin",
                "HOME=/root",
                "NVIDIA_VISIBLE_DEVICES=all",
                "NVIDIA_DRIVER_CAPABILITIES=all",
                "CUDA_VISIBLE_DEVICES=0,1,2,3",
                "NVIDIA_REQUIRE_CUDA=cuda>=99.0",
                "NVIDIA_MIG_CONFIG_DEVICES=all",
            ],
            "StopSignal": "SIGUSR1",
        },
    )


def no_command() -> Image:
    """Has neither a command nor an entry point."""
    return build_image(config={"Cmd": None})


def foreign() -> Image:
    """An index with nothing for this machine."""
    return make_index({foreign_machine(): foreign_alone()})


def foreign_alone() -> Image:
    """An image for another machine, with no index round it: engines pull it and do not mind."""
    return make_image([shell_layer()], {"Cmd": ["sh"]}, architecture=foreign_machine())


def indexed() -> Image:
    """An index with an image for this machine and one for another."""
    return make_index({foreign_machine(): foreign_alone(), machine(): shell()})


def impostor() -> Image:
    """Its labels say that it is some peer's deployment."""
    says = {"instance": "deadbeef", "workload": "dep-impostor", "holder": "somebody", "kind": "deployment"}
    return build_image(config={"Labels": {f"{LABEL}.{key}": value for key, value in says.items()}})


def rising_layer() -> Layer:
    """/bin/setuid-python, which runs as root, and /bin/capable-python, which has every capability."""
    program = Path(sys.executable).resolve()
    # VFS_CAP_REVISION_2, then permitted and inheritable, low and high words. Without the effective bit, with
    # which the program would not start at all where a capability is out of reach.
    all_of_them = struct.pack("<IIIII", 0x02000000, 0xFFFFFFFF, 0, 0x1FF, 0)
    return make_layer(
        [
            Entry("/bin/setuid-python", source=program, mode=0o4755),
            Entry("/bin/capable-python", source=program, capability=all_of_them),
        ]
    )


def setuid() -> Image:
    """A Python, and with it what may rise to more than it was started as."""
    return make_image(
        [shell_layer(), python_layer(), rising_layer()], {"Cmd": ["python3"], "User": str(NOBODY)}
    )


def layered() -> Image:
    """A few megabytes of noise in five layers above the shell, for a pull that takes its time."""
    noise = random.Random(20)
    layers = [
        files_layer({f"/noise/{number}": noise.randbytes(size)}) for number, size in enumerate(LAYERED_SIZES)
    ]
    return build_image(*layers)


READY: Mapping[str, Callable[[], Image]] = {
    "shell": shell,
    "shell-oci": shell_oci,
    "python": python,
    "web": web,
    "grasping": grasping,
    "no-command": no_command,
    "foreign": foreign,
    "foreign-alone": foreign_alone,
    "indexed": indexed,
    "impostor": impostor,
    "setuid": setuid,
    "layered": layered,
}
