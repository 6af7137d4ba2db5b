"""How far a pull is, from what the engine says of each part of it."""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from adapters.images.port import PullProgress

MOST_PERCENT: Final = 99
"""Until the end; what the engine says last is that it is done, and then the image is looked up."""
MAX_PARTS: Final = 1024
"""Engines take some 127 layers."""

_FETCHED: Final = frozenset({"Verifying Checksum", "Download complete", "Extracting", "Pull complete"})
_WAITING: Final = frozenset({"Pulling fs layer", "Waiting"})
_SHARED: Final = "Already exists"
_DOWNLOADING: Final = "Downloading"
_RETRYING: Final = re.compile(r"Retrying in \d+ seconds?")
_DONE: Final = "Status: "


@attrs.define
class _Part:
    """One layer. `whole` is its size as first said; a download taken up again says only what is left."""

    whole: int | None = None
    fetched: int = 0
    is_begun: bool = False
    is_fetched: bool = False

    def take(self, current: int | None, total: int | None) -> None:
        self.is_begun = True
        if self.whole is None:
            self.whole = total
        done_before = 0
        if self.whole is not None and total is not None:
            self.whole = max(self.whole, total)
            done_before = self.whole - total
        self.fetched = done_before + (current or 0)

    def finish(self) -> None:
        """Its size is known now at the latest: what was fetched is all of it."""
        self.is_begun = self.is_fetched = True
        self.fetched = max(self.fetched, self.whole or 0)
        self.whole = self.fetched


@attrs.define
class PullTracker:
    """Takes the lines of one pull.

    Args:
        error: what went wrong, in the engine's words.
        is_done: whether it said that all is done.
        has_fetched: whether anything had to be fetched.
        has_shared: whether some of the image was there before.
    """

    error: str | None = None
    is_done: bool = False
    has_fetched: bool = False
    has_shared: bool = False
    _parts: dict[str, _Part] = attrs.field(factory=dict)

    def take(self, line: Mapping[str, Any]) -> bool:
        """Take one line; whether it may have changed the progress."""
        detail = line.get("errorDetail")
        error = (detail.get("message") if isinstance(detail, dict) else None) or line.get("error")
        if error:
            self.error = str(error)
            return False
        status, part = str(line.get("status", "")), line.get("id")
        if part is None:
            # Said of the whole pull. An error that follows all the same is one.
            self.is_done = self.is_done or status.startswith(_DONE)
            return False
        return self._take_part(str(part), status, line.get("progressDetail"))

    @property
    def has_ended(self) -> bool:
        """Whether the engine said how it ended: then it does no more of it."""
        return self.is_done or self.error is not None

    @property
    def known_bytes(self) -> int:
        """The size of all parts that are or were fetched, as far as it is known."""
        return sum(part.whole if part.whole is not None else part.fetched for part in self._parts.values())

    @property
    def is_waiting(self) -> bool:
        """Whether it cannot go on by itself: parts wait for their turn, and none is being fetched."""
        open_parts = [part for part in self._parts.values() if not part.is_fetched]
        return bool(open_parts) and not any(part.is_begun for part in open_parts)

    def progress(self) -> PullProgress:
        """How far it is; see `PullProgress`."""
        parts = list(self._parts.values())
        begun = [part for part in parts if part.is_begun]
        fetched = sum(part.fetched for part in parts)
        if not begun or any(part.whole is None for part in begun):
            return PullProgress(None, fetched, None)
        known = sum(part.whole or 0 for part in begun)
        # What waits for its turn is taken to be as large as the others are on average.
        expected = known * len(parts) / len(begun)
        share = fetched / expected if expected else len(begun) / len(parts)
        total = known if len(begun) == len(parts) else None
        return PullProgress(min(MOST_PERCENT, int(100 * share)), fetched, total)

    def _take_part(self, identity: str, status: str, detail: object) -> bool:
        if status == _SHARED:
            self.has_shared = True
            return False
        is_retried = _RETRYING.fullmatch(status) is not None
        if not (is_retried or status == _DOWNLOADING or status in _FETCHED or status in _WAITING):
            return False
        if identity not in self._parts and len(self._parts) >= MAX_PARTS:
            return False
        part = self._parts.setdefault(identity, _Part())
        self.has_fetched = True
        if status == _DOWNLOADING:
            part.take(_count(detail, "current"), _count(detail, "total"))
        elif status in _FETCHED:
            part.finish()
        return True


def _count(detail: object, name: str) -> int | None:
    value = detail.get(name) if isinstance(detail, dict) else None
    return value if isinstance(value, int) and value > 0 else None
