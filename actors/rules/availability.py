"""Whether a device takes new work while its owner may be using it (F28, F29)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs

from actors.rules.refusal import Refusal
from adapters.gpu.port import Device


@attrs.frozen
class Availability:
    """Free, or busy: with the time it ends (RFC 3339) and the owner's reason, where they are known."""

    is_free: bool = True
    until: str | None = None
    reason: str | None = None


FREE = Availability()
ALL_FREE: Mapping[str, Availability] = MappingProxyType({})
"""By device UUID; a device that is not named is free."""


def is_free(availability: Mapping[str, Availability], uuid: str) -> bool:
    """Whether a device takes new work."""
    return availability.get(uuid, FREE).is_free


def device_busy(devices: Sequence[Device], availability: Mapping[str, Availability]) -> Refusal:
    """Why none of these devices takes new work now: the one that frees first is named."""
    shown = min(devices, key=lambda d: availability.get(d.uuid, FREE).until or "~")
    busy = availability.get(shown.uuid, FREE)
    until = "" if busy.until is None else f" until {busy.until}"
    reason = "" if busy.reason is None else f" ({busy.reason})"
    known = {"until": busy.until, "reason": busy.reason}
    return Refusal(
        "DEVICE_BUSY",
        f"{shown.id} is busy{until}{reason} and takes no new work; "
        "send it again then, or name another device",
        device=shown.id,
        **{name: value for name, value in known.items() if value is not None},
    )
