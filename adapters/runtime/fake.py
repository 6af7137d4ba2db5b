"""A runtime where nothing runs: the whole surface answers on a machine that has neither (F21).

It keeps the promises of the port, so that what is shown and tested on it is true of a real one. The plain
methods at its end are what the world does to a program: end it, let it write, refuse to start it.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import attrs
import trio

from adapters.images.fake import FakeImages
from adapters.images.port import Images
from adapters.runtime.port import (
    RECORDS,
    Chunk,
    EngineEvent,
    Exit,
    Handle,
    Isolation,
    NotEnded,
    RuntimeFault,
    RuntimeUnavailable,
    StartFailed,
    WorkloadSpec,
    record_path,
)
from adapters.runtime.pretence import (
    KILLED,
    UNREAD_EVENTS,
    Heard,
    Program,
    Scripts,
    Written,
    address,
    made_program,
    read_program,
    runs_on,
)

_TERMINATED: Final = 0
_AWAY: Final = "the fake engine does not answer"


@attrs.define(eq=False)
class FakeRuntime:
    """Runtime of programs that are only remembered, in containers or not.

    Args:
        folder: a folder of its own where the set of programs is kept, so that they outlive a peer that is
            killed, as containers do; None keeps them in this object alone.
        images: what its containers are made of; None is an engine's images that are only remembered too.
        isolation: what it says it offers.
        scripts: what programs do by themselves; may be set anew at any time.
    """

    folder: Path | None = None
    images: Images = attrs.field(factory=FakeImages, kw_only=True)
    isolation: Isolation = attrs.field(default="process", kw_only=True)
    scripts: Scripts = attrs.field(default=runs_on, kw_only=True)
    starts: list[WorkloadSpec] = attrs.field(factory=list, init=False)
    """Every start that ran a program, in order."""
    _programs: dict[str, Program] = attrs.field(factory=dict, init=False)
    _failures: list[StartFailed] = attrs.field(factory=list, init=False)
    _gate: trio.Event | None = attrs.field(default=None, init=False)
    _back: trio.Event | None = attrs.field(default=None, init=False)
    _listeners: set[trio.MemorySendChannel[EngineEvent]] = attrs.field(factory=set, init=False)
    _made: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        """Find again what was there when the peer ended."""
        if self.folder is None:
            return
        records = self.folder / RECORDS
        records.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(records.glob("*.json")):
            program = read_program(json.loads(path.read_bytes()))
            self._programs[program.handle.workload] = program
            self._made = max(self._made, program.number)

    @property
    def name(self) -> str:
        """The name `BEST_PEER_RUNTIME` chooses it by."""
        return "fake"

    @property
    def has_jobs(self) -> bool:
        """Jobs are served: nothing of them runs."""
        return True

    async def prepare(self, spec: WorkloadSpec) -> None:
        """Remember a container that is not started yet; one that is there already stays."""
        await trio.lowlevel.checkpoint()
        self._there("START")
        known = self._programs.get(spec.workload)
        if known is None or known.exit is not None:
            self._programs[spec.workload] = made_program(spec, self._next(), is_started=False)

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Remember the workload's program as running, or find it."""
        if self._gate is not None:
            await self._gate.wait()
        await trio.lowlevel.checkpoint()
        self._there("START")
        known = self._living(spec.workload)
        if known is not None:
            return known.handle
        prepared = self._programs.get(spec.workload)
        if self._failures:
            self._programs.pop(spec.workload, None)
            raise self._failures.pop(0)
        if prepared is not None and not prepared.is_started:
            program = prepared
            program.is_started = True
        else:
            program = self._programs[spec.workload] = made_program(spec, self._next())
        self.starts.append(spec)
        program.script = self.scripts(spec)
        if program.script is not None:
            program.write(program.script.output)
        self._keep(program)
        self._living(spec.workload)
        return program.handle

    async def find(self, workload: str) -> Handle | None:
        """The running program of a workload, None when there is none."""
        await trio.lowlevel.checkpoint()
        self._there()
        known = self._living(workload)
        return None if known is None else known.handle

    async def wait(self, workload: str) -> Exit:
        """Wait until the program has ended."""
        await trio.lowlevel.checkpoint()
        await self._answers()
        known = self._programs.get(workload)
        if known is None or not known.is_started:
            return Exit(None)
        with trio.move_on_at(known.until()):
            await known.ended.wait()
        self._living(workload)
        await self._answers()
        assert known.exit is not None
        return known.exit

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        """End the program: with code 0, or killed after the grace where it was made stubborn."""
        await trio.lowlevel.checkpoint()
        if self._back is not None:
            raise NotEnded(_AWAY)
        known = self._living(workload)
        if known is None:
            return
        if known.stubborn:
            with trio.move_on_after(grace_seconds):
                await known.ended.wait()
        if known.exit is None:
            self.end(workload, KILLED if known.stubborn else _TERMINATED)

    async def tail(self, workload: str) -> tuple[str, ...]:
        """The last lines it wrote."""
        await trio.lowlevel.checkpoint()
        known = self._programs.get(workload)
        return () if known is None else known.tail

    async def discard(self, workload: str) -> None:
        """Forget a program that has ended, or was never started."""
        await trio.lowlevel.checkpoint()
        self._there()
        if self._living(workload) is not None:
            raise RuntimeFault(f"{workload} still runs; stop it before its record is removed")
        self._programs.pop(workload, None)
        if self.folder is not None:
            self._path(self.folder, workload).unlink(missing_ok=True)

    async def running(self) -> tuple[str, ...]:
        """The ids of all that run."""
        await trio.lowlevel.checkpoint()
        self._there()
        return tuple(sorted(name for name in self._programs if self.is_running(name)))

    async def kept(self) -> tuple[str, ...]:
        """The ids of all programs that are remembered."""
        await trio.lowlevel.checkpoint()
        self._there()
        return tuple(sorted(self._programs))

    def follow(self, workload: str) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """What a program writes, from its first byte to its end."""
        return self._follow(workload)

    async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
        """Of all that run and are any process."""
        await trio.lowlevel.checkpoint()
        self._there()
        living = ((name, self._living(name)) for name in self._programs)
        found = {name: known.pids for name, known in living if known is not None and known.pids}
        return {name: pids if among is None else pids & among for name, pids in found.items()}

    async def processes(self, workload: str) -> frozenset[int]:
        """Pids that no process of the host has; one a program unless it was told otherwise."""
        await trio.lowlevel.checkpoint()
        self._there()
        known = self._living(workload)
        return frozenset() if known is None else known.pids

    def events(self) -> AbstractAsyncContextManager[AsyncIterator[EngineEvent]]:
        """What is done to programs from now on."""
        return self._events()

    def is_running(self, workload: str) -> bool:
        """Whether a program runs now, for an engine that answers only while it does."""
        return self._living(workload) is not None

    def end(
        self,
        workload: str,
        code: int,
        *,
        output: str = "",
        out_of_memory: bool = False,
        lost_process: bool = False,
        not_found: bool = False,
        interrupted: bool = False,
        ended_at: str | None = None,
    ) -> None:
        """Let a program end by itself. A program that does not run is a mistake of the caller."""
        known = self._living(workload)
        if known is None:
            raise LookupError(f"{workload} does not run")
        known.write(output)
        # Nobody is left to read the code of a process whose parent was killed; an engine keeps its own.
        is_code_known = known.is_container or not known.handle.adopted
        end = Exit(
            code=code if is_code_known else None,
            output=known.tail,
            out_of_memory=out_of_memory,
            lost_process=lost_process,
            not_found=not_found,
            interrupted=interrupted,
            ended_at=ended_at,
        )
        known.finish(end)
        if self.folder is not None and not known.is_container:
            self._path(self.folder, workload).unlink(missing_ok=True)
        else:
            self._keep(known)
        if out_of_memory or lost_process:
            self._tell(EngineEvent(workload, "oom"))
        self._tell(EngineEvent(workload, "die", code))

    def write(self, workload: str, text: str, *, stream: Literal["out", "err"] = "out") -> None:
        """Let a program write; no line end is added."""
        self._programs[workload].write(text, stream)

    def lose_process(self, workload: str) -> None:
        """Let one of a program's processes be ended for want of memory, and the program go on."""
        self._tell(EngineEvent(workload, "oom"))

    def set_processes(self, workload: str, pids: frozenset[int]) -> None:
        """Say which processes of the host a program is."""
        self._programs[workload].pids = pids

    def fail_next_start(self, failure: StartFailed) -> None:
        """Let the next start that would run a program fail so; each call fails one more."""
        self._failures.append(failure)

    def hold_starts(self) -> trio.Event:
        """Let every start wait until the returned event is set."""
        self._gate = trio.Event()
        return self._gate

    def make_stubborn(self, workload: str) -> None:
        """Let a program not end when asked, only when killed."""
        self._programs[workload].stubborn = True

    def plant(self, workload: str, *, holder: str = "h-unknown") -> None:
        """Let a program run that this peer does not know it started."""
        number = self._next()
        handle = Handle(workload, holder, address(number), adopted=True)
        self._programs[workload] = Program(handle, number)
        self._keep(self._programs[workload])

    def go_away(self) -> Callable[[], None]:
        """Let the engine answer nobody until what is returned is called; its programs go on meanwhile."""
        back = self._back = trio.Event()
        for listener in tuple(self._listeners):
            listener.close()
        self._listeners.clear()

        def come_back() -> None:
            self._back = None
            back.set()

        return come_back

    @asynccontextmanager
    async def _follow(self, workload: str) -> AsyncIterator[AsyncIterator[Chunk]]:
        await trio.lowlevel.checkpoint()
        self._there()
        yield Written(self._programs.get(workload))

    @asynccontextmanager
    async def _events(self) -> AsyncIterator[AsyncIterator[EngineEvent]]:
        await trio.lowlevel.checkpoint()
        self._there()
        send, receive = trio.open_memory_channel[EngineEvent](UNREAD_EVENTS)
        self._listeners.add(send)
        try:
            yield Heard(receive)
        finally:
            self._listeners.discard(send)
            send.close()
            receive.close()

    def _tell(self, event: EngineEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                listener.send_nowait(event)
            except trio.WouldBlock:
                self._listeners.discard(listener)
                listener.close()

    async def _answers(self) -> None:
        """Wait until the engine answers."""
        while self._back is not None:
            await self._back.wait()

    def _there(self, what: Literal["START", "LOOK"] = "LOOK") -> None:
        if self._back is None:
            return
        if what == "START":
            fix = "start it again once the engine is back"
            raise StartFailed(_AWAY, fix=fix, code="RUNTIME_UNAVAILABLE")
        raise RuntimeUnavailable(_AWAY)

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _living(self, workload: str) -> Program | None:
        """The workload's program if it runs; one whose script is over ends now."""
        known = self._programs.get(workload)
        if known is None or not known.is_running:
            return None
        if known.script is not None and trio.current_time() >= known.until():
            script, known.script = known.script, None
            self.end(workload, script.code, out_of_memory=script.out_of_memory, not_found=script.not_found)
            return None
        return known

    @staticmethod
    def _path(folder: Path, workload: str) -> Path:
        return record_path(folder, workload).with_suffix(".json")

    def _keep(self, program: Program) -> None:
        if self.folder is None:
            return
        path = self._path(self.folder, program.handle.workload)
        temporary = path.with_suffix(".new")
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            json.dump(program.record(), file)
        temporary.rename(path)
