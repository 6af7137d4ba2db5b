"""Where every implementation meets its port: one peer, put together from its settings."""

import os
from collections.abc import Mapping
from importlib.metadata import version as installed_version

import attrs

from actors.approver import AdminTokenApprover
from actors.desk import Desk
from actors.house import Bounds, House
from actors.kernel.workers import Workers
from actors.messages.envelope import EnvelopeEncoder
from actors.registrar import Registrar
from actors.store import Store
from actors.streams import Streams
from actors.tree import Tree
from adapters.clock.system import SystemClock
from adapters.engine.fake import FakeEngine
from adapters.engine.llamacpp import LlamaCpp
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import Engine, EngineName
from adapters.gpu.host import HostGpu
from adapters.models.folder import ModelFolder
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Runtime
from adapters.runtime.process import ProcessRuntime
from peer.door.catalogue import Catalogue
from peer.door.context import Door
from peer.door.http import DoorApp
from peer.door.manifest import root_manifest
from peer.folder import DataFolder
from peer.settings import Settings

DISTRIBUTION = "best-peer"


def product_version() -> str:
    """The installed product's version."""
    return installed_version(DISTRIBUTION)


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
    chat: OpenAiChat


def compose(settings: Settings, folder: DataFolder, *, endpoint: str) -> Peer:
    """Put a peer together. Must run inside Trio; starts nothing.

    Args:
        settings: checked.
        folder: opened, and so this process's own.
        endpoint: the base URL that consumers are told, its port known.
    """
    catalogue = Catalogue.load(endpoint)
    clock = SystemClock()
    encoder = EnvelopeEncoder(f"urn:best-peer:{folder.instance_id}", dict(catalogue.event_dataschemas))
    store = Store(folder.path, encoder, clock)
    chat = OpenAiChat()
    runtime, engines = _programs(settings, folder, chat)
    house = House(
        store=store,
        workers=Workers(),
        clock=clock,
        runtime=runtime,
        engines=engines,
        gpu=HostGpu(),
        bounds=Bounds(ready=settings.ready_seconds, load=settings.load_seconds),
        engine_memory_bytes=settings.engine_memory,
    )
    streams = Streams(store)
    registrar = Registrar(
        store,
        clock,
        AdminTokenApprover(folder.admin_token),
        closed=lambda holder: streams.end_all(holder, "the key has closed"),
    )
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
    return Peer(settings, folder, house, tree, registrar, streams, DoorApp(door), chat)


def _programs(
    settings: Settings, folder: DataFolder, chat: OpenAiChat
) -> tuple[Runtime, Mapping[str, Engine]]:
    """The runtime that was chosen, and the engines it can run."""
    if settings.runtime == "fake":
        fake = FakeRuntime(folder.path)
        names: tuple[EngineName, ...] = ("llamacpp", "ollama", "vllm")
        return fake, {name: FakeEngine(name, lives=fake.is_running) for name in names}
    llamacpp = LlamaCpp(
        ModelFolder(settings.models), chat, cores=_cores(), llama_server=settings.llama_server
    )
    return ProcessRuntime(folder.path, folder.instance_id), {llamacpp.name: llamacpp}


def _cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
