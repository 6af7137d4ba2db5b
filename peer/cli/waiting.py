"""A sign-in that waits for its owner, as the door tells it and a person reads it (F10, F12)."""

from __future__ import annotations

from typing import Any

import attrs

from actors.codes import is_loopback
from peer.units import describe_duration


@attrs.frozen
class Waiting:
    """Whom an approval would let in, as the door tells it; texts as the agent chose them."""

    state: str
    name: str
    client_id: str
    agent_label: str | None
    address: str | None
    is_session: bool
    seconds_left: int

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Waiting:
        """Of a door's answer; what is not there is unknown."""
        seconds = answer.get("seconds_left")
        return cls(
            state=str(answer.get("state")),
            name=str(answer.get("name") or "unknown"),
            client_id=str(answer.get("client_id") or "unknown"),
            agent_label=None if answer.get("agent_label") is None else str(answer["agent_label"]),
            address=None if answer.get("address") is None else str(answer["address"]),
            is_session=answer.get("lifetime") == "session",
            seconds_left=seconds if isinstance(seconds, int) else 0,
        )

    def lines(self) -> list[tuple[str, str]]:
        """What the person needs to judge it."""
        if self.address is None:
            address = "unknown"
        else:
            address = self.address + (" (this machine)" if is_loopback(self.address) else "")
        return [
            ("connection", self.name),
            ("agent", self.agent_label or "does not say"),
            ("software", self.client_id),
            ("address", address),
            ("asks for", "a key for a session, 8 h at most" if self.is_session else "a lasting key"),
            ("code", f"good for {describe_duration(self.seconds_left)} more"),
        ]
