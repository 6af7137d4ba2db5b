"""Where every implementation meets its port: one peer, put together from its settings."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final, get_args

import attrs

from actors.approver import AdminTokenApprover
from actors.desk import Desk
from actors.house import Bounds, Ceilings, House
from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Mailbox
from actors.kernel.workers import Workers
from actors.messages.envelope import EnvelopeEncoder
from actors.registrar import Registrar
from actors.revoker import wake_revoker
from actors.rules.busy import Thresholds
from actors.store import Store
from actors.streams import Streams
from actors.tree import Tree
from adapters.clock.system import SystemClock
from adapters.engine.fake import FakeEngine
from adapters.engine.json_http import JsonHttp
from adapters.engine.llamacpp import LlamaCpp, find_llama_server, usable_cores
from adapters.engine.ollama import IMAGE as OLLAMA_IMAGE
from adapters.engine.ollama import PORT as OLLAMA_PORT
from adapters.engine.ollama import Ollama
from adapters.engine.ollama_api import OllamaApi
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import Engine, EngineName
from adapters.engine.vllm import Vllm
from adapters.gpu.port import Gpu
from adapters.models.faults import ModelFault
from adapters.models.folder import ModelFolder
from adapters.models.ollama_store import OllamaStore, StoreUnreadable
from adapters.runtime.docker.client import PATIENCE_SECONDS, DockerClient
from adapters.runtime.docker.endpoint import EndpointRefused, endpoint_from
from adapters.runtime.docker.faults import DockerFault, EngineGone
from adapters.runtime.docker.images import DockerImages
from adapters.runtime.docker.info import EngineRefused
from adapters.runtime.docker.runtime import DockerRuntime
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.native import NativeRuntime
from adapters.runtime.port import Runtime
from adapters.runtime.pretence import obeys
from adapters.runtime.process import ProcessRuntime
from peer.addresses import bracketed
from peer.devices import open_gpu
from peer.door.catalogue import Catalogue
from peer.door.context import Door
from peer.door.http import DoorApp
from peer.door.manifest import root_manifest
from peer.folder import DataFolder
from peer.settings import Settings

logger = logging.getLogger("best_peer.peer")

DISTRIBUTION = "best-peer"

START_PATIENCE_SECONDS: Final = 3.0
"""How long a container engine that is away is waited for at a start, since somebody may be looking on."""


def product_version() -> str:
    """The installed product's version."""
    return installed_version(DISTRIBUTION)


class RuntimeRefused(Exception):
    """Raised when what runs engines and jobs cannot be used; the text is one line, with what to do."""


@attrs.frozen
class _Programs:
    runtime: Runtime
    engines: Mapping[str, Engine]
    background: tuple[ChildSpec, ...] = ()


@attrs.frozen
class Peer:
    """A peer's parts, for its lifecycle to start, stop and look at."""

    settings: Settings
    folder: DataFolder
    house: House
    tree: Tree
    registrar: Registrar
    streams: Streams
    app: DoorApp
    background: tuple[ChildSpec, ...]
    """Workers that serve the adapters, started with the others."""


@asynccontextmanager
async def open_peer(settings: Settings, folder: DataFolder, *, endpoint: str) -> AsyncIterator[Peer]:
    """Put a peer together, and hold open what its parts talk through until the block is left.

    Starts nothing. The devices and what runs engines and jobs are looked at first: they have to be there,
    and to be able to keep what the peer promises.

    Args:
        settings: checked.
        folder: opened, and so this process's own.
        endpoint: the base URL that consumers are told, its port known.

    Raises:
        DriverRefused: the devices cannot be read.
        RuntimeRefused: what runs engines and jobs is not there, or cannot be used.
    """
    async with (
        open_gpu(settings) as gpu,
        JsonHttp() as http,
        _open_programs(settings, folder, http) as programs,
    ):
        yield _put_together(settings, folder, endpoint, gpu, programs)


def _put_together(
    settings: Settings, folder: DataFolder, endpoint: str, gpu: Gpu, programs: _Programs
) -> Peer:
    catalogue = Catalogue.load(endpoint)
    clock = SystemClock()
    encoder = EnvelopeEncoder(f"urn:best-peer:{folder.instance_id}", dict(catalogue.event_dataschemas))
    store = Store(folder.path, encoder, clock)
    house = House(
        store=store,
        workers=Workers(),
        clock=clock,
        runtime=programs.runtime,
        engines=programs.engines,
        gpu=gpu,
        bounds=Bounds(ready=settings.ready_seconds, load=settings.load_seconds),
        ceilings=Ceilings(
            engine_memory_bytes=settings.engine_memory,
            engine_tasks=settings.engine_pids,
            job_memory_bytes=settings.job_memory,
            job_tasks=settings.job_pids,
        ),
        pull=settings.pull,
        busy=_thresholds(settings),
    )
    streams = Streams(store)

    def closed(holder: str | None) -> None:
        if holder is not None:
            streams.end_all(holder, "the key has closed")
        wake_revoker(house)

    registrar = Registrar(store, clock, AdminTokenApprover(folder.admin_token), closed)
    tree = Tree(house, registrar)
    desk = Desk(house, tree, commands_per_minute=settings.commands_per_minute)
    version = product_version()
    door = Door(
        endpoint=endpoint,
        instance=folder.instance_id,
        version=version,
        manifest=root_manifest(endpoint, version),
        catalogue=catalogue,
        house=house,
        desk=desk,
        registrar=registrar,
        streams=streams,
        streams_per_credential=settings.streams_per_credential,
        data=folder.path,
    )
    return Peer(settings, folder, house, tree, registrar, streams, DoorApp(door), programs.background)


