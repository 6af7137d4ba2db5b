"""Who approves a sign-in: the seam where an identity provider may stand (F15).

An `Approver` is chosen where the peer is put together and known nowhere else. What it may do is bounded here:
it has `ADMIT_SECONDS` to decide, and what it grants is never more than was asked.
"""

import hmac
import logging
from typing import Final, Protocol

import attrs
import trio

from actors.rules.grants import check_grant, wider
from actors.rules.refusal import Refusal
from actors.state.keys import Grant

logger = logging.getLogger("best_peer.keys")

ADMIT_SECONDS: Final = 10.0
"""How long an approver may take to decide; the owner's command waits for it."""


class NotAdmitted(Exception):
    """Raised by an approver that turns a registration away; the text says why, for whoever approves."""


class ApproverUnavailable(Exception):
    """Raised by an approver that cannot decide now; the text says why, for whoever approves."""


@attrs.frozen
class Registration:
    """What is asked to be approved.

    Args:
        name: the connection's.
        is_session: whether the agent asked for a session's key, eight hours at most.
        proof: whoever approves, as `attest` took it.
    """

    user_code: str
    name: str
    client_id: str
    agent_label: str | None
    address: str | None
    is_session: bool = False
    proof: str = attrs.field(default="", repr=False)


class Approver(Protocol):
    """Decides who may approve and what is granted. The door never knows which stands behind it."""

    def attest(self, proof: str) -> bool:
        """Whether a proof is the authority's. Asked before anything else, for a revoke too.

        Decides from what it holds: it neither waits nor raises, whatever a stranger sends.
        """
        ...

    async def admit(self, registration: Registration, asked: Grant) -> Grant:
        """What is granted, at most what was asked. It may wait, and is cancelled after `ADMIT_SECONDS`.

        Raises:
            NotAdmitted: it is turned away.
            ApproverUnavailable: nobody can say now.
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


async def admitted(approver: Approver, registration: Registration, asked: Grant) -> Grant:
    """What an approver grants, held to its bounds.

    Raises:
        Refusal: NOT_ADMITTED; APPROVAL_UNAVAILABLE where it cannot say, takes too long, or grants what was
            not asked for or cannot be.
    """
    code = registration.user_code
    try:
        with trio.fail_after(ADMIT_SECONDS):
            granted = await approver.admit(registration, asked)
    except NotAdmitted as no:
        raise Refusal(
            "NOT_ADMITTED",
            f"{code} was not approved, since whoever decides here turned it away: {no}; "
            "approve it with less, or deny it",
        ) from no
    except ApproverUnavailable as away:
        raise _undecided(code, str(away)) from away
    except trio.TooSlowError as slow:
        raise _undecided(code, f"no decision came within {ADMIT_SECONDS:g} s") from slow
    more = wider(asked, granted)
    if more:
        logger.error("the approver granted more than was asked for: %s; nothing was granted", ", ".join(more))
        raise _undecided(code, f"what decides here granted more than was asked for ({', '.join(more)})")
    try:
        return check_grant(granted, is_session=registration.is_session)
    except Refusal as cannot:
        raise _undecided(code, f"what decides here granted what cannot be ({cannot.message})") from cannot


def _undecided(code: str, why: str) -> Refusal:
    return Refusal(
        "APPROVAL_UNAVAILABLE",
        f"{code} was not approved and still waits: {why}; approve it again in a moment",
        retry_after_seconds=5,
    )
