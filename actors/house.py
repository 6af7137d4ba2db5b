"""What every actor of a door is given: the store, the ports and the numbers. No state of its own."""

import secrets
from collections.abc import Callable, Mapping

import attrs

from actors.addresses import Addresses
from actors.kernel.workers import Workers
from actors.store import Store
from adapters.clock.port import Clock
from adapters.engine.port import Engine
from adapters.gpu.port import Gpu
from adapters.runtime.port import Runtime


@attrs.frozen
class Bounds:
    """How long things may take, in seconds (F20, F23).

    ready: from the engine's start until it answers at all.
    load: until the model has answered.
    prompt: from a prompt's turn until its answer.
    stop: grace for an engine to end by itself.
    probe: between two looks whether a ready engine still answers.
    """

    ready: float = 900
    load: float = 3600
    prompt: float = 600
    stop: float = 3
    probe: float = 15


def random_id(prefix: str) -> str:
    """An id nobody can guess: the prefix and 22 url-safe characters."""
    return f"{prefix}{secrets.token_urlsafe(16)}"


@attrs.frozen
class House:
    """The parts that one door's actors share."""

    store: Store
    workers: Workers
    clock: Clock
    runtime: Runtime
    engines: Mapping[str, Engine]
    gpu: Gpu
    addresses: Addresses = attrs.field(factory=Addresses)
    bounds: Bounds = attrs.field(factory=Bounds)
    engine_memory_bytes: int | None = None
    new_id: Callable[[str], str] = random_id
