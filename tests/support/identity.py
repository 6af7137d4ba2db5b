"""An identity provider in place of the admin token: whoever it signed a token for may approve (F15).

Small and pretended: tokens are signed with a secret that it shares with nobody, and say who approves and what
that person may grant at most. The real ones differ in how they sign and whom they ask.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

import attrs
import trio

from actors.approver import ApproverUnavailable, NotAdmitted, Registration

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.state.keys import Grant

SECRET = b"the provider's own"


def token(who: str, **claims: Any) -> str:
    """What a person shows the door: who they are, and claims such as `memory_bytes`, signed."""
    body = base64.urlsafe_b64encode(json.dumps({"who": who, **claims}).encode())
    return f"{body.decode()}.{_signed(body)}"


def _signed(body: bytes) -> str:
    return hmac.new(SECRET, body, hashlib.sha256).hexdigest()


@attrs.define(eq=False)
class IdentityProvider:
    """Attests tokens it has signed, grants what the token allows at most, refuses whom it does not know."""

    known: frozenset[str] = frozenset({"lab"})
    """Connections it admits."""
    asked: list[tuple[Registration, Grant]] = attrs.field(factory=list)
    is_away: bool = False
    answers: trio.Event | None = None
    """Where it is slow, what it waits for."""
    began: trio.Event = attrs.field(factory=trio.Event)
    cancelled: bool = False
    widens: Callable[[Grant], Grant] | None = None
    """Where it is broken: what it makes of a grant."""

    def attest(self, proof: str) -> bool:
        """Whether it has signed a token."""
        body, _, signature = proof.partition(".")
        return hmac.compare_digest(signature.encode(), _signed(body.encode()).encode())

    async def admit(self, registration: Registration, asked: Grant) -> Grant:
        """At most the memory that the token allows."""
        self.asked.append((registration, asked))
        self.began.set()
        if self.answers is not None:
            try:
                await self.answers.wait()
            except trio.Cancelled:
                self.cancelled = True
                raise
        if self.is_away:
            raise ApproverUnavailable("the directory does not answer")
        if registration.name not in self.known:
            raise NotAdmitted(f"{registration.name} is in no group that may use this machine")
        if self.widens is not None:
            return self.widens(asked)
        claims = json.loads(base64.urlsafe_b64decode(registration.proof.partition(".")[0]))
        most = claims.get("memory_bytes")
        if most is None:
            return asked
        held = most if asked.memory_bytes is None else min(most, asked.memory_bytes)
        return attrs.evolve(asked, memory_bytes=held)
