"""What a door may answer to what is asked of it: allowed, or refused with one code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    import httpx


@attrs.frozen
class Answer:
    """A status, and the code of a refusal; a flat code is one of RFC 6749, at the sign-in's two URLs."""

    status: int
    code: str | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether it is no refusal."""
        return self.code is None

    def text(self) -> str:
        """As the page shows it."""
        return "yes" if self.is_allowed else f"{self.status} `{self.code}`"


def read(answer: httpx.Response) -> Answer:
    """What a door answered.

    A refusal of the door's without a code is one with the code `nothing`, which is what no rule expects.
    """
    if answer.is_success:
        return Answer(answer.status_code)
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError):
        error = "nothing"
    return Answer(answer.status_code, str(error["code"] if isinstance(error, dict) else error))


OK: Final = Answer(200)
TAKEN: Final = Answer(201)
UNAUTHORIZED: Final = Answer(401, "UNAUTHORIZED")
FORBIDDEN: Final = Answer(403, "FORBIDDEN")
ACCELERATORS_ONLY: Final = Answer(403, "ACCELERATORS_ONLY")
NOT_FOUND: Final = Answer(404, "NOT_FOUND")
UNKNOWN_CODE: Final = Answer(404, "UNKNOWN_CODE")
UNKNOWN_COMMAND: Final = Answer(400, "UNKNOWN_COMMAND")
UNKNOWN_DEPLOYMENT: Final = Answer(404, "UNKNOWN_DEPLOYMENT")
UNKNOWN_JOB: Final = Answer(404, "UNKNOWN_JOB")
INVALID_GRANT: Final = Answer(400, "INVALID_GRANT")
ID_NOT_YOURS: Final = Answer(409, "ID_NOT_YOURS")
SHARE_EXCEEDED: Final = Answer(422, "SHARE_EXCEEDED")
DEVICE_BUSY: Final = Answer(422, "DEVICE_BUSY")
DEPLOYMENTS_EXCEEDED: Final = Answer(422, "DEPLOYMENTS_EXCEEDED")
JOBS_EXCEEDED: Final = Answer(422, "JOBS_EXCEEDED")
JOB_NEEDS_DEVICE: Final = Answer(422, "JOB_NEEDS_DEVICE")
PENDING: Final = Answer(400, "authorization_pending")
