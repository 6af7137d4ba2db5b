"""What follows from the facts told and the commands accepted: workloads, promises, what is unfinished (F37).

One `World` a door. Every change costs the same whatever the history; nothing here fails on a fact that was
told, waits, reads a clock or draws a random number.
"""

from collections.abc import Callable
from typing import Any

import attrs
import msgspec
from msgspec import UNSET, UnsetType

from actors.messages import events as e
from actors.messages.commands import (
    COMPLETES,
    Accepted,
    DeployModel,
    Prompt,
    RunJob,
    StopJob,
    UndeployModel,
)
from actors.messages.envelope import Fact, Head
from actors.state.holds import HOST, Hold, Holds, hold_of
from actors.state.promises import Holding, Promises
from actors.state.workloads import Deployment, Job, OwnersEnd, Workload

_FAILURE = frozenset({"CommandFailed"})


class World:
    """The fold. Reading it costs nothing; only the log's pen and the desk's admission write it."""

    def __init__(self) -> None:
        self.deployments: dict[str, Deployment] = {}
        self.jobs: dict[str, Job] = {}
        self.unfinished: dict[str, Accepted] = {}
        self.events_told: dict[str, int] = {}
        self.holds = Holds()
        self.owners_ends: dict[str, OwnersEnd] = {}
        """Workloads whose device the owner took back, by id: they end, whatever becomes of the hold (F29)."""
        self._promises = Promises()
        self._runs: dict[str, str] = {}
        """The run-job of each job that has not completed, by the job's id."""

    @property
    def promised(self) -> dict[str, int]:
        """Bytes promised to workloads, started or not, by device UUID."""
        return self._promises.by_device

    @property
    def releases(self) -> int:
        """How many promises came back since the start: what was read of a device before the last is old."""
        return self._promises.given_back

    def holding(self, holder: str) -> Holding:
        """What a holder holds; an empty one for a stranger."""
        return self._promises.holding(holder)

    def remember(self, accepted: Accepted) -> None:
        """At start, before the facts are replayed: a command that may not have completed."""
        self.unfinished[accepted.id] = accepted
        if isinstance(accepted.body, RunJob) and accepted.subject is not None:
            self._runs[accepted.subject] = accepted.id

    def settle(self) -> None:
        """At start, after the facts were replayed: reserve for what is still unfinished."""
        for accepted in tuple(self.unfinished.values()):
            self.accept(accepted)

    def accept(self, accepted: Accepted) -> None:
        """Reserve what a command needs. Idempotent: the same at its admission and at a restart."""
        self.remember(accepted)
        match accepted.body:
            case DeployModel() as body if accepted.subject is not None:
                self._add_deployment(
                    Deployment(
                        id=accepted.subject,
                        holder=accepted.holder,
                        model=body.model,
                        engine=body.engine,
                        device=accepted.device or "",
                        device_uuid=accepted.device_uuid or "",
                        memory_bytes=body.memory_bytes,
                        command=accepted.id,
                        correlation=accepted.correlation,
                        stage_since=accepted.at,
                    )
                )
            case RunJob() as body if accepted.subject is not None:
                self._add_job(
                    Job(
                        id=accepted.subject,
                        holder=accepted.holder,
                        image=body.image,
                        device=accepted.device,
                        device_uuid=accepted.device_uuid,
                        memory_bytes=body.memory_bytes,
                        boxed=accepted.boxed is not False,
                        command=accepted.id,
                        correlation=accepted.correlation,
                        stage_since=accepted.at,
                    )
                )
            case UndeployModel() | StopJob():
                workload = self._to_end(accepted.body)
                if workload is not None and workload.ended_by is None:
                    workload.ended_by = accepted
            case _:
                pass

    def withdraw(self, accepted: Accepted) -> None:
        """Give back what `accept` reserved: the command was not kept after all."""
        self._finish(accepted)
        self._undo(accepted)

    def apply(self, fact: Fact, time: str) -> None:
        """Take a fact that was just told."""
        kind = fact.type
        self.events_told[kind] = self.events_told.get(kind, 0) + 1
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler.take(self, fact.event, _Place(time, fact.correlation, fact.causation))
        self._complete(fact.causation, kind)

    def replay(self, head: Head) -> None:
        """Take a fact read from the log."""
        kind = head.type
        told = self.events_told
        told[kind] = told.get(kind, 0) + 1
        handler = _HANDLERS.get(kind)
        if handler is not None:
            try:
                event = handler.decode(head.data)
            except msgspec.MsgspecError:
                # An older peer's fact of another shape: it stays readable, and says no more to this fold
                # than that its command has completed.
                pass
            else:
                handler.take(self, event, head)
        if head.causationid in self.unfinished:
            self._complete(head.causationid, kind)

    def prompts_in_flight(self) -> int:
        """Prompts accepted and not answered."""
        return sum(1 for a in self.unfinished.values() if isinstance(a.body, Prompt))

    def undeploys_of(self, identifier: str) -> tuple[Accepted, ...]:
        """Undeploys of a deployment that have not completed; it looks at all that is unfinished."""
        return tuple(a for a in self.unfinished.values() if a.body == UndeployModel(identifier))

    def stops_of(self, identifier: str) -> tuple[Accepted, ...]:
        """Stop-jobs of a job that have not completed; it looks at all that is unfinished."""
        return tuple(a for a in self.unfinished.values() if a.body == StopJob(identifier))

    def _complete(self, causation: str | None, kind: str) -> None:
        accepted = self.unfinished.get(causation) if causation is not None else None
        if accepted is not None and kind in COMPLETES.get(accepted.type, _FAILURE):
            self._finish(accepted)
            if kind == "CommandFailed":
                self._undo(accepted)

    def _finish(self, accepted: Accepted) -> None:
        self.unfinished.pop(accepted.id, None)
        if isinstance(accepted.body, RunJob) and accepted.subject is not None:
            self._runs.pop(accepted.subject, None)

    def _undo(self, accepted: Accepted) -> None:
        match accepted.body:
            case DeployModel() if accepted.subject is not None:
                self._remove_deployment(accepted.subject)
            case RunJob() if accepted.subject is not None:
                self._remove_job(accepted.subject)
            case UndeployModel() | StopJob():
                workload = self._to_end(accepted.body)
                if workload is not None and workload.ended_by == accepted:
                    workload.ended_by = None
            case _:
                pass

    def _add_deployment(self, deployment: Deployment) -> None:
        if deployment.id not in self.deployments:
            self.deployments[deployment.id] = deployment
            self._promises.take(deployment)

    def _add_job(self, job: Job) -> None:
        if job.id not in self.jobs:
            self.jobs[job.id] = job
            self._promises.take(job)

    def _remove_deployment(self, identifier: str) -> None:
        deployment = self.deployments.pop(identifier, None)
        self.owners_ends.pop(identifier, None)
        if deployment is not None:
            self._promises.give_back(deployment)

    def _remove_job(self, identifier: str) -> None:
        job = self.jobs.pop(identifier, None)
        self.owners_ends.pop(identifier, None)
        if job is not None:
            self._promises.give_back(job)

    def _take_back(self, workload: Workload, hold: Hold | None, time: str) -> None:
        """End a workload that runs on a device held so; what has not started yet is looked at as it does."""
        if hold is None or not hold.ends_work or not workload.started or not hold.stands_at(time):
            return
        if workload.owners_end is None:
            workload.owners_end = self.owners_ends[workload.id] = OwnersEnd(hold.words, time)

    def _to_end(self, body: UndeployModel | StopJob) -> Workload | None:
        if isinstance(body, UndeployModel):
            return self.deployments.get(body.deployment)
        return self.jobs.get(body.job)

    def _job(self, identifier: str) -> Job | None:
        """The job, also one that is only remembered: during a replay, before `settle` reserves for it."""
        run = self._runs.get(identifier)
        if run is not None and identifier not in self.jobs:
            self.accept(self.unfinished[run])
        return self.jobs.get(identifier)

    def _complete_run(self, job: str) -> None:
        run = self._runs.pop(job, None)
        if run is not None:
            self.unfinished.pop(run, None)


