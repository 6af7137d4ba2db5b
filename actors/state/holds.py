"""The devices that their owner keeps for themselves, as the facts say (F29).

A device has one hold at most: the newer one stands in place of the older. Holds are kept by the device's
UUID. Whether one still stands at a moment is asked with the moment: here it stays until its end was told.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from actors.messages.events import DeviceHeldV1

HOST: Final = "cpu"
"""The UUID of the host's processor: what runs with no device runs on it."""

HELD: Final = "held by its owner"


@attrs.frozen
class Hold:
    """One device held.

    Args:
        id: of the owner's act, which may have held several devices at once.
        device: as people know it; `device_uuid` as holds are kept by.
        since: when it was told, RFC 3339.
        until: when it ends by itself, RFC 3339; None is when it is released.
        reason: the owner's own words, one line.
        ends_work: what runs on the device ends, and what starts there while it stands.
        every_device: the act was for all devices, so also for one that is first seen later.
    """

    id: str
    device: str
    device_uuid: str
    since: str
    until: str | None = None
    reason: str | None = None
    ends_work: bool = False
    every_device: bool = False

    def stands_at(self, time: str) -> bool:
        """Whether it has not come to its end by a moment, RFC 3339 as facts have it."""
        return self.until is None or time < self.until

    @property
    def words(self) -> str:
        """What those whose work it ends are told."""
        return HELD if self.reason is None else f"{HELD}: {self.reason}"


def hold_of(event: DeviceHeldV1, time: str) -> Hold:
    """What a fact told at a time says."""
    return Hold(
        id=event.hold,
        device=event.device,
        device_uuid=event.device_uuid,
        since=time,
        until=event.until or None,
        reason=event.reason or None,
        ends_work=event.ends_work,
        every_device=event.every_device,
    )


class Holds:
    """The fold's part: which holds were told and not taken back."""

    def __init__(self) -> None:
        self._by_device: dict[str, Hold] = {}
        self._every: Hold | None = None
        self._seen: set[str] = set()
        """Devices told of since a hold of every device, which say for themselves whether they are held."""

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._by_device.values())

    def __len__(self) -> int:
        return len(self._by_device)

    def of(self, identifier: str) -> tuple[Hold, ...]:
        """Every device's that one act of the owner's still holds."""
        return tuple(hold for hold in self if hold.id == identifier)

    def on(self, device_uuid: str) -> Hold | None:
        """The hold on a device, whether its time has come or not."""
        hold = self._by_device.get(device_uuid)
        if hold is None and self._every is not None and device_uuid not in self._seen:
            return self._every
        return hold

    def take(self, hold: Hold) -> None:
        """A device was held."""
        if hold.every_device and (self._every is None or self._every.id != hold.id):
            self._every = hold
            self._seen.clear()
        self._seen.add(hold.device_uuid)
        self._by_device[hold.device_uuid] = hold
        self._forget_every()

    def release(self, identifier: str, device_uuid: str) -> None:
        """A device was released from one hold; a newer one on it stays."""
        if self._every is not None and self._every.id == identifier:
            self._seen.add(device_uuid)
        hold = self._by_device.get(device_uuid)
        if hold is not None and hold.id == identifier:
            del self._by_device[device_uuid]
            self._forget_every()

    def _forget_every(self) -> None:
        # A hold of every device is one while it holds any: else nothing could be told to end it.
        if self._every is not None and not self.of(self._every.id):
            self._every = None
            self._seen.clear()
