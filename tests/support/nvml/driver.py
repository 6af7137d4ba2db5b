"""A made-up NVIDIA driver with its cards, for one test (the library itself is `stub.c`).

Change what it has, then `write`: the library reads it at its next call.

    driver = NvmlDriver(folder, compiled(cache), cards=[card(0), card(1)])
    driver.write()
    driver.load(monkeypatch)                       # this process's pynvml finds it
    environment["LD_LIBRARY_PATH"] = str(folder)   # a child's pynvml does
"""

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import attrs
import pynvml
import pytest
import trio

from tests.support.nvml.library import install

GIB: Final = 1024**3
UNKNOWN: Final = -1
"""NVML's "not available": all ones."""

Kind = Literal["compute", "graphics"]


@attrs.define
class Process:
    """A program on a card. `memory` is bytes, or UNKNOWN; `parts` are the ids of the instance it runs in."""

    pid: int
    memory: int = 0
    kind: Kind = "compute"
    parts: tuple[int, int] = (UNKNOWN, UNKNOWN)


@attrs.define
class Instance:
    """A MIG instance. None is "not supported"; `memory` is total, free, used, reserved."""

    uuid: str
    slot: int = 0
    name: str | None = "NVIDIA H200 MIG 1g.18gb"
    memory: tuple[int, int, int, int] | None = (16 * GIB, 15 * GIB, GIB, 0)
    ids: tuple[int, int] | None = (1, 0)
    processes: list[Process] = attrs.field(factory=list)
    rules: list[str] = attrs.field(factory=list)


@attrs.define
class Card:
    """A card. None is "not supported"; units are NVML's: bytes, milliwatts, millijoules, percent."""

    uuid: str
    name: str | None = "NVIDIA H200"
    memory: tuple[int, int, int, int] | None = (140 * GIB, 100 * GIB, 39 * GIB, GIB)
    temperature: int | None = 41
    power: int | None = 75_500
    energy: int | None = 123_456_789
    utilisation: tuple[int, int] | None = (12, 3)
    mig: tuple[int, int] | None = (0, 7)
    instances: list[Instance] = attrs.field(factory=list)
    processes: list[Process] = attrs.field(factory=list)
    samples: list[tuple[int, int, int]] = attrs.field(factory=list)
    rules: list[str] = attrs.field(factory=list)

    def lose(self) -> None:
        """Have it fall off the bus: it stays counted, and nothing can be asked of it."""
        lost = error("*", pynvml.NVML_ERROR_GPU_IS_LOST)
        self.rules.append(lost)
        for instance in self.instances:
            instance.rules.append(lost)


def card(index: int) -> Card:
    """A card with a UUID made of a number, and nothing running."""
    return Card(f"GPU-00000000-0000-0000-0000-{index:012d}")


def error(call: str, code: int) -> str:
    """A rule: this call, or every one with `*`, answers an error. Names are without `_v2` and the like."""
    return f"{call} error {code}"


def delay(call: str, milliseconds: int) -> str:
    """A rule: this call takes its time."""
    return f"{call} delay {milliseconds}"


def hang(call: str) -> str:
    """A rule: this call does not return while the gate is closed (`NvmlDriver.gate`)."""
    return f"{call} hang"


@attrs.define
class Gate:
    """What hanging calls wait at."""

    _arrived: int
    _lock: int

    async def arrival(self) -> str:
        """Wait until a call hangs; its name."""
        await trio.lowlevel.wait_readable(self._arrived)
        return os.read(self._arrived, 4096).decode().split("\n")[0]

    def arrivals(self) -> list[str]:
        """The calls that came to hang since one was waited for."""
        try:
            return os.read(self._arrived, 65536).decode().splitlines()
        except BlockingIOError:
            return []

    def open(self) -> None:
        """Let every call that hangs return, and those that would."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Have calls hang that are told to."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)


@attrs.define
class NvmlDriver:
    """The driver of one test, in a folder of its own.

    Args:
        folder: holds the library, its script and the gate.
        library: what `library.compiled` gave.
        cards: in the driver's order; None of `session` is a driver that is not loaded.
        rules: what happens to calls about any card, or about none.
    """

    folder: Path
    library: Path
    cards: list[Card] = attrs.field(factory=list)
    session: int | None = 1
    version: str | None = "580.65.06"
    cuda: int | None = 13_000
    rules: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        install(self.library, self.folder)
        self.write()

    def write(self) -> None:
        """Have the library find what this object says now."""
        fresh = self.folder / "nvml.script.new"
        # A name that is no UTF-8 is given with surrogates.
        fresh.write_text("\n".join(self._lines()) + "\n", "utf-8", errors="surrogateescape")
        fresh.replace(self.folder / "nvml.script")

    def reload(self) -> None:
        """Have the driver go and come back, as an update does: what knew it has to begin again."""
        self.session = (self.session or 1) + 1
        self.write()

    def load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have pynvml find this library in this process, whatever it had loaded before."""
        place = self.folder / "libnvidia-ml.so.1"

        def load(name: str) -> ctypes.CDLL:
            assert name == place.name
            return ctypes.CDLL(str(place))

        monkeypatch.setattr(pynvml, "CDLL", load)
        monkeypatch.setattr(pynvml, "nvmlLib", None)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)

    @contextmanager
    def gate(self) -> Iterator[Gate]:
        """What hanging calls wait at: closed within this block, and open for good after it."""
        fifo = self.folder / "arrived"
        if not fifo.exists():
            os.mkfifo(fifo)
        # Read and write: it then never says that nobody writes.
        arrived = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        lock = os.open(self.folder / "gate", os.O_RDWR | os.O_CREAT, 0o600)
        gate = Gate(arrived, lock)
        gate.close()
        try:
            yield gate
        finally:
            os.close(lock)
            os.close(arrived)

    def _lines(self) -> Iterator[str]:
        if self.session is not None:
            yield f"session {self.session}"
        if self.version is not None:
            yield f"driver {self.version}"
        if self.cuda is not None:
            yield f"cuda {self.cuda}"
        yield from (f"on {rule}" for rule in self.rules)
        for one in self.cards:
            yield f"card {one.uuid}"
            yield from _common(one)
            for key, value in (
                ("temperature", one.temperature),
                ("power", one.power),
                ("energy", one.energy),
            ):
                if value is not None:
                    yield f"{key} {value}"
            if one.utilisation is not None:
                yield _numbers("utilisation", one.utilisation)
            if one.mig is not None:
                yield _numbers("mig", one.mig)
            yield from (_numbers("sample", sample) for sample in one.samples)
            for instance in one.instances:
                yield f"instance {one.uuid} {instance.slot} {instance.uuid}"
                if instance.ids is not None:
                    yield _numbers("ids", instance.ids)
                yield from _common(instance)


def _common(one: Card | Instance) -> Iterator[str]:
    if one.name is not None:
        yield f"name {one.name}"
    if one.memory is not None:
        yield _numbers("memory", one.memory)
    for process in one.processes:
        gpu, compute = process.parts
        yield f"process {process.kind} {process.pid} {process.memory} {gpu} {compute}"
    yield from (f"on {rule}" for rule in one.rules)


def _numbers(key: str, numbers: tuple[int, ...]) -> str:
    return " ".join((key, *map(str, numbers)))
