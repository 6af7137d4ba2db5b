"""A runtime where nothing runs: the whole surface answers on a machine that has neither (F21).

It keeps the promises of the port, so that what is shown and tested on it is true of a real one. The plain
methods at its end are what the world does to a program: end it, let it write, refuse to start it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from adapters.runtime.output import last_lines
from adapters.runtime.port import (
    API_KEY,
    RECORDS,
    Container,
    Executable,
    Exit,
    Handle,
    Isolation,
    RuntimeFault,
    StartFailed,
    WorkloadSpec,
    record_path,
)

FIRST_PORT: Final = 20_000
"""Loopback ports are named from here on; nothing listens there."""
_TERMINATED: Final = 0
_KILLED: Final = 137


@attrs.define(eq=False)
class _Program:
    handle: Handle
    output: str = ""
    stubborn: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)
    exit: Exit | None = None


@attrs.define(eq=False)
class FakeRuntime:
    """Runtime of programs that are only remembered.

    Args:
        folder: a folder of its own where the set of running programs is kept, so that they outlive a peer
            that is killed, as containers do; None keeps them in this object alone.
    """

    folder: Path | None = None
    starts: list[WorkloadSpec] = attrs.field(factory=list, init=False)
    """Every start that ran a program, in order."""
    _programs: dict[str, _Program] = attrs.field(factory=dict, init=False)
    _failures: list[StartFailed] = attrs.field(factory=list, init=False)
    _gate: trio.Event | None = attrs.field(default=None, init=False)
    _ports: int = attrs.field(default=FIRST_PORT, init=False)

    def __attrs_post_init__(self) -> None:
        """Find again what ran when the peer ended."""
        if self.folder is None:
            return
        records = self.folder / RECORDS
        records.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(records.glob("*.json")):
            handle = _handle(json.loads(path.read_bytes()))
            self._programs[handle.workload] = _Program(handle)
            self._ports = max(self._ports, int(handle.base_url.rpartition(":")[2]) + 1)

    @property
    def name(self) -> str:
        """The name `BEST_PEER_RUNTIME` chooses it by."""
        return "fake"

    @property
    def isolation(self) -> Isolation:
        """As a plain process: it promises nothing."""
        return "process"

    @property
    def has_jobs(self) -> bool:
        """Not yet."""
        return False

    @property
    def images(self) -> None:
        """Not yet."""
        return None

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Remember the workload's program as running, or find it."""
        if self._gate is not None:
            await self._gate.wait()
        await trio.lowlevel.checkpoint()
        known = self._living(spec.workload)
        if known is not None:
            return known.handle
        if self._failures:
            raise self._failures.pop(0)
        handle = Handle(
            workload=spec.workload,
            holder=spec.holder,
            base_url=f"http://127.0.0.1:{self._ports}",
            secret=_secret(spec.program),
            detail=dict(spec.detail),
        )
        self._ports += 1
        self._programs[spec.workload] = _Program(handle)
        self.starts.append(spec)
        self._keep(handle)
        return handle

    async def find(self, workload: str) -> Handle | None:
        """The running program of a workload, None when there is none."""
        await trio.lowlevel.checkpoint()
        known = self._living(workload)
        return None if known is None else known.handle

    async def wait(self, workload: str) -> Exit:
        """Wait until the program has ended."""
        known = self._programs.get(workload)
        if known is None:
            await trio.lowlevel.checkpoint()
            return Exit(None)
        await known.ended.wait()
        assert known.exit is not None
        return known.exit

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        """End the program: with code 0, or killed after the grace where it was made stubborn."""
        await trio.lowlevel.checkpoint()
        known = self._living(workload)
        if known is None:
            return
        if known.stubborn:
            with trio.move_on_after(grace_seconds):
                await known.ended.wait()
        if known.exit is None:
            self.end(workload, _KILLED if known.stubborn else _TERMINATED)

    async def tail(self, workload: str) -> tuple[str, ...]:
        """The last lines it wrote."""
        await trio.lowlevel.checkpoint()
        known = self._programs.get(workload)
        return () if known is None else last_lines(known.output.encode())

    async def discard(self, workload: str) -> None:
        """Forget a program that has ended."""
        await trio.lowlevel.checkpoint()
        if self._living(workload) is not None:
            raise RuntimeFault(f"{workload} still runs; stop it before its record is removed")
        self._programs.pop(workload, None)

    async def running(self) -> tuple[str, ...]:
        """The ids of all that run."""
        await trio.lowlevel.checkpoint()
        return tuple(sorted(name for name in self._programs if self.is_running(name)))

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
    ) -> None:
        """Let a program end by itself. A program that does not run is a mistake of the caller."""
        known = self._living(workload)
        if known is None:
            raise LookupError(f"{workload} does not run")
        known.output += output
        known.exit = Exit(
            code=None if known.handle.adopted else code,
            output=last_lines(known.output.encode()),
            out_of_memory=out_of_memory,
        )
        if self.folder is not None:
            self._path(self.folder, workload).unlink(missing_ok=True)
        known.ended.set()

    def write(self, workload: str, text: str) -> None:
        """Let a program write; no line end is added."""
        self._programs[workload].output += text

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
        handle = Handle(workload, holder, f"http://127.0.0.1:{self._ports}", adopted=True)
        self._ports += 1
        self._programs[workload] = _Program(handle)
        self._keep(handle)

    def _living(self, workload: str) -> _Program | None:
        known = self._programs.get(workload)
        return known if known is not None and known.exit is None else None

    @staticmethod
    def _path(folder: Path, workload: str) -> Path:
        return record_path(folder, workload).with_suffix(".json")

    def _keep(self, handle: Handle) -> None:
        if self.folder is None:
            return
        path = self._path(self.folder, handle.workload)
        temporary = path.with_suffix(".new")
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            json.dump({**attrs.asdict(handle), "adopted": True}, file)
        temporary.rename(path)


def _secret(program: Executable | Container) -> str | None:
    if isinstance(program, Executable):
        return program.secret_files.get(API_KEY)
    return None if program.secret is None else program.secret[1]


def _handle(raw: Mapping[str, Any]) -> Handle:
    return Handle(
        workload=raw["workload"],
        holder=raw["holder"],
        base_url=raw["base_url"],
        secret=raw["secret"],
        adopted=raw["adopted"],
        detail=raw["detail"],
    )
