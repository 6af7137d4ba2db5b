"""Which cards others than the peer use now: read live, told to nobody and kept nowhere (F28).

The owner's watch writes it. It outlives a restart of that actor, as what it was told of a card is still so; a
restart of the peer begins anew, since the log would otherwise say when the owner sits at their machine.
"""

from collections.abc import Mapping
from typing import Final

from actors.rules.busy import Load, Thresholds, Use, Why, use_after

FRESH: Final = Use()
"""Free and nothing counted: what is not remembered, so that cards which come and go pile up nowhere."""


class Occupied:
    """Each card's use, by UUID; a card that was never read is free."""

    def __init__(self) -> None:
        self._uses: dict[str, Use] = {}

    def is_busy(self, device_uuid: str) -> bool:
        """Whether a card takes no new work since others use it."""
        use = self._uses.get(device_uuid)
        return use is not None and use.is_busy

    def reasons(self) -> Mapping[str, Why]:
        """What makes each busy card so, for its owner's eyes alone."""
        return {card: use.why for card, use in self._uses.items() if use.is_busy and use.why is not None}

    def observe(self, device_uuid: str, load: Load, now: float, thresholds: Thresholds) -> None:
        """A card was read, at `now` on a monotonic clock."""
        use = use_after(self._uses.get(device_uuid, FRESH), load, now, thresholds)
        if use == FRESH:
            self._uses.pop(device_uuid, None)
        else:
            self._uses[device_uuid] = use
