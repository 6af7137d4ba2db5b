"""What else a connection's name stands for when another agent signs in under it (F12, F13).

The person chose the name and several keys may share it, so that taking the name back takes all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from peer.cli.show import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAMED: Final = 3
"""Keys or codes named in one line."""


@attrs.frozen
class Namesakes:
    """What is let in under a name already.

    Args:
        holders: its open keys, by their holder ids.
        codes: what was approved under it and whose agent has not come for its key, by their codes.
    """

    holders: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Namesakes:
        """Of a door's answer; none where it does not say."""
        told = answer.get("same_name")
        found = told if isinstance(told, dict) else {}
        return cls(holders=_texts(found.get("keys")), codes=_texts(found.get("codes")))

    def __bool__(self) -> bool:
        return bool(self.holders or self.codes)

    def lines(self, name: str) -> list[str]:
        """What is said of them before the person decides; nothing where there are none."""
        lines = []
        if self.holders:
            keys = "1 key is" if len(self.holders) == 1 else f"{len(self.holders)} keys are"
            lines.append(f"{keys} open as {name} already: {_some(self.holders)}")
        if self.codes:
            lines.append(f"Approved as {name} already, and not fetched yet: {_some(self.codes)}")
        return lines

    def to_take_back(self, name: str) -> list[str]:
        """How the key that was let in as well is taken back, alone and with the others."""
        if not self:
            return [f"To take it back: best-peer revoke {name}"]
        return [
            f"To take it back: best-peer revoke {name}, which takes back every key of that name",
            (
                f"To take it back alone: best-peer revoke HOLDER, the holder id that best-peer keys {name} "
                "shows once its agent has fetched the key"
            ),
        ]


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(safe(each, 64) for each in value) if isinstance(value, list) else ()


def _some(of: Sequence[str]) -> str:
    more = f" and {len(of) - MAX_NAMED} more" if len(of) > MAX_NAMED else ""
    return ", ".join(of[:MAX_NAMED]) + more