@attrs.frozen
class _Place:
    """Where a told fact stands, by the names that a line has for it."""

    time: str
    correlationid: str | None
    causationid: str | None


class _Usage(msgspec.Struct, gc=False):
    """What the fold needs of an answer; its content is passed over."""

    deployment: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Named(msgspec.Struct, gc=False):
    deployment: str


class _Ready(msgspec.Struct, gc=False):
    deployment: str
    context_tokens: int | UnsetType = UNSET


class _NamedJob(msgspec.Struct, gc=False):
    job: str


class _Released(msgspec.Struct, gc=False):
    hold: str
    device_uuid: str


class _ForJob(msgspec.Struct, gc=False):
    """What the fold needs of an image's fact: the job it is for, if it is for one."""

    job: str | UnsetType = UNSET


@attrs.frozen
class _Handler:
    take: Callable[[World, Any, _Place | Head], None]
    decode: Callable[[Any], Any]


def _started(world: World, event: e.DeploymentStarted, place: _Place | Head) -> None:
    world._add_deployment(  # noqa: SLF001 - handlers are the fold's own
        Deployment(
            id=event.deployment,
            holder=event.holder,
            model=event.model,
            engine=event.engine,
            device=event.device,
            device_uuid=event.device_uuid,
            memory_bytes=event.memory_bytes,
            command=place.causationid or "",
            correlation=place.correlationid or "",
            stage_since=place.time,
        )
    )
    deployment = world.deployments[event.deployment]
    deployment.reach("starting", place.time)
    world._take_back(deployment, world.holds.on(deployment.device_uuid), place.time)  # noqa: SLF001


