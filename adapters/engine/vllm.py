"""vLLM in a container of its own for each deployment, on a card of NVIDIA (F20).

It answers nothing before its model is loaded, and takes all that it may of its card at once: what was
promised becomes the share of the card's memory that it is started with.
"""

import math
import re
import secrets
from typing import Final

import attrs
import trio

from adapters.engine.json_http import shown
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import (
    Answer,
    Chat,
    EngineFault,
    EngineName,
    EngineUnreachable,
    Message,
    ModelNotFound,
    ModelUnusable,
    Plan,
    Progress,
    PromiseTooLarge,
    PromiseTooSmall,
    PromptRefused,
    Served,
)
from adapters.engine.vllm_words import explain_vllm
from adapters.gpu.port import ApiName, Device
from adapters.runtime.port import Container, Exit, Handle

IMAGE: Final = "vllm/vllm-openai:v0.32.0"
"""Pinned: a new release changes no deploy until a host has proven it. Its driver has to offer CUDA 13."""
PORT: Final = 8000

GIB: Final = 1024**3
LEAST_BYTES: Final = 2 * GIB
"""The smallest promise that is taken: half of it would be margin."""
MARGIN_BYTES: Final = GIB
MARGIN_PART: Final = 1 / 32
"""What is kept back of a promise. vLLM's share is a budget for weights, working memory and cache, and no
ceiling: the driver's own context on the card (about half a GiB) and what its graphs take beyond its own
estimate come on top of it. 1.4 GiB beyond a budget of 30 GiB were seen (vllm-project/vllm#51590)."""
SHARE_DIGITS: Final = 4
SHARED_MEMORY_BYTES: Final = GIB
"""Its processes hand tensors to each other in /dev/shm, where a container has 64 MiB by default."""
SLOTS: Final = 256
"""Conversations it answers at once by itself."""

FIRST_POLL_SECONDS: Final = 0.2
LAST_POLL_SECONDS: Final = 2.0
ALIVE_SECONDS: Final = 5.0
TOKEN_SECONDS: Final = 20.0
"""How long one token may take an engine that computes for others meanwhile."""
KEY_BYTES: Final = 32
MAX_NAME: Final = 256
COUNTERS: Final = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")

# A name on the model hub. No path, no address, and nothing that reads as an option.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_ONE_TOKEN: Final = Chat((Message("user", "Hi"),), max_tokens=1)


