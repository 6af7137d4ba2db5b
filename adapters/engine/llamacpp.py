"""llama.cpp: the engine of a machine with no container engine and no card (F21).

Served by the owner's own `llama-server` where there is one, else by the server in the `xllamacpp` wheel as a
child of its own. What is promised is kept by what it is started with; see `PROGRAM_OPTIONS`.
"""

import importlib.util
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from adapters.engine.ends import explain_llamacpp
from adapters.engine.fit import fit, needs_of, served_tokens
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import (
    Answer,
    Chat,
    EngineFault,
    EngineMissing,
    EngineName,
    EngineUnreachable,
    Message,
    Model,
    ModelNotFound,
    ModelUnusable,
    Plan,
    Progress,
    PromptRefused,
    Served,
)
from adapters.gpu.port import ApiName, Device
from adapters.models.faults import ModelFault, NotHeld
from adapters.models.folder import Held, ModelFolder
from adapters.models.gguf import Facts
from adapters.runtime.port import API_KEY, Executable, Exit, Handle

logger = logging.getLogger("best_peer.engine")

SETTING: Final = "BEST_PEER_LLAMA_SERVER"
PACKAGE: Final = "xllamacpp"
SCRIPT: Final = Path(__file__).with_name("xllama_server.py")

MAX_THREADS: Final = 8
"""Threads past which a CPU's memory is the limit and not its cores."""
HTTP_THREADS: Final = 24
"""The sixteen prompts that a peer answers at once each hold one while they wait for a slot, and the questions
whether the engine lives must not wait behind them."""
FIRST_POLL_SECONDS: Final = 0.05
LAST_POLL_SECONDS: Final = 1.0
"""How often a loading engine is asked whether it is ready: at first often, since a small model loads in half
a second, then seldom."""
ALIVE_SECONDS: Final = 5.0
MAX_NAMED: Final = 10
"""Models that a refusal names."""
KEY_BYTES: Final = 32

PROGRAM_OPTIONS: Final = (
    # A CPU is what was promised: no layer goes to a card that happens to be there.
    "-ngl", "0",
    # The slots' page shows conversations; nobody needs it, nor a page for browsers.
    "--no-slots", "--no-webui",
)  # fmt: skip
"""Options that llama-server has had for years: the owner's may be old."""
PROGRAM_ENVIRONMENT: Final[Mapping[str, str]] = {
    # Options that came late or changed their name go this way: a server that does not know one starts all
    # the same. The weights are read into memory and not mapped: they then count as this program's own, once.
    # Mapped, those that llama.cpp rearranges for the processor stand there twice (measured: 280 MB for 204).
    "LLAMA_ARG_LOAD_MODE": "none",
    "LLAMA_ARG_NO_MMAP": "1",
    # Unbidden it keeps up to 8 GiB of earlier conversations, and 32 states of long ones, beside its slots.
    "LLAMA_ARG_CACHE_RAM": "0",
    "LLAMA_ARG_CTX_CHECKPOINTS": "0",
    # What does not fit is to fail, not to be served smaller than it was promised.
    "LLAMA_ARG_FIT": "off",
    "LLAMA_ARG_OFFLINE": "1",
    # Warnings and errors: its last lines then say why it ended, and not which prompts it answered before.
    "LLAMA_ARG_LOG_VERBOSITY": "2",
    # No card is used, whatever libraries the server was built with, and none of these is even seen.
    "LLAMA_ARG_DEVICE": "none",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "ROCR_VISIBLE_DEVICES": "-1",
}


def threads_for(cores: int) -> int:
    """Threads that compute: llama.cpp's wait by spinning, so that one for every core stops the machine.

    Beside two busy programs on two cores one thread was twice as fast as two.
    """
    return 1 if cores <= 2 else min(cores - 1, MAX_THREADS)


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_llama_server(setting: Path | None) -> Path | None:
    """The owner's own server: the one that was set, else the first on the peer's PATH; None for neither."""
    if setting is not None:
        return setting
    found = shutil.which("llama-server")
    return None if found is None else Path(found)