def _loading(world: World, event: _Named, place: _Place | Head) -> None:
    deployment = world.deployments.get(event.deployment)
    if deployment is not None:
        deployment.reach("loading", place.time)


def _ready(world: World, event: _Ready, place: _Place | Head) -> None:
    deployment = world.deployments.get(event.deployment)
    if deployment is not None:
        deployment.reach("ready", place.time)
        deployment.context_tokens = None if event.context_tokens is UNSET else event.context_tokens


def _ended(world: World, event: _Named, place: _Place | Head) -> None:  # noqa: ARG001 - one signature for all
    world._remove_deployment(event.deployment)  # noqa: SLF001


def _answered(world: World, event: _Usage, place: _Place | Head) -> None:  # noqa: ARG001
    deployment = world.deployments.get(event.deployment)
    if deployment is not None:
        deployment.prompts_answered += 1
        deployment.prompt_tokens += event.prompt_tokens or 0
        deployment.completion_tokens += event.completion_tokens or 0


def _unanswered(world: World, event: _Named, place: _Place | Head) -> None:  # noqa: ARG001
    deployment = world.deployments.get(event.deployment)
    if deployment is not None:
        deployment.prompts_failed += 1


def _fetching(world: World, event: _ForJob, place: _Place | Head) -> None:
    job = None if event.job is UNSET else world._job(event.job)  # noqa: SLF001
    if job is not None:
        job.reach("starting", place.time)


def _job_started(world: World, event: e.JobStarted, place: _Place | Head) -> None:
    world._add_job(  # noqa: SLF001
        Job(
            id=event.job,
            holder=event.holder,
            image=event.image,
            device=event.device or None,
            device_uuid=event.device_uuid or None,
            memory_bytes=event.memory_bytes or None,
            boxed=event.boxed,
            command=place.causationid or "",
            correlation=place.correlationid or "",
            stage_since=place.time,
        )
    )
    job = world.jobs[event.job]
    job.host_memory_bytes = event.host_memory_bytes or None
    job.reach("running", place.time)
    world._take_back(job, world.holds.on(job.device_uuid or HOST), place.time)  # noqa: SLF001


def _job_ended(world: World, event: _NamedJob, place: _Place | Head) -> None:  # noqa: ARG001
    world._remove_job(event.job)  # noqa: SLF001


def _job_stopped(world: World, event: _NamedJob, place: _Place | Head) -> None:  # noqa: ARG001
    world._remove_job(event.job)  # noqa: SLF001
    # Told once where one correlation has both commands: by the stop, and the run-job is done as well.
    world._complete_run(event.job)  # noqa: SLF001


def _device_held(world: World, event: e.DeviceHeldV1, place: _Place | Head) -> None:
    hold = hold_of(event, place.time)
    world.holds.take(hold)
    living: tuple[Workload, ...] = (*world.deployments.values(), *world.jobs.values())
    for workload in living:
        # Also what runs on a device that is not listed now: an act for every device is for that one as well.
        standing = world.holds.on(workload.device_uuid or HOST)
        if standing is not None and standing.id == hold.id:
            world._take_back(workload, hold, place.time)  # noqa: SLF001


def _device_released(world: World, event: _Released, place: _Place | Head) -> None:  # noqa: ARG001
    world.holds.release(event.hold, event.device_uuid)


def _handler(take: Callable[[World, Any, _Place | Head], None], kind: Any) -> _Handler:
    return _Handler(take, msgspec.json.Decoder(kind).decode)


_HANDLERS: dict[str, _Handler] = {
    "ImagePulling": _handler(_fetching, _ForJob),
    "ImagePulled": _handler(_fetching, _ForJob),
    "DeploymentStarted": _handler(_started, e.DeploymentStarted),
    "WeightsLoading": _handler(_loading, _Named),
    "DeploymentReady": _handler(_ready, _Ready),
    "DeploymentFailed": _handler(_ended, _Named),
    "DeploymentEnded": _handler(_ended, _Named),
    "OutOfMemory": _handler(_ended, _Named),
    "Undeployed": _handler(_ended, _Named),
    "PromptAnswered": _handler(_answered, _Usage),
    "PromptFailed": _handler(_unanswered, _Named),
    "JobStarted": _handler(_job_started, e.JobStarted),
    "JobFinished": _handler(_job_ended, _NamedJob),
    "JobFailed": _handler(_job_ended, _NamedJob),
    "JobStopped": _handler(_job_stopped, _NamedJob),
    "DeviceHeldV1": _handler(_device_held, e.DeviceHeldV1),
    "DeviceReleasedV1": _handler(_device_released, _Released),
}
