"""What every actor of a door is given: the store, the ports and the numbers. No state of its own."""

import secrets
from collections.abc import Callable, Mapping

import attrs

from actors.addresses import Addresses
from actors.kernel.workers import Workers
from actors.looks import Looks
from actors.occupied import Occupied
from actors.rules.busy import Thresholds
from actors.store import Store
from adapters.clock.port import Clock
from adapters.engine.port import Engine
from adapters.gpu.port import Gpu
from adapters.images.port import Pull
from adapters.runtime.port import Runtime


@attrs.frozen
class Bounds:
    """How long things may take, in seconds (F20, F23).

    ready: from the engine's start until it answers at all.
    load: from then until the model has answered.
    prompt: from a prompt's turn until its answer.
    stop: grace for an engine to end by itself.
    probe: between two looks whether a ready engine still answers.
    away: how long a container engine may be away at a stretch before what it has not started yet fails.
    card: how long a card may not be readable before what has not started on it yet fails.
    release: from a workload's end on a card until its memory is free by the driver: then its end is told
        whatever that says. With the seconds in which an end is noticed it stays under half a minute.
    """

    ready: float = 900
    load: float = 3600
    prompt: float = 600
    stop: float = 3
    probe: float = 10
    away: float = 120
    card: float = 60
    release: float = 20


@attrs.frozen
class Ceilings:
    """What one container may take of the host, whoever ordered it; None is no ceiling (F30, F31).

    Memory is the host's, in bytes, swap counted in; tasks are processes and threads. A job's memory is held
    down in the closed box alone.
    """

    engine_memory_bytes: int | None = None
    engine_tasks: int | None = 4096
    job_memory_bytes: int | None = 4 << 30
    job_tasks: int | None = 4096


def random_id(prefix: str) -> str:
    """An id nobody can guess: the prefix and 22 url-safe characters."""
    return f"{prefix}{secrets.token_urlsafe(16)}"


@attrs.frozen
class House:
    """The parts that one door's actors share; without `busy` no card is read for its owner's own use."""

    store: Store
    workers: Workers
    clock: Clock
    runtime: Runtime
    engines: Mapping[str, Engine]
    gpu: Gpu
    addresses: Addresses = attrs.field(factory=Addresses)
    looks: Looks = attrs.field(factory=Looks)
    occupied: Occupied = attrs.field(factory=Occupied)
    bounds: Bounds = attrs.field(factory=Bounds)
    ceilings: Ceilings = attrs.field(factory=Ceilings)
    pull: Pull = "always"
    busy: Thresholds | None = None
    new_id: Callable[[str], str] = random_id
