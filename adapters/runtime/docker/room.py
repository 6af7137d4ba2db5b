"""The room on the disk that the engine keeps its images on, and what a pull may do to it (F22)."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from adapters.images.port import ImageFault, NoRoom, PullLimits, RoomUnknown, TooLarge
from adapters.images.reference import Reference
from adapters.runtime.docker.endpoint import Endpoint
from adapters.runtime.docker.progress import PullTracker

ROOM_SECONDS: Final = 0.5
"""How often the engine's disk is read while a pull is held to limits."""
CONTAINERD_FOLDER: Final = Path("/var/lib/containerd")
"""Where images are when containerd keeps them; the engine does not say another place."""
_CONTAINERD_STORE: Final = ["driver-type", "io.containerd.snapshotter.v1"]


def image_folder(endpoint: Endpoint, info: Mapping[str, Any]) -> Path | None:
    """The folder of this machine that an engine, by its `/info`, keeps images in; None when it is not here.

    An engine behind a socket may still be in a virtual machine, or the peer in a container beside it: then
    the folder it names is another one here, or none.
    """
    here = os.uname()
    if endpoint.socket is None or (info.get("Name"), info.get("KernelVersion")) != (
        here.nodename,
        here.release,
    ):
        return None
    status = info.get("DriverStatus")
    is_containerds = isinstance(status, list) and _CONTAINERD_STORE in status
    folder = CONTAINERD_FOLDER if is_containerds else Path(str(info.get("DockerRootDir", "")))
    return folder if folder.is_absolute() and folder.is_dir() else None


async def free_bytes(folder: Path) -> int | None:
    """The room there that is not reserved to root; None when it cannot be read."""
    try:
        found = await trio.to_thread.run_sync(os.statvfs, folder, abandon_on_cancel=True)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


@attrs.frozen
class Gauge:
    """What a pull may do to the engine's disk, measured from how it was at the start.

    What else writes to that disk meanwhile counts as the pull's: who shares it gives more room.
    """

    asked: Reference
    limits: PullLimits
    folder: Path | None
    free_at_start: int | None

    @classmethod
    async def begin(cls, asked: Reference, limits: PullLimits, folder: Path | None) -> "Gauge":
        """Read the disk as it is before the pull; `folder` is on it, None when it is out of reach.

        Raises:
            RoomUnknown: there is a floor, and no telling whether it is kept.
            NoRoom: less is free already.
        """
        free = await free_bytes(folder) if folder is not None else None
        gauge = cls(asked, limits, folder, free)
        if free is None and limits.least_free_bytes is not None:
            raise RoomUnknown(
                "the container engine's disk cannot be read from here",
                fix="pull without a floor of free room, or run the peer where the engine runs, by a user "
                "who may read its folder",
            )
        if fault := gauge.judge(free, 0):
            raise fault
        return gauge

    async def read(self, fetched_bytes: int) -> ImageFault | None:
        """Read the disk again: what the pull did too much of by now."""
        free = await free_bytes(self.folder) if self.folder is not None else None
        return self.judge(free, fetched_bytes)

    def judge(self, free: int | None, fetched_bytes: int) -> ImageFault | None:
        """What is too much with so much free, and so many bytes that were or will be fetched."""
        most, floor = self.limits.most_bytes, self.limits.least_free_bytes
        if floor is not None and free is not None and free < floor:
            return NoRoom(
                f"pulling {self.asked.text} leaves {free} bytes free on the container engine's disk, and "
                f"{floor} have to stay free",
                fix="free some room there (docker system df tells what uses it)",
            )
        used = 0 if free is None or self.free_at_start is None else self.free_at_start - free
        if most is not None and max(used, fetched_bytes) > most:
            return self._too_large(max(used, fetched_bytes), most)
        return None

    def judge_size(self, size_bytes: int, tracker: PullTracker) -> ImageFault | None:
        """What is too much of an image that is here now, by its size unpacked.

        What was here before did not land. Of an image that shares parts with others nobody says how much
        landed; the disk tells that, where it can be read.
        """
        most = self.limits.most_bytes
        if most is None or not tracker.has_fetched or size_bytes <= most:
            return None
        if tracker.has_shared and self.free_at_start is not None:
            return None
        return self._too_large(size_bytes, most)

    def _too_large(self, found: int, most: int) -> TooLarge:
        return TooLarge(
            f"{self.asked.text} puts at least {found} bytes on the container engine's disk, and may put "
            f"{most} there",
            fix="name a smaller image, or ask for more room",
            limit_bytes=most,
        )