@attrs.define(eq=False)
class LlamaCpp:
    """Serves GGUF models of the peer's folder on the CPU.

    Args:
        folder: the models.
        chat: asks the engine; the composition closes it.
        cores: what `usable_cores` says.
        llama_server: what `find_llama_server` says; None to use the wheel's.
    """

    folder: ModelFolder
    chat: OpenAiChat
    cores: int
    llama_server: Path | None = None

    @property
    def name(self) -> EngineName:
        """The name `deploy-model` chooses it by."""
        return "llamacpp"

    @property
    def apis(self) -> frozenset[ApiName]:
        """The CPU alone so far."""
        return frozenset({"cpu"})

    async def models(self) -> tuple[Model, ...]:
        """The folder's models that can hold conversations."""
        found = []
        for held in await self.folder.list():
            try:
                found.append(_model(held))
            except ModelUnusable:
                continue  # It is not to be deployed; `best-peer models` shows it with its problem.
        return tuple(found)

    async def plan(self, model: str, memory_bytes: int) -> Plan:
        """Settle context, slots and threads for a promise.

        Raises:
            ModelNotFound, ModelUnusable, PromiseTooSmall, EngineMissing: with what to send instead.
        """
        self._argv_start()
        try:
            held = await self.folder.resolve(model)
        except NotHeld as fault:
            raise ModelNotFound(fault.reason, fix=await self._what_to_name()) from fault
        except ModelFault as fault:
            raise ModelUnusable(fault.reason, fix=fault.fix) from fault
        needs = needs_of(_facts(held))
        found = fit(needs, memory_bytes)
        return Plan(
            model=held.name,
            memory_bytes=memory_bytes,
            context_tokens=found.context_tokens,
            slots=found.slots,
            detail=(
                ("model", held.name),
                ("file", held.path.name),
                ("context", str(served_tokens(found))),
                ("slots", str(found.slots)),
                ("threads", str(threads_for(self.cores))),
            ),
        )

    def image(self, device: Device) -> str | None:  # noqa: ARG002
        """None: it is a program of this host."""
        return None

    def program(
        self,
        plan: Plan,
        device: Device,  # noqa: ARG002
        *,
        workload: str,  # noqa: ARG002
        image: str | None = None,  # noqa: ARG002
        spare_bytes: int | None = None,  # noqa: ARG002
    ) -> Executable:
        """The server's command line, which says no secret and no path of the owner's models.

        Raises:
            EngineMissing: the machine lost the program since `plan`.
        """
        detail = dict(plan.detail)
        return Executable(
            argv=self._argv_start() + self._argv_rest(detail),
            environment=PROGRAM_ENVIRONMENT,
            secret_files={API_KEY: secrets.token_urlsafe(KEY_BYTES)},
            folder=self.folder.path.absolute(),
        )

    async def make_ready(self, handle: Handle, progress: Progress) -> Served:
        """Wait until the model is loaded and has answered one token. llama.cpp gives no percentage.

        Raises:
            ModelUnusable, EngineUnreachable: it will not become ready.
        """
        pause = FIRST_POLL_SECONDS
        while not await self._is_loaded(handle, progress):
            await trio.sleep(pause)
            pause = min(pause * 2, LAST_POLL_SECONDS)
        try:
            await self.answer(handle, Chat((Message("user", "Hi"),), max_tokens=1))
        except PromptRefused as fault:
            raise ModelUnusable(
                f"the model does not take a conversation: {fault.reason}",
                fix="deploy a model made for conversations",
            ) from fault
        return Served(await self._context(handle))

    async def answer(self, handle: Handle, chat: Chat) -> Answer:
        """Ask the model. The caller owns the deadline.

        Raises:
            PromptRefused, EngineUnreachable: with what to do.
        """
        return await self.chat.answer(handle, handle.detail.get("model", ""), chat)

    def explain(self, ended: Exit) -> EngineFault:
        """What the end of a llama.cpp server means."""
        return explain_llamacpp(ended)

    async def is_alive(self, handle: Handle) -> bool:
        """Whether the server answers at all within five seconds, loading or not."""
        with trio.move_on_after(ALIVE_SECONDS):
            try:
                await self.chat.ask(handle, "GET", "/health")
            except EngineUnreachable:
                return False
            return True
        return False

    async def _what_to_name(self) -> str:
        """What to send in place of a model that is not there: only what can be deployed is named."""
        names = [model.name for model in await self.models()]
        if not names:
            return "ask the owner of the machine to add a model: none here can be deployed"
        more = ", ..." if len(names) > MAX_NAMED else ""
        return f"name one of these: {', '.join(names[:MAX_NAMED])}{more}"

    async def _is_loaded(self, handle: Handle, progress: Progress) -> bool:
        try:
            # One that accepts and says nothing is asked again.
            with trio.move_on_after(ALIVE_SECONDS):
                status = (await self.chat.ask(handle, "GET", "/health")).status
                progress(None)
                return status == 200
        except EngineUnreachable:
            pass  # It has not opened its port yet. Its end is watched for by the caller.
        return False

    async def _context(self, handle: Handle) -> int | None:
        """The context of each slot as the server has it; None where it does not say."""
        reply = await self.chat.ask(handle, "GET", "/v1/models")
        try:
            found = reply.body["data"][0]["meta"]["n_ctx"]
        except (LookupError, TypeError):
            return None
        return found if isinstance(found, int) else None

    def missing(self) -> str | None:
        """What this machine's owner has to install, one line for the log; None where the program is there."""
        if self.llama_server is not None:
            if self.llama_server.is_file():
                return None
            return (
                f"there is no llama-server at {self.llama_server}: set {SETTING} to where it is, "
                f"or unset it to use the one in the {PACKAGE} package"
            )
        if _package_folder() is not None:
            return None
        return (
            f"this machine has neither llama-server nor the Python package {PACKAGE}: "
            "install best-peer with it (sh install.sh --cpu; in a clone: pip install '.[cpu]'), "
            f"or set {SETTING} to a llama-server, and start the peer again"
        )

    def _argv_start(self) -> tuple[str, ...]:
        """The program without its options.

        Raises:
            EngineMissing: there is none; the owner's log says what to install, and no caller is told a path.
        """
        missing = self.missing()
        if missing is not None:
            logger.warning("%s", missing)
            raise EngineMissing(
                "this peer has no program for the engine llamacpp",
                fix="ask the owner of the machine to install it: the peer's log says what",
            )
        if self.llama_server is not None:
            return (str(self.llama_server),)
        return (sys.executable, "-I", "-S", str(SCRIPT), "--site", str(_package_folder()))

    def _argv_rest(self, detail: Mapping[str, str]) -> tuple[str, ...]:
        threads = detail["threads"]
        if self.llama_server is None:
            options = {
                "--model": detail["file"],
                "--alias": detail["model"],
                "--port": "{port}",
                "--key-file": f"{{secret:{API_KEY}}}",
                "--context": detail["context"],
                "--slots": detail["slots"],
                "--threads": threads,
                "--http-threads": str(HTTP_THREADS),
            }
            return tuple(part for option in options.items() for part in option)
        return (
            "-m", detail["file"],
            "-a", detail["model"],
            "--host", "127.0.0.1",
            "--port", "{port}",
            "--api-key-file", f"{{secret:{API_KEY}}}",
            # llama-server divides the context by the slots; without -np it shares it among four.
            "-c", detail["context"],
            "-np", detail["slots"],
            "-t", threads,
            "-tb", threads,
            "--threads-http", str(HTTP_THREADS),
            *PROGRAM_OPTIONS,
        )  # fmt: skip


def _package_folder() -> Path | None:
    """The folder that the wheel's package lies in; looked for without importing it."""
    try:
        found = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    return None if found is None or found.origin is None else Path(found.origin).parent.parent


def _facts(held: Held) -> Facts:
    if held.facts is not None:
        return held.facts
    assert held.problem is not None
    raise ModelUnusable(held.problem.reason, fix=held.problem.fix)


def _model(held: Held) -> Model:
    facts = _facts(held)
    needs = needs_of(facts)
    return Model(
        name=held.name,
        digest=held.digest,
        size_bytes=held.size_bytes,
        context_tokens=needs.context_tokens,
        least_memory_bytes=needs.least_bytes,
        architecture=facts.architecture,
    )
