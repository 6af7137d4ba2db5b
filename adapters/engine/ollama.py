"""Ollama: in a container of its own for each deployment, or as it is installed on this machine (F20, F21).

In a container one server serves one model, held to what was promised: see `_environment`. One that is
installed is its owner's: nothing of it is set, started or stopped, and what was settled for a deployment is
what its questions say.
"""

from typing import Final

import attrs
import trio

from adapters.engine.json_http import JsonHttp, Reply
from adapters.engine.ollama_api import (
    ALIVE_SECONDS,
    Loaded,
    OllamaApi,
    answer_of,
    count,
    is_cut,
    may_be_cut,
)
from adapters.engine.ollama_fit import LEAST, check_stored, fit_promise
from adapters.engine.ollama_pull import Pull
from adapters.engine.ollama_words import asked_fault, explain_ollama, is_too_long, of_the_cloud, too_long
from adapters.engine.port import (
    Answer,
    Chat,
    EngineFault,
    EngineMissing,
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
from adapters.gpu.port import ApiName, Device
from adapters.models.faults import BadName
from adapters.models.ollama_name import OllamaName, parse_name
from adapters.models.ollama_store import NAMED, OllamaStore, StoredModel, StoreUnreadable
from adapters.runtime.port import Container, Executable, Exit, Handle, Mount

IMAGE: Final = "ollama/ollama:0.40.6"
"""Pinned: a new release changes no deploy until a host has proven it."""
ROCM: Final = "-rocm"
PORT: Final = 11434
STORE_FOLDER: Final = "/models"

MIB: Final = 1024 * 1024
SPARE_BYTES: Final = 512 * MIB
"""What stays free of a card that was promised whole: its maker's libraries take some at their first use."""
FIRST_POLL_SECONDS: Final = 0.05
LAST_POLL_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 3600.0

_CPU: Final = "cpu"
_CARD: Final = "card"
_HELD: Final = "held"


@attrs.define(eq=False)
class Ollama:
    """Serves what Ollama's registry has, or the operator's store.

    Args:
        http: asks; the composition closes it.
        image_name: what its containers are made of; the default's build for ROCm is found by itself.
        store: models that need no pull; containers alone see it.
        installed: where the Ollama of this machine listens, `http://host:11434`; None for containers.
        load_seconds: `BEST_PEER_LOAD_SECONDS`, since Ollama's own bound is five minutes.
    """

    http: JsonHttp
    image_name: str = IMAGE
    store: OllamaStore | None = None
    installed: str | None = None
    load_seconds: float = LOAD_SECONDS
    _api: OllamaApi = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Ask through what the composition gave."""
        self._api = OllamaApi(self.http)

    @property
    def name(self) -> EngineName:
        """The name `deploy-model` chooses it by."""
        return "ollama"

    @property
    def apis(self) -> frozenset[ApiName]:
        """Cards of NVIDIA and AMD, and the CPU."""
        return frozenset({"cuda", "rocm", "cpu"})

    async def models(self) -> None:
        """It fetches what is named."""
        await trio.lowlevel.checkpoint()

    async def plan(self, model: str, memory_bytes: int) -> Plan:
        """Settle the context, and how many conversations are held at once.

        Raises:
            ModelNotFound, ModelUnusable, PromiseTooSmall: with what to send instead.
            EngineMissing: the installed Ollama does not answer.
        """
        await trio.lowlevel.checkpoint()
        name = _name(model)
        stored = await self._stored(name)
        found = fit_promise(stored, memory_bytes)
        if self.installed is not None:
            await self._check_installed(self.installed, name, memory_bytes)
        return Plan(
            model=model,
            memory_bytes=memory_bytes,
            context_tokens=found.context_tokens,
            slots=found.slots,
            detail=(
                ("model", model),
                ("memory", str(memory_bytes)),
                ("context", str(found.context_tokens)),
                ("slots", str(found.slots)),
                *((("store", _HELD),) if stored is not None else ()),
            ),
        )

    def image(self, device: Device) -> str | None:
        """The build for such a device; None for the installed one."""
        if self.installed is not None:
            return None
        is_rocm = device.offers(frozenset({"rocm"})) and not device.offers(frozenset({"cuda"}))
        return f"{IMAGE}{ROCM}" if is_rocm and self.image_name == IMAGE else self.image_name

    def program(
        self,
        plan: Plan,
        device: Device,
        *,
        workload: str,  # noqa: ARG002
        image: str | None = None,
        spare_bytes: int | None = None,
    ) -> Executable | Container:
        """A server of its own for the model; for the installed one, what its questions will say.

        Raises:
            PromiseTooLarge: the device has less than was promised.
        """
        if plan.memory_bytes > device.memory_total_bytes:
            raise PromiseTooLarge(
                f"{plan.memory_bytes} bytes were promised and {device.id} has {device.memory_total_bytes}",
                fix=f"send memory_bytes of {device.memory_total_bytes} at most",
            )
        detail = {"device": _CPU if device.is_cpu else _CARD}
        if self.installed is not None:
            return Executable(argv=(), detail=detail)
        assert image is not None
        store = self.store if dict(plan.detail).get("store") == _HELD else None
        environment = _environment(plan, self.load_seconds) | _device_environment(plan, device, spare_bytes)
        if store is not None:
            environment["OLLAMA_MODELS"] = STORE_FOLDER
        return Container(
            image=image,
            environment=environment,
            port=PORT,
            mounts=() if store is None else (Mount(store.path, STORE_FOLDER),),
            detail=detail,
        )

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        """Pull the model unless it is there, load it, see where it lies, and have it answer.

        Raises:
            ModelNotFound, ModelUnusable, ModelNotPulled, ModelTooLarge, EngineOutOfMemory,
            EngineUnreachable: it will not become ready.
        """
        await self._until_it_answers(handle)
        progress(None)
        name = _name(handle.detail.get("model", ""))
        entry = await self._api.entry(handle.base_url, name)
        if entry is None:
            await self._pull(handle, name, progress)
            entry = await self._api.entry(handle.base_url, name)
        await self._api.check_kind(handle.base_url, name, entry or {})
        await self._load(handle)
        loaded = await self._api.loaded(handle.base_url, name)
        try:
            await self.answer(handle, Chat((Message("user", "Hi"),), max_tokens=1))
        except PromptRefused as fault:
            raise ModelUnusable(
                f"the model does not take a conversation: {fault.reason}",
                fix="deploy a model made for conversations",
            ) from fault
        return Served(_context(handle, loaded), None if loaded is None else _note(handle, loaded))

    async def answer(self, handle: Handle, chat: Chat) -> Answer:
        """Ask the model. The caller owns the deadline.

        Raises:
            PromptRefused, EngineUnreachable, EngineOutOfMemory: with what to do.
        """
        reply = await self._ask_model(handle, chat)
        if is_too_long(reply):
            raise too_long(await self._served_context(handle))
        if reply.status != 200:
            raise asked_fault(reply)
        answer = answer_of(reply.body, handle.detail.get("model", ""))
        if may_be_cut(answer, chat):
            context = await self._served_context(handle)
            if is_cut(answer, context):
                raise too_long(context)
        return answer

    def explain(self, ended: Exit) -> EngineFault:
        """What the end of an Ollama means."""
        return explain_ollama(ended)

    async def is_alive(self, handle: Handle) -> bool:
        """Whether the server answers at all within five seconds.

        Its model is not asked: it answers one prompt after another, and a probe would wait its turn.
        """
        return await self._api.answers(handle.base_url)

    async def _stored(self, name: OllamaName) -> StoredModel | None:
        """What the store has of a model.

        Raises:
            ModelUnusable: it can hold no conversation, or the store cannot be read.
        """
        if self.store is None:
            return None
        try:
            stored = await self.store.find(name)
        except StoreUnreadable as fault:
            raise ModelUnusable(fault.reason, fix=fault.fix) from fault
        if stored is not None:
            check_stored(stored)
        return stored

    async def _check_installed(self, base_url: str, name: OllamaName, memory_bytes: int) -> None:
        """Refuse at once what the installed Ollama is known not to serve.

        Raises:
            EngineMissing: it does not answer.
            ModelUnusable, PromiseTooSmall: of a model that it has.
        """
        try:
            with trio.fail_after(ALIVE_SECONDS):
                entry = await self._api.entry(base_url, name)
                if entry is not None:
                    await self._api.check_kind(base_url, name, entry)
        except (EngineUnreachable, trio.TooSlowError) as fault:
            raise EngineMissing(
                "the Ollama that is installed on this machine does not answer",
                fix="the owner of this machine starts it, or sets BEST_PEER_ENGINE_HOST to where it listens",
            ) from fault
        size = count((entry or {}).get("size")) or 0
        if size > memory_bytes:
            raise PromiseTooSmall(
                f"the model alone has {size} bytes and was promised {memory_bytes}",
                fix=f"send memory_bytes of more than {size}, or deploy a smaller model",
                least_bytes=size,
            )

    async def _until_it_answers(self, handle: Handle) -> None:
        pause = FIRST_POLL_SECONDS
        while not await self._api.answers(handle.base_url):
            await trio.sleep(pause)
            pause = min(pause * 2, LAST_POLL_SECONDS)

    async def _pull(self, handle: Handle, name: OllamaName, progress: Progress) -> None:
        if handle.detail.get("store") == _HELD:
            raise ModelUnusable(
                f"{NAMED} has this model and the engine cannot read it",
                fix="the owner of this machine lets everybody read the store's files (chmod -R o+rX)",
            )

        async def is_held() -> bool:
            try:
                return await self._api.entry(handle.base_url, name) is not None
            except EngineUnreachable:
                return False

        await Pull(self.http, handle.base_url, handle.detail.get("model", ""), is_held).run(progress)

    async def _load(self, handle: Handle) -> None:
        reply = await self._ask_model(handle, Chat(()))
        if reply.status == 200:
            return
        fault = asked_fault(reply)
        if isinstance(fault, PromptRefused):
            raise ModelUnusable(
                f"the engine does not load the model: {reply.words}", fix="deploy another model"
            ) from fault
        raise fault

    async def _served_context(self, handle: Handle) -> int:
        """The context that the model is served with, which is less than was asked for where it has less."""
        try:
            with trio.move_on_after(ALIVE_SECONDS):
                return _context(
                    handle, await self._api.loaded(handle.base_url, _name(handle.detail["model"]))
                )
        except (EngineFault, KeyError):
            pass
        return _context(handle, None)

    async def _ask_model(self, handle: Handle, chat: Chat) -> Reply:
        return await self._api.chat(
            handle.base_url,
            handle.detail.get("model", ""),
            chat,
            context_tokens=_context(handle, None),
            is_for_cpu=handle.detail.get("device") == _CPU,
        )


def _environment(plan: Plan, load_seconds: float) -> dict[str, str]:
    """How a server of one model is set, on any device."""
    return {
        "OLLAMA_HOST": f"0.0.0.0:{PORT}",
        # Models of Ollama's cloud would carry conversations to other machines.
        "OLLAMA_NO_CLOUD": "1",
        "OLLAMA_KEEP_ALIVE": "-1m",
        "OLLAMA_MAX_LOADED_MODELS": "1",
        "OLLAMA_NUM_PARALLEL": str(plan.slots),
        "OLLAMA_CONTEXT_LENGTH": str(plan.context_tokens),
        "OLLAMA_LOAD_TIMEOUT": f"{load_seconds:.0f}s",
        # It would tidy a store up that is not its own.
        "OLLAMA_NOPRUNE": "1",
    }


def _device_environment(plan: Plan, device: Device, spare_bytes: int | None) -> dict[str, str]:
    """What holds a server to its device, and to what it was promised there.

    Ollama knows no ceiling: it is told what to leave free. The llama.cpp in it goes by the second figure
    when it settles how much of a model lies on the card; builds before it went by the first.
    """
    if device.is_cpu:
        hidden = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
        return dict.fromkeys(hidden, "-1")
    beyond = device.memory_total_bytes - plan.memory_bytes if spare_bytes is None else spare_bytes
    beyond = max(SPARE_BYTES, beyond)
    return {"OLLAMA_GPU_OVERHEAD": str(beyond), "LLAMA_ARG_FIT_TARGET": str(-(-beyond // MIB))}


def _name(model: str) -> OllamaName:
    try:
        name = parse_name(model)
    except BadName as fault:
        raise ModelNotFound(fault.reason, fix=fault.fix) from fault
    if name.is_of_the_cloud:
        raise of_the_cloud()
    return name


def _context(handle: Handle, loaded: Loaded | None) -> int:
    """The context of a conversation: as it is served where that is known, else as it was settled."""
    if loaded is not None and loaded.context_tokens is not None:
        return loaded.context_tokens
    text = handle.detail.get("context", "")
    return int(text) if text.isascii() and text.isdigit() else LEAST.context_tokens


def _note(handle: Handle, loaded: Loaded) -> str | None:
    """What the users of a model should know of where it lies; None for nothing.

    A model that found no room on its card runs on the CPU, and Ollama says so only to who asks.
    """
    size, on_card = loaded.size_bytes, loaded.card_bytes
    promised = handle.detail.get("memory", "")
    if size is None or on_card is None:
        return None
    if handle.detail.get("device") == _CARD and on_card < size:
        where = (
            "by the CPU alone" if on_card == 0 else f"in part by the CPU, {on_card} of its {size} bytes lie"
        )
        rest = "and not by the card it was placed on" if on_card == 0 else "on the card it was placed on"
        return (
            f"the model is run {where} {rest}, which is slow: undeploy it and deploy it with more "
            f"memory_bytes than {promised}, or deploy a smaller model"
        )
    if handle.detail.get("device") == _CPU and on_card > 0:
        return f"the model was placed on the CPU, and {on_card} bytes of it lie on a card all the same"
    if promised.isdigit() and size > int(promised):
        return f"the model takes {size} bytes, more than the {promised} that it was promised"
    return None
