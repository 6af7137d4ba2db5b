"""The owner's watch: reads who uses the cards, so that the owner's own use comes first (F28).

What it finds is in `House.occupied` and nowhere else: no event, no log line at any level and no answer to a
key says more of a card than that it takes no work.
"""

import logging

import trio

from actors.attribution import CardUse, attribution
from actors.ending import TRIED_ON
from actors.house import House
from actors.kernel.child import Backoff, ChildSpec, Restart
from actors.kernel.mailbox import Mailbox
from actors.rules.busy import UNKNOWN, Load, Thresholds, load_of

logger = logging.getLogger("best_peer.peer")

NAME = "owner's watch"

UNKNOWN_SECONDS = 60.0
"""After that long without knowing who is on a card this is said, once until it is known again."""


class OwnersWatch:
    """Reads the programs on every card, sets the peer's own aside, and judges the rest."""

    def __init__(self, house: House, thresholds: Thresholds) -> None:
        self._house = house
        self._thresholds = thresholds
        self._unknown_since: dict[str, float] = {}
        self._said: set[str] = set()

    async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
        """Serve for ever."""
        while True:
            begun = trio.current_time()
            uses = await attribution(self._house)
            now = trio.current_time()
            for card, use in uses.items():
                if self._is_served_unseen(card):
                    self._observe(card, UNKNOWN, now)
                    continue
                self._observe(card, _load(use, self._thresholds), now)
                self._note_unknown(card, use, now)
            await trio.sleep_until(begun + self._thresholds.period_seconds)

    def _observe(self, card: str, load: Load, now: float) -> None:
        self._house.occupied.observe(card, load, now, self._thresholds)

    def _is_served_unseen(self, card: str) -> bool:
        """Whether an engine serves there whose programs nobody can tell from the owner's.

        Easily missed 9: the one that is installed on the host and not the peer's to start.
        """
        if self._house.runtime.name != "native":
            return False
        return any(each.device_uuid == card for each in self._house.store.world.deployments.values())

    def _note_unknown(self, card: str, use: CardUse | None, now: float) -> None:
        # Never what hangs on somebody else's programs: the log would say when the owner is at the machine.
        if use is not None and not use.untold:
            self._unknown_since.pop(card, None)
            self._said.discard(card)
            return
        since = self._unknown_since.setdefault(card, now)
        if now - since >= UNKNOWN_SECONDS and card not in self._said:
            self._said.add(card)
            logger.warning(
                "what runs on %s has not been known for %.0f s: whether it takes new work may stay as it is; "
                "look whether its driver and the container engine answer, or set BEST_PEER_BUSY=off",
                card,
                UNKNOWN_SECONDS,
            )


def _load(use: CardUse | None, thresholds: Thresholds) -> Load:
    """One card's reading; programs that may be the peer's own decide nothing where they would matter."""
    if use is None:
        return UNKNOWN
    load = load_of(use.others, thresholds)
    if load.is_over is not True and use.unsure:
        together = load_of((*use.others, *use.unsure), thresholds)
        return UNKNOWN if together.is_over is not False else load
    return load


def owners_watch_spec(house: House, thresholds: Thresholds) -> ChildSpec:
    """How it is supervised: always there."""
    return ChildSpec(
        NAME,
        lambda: OwnersWatch(house, thresholds),
        restart=Restart.PERMANENT,
        budget=TRIED_ON,
        backoff=Backoff(1, 60),
        capacity=0,
    )
