"""What the outside remembers of a peer that is killed again and again: sent, acknowledged, refused, seen."""

from __future__ import annotations

from typing import Any, Literal

import attrs


@attrs.define(eq=False)
class Sent:
    """A command as it was sent. `unknown`: the peer was killed before it answered."""

    envelope: dict[str, Any]
    sender: str
    state: Literal["unknown", "acknowledged", "refused"] = "unknown"
    receipt: dict[str, Any] | None = None
    status: int | None = None

    @property
    def id(self) -> str:
        """Its id."""
        identifier: str = self.envelope["id"]
        return identifier

    @property
    def type(self) -> str:
        """Its type, PascalCase."""
        kind: str = self.envelope["type"]
        return kind


@attrs.define(eq=False)
class Ledger:
    """One folder's outside memory, over all lives of its peer."""

    sent: dict[str, Sent] = attrs.field(factory=dict)
    seen: dict[str, bytes] = attrs.field(factory=dict)
    """Facts that a stream delivered, byte for byte, by their id."""
    contradictions: list[str] = attrs.field(factory=list)
    """What was noticed while the peer ran: two answers to one command, two facts of one id."""

    def answered(self, command: Sent, status: int, body: dict[str, Any]) -> None:
        """Note the door's answer to a command, the first or to a retry."""
        if status == 201:
            if command.receipt not in (None, body):
                self.contradictions.append(f"{command.id} was answered {command.receipt}, then {body}")
            command.state, command.receipt = "acknowledged", body
        elif command.state == "acknowledged" and status != 401:
            self.contradictions.append(f"{command.id} was acknowledged, then answered {status}: {body}")
        elif status >= 500 or body.get("error", {}).get("code") == "DUPLICATE_ID":
            self.contradictions.append(f"{command.id} was answered {status}: {body}")
        elif command.state == "unknown" and status != 401:
            command.state, command.status = "refused", status

    def saw(self, identifier: str, line: bytes) -> None:
        """Note a fact that was delivered."""
        before = self.seen.setdefault(identifier, line)
        if before != line:
            self.contradictions.append(f"{identifier} was delivered as {before!r}, then as {line!r}")

    def of(self, state: str) -> dict[str, str]:
        """Types of the commands in a state, by id."""
        return {c.id: c.type for c in self.sent.values() if c.state == state}
