"""What follows from the facts told and the commands accepted: workloads, promises, what is unfinished (F37).

One `World` a door. Every change costs the same whatever the history; nothing here fails on a fact that was
told, waits, reads a clock or draws a random number.
"""

from collections.abc import Callable
from typing import Any, Literal

import attrs
import msgspec

from actors.messages import events as e
from actors.messages.commands import COMPLETES, Accepted, DeployModel, Prompt, UndeployModel
from actors.messages.envelope import Fact, Head

Stage = Literal["accepted", "starting", "loading", "ready"]
Phase = Literal["accepted", "starting", "loading", "ready", "ending"]

_ORDER: dict[Stage, int] = {"accepted": 0, "starting": 1, "loading": 2, "ready": 3}
_FAILURE = frozenset({"CommandFailed"})


@attrs.define
class Deployment:
    """A deployment from its acceptance to its end.

    Args:
        command: the id of the deploy that made it.
        stage: how far the facts say it has come; `stage_since` when, RFC 3339.
        ended_by: the undeploy that was accepted for it, durable or about to be.
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
    prompts_answered: int = 0
    prompts_failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def phase(self) -> Phase:
        """Its stage, or `ending` from the moment an undeploy of it is accepted."""
        return self.stage if self.ended_by is None else "ending"

    @property
    def since(self) -> str:
        """When it entered its phase, RFC 3339."""
        return self.stage_since if self.ended_by is None else self.ended_by.at

    @property
    def started(self) -> bool:
        """Whether its engine was started, as far as was told."""
        return self.stage != "accepted"

    @property
    def was_ready(self) -> bool:
        """Whether it has answered, whatever its phase now."""
        return self.stage == "ready"


@attrs.define
class Holding:
    """What one holder holds now."""

    memory_bytes: int = 0
    deployments: set[str] = attrs.field(factory=set)
    jobs: set[str] = attrs.field(factory=set)


class World:
    """The fold. Reading it costs nothing; only the log's pen and the desk's admission write it."""

    def __init__(self) -> None:
        self.deployments: dict[str, Deployment] = {}
        self.unfinished: dict[str, Accepted] = {}
        self.promised: dict[str, int] = {}
        """Bytes promised to workloads, started or not, by device UUID."""
        self.events_told: dict[str, int] = {}
        self._holdings: dict[str, Holding] = {}

    def holding(self, holder: str) -> Holding:
        """What a holder holds; an empty one for a stranger."""
        return self._holdings.get(holder) or Holding()

    def remember(self, accepted: Accepted) -> None:
        """At start, before the facts are replayed: a command that may not have completed."""
        self.unfinished[accepted.id] = accepted

    def settle(self) -> None:
        """At start, after the facts were replayed: reserve for what is still unfinished."""
        for accepted in tuple(self.unfinished.values()):
            self.accept(accepted)

    def accept(self, accepted: Accepted) -> None:
        """Reserve what a command needs. Idempotent: the same at its admission and at a restart."""
        self.unfinished[accepted.id] = accepted
        match accepted.body:
            case DeployModel() as body if accepted.subject is not None:
                self._add(
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
            case UndeployModel(deployment=identifier):
                deployment = self.deployments.get(identifier)
                if deployment is not None and deployment.ended_by is None:
                    deployment.ended_by = accepted
            case _:
                pass

    def withdraw(self, accepted: Accepted) -> None:
        """Give back what `accept` reserved: the command was not kept after all."""
        self.unfinished.pop(accepted.id, None)
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
        return tuple(
            a
            for a in self.unfinished.values()
            if isinstance(a.body, UndeployModel) and a.body.deployment == identifier
        )

    def _complete(self, causation: str | None, kind: str) -> None:
        accepted = self.unfinished.get(causation) if causation is not None else None
        if accepted is not None and kind in COMPLETES.get(accepted.type, _FAILURE):
            del self.unfinished[accepted.id]
            if kind == "CommandFailed":
                self._undo(accepted)

    def _undo(self, accepted: Accepted) -> None:
        match accepted.body:
            case DeployModel() if accepted.subject is not None:
                self._remove(accepted.subject)
            case UndeployModel(deployment=identifier):
                deployment = self.deployments.get(identifier)
                if deployment is not None and deployment.ended_by == accepted:
                    deployment.ended_by = None
            case _:
                pass

    def _add(self, deployment: Deployment) -> None:
        if deployment.id in self.deployments:
            return
        self.deployments[deployment.id] = deployment
        device = deployment.device_uuid
        self.promised[device] = self.promised.get(device, 0) + deployment.memory_bytes
        holding = self._holdings.setdefault(deployment.holder, Holding())
        holding.memory_bytes += deployment.memory_bytes
        holding.deployments.add(deployment.id)

    def _remove(self, identifier: str) -> None:
        deployment = self.deployments.pop(identifier, None)
        if deployment is None:
            return
        left = self.promised.get(deployment.device_uuid, 0) - deployment.memory_bytes
        if left:
            self.promised[deployment.device_uuid] = left
        else:
            self.promised.pop(deployment.device_uuid, None)
        holding = self._holdings[deployment.holder]
        holding.memory_bytes -= deployment.memory_bytes
        holding.deployments.discard(identifier)
        if not holding.deployments and not holding.jobs:
            del self._holdings[deployment.holder]

    def _reach(self, identifier: str, stage: Stage, time: str) -> None:
        deployment = self.deployments.get(identifier)
        # Never backwards: an engine that is started again, since its port was taken, loads anew.
        if deployment is not None and _ORDER[deployment.stage] < _ORDER[stage]:
            deployment.stage = stage
            deployment.stage_since = time


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


@attrs.frozen
class _Handler:
    take: Callable[[World, Any, _Place | Head], None]
    decode: Callable[[Any], Any]


def _started(world: World, event: e.DeploymentStarted, place: _Place | Head) -> None:
    world._add(  # noqa: SLF001 - handlers are the fold's own
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
    world._reach(event.deployment, "starting", place.time)  # noqa: SLF001


def _loading(world: World, event: _Named, place: _Place | Head) -> None:
    world._reach(event.deployment, "loading", place.time)  # noqa: SLF001


def _ready(world: World, event: _Named, place: _Place | Head) -> None:
    world._reach(event.deployment, "ready", place.time)  # noqa: SLF001


def _ended(world: World, event: _Named, place: _Place | Head) -> None:  # noqa: ARG001 - one signature for all
    world._remove(event.deployment)  # noqa: SLF001


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


def _handler(take: Callable[[World, Any, _Place | Head], None], kind: Any) -> _Handler:
    return _Handler(take, msgspec.json.Decoder(kind).decode)


_HANDLERS: dict[str, _Handler] = {
    "DeploymentStarted": _handler(_started, e.DeploymentStarted),
    "WeightsLoading": _handler(_loading, _Named),
    "DeploymentReady": _handler(_ready, _Named),
    "DeploymentFailed": _handler(_ended, _Named),
    "DeploymentEnded": _handler(_ended, _Named),
    "OutOfMemory": _handler(_ended, _Named),
    "Undeployed": _handler(_ended, _Named),
    "PromptAnswered": _handler(_answered, _Usage),
    "PromptFailed": _handler(_unanswered, _Named),
}