def _thresholds(settings: Settings) -> Thresholds | None:
    if not settings.busy:
        return None
    return Thresholds(
        memory_bytes=settings.busy_memory,
        utilisation_ratio=settings.busy_utilisation,
        busy_after_seconds=settings.busy_after,
        free_after_seconds=settings.free_after,
        period_seconds=settings.busy_every,
    )


@asynccontextmanager
async def _open_programs(settings: Settings, folder: DataFolder, http: JsonHttp) -> AsyncIterator[_Programs]:
    """The runtime that was chosen, the engines it can run, and what they do in the background."""
    match settings.runtime:
        case "docker":
            async with _containers(settings, folder, http) as programs:
                yield programs
        case "native":
            yield await _installed(settings, folder, http)
        case "process":
            yield _processes(settings, folder, http)
        case "fake":
            yield _pretended(settings, folder)


@asynccontextmanager
async def _containers(settings: Settings, folder: DataFolder, http: JsonHttp) -> AsyncIterator[_Programs]:
    async with AsyncExitStack() as stack:
        try:
            home = Path(settings.docker.get("HOME") or "/")
            client = DockerClient(endpoint_from(settings.docker, home=home), START_PATIENCE_SECONDS)
            await stack.enter_async_context(client)
            runtime = DockerRuntime(
                client, folder.instance_id, DockerImages(client), engine_host=settings.engine_host
            )
            await stack.enter_async_context(runtime)
        except (EndpointRefused, EngineGone, EngineRefused) as fault:
            raise _without_docker(f"{fault.reason}; {fault.fix}") from fault
        except DockerFault as fault:
            raise _without_docker(str(fault)) from fault
        client.patience_seconds = PATIENCE_SECONDS
        logger.info(
            "containers by Docker Engine %s at %s, isolation %s",
            runtime.engine.version,
            client.endpoint,
            runtime.isolation,
        )
        for remark in runtime.remarks():
            logger.warning("%s", remark)
        ollama = Ollama(
            http,
            image_name=settings.ollama_image or OLLAMA_IMAGE,
            store=_model_store(settings.model_store),
            load_seconds=settings.load_seconds,
        )
        vllm = Vllm(OpenAiChat(http), image_name=settings.vllm_image)
        yield _Programs(runtime, {ollama.name: ollama, vllm.name: vllm})


def _without_docker(why: str) -> RuntimeRefused:
    return RuntimeRefused(
        f"{why}; without Docker, set BEST_PEER_RUNTIME=process to serve GGUF files by llama.cpp, "
        "native to serve by an Ollama that is installed here, or fake to serve nothing real"
    )


def _model_store(path: Path | None) -> OllamaStore | None:
    if path is None:
        return None
    try:
        return OllamaStore(path)
    except StoreUnreadable as fault:
        raise RuntimeRefused(f"BEST_PEER_MODEL_STORE: {fault.reason}; {fault.fix}") from fault


async def _installed(settings: Settings, folder: DataFolder, http: JsonHttp) -> _Programs:
    base_url = f"http://{bracketed(settings.engine_host)}:{OLLAMA_PORT}"
    runtime = NativeRuntime(folder.path, folder.instance_id, http, base_url)
    ollama = Ollama(http, installed=base_url, load_seconds=settings.load_seconds)
    if not await OllamaApi(http).answers(base_url):
        logger.warning(
            "no Ollama answers at %s: start it (systemctl start ollama), or set BEST_PEER_ENGINE_HOST to "
            "where it listens; until then no model can be deployed",
            base_url,
        )
    return _Programs(runtime, {ollama.name: ollama})


def _processes(settings: Settings, folder: DataFolder, http: JsonHttp) -> _Programs:
    models = ModelFolder(settings.models)
    llamacpp = LlamaCpp(
        models,
        OpenAiChat(http),
        cores=usable_cores(),
        llama_server=find_llama_server(settings.llama_server),
    )
    runtime = ProcessRuntime(folder.path, folder.instance_id)
    background = (_learn_digests(models),)
    missing = llamacpp.missing()
    if missing is not None:
        logger.warning("%s; until then no model can be deployed", missing)
        return _Programs(runtime, {}, background)
    return _Programs(runtime, {llamacpp.name: llamacpp}, background)


def _pretended(settings: Settings, folder: DataFolder) -> _Programs:
    runtime = FakeRuntime(folder.path, isolation="container", scripts=obeys)
    images = {"ollama": settings.ollama_image or OLLAMA_IMAGE, "vllm": settings.vllm_image}
    engines = {
        name: FakeEngine(name, lives=runtime.is_running, reference=images.get(name))
        for name in get_args(EngineName)
    }
    return _Programs(runtime, engines)


def _learn_digests(models: ModelFolder) -> ChildSpec:
    """Works out the digests of models that were put into the folder by hand: seconds a gigabyte, once."""

    class Learn:
        async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to it
            try:
                await models.learn_digests()
            except ModelFault as fault:
                logger.warning("no digest of a model is worked out: %s; %s", fault.reason, fault.fix)

    return ChildSpec("model digests", Learn, capacity=0)
