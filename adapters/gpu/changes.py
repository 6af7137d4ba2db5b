"""Says in the owner's log when the driver or a card goes and when it comes back, once each time."""

import logging
from collections.abc import Sequence
from typing import Final

import attrs

from adapters.gpu.port import Device, GpuState

logger = logging.getLogger("best_peer.peer")

QUIET_SECONDS: Final = 60.0
"""After a line about one thing: what comes and goes faster than that is said once a minute, as it is then."""

_DRIVER: Final = "driver"


@attrs.define
class _Said:
    is_ready: bool = True
    at: float | None = None


@attrs.define(eq=False)
class Changes:
    """What was said of the driver and of each card, by its UUID."""

    _said: dict[str, _Said] = attrs.field(factory=dict, init=False)
    _is_known: bool = attrs.field(default=False, init=False)

    def note(self, devices: Sequence[Device], state: GpuState, now: float) -> None:
        """Compare a reading with what was said last, at `now` on a monotonic clock.

        Of a driver that never answered nothing is said: whoever asked for it is told, and refuses.
        """
        fault = state.fault
        self._is_known = self._is_known or fault is None
        if not self._is_known:
            return
        if self._is_news(_DRIVER, is_ready=fault is None, now=now):
            if fault is None:
                logger.info("the NVIDIA driver answers again")
            else:
                logger.warning("%s; cards take no new work until it is back; %s", fault.reason, fault.fix)
        if fault is None:
            # Of a driver that does not answer every card would say the same.
            for device in devices:
                if self._is_news(device.uuid, is_ready=device.is_ready, now=now):
                    self._tell(device)
        known = {_DRIVER, *(device.uuid for device in devices)}
        self._said = {name: said for name, said in self._said.items() if name in known}

    def _is_news(self, name: str, *, is_ready: bool, now: float) -> bool:
        said = self._said.setdefault(name, _Said())
        if said.is_ready is is_ready or (said.at is not None and now - said.at < QUIET_SECONDS):
            return False
        said.is_ready, said.at = is_ready, now
        return True

    @staticmethod
    def _tell(device: Device) -> None:
        if device.is_ready:
            logger.info("%s (%s) can be used again", device.id, device.uuid)
        else:
            logger.warning(
                "%s (%s) takes no new work: %s",
                device.id,
                device.uuid,
                device.condition_reason or device.condition,
            )
