"""A program of the fake runtime: what it wrote, whether it ended, and what it was told to do (F21)."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs
import trio

from adapters.runtime.output import last_lines
from adapters.runtime.port import (
    API_KEY,
    Chunk,
    Container,
    EngineEvent,
    Executable,
    Exit,
    Handle,
    RuntimeUnavailable,
    WorkloadSpec,
)

KILLED: Final = 137
FIRST_PORT: Final = 20_000
"""Loopback ports are named from here on; nothing listens there."""
PORTS: Final = 20_000
FIRST_PID: Final = 1 << 22
"""Past every pid that Linux gives: no process of the host is taken for a fake one."""
UNREAD_EVENTS: Final = 256
"""As many as a real engine remembers; a listener further behind than that has to look for itself."""


@attrs.frozen
class Script:
    """What a program does by itself: writes `output`, goes on for `seconds`, and ends so.

    After a restart it goes on for `seconds` anew.
    """

    output: str = ""
    seconds: float = 0.0
    code: int = 0
    out_of_memory: bool = False
    not_found: bool = False


Scripts = Callable[[WorkloadSpec], Script | None]
"""What each workload's program does by itself; None is nothing, until it is told."""


def runs_on(spec: WorkloadSpec) -> Script | None:  # noqa: ARG001 - one answer for all
    """Every program runs until it is told to end."""
    return None


def obeys(spec: WorkloadSpec) -> Script | None:
    """A container that nobody calls does as its command says, and one with a port runs until it is stopped.

    `exit N` ends with that code, `sleep S` goes on for so many seconds, `oom` is ended for want of memory,
    and every other command writes itself and ends with 0.
    """
    program = spec.program
    if isinstance(program, Executable) or program.port is not None:
        return None
    command = program.command or ()
    said = " ".join(command) + "\n" if command else f"{program.image}\n"
    match command:
        case ["exit", code] if code.isdecimal() and int(code) < 256:
            return Script(said, code=int(code))
        case ["sleep", seconds] if seconds.replace(".", "", 1).isdecimal():
            return Script(said, seconds=float(seconds))
        case ["oom"]:
            return Script(said, code=KILLED, out_of_memory=True)
    return Script(said)


@attrs.define(eq=False)
class Program:
    """A program that is only remembered.

    Args:
        handle: what its peer knows of it.
        number: its own among all that were made.
        is_container: its end stays known across a restart, with its code.
        script: what it does by itself.
        is_started: False for a container that was only prepared.
        pids: its processes.
    """

    handle: Handle
    number: int
    is_container: bool = False
    script: Script | None = None
    is_started: bool = True
    pids: frozenset[int] = attrs.field(
        default=attrs.Factory(lambda self: frozenset({FIRST_PID + self.number}), takes_self=True)
    )
    stubborn: bool = False
    chunks: list[Chunk] = attrs.field(factory=list, init=False)
    exit: Exit | None = attrs.field(default=None, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)
    _until: float | None = attrs.field(default=None, init=False)

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.is_started and self.exit is None

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines it wrote."""
        return last_lines(b"".join(chunk.data for chunk in self.chunks))

    def until(self) -> float:
        """When its script ends it, on Trio's clock; infinity when only others do."""
        if self.script is None:
            return float("inf")
        if self._until is None:
            self._until = trio.current_time() + self.script.seconds
        return self._until

    def write(self, text: str, stream: Literal["out", "err"] = "out") -> None:
        """Let it write."""
        if text:
            self.chunks.append(Chunk(stream, text.encode()))
            self._move()

    def finish(self, end: Exit) -> None:
        """Let it end so."""
        self.exit = end
        self.ended.set()
        self._move()

    async def moved(self, seen: int) -> None:
        """Wait until it has written more than `seen` chunks, or has ended."""
        while len(self.chunks) <= seen and self.exit is None:
            await self._moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def record(self) -> dict[str, Any]:
        """What is written down of it."""
        return {
            **attrs.asdict(self.handle),
            "number": self.number,
            "container": self.is_container,
            "script": None if self.script is None else attrs.asdict(self.script),
            "pids": sorted(self.pids),
            "output": "\n".join(self.tail),
            "exit": None if self.exit is None else attrs.asdict(self.exit),
        }


def read_program(raw: Mapping[str, Any]) -> Program:
    """A program from what was written down of it."""
    handle = Handle(
        workload=raw["workload"],
        holder=raw["holder"],
        base_url=raw["base_url"],
        secret=raw["secret"],
        adopted=True,
        detail=raw["detail"],
    )
    script = None if raw["script"] is None else Script(**raw["script"])
    program = Program(handle, raw["number"], raw["container"], script, pids=frozenset(raw["pids"]))
    program.write(raw["output"])
    end = raw["exit"]
    if end is not None:
        program.finish(Exit(**{**end, "output": tuple(end["output"]), "before": tuple(end["before"])}))
    return program


def made_program(spec: WorkloadSpec, number: int, *, is_started: bool = True) -> Program:
    """A program that does what a specification says, on a port of its own."""
    program = spec.program
    is_called = isinstance(program, Executable) or program.port is not None
    handle = Handle(
        workload=spec.workload,
        holder=spec.holder,
        base_url=address(number) if is_called else "",
        secret=secret_of(program),
        detail=dict(spec.detail),
    )
    return Program(handle, number, isinstance(program, Container), is_started=is_started)


def address(number: int) -> str:
    """Where a program would be reached."""
    return f"http://127.0.0.1:{FIRST_PORT + number % PORTS}"


def secret_of(program: Executable | Container) -> str | None:
    """The key a program asks its callers for."""
    if isinstance(program, Executable):
        return program.secret_files.get(API_KEY)
    return None if program.secret is None else program.secret[1]


@attrs.define
class Written:
    """What a program writes, from its first byte to its last."""

    _program: Program | None
    _seen: int = attrs.field(default=0, init=False)

    def __aiter__(self) -> "Written":
        return self

    async def __anext__(self) -> Chunk:
        await trio.lowlevel.checkpoint()
        if self._program is None:
            raise StopAsyncIteration
        await self._program.moved(self._seen)
        if self._seen == len(self._program.chunks):
            raise StopAsyncIteration
        self._seen += 1
        return self._program.chunks[self._seen - 1]


@attrs.define(eq=False)
class Heard:
    """What the engine does, from when it was asked."""

    _receive: trio.MemoryReceiveChannel[EngineEvent]

    def __aiter__(self) -> "Heard":
        return self

    async def __anext__(self) -> EngineEvent:
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise RuntimeUnavailable("the fake engine tells no more; look, then listen again") from None
