"""What may be ordered of this peer. A class's name is its command's type; its fields are the command's data.

The door has validated data against the schema documents before it becomes one of these, so bounds are not
repeated here.
"""

from typing import Any, Literal

import attrs
import cattrs

IsolationName = Literal["process", "container", "user-namespace", "vm"]
Role = Literal["system", "user", "assistant"]


@attrs.frozen
class DeployModel:
    """Serve a model within a promise of device memory."""

    model: str
    engine: Literal["llamacpp", "ollama", "vllm"]
    memory_bytes: int
    device: str | None = None
    isolation: IsolationName | None = None


@attrs.frozen
class UndeployModel:
    """End a deployment."""

    deployment: str


@attrs.frozen
class Turn:
    """One message of a conversation."""

    role: Role
    content: str


@attrs.frozen
class Prompt:
    """Ask a ready deployment."""

    deployment: str
    messages: tuple[Turn, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@attrs.frozen
class PullImage:
    """Fetch an image from its registry, held or not (F22)."""

    image: str


@attrs.frozen
class RunJob:
    """Run an image once."""

    image: str
    command: tuple[str, ...] | None = None
    env: dict[str, str] = attrs.field(factory=dict)
    memory_bytes: int | None = None
    device: str | None = None
    isolation: IsolationName | None = None


@attrs.frozen
class StopJob:
    """End a job."""

    job: str


@attrs.frozen
class RevokeAgent:
    """Give back the key this is sent under."""


@attrs.frozen
class UnknownCommand:
    """A command that another version accepted and this one cannot carry out: it fails, and is told to."""

    kind: str


Command = DeployModel | UndeployModel | Prompt | PullImage | RunJob | StopJob | RevokeAgent | UnknownCommand

COMMANDS: dict[str, type[Any]] = {
    c.__name__: c for c in (DeployModel, UndeployModel, Prompt, PullImage, RunJob, StopJob, RevokeAgent)
}

COMPLETES: dict[str, frozenset[str]] = {
    "DeployModel": frozenset(
        {"DeploymentReady", "DeploymentFailed", "DeploymentEnded", "OutOfMemory", "CommandFailed"}
    ),
    "UndeployModel": frozenset({"Undeployed", "CommandFailed"}),
    "Prompt": frozenset({"PromptAnswered", "PromptFailed", "CommandFailed"}),
    "PullImage": frozenset({"ImagePulled", "CommandFailed"}),
    "RunJob": frozenset({"JobStarted", "JobFailed", "JobStopped", "CommandFailed"}),
    "StopJob": frozenset({"JobStopped", "CommandFailed"}),
    "RevokeAgent": frozenset({"AgentRevoked", "CommandFailed"}),
}
"""The events after which a command's outcome is known (F8); the schema documents say the same."""


@attrs.frozen
class Accepted:
    """A command the door took: durable, and not completed until a completing fact names it.

    Args:
        id: the sender's id of it.
        holder: the credential that sent it.
        correlation: its own, or its id.
        at: when it was accepted, RFC 3339.
        body: the command itself.
        subject: the id of what it makes, chosen at acceptance so that a restart makes the same one.
        device, device_uuid: the device it was admitted to, as people and as promises know it.
        boxed: whether a job runs in the closed box, settled when it was admitted; None for what is no job.
    """

    id: str
    holder: str
    correlation: str
    at: str
    body: Command
    subject: str | None = None
    device: str | None = None
    device_uuid: str | None = None
    boxed: bool | None = None

    @property
    def type(self) -> str:
        """The command's type, PascalCase."""
        return self.body.kind if isinstance(self.body, UnknownCommand) else type(self.body).__name__


_converter = cattrs.Converter(forbid_extra_keys=True)


def structure_command(kind: str, data: Any) -> Command:
    """Data that passed its schema, as a command.

    Raises:
        KeyError: no such command.
        TypeError: it is no object.
        cattrs.BaseValidationError: the schema let something through that it should not have.
    """
    if not isinstance(data, dict):
        raise TypeError(f"{kind} is a JSON object, not {type(data).__name__}")
    command: Command = _converter.structure(data, COMMANDS[kind])
    return command
