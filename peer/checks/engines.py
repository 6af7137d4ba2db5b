"""What runs models where Docker does not: an installed Ollama, or llama.cpp with the models it has (F21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.engine.json_http import JsonHttp
from adapters.engine.llamacpp import LlamaCpp, usable_cores
from adapters.engine.ollama import PORT as OLLAMA_PORT
from adapters.engine.ollama_api import OllamaApi
from adapters.engine.openai_chat import OpenAiChat
from adapters.models.faults import ModelFault
from adapters.models.folder import ModelFolder
from peer.addresses import bracketed
from peer.checks.line import ok, problem, warning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from adapters.models.folder import Held
    from peer.checks.line import Line

ENGINE: Final = "engine"
MODELS: Final = "models"
MAX_NAMES: Final = 5


async def look_at_ollama(engine_host: str, port: int = OLLAMA_PORT) -> tuple[Line, ...]:
    """Whether the Ollama that is to serve answers."""
    base_url = f"http://{bracketed(engine_host)}:{port}"
    async with JsonHttp() as http:
        answers = await OllamaApi(http).answers(base_url)
    if answers:
        return (ok(ENGINE, f"an Ollama answers at {base_url}"),)
    return (
        problem(
            ENGINE,
            f"no Ollama answers at {base_url}",
            "start it (systemctl start ollama), or set BEST_PEER_ENGINE_HOST to where it listens",
        ),
    )


async def look_at_llamacpp(models: Path, llama_server: Path | None) -> tuple[Line, ...]:
    """Whether llama.cpp is there and has anything to serve.

    Args:
        models: the folder of models; it need not be there.
        llama_server: the owner's own server; None for the package's.
    """
    folder = ModelFolder(models)
    async with JsonHttp() as http:
        engine = LlamaCpp(folder, OpenAiChat(http), cores=usable_cores(), llama_server=llama_server)
        lines = [program(engine.missing(), llama_server)]
    try:
        held = await folder.list()
    except ModelFault as fault:
        return (*lines, problem(MODELS, fault.reason, fault.fix))
    return (*lines, *judge(models, held))


def program(missing: str | None, llama_server: Path | None) -> Line:
    """The line for the program itself."""
    if missing is None:
        where = "the xllamacpp package" if llama_server is None else str(llama_server)
        return ok(ENGINE, f"llama.cpp's server is there: {where}")
    what, _, fix = missing.partition(": ")
    return problem(ENGINE, what, fix)


def judge(folder: Path, held: Sequence[Held]) -> tuple[Line, ...]:
    """The lines for the models of a folder."""
    good = [each.name for each in held if each.problem is None]
    lines = [
        warning(MODELS, f"{each.name} cannot be deployed: {each.problem.reason}", each.problem.fix)
        for each in held
        if each.problem is not None
    ]
    if not good:
        bring = f"best-peer models add PATH brings in a GGUF file, or put one into {folder} yourself"
        return (warning(MODELS, f"{folder} holds no model that can be deployed", bring), *lines)
    more = f" and {len(good) - MAX_NAMES} more" if len(good) > MAX_NAMES else ""
    return (ok(MODELS, f"{', '.join(good[:MAX_NAMES])}{more} in {folder}"), *lines)


def nothing_real() -> tuple[Line, ...]:
    """What there is to say of a runtime that pretends."""
    return (
        warning(
            ENGINE,
            "BEST_PEER_RUNTIME=fake answers every command and runs nothing",
            "unset it to run models and jobs in containers",
        ),
    )
