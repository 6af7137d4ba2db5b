"""The workloads that live: deployments and jobs, as far as the facts say they have come (F19, F25)."""

from typing import Literal

import attrs

from actors.messages.commands import Accepted

Stage = Literal["accepted", "starting", "loading", "ready"]
Phase = Literal["accepted", "starting", "loading", "ready", "ending"]
JobStage = Literal["accepted", "starting", "running"]
JobPhase = Literal["accepted", "starting", "running", "ending"]


@attrs.frozen
class OwnersEnd:
    """The owner of the machine wants a workload ended: what it is told, and since when, RFC 3339 (F29)."""

    reason: str
    at: str


_ORDER: dict[str, int] = {"accepted": 0, "starting": 1, "loading": 2, "running": 2, "ready": 3}


@attrs.define
class Deployment:
    """A deployment from its acceptance to its end.

    Args:
        command: the id of the deploy that made it.
        stage: how far the facts say it has come; `stage_since` when, RFC 3339.
        ended_by: the undeploy that was accepted for it, durable or about to be.
        owners_end: the owner took its device back.
        context_tokens: what one conversation may hold, once it is ready and where its engine says.
    """

    id: str
    holder: str
    model: str
    engine: str
    device: str
    device_uuid: str
    memory_bytes: int
    command: str
    correlation: str
    stage_since: str
    stage: Stage = "accepted"
    ended_by: Accepted | None = None
    owners_end: OwnersEnd | None = None
    context_tokens: int | None = None
    prompts_answered: int = 0
    prompts_failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def phase(self) -> Phase:
        """Its stage, or `ending` from the moment an undeploy of it is accepted or its device taken back."""
        return self.stage if self.ended_by is None and self.owners_end is None else "ending"

    @property
    def since(self) -> str:
        """When it entered its phase, RFC 3339."""
        return _since(self)

    @property
    def started(self) -> bool:
        """Whether its engine was started, as far as was told."""
        return self.stage != "accepted"

    @property
    def was_ready(self) -> bool:
        """Whether it has answered, whatever its phase now."""
        return self.stage == "ready"

    def reach(self, stage: Stage, time: str) -> None:
        """Come so far. Never backwards: an engine started again, since its port was taken, loads anew."""
        if _ORDER[self.stage] < _ORDER[stage]:
            self.stage, self.stage_since = stage, time


@attrs.define
class Job:
    """A job from its acceptance to its end.

    Args:
        device, device_uuid: None for one that runs on the host with no device.
        memory_bytes: device memory promised to it; None where none was asked for.
        boxed: it runs in the closed box, as was settled at its admission.
        host_memory_bytes: its ceiling of host memory once it was started; None is no ceiling.
        command: the id of the run-job that made it.
        stage: how far the facts say it has come; `stage_since` when, RFC 3339.
        ended_by: the stop-job that was accepted for it, durable or about to be.
        owners_end: the owner took its device back.
    """

    id: str
    holder: str
    image: str
    device: str | None
    device_uuid: str | None
    memory_bytes: int | None
    boxed: bool
    command: str
    correlation: str
    stage_since: str
    host_memory_bytes: int | None = None
    stage: JobStage = "accepted"
    ended_by: Accepted | None = None
    owners_end: OwnersEnd | None = None

    @property
    def phase(self) -> JobPhase:
        """Its stage, or `ending` from the moment a stop-job of it is accepted or its device taken back."""
        return self.stage if self.ended_by is None and self.owners_end is None else "ending"

    @property
    def since(self) -> str:
        """When it entered its phase, RFC 3339."""
        return _since(self)

    @property
    def started(self) -> bool:
        """Whether its container was started, as far as was told."""
        return self.stage == "running"

    def reach(self, stage: JobStage, time: str) -> None:
        """Come so far, never backwards: after a restart its image is made ready once more."""
        if _ORDER[self.stage] < _ORDER[stage]:
            self.stage, self.stage_since = stage, time


Workload = Deployment | Job


def _since(workload: Workload) -> str:
    asked = [end.at for end in (workload.ended_by, workload.owners_end) if end is not None]
    return min(asked, default=workload.stage_since)
