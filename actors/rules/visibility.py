"""Who may read which fact (F5). Deny by default: a type not named here is its holder's alone."""

import attrs

WORKLOAD_FACTS = frozenset(
    {
        "DeploymentStarted",
        "WeightsLoading",
        "DeploymentReady",
        "DeploymentFailed",
        "DeploymentEnded",
        "OutOfMemory",
        "Undeployed",
        "ImagePulling",
        "ImagePulled",
        "JobStarted",
        "JobFinished",
        "JobFailed",
        "JobStopped",
    }
)
"""Facts about workloads: an `all` key reads every holder's. Never prompts, answers or their failures."""

HOLD_FACTS = frozenset({"DeviceHeldV1", "DeviceReleasedV1"})
"""The owner's own acts, which are nobody's facts: an `all` key reads them and no other does (F29)."""

SHARED_FACTS = WORKLOAD_FACTS | HOLD_FACTS
"""What an `all` key reads whosever it is."""


@attrs.frozen
class Reader:
    """Whose eyes read the log.

    Args:
        holder: the credential's opaque id.
        sees_all: approved for `all`: every holder's workload facts, and the holds, too.
    """

    holder: str
    sees_all: bool = False

    def may_read(self, holder: str | None, kind: str) -> bool:
        """Whether this reader may read a fact of that holder and type."""
        return holder == self.holder or (self.sees_all and kind in SHARED_FACTS)


OWNER = None
"""In place of a `Reader`: the machine's owner at the console, who reads everything."""
