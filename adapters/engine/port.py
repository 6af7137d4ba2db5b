"""How a model is served: checked before the promise, launched, made ready, asked (F19, F23)."""

from collections.abc import Callable
from typing import Literal, Protocol

import attrs

from adapters.gpu.port import ApiName, Device
from adapters.runtime.port import Container, Executable, Exit, Handle

EngineName = Literal["llamacpp", "ollama", "vllm"]
FinishReason = Literal["stop", "length", "other"]


class EngineFault(Exception):
    """Base of what an engine may raise. `reason` says what happened, `fix` what to do."""

    code = "ENGINE_FAILED"

    def __init__(self, reason: str, *, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class ModelNotFound(EngineFault):
    """Raised when the named model is not one this engine can serve here."""

    code = "MODEL_NOT_FOUND"


class ModelUnusable(EngineFault):
    """Raised when the model is there and cannot be served: corrupt, unreadable, not for conversations."""

    code = "MODEL_UNUSABLE"


class PromiseTooSmall(EngineFault):
    """Raised when the model cannot be served within the promised memory."""

    code = "MEMORY_TOO_SMALL"

    def __init__(self, reason: str, *, fix: str, least_bytes: int) -> None:
        super().__init__(reason, fix=fix)
        self.least_bytes = least_bytes


class ModelTooLarge(EngineFault):
    """Raised when a model turned out to need more memory than it was promised."""

    code = "MEMORY_TOO_SMALL"


class PromiseTooLarge(EngineFault):
    """Raised when more memory was promised than the device has."""

    code = "INSUFFICIENT_MEMORY"


class ModelNotPulled(EngineFault):
    """Raised when the engine could not fetch the model from its registry: stalled, broken, no room."""

    code = "MODEL_PULL_FAILED"


class EngineMissing(EngineFault):
    """Raised when the machine has no program that is this engine."""

    code = "ENGINE_UNAVAILABLE"


class EngineUnreachable(EngineFault):
    """Raised when a running engine does not answer: it died, hangs or its port is closed."""

    code = "ENGINE_UNREACHABLE"


class PromptRefused(EngineFault):
    """Raised when the engine refuses this conversation: too long, unknown option."""

    code = "PROMPT_REFUSED"


class EngineEnded(EngineFault):
    """Raised when the engine's program ended by itself."""

    code = "ENGINE_ENDED"


class PortTaken(EngineEnded):
    """Raised when another program took the engine's port first: starting it once more takes another."""

    code = "PORT_TAKEN"


class EngineOutOfMemory(EngineEnded):
    """Raised when the engine ended because it got no more memory."""

    code = "OUT_OF_MEMORY"


@attrs.frozen
class Model:
    """A model that may be deployed, for `get-hardware-state` and `best-peer models`. Sizes are bytes.

    `digest` is None while it is still being worked out: seconds a gigabyte.
    """

    name: str
    digest: str | None
    size_bytes: int
    context_tokens: int | None
    least_memory_bytes: int
    architecture: str | None = None


@attrs.frozen
class Plan:
    """A model and a promise that fit together, settled before anything is admitted.

    `detail` travels with the workload (`WorkloadSpec.detail`) and comes back in its handle, after a
    restart too: it is how the engine knows again what it serves there. It holds no secret.
    """

    model: str
    memory_bytes: int
    context_tokens: int | None
    slots: int
    detail: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@attrs.frozen
class Chat:
    """A conversation so far and the engine's knobs; None leaves a knob to the engine."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()


@attrs.frozen
class Answer:
    """A model's whole answer with the token counts that the engine reported, None where it did not."""

    content: str
    model: str
    finish_reason: FinishReason
    prompt_tokens: int | None
    completion_tokens: int | None


@attrs.frozen
class Served:
    """A model that gave a real short answer.

    `note` is what its users should know though it answers, one sentence: served by the CPU and not by the
    card it was placed on, for instance.
    """

    context_tokens: int | None = None
    note: str | None = None


Progress = Callable[[int | None], None]
"""Called with a percentage, or None when the engine works and gives no figure. Never blocks."""


class Engine(Protocol):
    """Serves models of one kind. Stateless between calls: all it needs comes in the handle."""

    @property
    def name(self) -> EngineName:
        """The name `deploy-model` chooses it by."""
        ...

    @property
    def apis(self) -> frozenset[ApiName]:
        """The compute APIs it runs on."""
        ...

    async def models(self) -> tuple[Model, ...] | None:
        """What may be deployed by name, 200 at most; None where the engine fetches what is named."""
        ...

    async def plan(self, model: str, memory_bytes: int) -> Plan:
        """Check a model against a promise, before admission.

        Raises:
            ModelNotFound, ModelUnusable, PromiseTooSmall, EngineMissing: with what to send instead.
        """
        ...

    def image(self, device: Device) -> str | None:
        """The image that serves on such a device; None for an engine that is a program of the host."""
        ...

    def program(
        self,
        plan: Plan,
        device: Device,
        *,
        workload: str,
        image: str | None = None,
        spare_bytes: int | None = None,
    ) -> Executable | Container:
        """What to execute for a plan on a device, with a fresh random API key where the engine asks for one.

        Args:
            plan: what `plan` settled.
            device: where it was placed.
            workload: the deployment's id.
            image: what the engine's `image` was pulled to, for a container.
            spare_bytes: what the device has left over beside everything that is promised on it, this plan
                included: what the engine is to leave free. None: nobody else is taken to use the device.

        Raises:
            EngineMissing: the machine lost the program since `plan`.
            PromiseTooSmall, PromiseTooLarge: the device cannot serve the plan.
        """
        ...

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        """Wait until the model has given a real short answer.

        `progress` is called for the first time once the engine answers at all, loading or not: until then
        it has the bound of an engine that starts, after that of a model that loads. Both are the caller's,
        who also watches for the program's end.

        Raises:
            ModelUnusable, EngineUnreachable: it will not become ready.
        """
        ...

    async def answer(self, handle: Handle, chat: Chat) -> Answer:
        """Ask the model. The caller owns the deadline.

        Raises:
            PromptRefused, EngineUnreachable: with what to do.
        """
        ...

    def explain(self, ended: Exit) -> EngineFault:
        """What the end of an engine nobody asked for means, as code, reason and fix.

        An engine that ends with code 0 unasked has failed all the same.
        """
        ...

    async def is_alive(self, handle: Handle) -> bool:
        """Whether the engine answers at all now; a cheap question with a bound of its own."""
        ...
