"""Whether a device takes new work while its owner may be using it (F28, F29)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import attrs

from actors.rules.refusal import Refusal
from actors.state.holds import HELD, HOST, Hold


@attrs.frozen
class Availability:
    """Free, or busy: with the time it ends (RFC 3339) and the owner's reason, where they are known.

    `is_held`: by the owner's own word, and not only since others than the peer use the device.
    """

    is_free: bool = True
    until: str | None = None
    reason: str | None = None
    is_held: bool = False

    def known(self) -> dict[str, Any]:
        """What of its end and its reason is known, by name."""
        known = {"until": self.until, "reason": self.reason}
        return {name: value for name, value in known.items() if value is not None}


FREE = Availability()
USED = Availability(is_free=False)
ALL_FREE: Mapping[str, Availability] = MappingProxyType({})
"""By device UUID; a device that is not named is free."""


class Named(Protocol):
    """A device by its two names."""

    @property
    def id(self) -> str:
        """As people know it."""
        ...

    @property
    def uuid(self) -> str:
        """As holds are kept by."""
        ...


def availability_of(hold: Hold | None, *, is_used: bool) -> Availability:
    """What a device's hold and its use by others come to.

    Args:
        hold: one that stands now.
        is_used: others than the peer use it: what for is nobody's business, and when it ends is not known.
    """
    if hold is None:
        return USED if is_used else FREE
    until = None if is_used else hold.until
    return Availability(is_free=False, until=until, reason=hold.reason, is_held=True)


def is_free(availability: Mapping[str, Availability], uuid: str) -> bool:
    """Whether a device takes new work."""
    return availability.get(uuid, FREE).is_free


def device_busy(devices: Sequence[Named], availability: Mapping[str, Availability]) -> Refusal:
    """Why none of these devices takes new work now: the one that frees first is named."""
    shown = min(devices, key=lambda d: availability.get(d.uuid, FREE).until or "~")
    return _refusal(shown.id, availability.get(shown.uuid, FREE), "name another device")


def host_busy(availability: Mapping[str, Availability]) -> Refusal:
    """Why a job that names no device is not taken: it runs on the host's processor."""
    return _refusal(HOST, availability.get(HOST, FREE), "send memory_bytes or name a device")


def _refusal(device: str, busy: Availability, instead: str) -> Refusal:
    state = HELD if busy.is_held else "busy"
    until, again = ("", "later") if busy.until is None else (f" until {busy.until}", "then")
    reason = "" if busy.reason is None else f" ({busy.reason})"
    return Refusal(
        "DEVICE_BUSY",
        f"{device} is {state}{until}{reason} and takes no new work; send it again {again}, or {instead}",
        device=device,
        **busy.known(),
    )