@attrs.define(eq=False)
class Vllm:
    """Serves models of the hub that vLLM fetches from.

    Args:
        chat: asks; the composition closes it.
        image_name: what its containers are made of.
    """

    chat: OpenAiChat
    image_name: str = IMAGE

    @property
    def name(self) -> EngineName:
        """The name `deploy-model` chooses it by."""
        return "vllm"

    @property
    def apis(self) -> frozenset[ApiName]:
        """Cards of NVIDIA."""
        return frozenset({"cuda"})

    async def models(self) -> None:
        """It fetches what is named."""
        await trio.lowlevel.checkpoint()

    async def plan(self, model: str, memory_bytes: int) -> Plan:
        """Check what can be checked before the model is there: its name and the promise.

        Raises:
            ModelNotFound, PromiseTooSmall: with what to send instead.
        """
        await trio.lowlevel.checkpoint()
        if len(model) > MAX_NAME or _NAME.fullmatch(model) is None or ".." in model:
            raise ModelNotFound(
                f"{shown(model)} is no name of a model on the hub",
                fix="write it as organization/model, as the hub shows it",
            )
        if memory_bytes < LEAST_BYTES:
            raise PromiseTooSmall(
                f"vLLM serves no model within {memory_bytes} bytes",
                fix=f"send memory_bytes of {LEAST_BYTES} or more, or deploy with another engine",
                least_bytes=LEAST_BYTES,
            )
        return Plan(model, memory_bytes, context_tokens=None, slots=SLOTS, detail=(("model", model),))

    def image(self, device: Device) -> str | None:  # noqa: ARG002
        """The one that it was given."""
        return self.image_name

    def program(
        self,
        plan: Plan,
        device: Device,
        *,
        workload: str,  # noqa: ARG002
        image: str | None = None,
        spare_bytes: int | None = None,  # noqa: ARG002 - it goes by the whole card and takes no more of it
    ) -> Container:
        """Its command line; the key it asks for goes by the environment.

        Raises:
            PromiseTooLarge: the device has less than was promised.
        """
        assert image is not None
        options = {
            "--model": plan.model,
            "--served-model-name": plan.model,
            "--host": "0.0.0.0",  # noqa: S104 - inside its container; loopback is all that it is published on
            "--port": str(PORT),
            "--gpu-memory-utilization": share_of(plan.memory_bytes, device),
            # The model's own context where it fits, else the longest that does: not a failed start.
            "--max-model-len": "auto",
            # Its last lines then say why it ended, and not which questions it answered before.
            "--uvicorn-log-level": "warning",
        }
        return Container(
            image=image,
            command=tuple(part for option in options.items() for part in option),
            environment={
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1",
                # With it, anybody who reaches the port puts the engine to sleep with no key.
                "VLLM_SERVER_DEV_MODE": "0",
                "NO_COLOR": "1",
            },
            secret=("VLLM_API_KEY", secrets.token_urlsafe(KEY_BYTES)),
            port=PORT,
            shared_memory_bytes=SHARED_MEMORY_BYTES,
        )

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        """Wait until the model has answered one token.

        It opens its port with its model loaded, so that its whole start is the load of a model, and has
        that bound; it tells nobody how far it is.

        Raises:
            ModelUnusable, EngineUnreachable: it will not become ready.
        """
        progress(None)
        pause = FIRST_POLL_SECONDS
        while not await self._is_healthy(handle):
            await trio.sleep(pause)
            pause = min(pause * 2, LAST_POLL_SECONDS)
        context = await self._context(handle)
        reply = await self.chat.ask_for_answer(handle, handle.detail.get("model", ""), _ONE_TOKEN)
        if reply.status in (400, 404, 405, 422, 501):
            raise ModelUnusable(
                f"the model does not take a conversation: {reply.words}",
                fix="deploy a model made for conversations, with a chat template",
            )
        if reply.status != 200:
            raise EngineUnreachable(
                f"the engine failed with status {reply.status} at its first answer: {reply.words}",
                fix="deploy the model again",
            )
        return Served(context)

    async def answer(self, handle: Handle, chat: Chat) -> Answer:
        """Ask the model. The caller owns the deadline.

        Raises:
            PromptRefused, EngineUnreachable: with what to do.
        """
        return await self.chat.answer(handle, handle.detail.get("model", ""), chat)

    def explain(self, ended: Exit) -> EngineFault:
        """What the end of a vLLM means."""
        return explain_vllm(ended)

    async def is_alive(self, handle: Handle) -> bool:
        """Whether it still computes: one token, which is what its `/health` does not tell of one that hangs.

        The token costs a few milliseconds of the card. One that does not come within twenty seconds may wait
        behind others' prompts: then it lives if it computed any token at all meanwhile.
        """
        if not await self._is_healthy(handle):
            return False
        before = await self._computed(handle)
        with trio.move_on_after(TOKEN_SECONDS):
            try:
                await self.answer(handle, _ONE_TOKEN)
            except PromptRefused:
                return True
            except EngineUnreachable:
                return False
            return True
        after = await self._computed(handle)
        return before is not None and after is not None and after > before

    async def _is_healthy(self, handle: Handle) -> bool:
        with trio.move_on_after(ALIVE_SECONDS):
            try:
                return (await self.chat.ask(handle, "GET", "/health")).status == 200
            except EngineUnreachable:
                return False
        return False

    async def _computed(self, handle: Handle) -> float | None:
        """Tokens it has computed since its start; None where it does not say."""
        with trio.move_on_after(ALIVE_SECONDS):
            try:
                status, raw = await self.chat.http.ask_raw(handle.base_url, "GET", "/metrics")
            except EngineUnreachable:
                return None
            return computed(raw) if status == 200 else None
        return None

    async def _context(self, handle: Handle) -> int | None:
        with trio.move_on_after(ALIVE_SECONDS):
            reply = await self.chat.ask(handle, "GET", "/v1/models")
            try:
                found = reply.body["data"][0]["max_model_len"]
            except (LookupError, TypeError):
                return None
            return found if isinstance(found, int) else None
        return None


def share_of(memory_bytes: int, device: Device) -> str:
    """The share of a card's memory that a promise is, less its margin, never rounded up.

    Raises:
        PromiseTooLarge: the device has less than was promised.
    """
    total = device.memory_total_bytes
    if memory_bytes > total:
        raise PromiseTooLarge(
            f"{memory_bytes} bytes were promised and {device.id} has {total}",
            fix=f"send memory_bytes of {total} at most",
        )
    budget = memory_bytes - MARGIN_BYTES - memory_bytes * MARGIN_PART
    steps = 10**SHARE_DIGITS
    return f"{math.floor(budget * steps / total) / steps:.{SHARE_DIGITS}f}"


def computed(metrics: bytes) -> float | None:
    """The sum of the counters of tokens in a page of metrics; None when there are none."""
    found: list[float] = []
    for line in metrics.decode("utf-8", "replace").splitlines():
        if line.startswith(COUNTERS):
            try:
                found.append(float(line.rpartition(" ")[2]))
            except ValueError:
                continue
    return sum(found) if found else None
