"""How often one address may ask what needs no key: the manifest, the sign-in, its page (S08, A07)."""

from collections import OrderedDict
from math import ceil

import attrs

from peer.door.limits import address_key

PER_MINUTE = 600
"""Sixteen sign-ins that poll every five seconds are 192; their people's pages as many again."""

REMEMBERED = 4096
"""Addresses counted at once. Past it the one that asked longest ago is forgotten, which only lets it ask."""


@attrs.define
class _Budget:
    left: float
    at: float


class PublicPace:
    """A minute's requests for each address, refilled as time passes. This machine itself is not counted."""

    def __init__(self, per_minute: int = PER_MINUTE) -> None:
        self._most = per_minute
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    def wait_seconds(self, host: str | None, now: float) -> int:
        """Count a request from `host` at `now`, monotonic seconds: 0, or the seconds that it must wait."""
        key = address_key(host or "")
        if key is None:
            return 0
        budget = self._budgets.pop(key, None) or _Budget(self._most, now)
        self._budgets[key] = budget
        if len(self._budgets) > REMEMBERED:
            self._budgets.popitem(last=False)
        a_second = self._most / 60
        budget.left = min(self._most, budget.left + (now - budget.at) * a_second)
        budget.at = now
        if budget.left < 1:
            return max(1, ceil((1 - budget.left) / a_second))
        budget.left -= 1
        return 0
