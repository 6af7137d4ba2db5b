"""What a door counts since it started: the commands it accepted and those it refused (F36).

Counts alone, by words of our own: nothing of what was sent is kept, so they do not grow with what clients do.
"""

from collections import Counter
from typing import Final

import attrs

from actors.messages.commands import COMMANDS

UNKNOWN: Final = "unknown"
"""In place of a command's type where what was refused could not be read so far, or named none of ours."""


@attrs.frozen
class CommandCounts:
    """Counters that only grow, from zero at each start of the peer.

    Args:
        accepted: by the command's type; every type is there from the start. A retry is no second command.
        refused: by the command's type and the code it was refused with.
    """

    accepted: Counter[str] = attrs.field(factory=lambda: Counter(dict.fromkeys(COMMANDS, 0)))
    refused: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    def accept(self, command: str) -> None:
        """One more was accepted: it is durable, whether or not its sender still waits."""
        self.accepted[command if command in COMMANDS else UNKNOWN] += 1

    def refuse(self, command: str | None, code: str) -> None:
        """One more was refused with a code of `docs/errors.md`.

        Args:
            command: its type, None where nobody could tell.
            code: ours.
        """
        self.refused[command if command in COMMANDS else UNKNOWN, code] += 1
