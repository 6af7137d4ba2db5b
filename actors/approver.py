"""Who approves a sign-in: the seam where an identity provider may stand (F15)."""

import hmac
from typing import Protocol

import attrs

from actors.state.keys import Grant


@attrs.frozen
class Registration:
    """What is asked to be approved."""

    user_code: str
    name: str
    client_id: str
    agent_label: str | None
    address: str | None


class Approver(Protocol):
    """Decides who may approve and what is granted. The door never knows which stands behind it."""

    def attest(self, proof: str) -> bool:
        """Whether a proof is the authority's. Asked before anything else, for a revoke too."""
        ...

    async def admit(self, registration: Registration, asked: Grant) -> Grant:
        """What is granted, at most what was asked.

        Raises:
            Refusal: it is not admitted.
        """
        ...


@attrs.frozen
class AdminTokenApprover:
    """Whoever can read the admin token's file controls the machine, and decides (F14)."""

    token: str = attrs.field(repr=False)

    def attest(self, proof: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(proof.encode(), self.token.encode())

    async def admit(self, registration: Registration, asked: Grant) -> Grant:  # noqa: ARG002 - see Approver
        """What the owner said."""
        return asked
