"""An engine that serves any model and knows nothing: for the fake runtime and for tests (F21).

It answers under every engine's name what it was asked last, and counts words as tokens, so that the whole
surface can be walked with no model at hand.
"""

import secrets
from collections.abc import Callable
from typing import Final

import attrs
import trio

from adapters.engine.ends import explain_llamacpp
from adapters.engine.port import (
    Answer,
    Chat,
    EngineFault,
    EngineName,
    EngineUnreachable,
    Model,
    ModelNotFound,
    Plan,
    Progress,
    PromiseTooSmall,
    PromptRefused,
    Served,
)
from adapters.gpu.port import ApiName, Device
from adapters.runtime.port import API_KEY, Container, Executable, Exit, Handle

LEAST_BYTES: Final = 1024 * 1024
"""The smallest promise it takes."""
CONTEXT_TOKENS: Final = 4096
SLOTS: Final = 4
PORT: Final = 8080
"""Where it would listen in its container."""
MAX_NAME: Final = 256

_APIS: Final[dict[EngineName, frozenset[ApiName]]] = {
    "llamacpp": frozenset({"cpu"}),
    "ollama": frozenset({"cuda", "rocm", "cpu"}),
    "vllm": frozenset({"cuda"}),
}


def _always(workload: str) -> bool:  # noqa: ARG001
    return True


@attrs.define(eq=False)
class FakeEngine:
    """Engine of no models and every model.

    Args:
        name: the engine it stands for, with that engine's APIs.
        lives: whether a workload's program runs; `FakeRuntime.is_running` beside the fake runtime.
        ready_seconds: how long a model takes to load.
        answer_seconds: how long an answer takes.
        held: the models it lists; with any, others are not found.
        reference: the image it serves from; None is a program of the host.
        note: what it says of every model that it serves.
    """

    name: EngineName = "llamacpp"
    lives: Callable[[str], bool] = _always
    ready_seconds: float = 0.0
    answer_seconds: float = 0.0
    held: tuple[Model, ...] = ()
    reference: str | None = None
    note: str | None = None
    asked: list[Chat] = attrs.field(factory=list, init=False)
    """Every conversation that was answered or refused, in order."""
    _plan_faults: list[EngineFault] = attrs.field(factory=list, init=False)
    _ready_faults: list[EngineFault] = attrs.field(factory=list, init=False)
    _answer_faults: list[EngineFault] = attrs.field(factory=list, init=False)
    _loading: trio.Event | None = attrs.field(default=None, init=False)
    _thinking: trio.Event | None = attrs.field(default=None, init=False)

    @property
    def apis(self) -> frozenset[ApiName]:
        """Those of the engine it stands for."""
        return _APIS[self.name]

    async def models(self) -> tuple[Model, ...] | None:
        """What it was given to list, if anything."""
        await trio.lowlevel.checkpoint()
        return self.held or None

    async def plan(self, model: str, memory_bytes: int) -> Plan:
        """Any model within any promise of a mebibyte or more."""
        await trio.lowlevel.checkpoint()
        if self._plan_faults:
            raise self._plan_faults.pop(0)
        if not model or len(model) > MAX_NAME or (self.held and model not in {one.name for one in self.held}):
            raise ModelNotFound(
                f"the fake engine has no model {model[:MAX_NAME]}",
                fix="name a model that get-hardware-state lists",
            )
        if memory_bytes < LEAST_BYTES:
            raise PromiseTooSmall(
                f"the model needs {LEAST_BYTES} bytes at least and was promised {memory_bytes}",
                fix=f"send memory_bytes of {LEAST_BYTES} or more",
                least_bytes=LEAST_BYTES,
            )
        return Plan(model, memory_bytes, CONTEXT_TOKENS, SLOTS, detail=(("model", model),))

    def image(self, device: Device) -> str | None:  # noqa: ARG002
        """None, unless it was given one."""
        return self.reference

    def program(
        self,
        plan: Plan,
        device: Device,  # noqa: ARG002
        *,
        workload: str,  # noqa: ARG002
        image: str | None = None,
        spare_bytes: int | None = None,  # noqa: ARG002
    ) -> Executable | Container:
        """A command line that only the fake runtime can run, in the image that there is of it."""
        if image is not None:
            secret = ("FAKE_ENGINE_KEY", secrets.token_urlsafe(32))
            return Container(image, ("serve", plan.model), secret=secret, port=PORT)
        return Executable(
            argv=("fake-engine", plan.model, "--port", "{port}", "--api-key-file", f"{{secret:{API_KEY}}}"),
            secret_files={API_KEY: secrets.token_urlsafe(32)},
        )

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        """Load in two steps, as long as it was told to."""
        progress(None)
        await trio.sleep(self.ready_seconds)
        if self._loading is not None:
            await self._loading.wait()
        if self._ready_faults:
            raise self._ready_faults.pop(0)
        self._check_lives(handle)
        progress(100)
        return Served(CONTEXT_TOKENS, note=self.note)

    async def answer(self, handle: Handle, chat: Chat) -> Answer:
        """Say the last message again, cut to `max_tokens` words or before a stop word."""
        self.asked.append(chat)
        await trio.sleep(self.answer_seconds)
        if self._thinking is not None:
            await self._thinking.wait()
        if self._answer_faults:
            raise self._answer_faults.pop(0)
        self._check_lives(handle)
        prompt = sum(len(message.content.split()) for message in chat.messages)
        if prompt > CONTEXT_TOKENS:
            raise PromptRefused(
                f"the conversation is too long: {prompt} tokens, room for {CONTEXT_TOKENS}",
                fix="send fewer or shorter messages",
            )
        text = chat.messages[-1].content if chat.messages else ""
        for stop in chat.stop:
            text = text.partition(stop)[0] if stop else text
        words = text.split()
        most = CONTEXT_TOKENS if chat.max_tokens is None else max(1, chat.max_tokens)
        return Answer(
            content=text if len(words) <= most else " ".join(words[:most]),
            model=handle.detail.get("model", ""),
            finish_reason="stop" if len(words) <= most else "length",
            prompt_tokens=prompt,
            completion_tokens=min(len(words), most),
        )

    def explain(self, ended: Exit) -> EngineFault:
        """As llama.cpp's."""
        return explain_llamacpp(ended)

    async def is_alive(self, handle: Handle) -> bool:
        """Whether the program runs."""
        await trio.lowlevel.checkpoint()
        return self.lives(handle.workload)

    def fail_next_plan(self, fault: EngineFault) -> None:
        """Let the next plan be refused so."""
        self._plan_faults.append(fault)

    def fail_next_load(self, fault: EngineFault) -> None:
        """Let the next model not become ready."""
        self._ready_faults.append(fault)

    def fail_next_answer(self, fault: EngineFault) -> None:
        """Let the next question fail."""
        self._answer_faults.append(fault)

    def hold_loads(self) -> trio.Event:
        """Let no model become ready until the returned event is set."""
        self._loading = trio.Event()
        return self._loading

    def hold_answers(self) -> trio.Event:
        """Let no answer be given until the returned event is set."""
        self._thinking = trio.Event()
        return self._thinking

    def _check_lives(self, handle: Handle) -> None:
        if not self.lives(handle.workload):
            raise EngineUnreachable(
                "the engine did not answer: its program has ended", fix="deploy the model again"
            )
