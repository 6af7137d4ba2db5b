"""What this peer tells. A class's name is its event's type; its fields are the event's data (F19, F23, F8).

The schema documents in `peer/door/schemas/events` describe the same for people and agents; one test holds
the two together. A field left `UNSET` is absent on the wire.

`memory_note`, in the facts that end a workload, says why its card was not known to have its memory back when
its promise ended (F18).
"""

from typing import Literal

import attrs
from msgspec import UNSET, UnsetType


@attrs.frozen
class ImagePulling:
    """An image is fetched for a workload, or by a pull-image: 99 percent at most until its end (F19).

    The percentage is absent while the engine does not know all that is to be fetched.
    """

    image: str
    progress_pct: int | UnsetType = UNSET
    fetched_bytes: int | UnsetType = UNSET
    deployment: str | UnsetType = UNSET
    job: str | UnsetType = UNSET


@attrs.frozen
class ImagePulled:
    """An image is here; `held` when it was before and was not pulled. `digest` None: no registry gave one."""

    image: str
    digest: str | None
    held: bool
    deployment: str | UnsetType = UNSET
    job: str | UnsetType = UNSET


@attrs.frozen
class DeploymentStarted:
    """The engine of a deployment was started on its device: `device` for people, its UUID for promises."""

    deployment: str
    model: str
    engine: str
    device: str
    device_uuid: str
    memory_bytes: int
    isolation: str
    holder: str


@attrs.frozen
class WeightsLoading:
    """The engine loads the model; the percentage where the engine says one."""

    deployment: str
    progress_pct: int | UnsetType = UNSET


@attrs.frozen
class DeploymentReady:
    """The model gave a real short answer: prompts are answered from now on."""

    deployment: str
    model: str
    engine: str
    device: str
    context_tokens: int | UnsetType = UNSET
    load_ms: int | UnsetType = UNSET
    note: str | UnsetType = UNSET


@attrs.frozen
class DeploymentFailed:
    """A deployment ended before it was ready."""

    deployment: str
    code: str
    reason: str
    fix: str
    exit_code: int | UnsetType | None = UNSET
    output: tuple[str, ...] | UnsetType = UNSET
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class DeploymentEnded:
    """A ready deployment ended by itself, or by its owner; `exit_code` None is unknown."""

    deployment: str
    reason: str
    exit_code: int | None = None
    output: tuple[str, ...] | UnsetType = UNSET
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class OutOfMemory:
    """An engine was ended for want of memory."""

    deployment: str
    reason: str
    fix: str
    exit_code: int | UnsetType | None = UNSET
    output: tuple[str, ...] | UnsetType = UNSET
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class Undeployed:
    """A deployment was ended by command."""

    deployment: str
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class PromptAnswered:
    """The model's whole answer; a token count the engine did not report is None."""

    deployment: str
    content: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: Literal["stop", "length", "other"] | UnsetType = UNSET


@attrs.frozen
class PromptFailed:
    """There is no answer, why, and what to do."""

    deployment: str
    code: str
    reason: str
    fix: str


@attrs.frozen
class JobStarted:
    """A job's container was started, in a closed box when `boxed`; with no device it has the host alone.

    `memory_bytes` is the device's, promised to it; `host_memory_bytes` its ceiling of the host's.
    """

    job: str
    image: str
    boxed: bool
    isolation: str
    holder: str
    device: str | UnsetType = UNSET
    device_uuid: str | UnsetType = UNSET
    memory_bytes: int | UnsetType = UNSET
    host_memory_bytes: int | UnsetType = UNSET


@attrs.frozen
class JobFinished:
    """A job's program ended by itself, with the last lines it wrote.

    `ended_at` is its true end where that is not when this was told; `note` what its code does not say.
    """

    job: str
    exit_code: int
    output: tuple[str, ...]
    ended_at: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class JobFailed:
    """A job could not run, or the machine broke it off; `exit_code` None: it ended somehow."""

    job: str
    code: str
    reason: str
    fix: str
    exit_code: int | UnsetType | None = UNSET
    output: tuple[str, ...] | UnsetType = UNSET
    ended_at: str | UnsetType = UNSET
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class JobStopped:
    """A job was stopped by command, or its key or its device was taken back: `reason` then says so."""

    job: str
    reason: str | UnsetType = UNSET
    output: tuple[str, ...] | UnsetType = UNSET
    memory_note: str | UnsetType = UNSET


@attrs.frozen
class CommandFailed:
    """An accepted command that could not be carried out, why, and what to do. Completes any command."""

    command: str
    command_type: str
    code: str
    reason: str
    fix: str


@attrs.frozen
class AgentRevoked:
    """A credential was given back by its agent."""

    holder: str
    name: str


@attrs.frozen
class DeviceHeldV1:
    """The owner keeps a device for themselves: it takes no new work (F29).

    `hold` is one act of the owner's, told once for each of its devices; a newer one takes its place. Without
    `until` it lasts until it is released. `ends_work`: what runs on the device ends, and what starts there
    meanwhile. `every_device`: it is of all devices, one that is first seen later too.
    """

    hold: str
    device: str
    device_uuid: str
    ends_work: bool
    every_device: bool
    until: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET


@attrs.frozen
class DeviceReleasedV1:
    """A hold on a device is over: its owner released it, or its time came."""

    hold: str
    device: str
    device_uuid: str
    cause: Literal["released", "ended"]


Event = (
    ImagePulling
    | ImagePulled
    | DeploymentStarted
    | WeightsLoading
    | DeploymentReady
    | DeploymentFailed
    | DeploymentEnded
    | OutOfMemory
    | Undeployed
    | PromptAnswered
    | PromptFailed
    | JobStarted
    | JobFinished
    | JobFailed
    | JobStopped
    | CommandFailed
    | AgentRevoked
    | DeviceHeldV1
    | DeviceReleasedV1
)
