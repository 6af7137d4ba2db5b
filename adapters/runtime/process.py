"""Runs workloads as processes of this machine: the runtime of a machine with nothing (F21, F37).

A workload is a process in a session of its own, reached on loopback alone. It is started by `spawn`, so
that a peer killed at any moment leaves no program that no record names; it outlives the peer, and the next
one adopts it by its record: pid, start time and boot, never the pid alone. Nothing stands between it and
the host but its user's rights.

What a program can be held to without a container: no core dumps, files of 16 MiB at most, and, where the
workload names a memory ceiling, `RLIMIT_DATA`: on Linux the kernel refuses each of its processes private
memory past that. What is reserved counts, so that each thread's stack counts whole (8 MiB as a rule); files
it maps and what it shares do not count, nor is the sum taken over processes it starts.
"""

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

from adapters.runtime import family, output
from adapters.runtime.identity import HAS_PROC
from adapters.runtime.oom import OomKills, oom_kills
from adapters.runtime.port import (
    RECORDS,
    WORKLOAD_ID,
    Exit,
    Handle,
    Isolation,
    NotEnded,
    RuntimeFault,
    WorkloadSpec,
    record_path,
)
from adapters.runtime.record import Ended, Record, read_record, write_record
from adapters.runtime.spawn import secret_path, spawn
from adapters.runtime.watched import Watched

logger = logging.getLogger("best_peer.runtime")

T = TypeVar("T")

LOOK_SECONDS: Final = 5.0
"""A program that fills a disk writes a few hundred megabytes meanwhile; the kernel stops it at 16."""
KILL_SECONDS: Final = 10.0
"""How long a killed program may take to be gone: the kernel frees its memory meanwhile."""
SLICE_SECONDS: Final = 0.5
"""How long one thread goes on killing before its task may be cancelled."""
MAX_SECRET: Final = 4096
THREADS: Final = 8
"""Threads that start and end programs at once; of their own, so that a slow disk stops nobody else."""
_KILLED: Final = 128 + signal.SIGKILL


@attrs.define(eq=False)
class ProcessRuntime:
    """Runtime of plain processes.

    Args:
        data: the peer's data folder.
        instance: the peer's own id, which all its processes bear.
        look_seconds: how often a program that runs is looked at, while it is waited for.
        kills: tells how many processes of a pid's control group the kernel has ended for want of memory.
    """

    data: Path
    instance: str
    look_seconds: float = LOOK_SECONDS
    kills: Callable[[int], OomKills | None] = oom_kills
    _watched: dict[str, Watched] = attrs.field(factory=dict, init=False)
    _turns: dict[str, trio.Lock] = attrs.field(factory=dict, init=False)
    _threads: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(THREADS), init=False, repr=False
    )

    @property
    def name(self) -> str:
        """The name `BEST_PEER_RUNTIME` chooses it by."""
        return "process"

    @property
    def isolation(self) -> Isolation:
        """Nothing but its user's rights stands between a process and the host."""
        return "process"

    @property
    def has_jobs(self) -> bool:
        """A job runs code that the owner did not write: that needs a box, and there is none here."""
        return False

    @property
    def images(self) -> None:
        """Programs of the host need none."""
        return None

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start the workload's program, or find the one already running under its id."""
        folder = self._folder(spec.workload)
        async with self._turn(spec.workload):
            watched = await self._look(spec.workload)
            if watched is None:
                # What an earlier program of this name left would share its card, and its label.
                await self._end_rest(spec.workload)
                # It begins in this process's own group.
                before = await self._run(lambda: self.kills(os.getpid()))
                record = await self._run(lambda: spawn(spec, folder, self.instance))
                watched = self._watched[spec.workload] = Watched(record, adopted=False)
                watched.note(before)
                logger.debug("started %s as process %d", spec.workload, record.identity.pid)
            return await self._run(lambda: self._handle(watched))

    async def find(self, workload: str) -> Handle | None:
        """The running program of a workload, None when there is none."""
        watched = await self._look(workload)
        return None if watched is None else await self._run(lambda: self._handle(watched))

    async def wait(self, workload: str) -> Exit:
        """Wait until the program has ended, whoever ended it, and everything it left has too."""
        watched = self._watched.get(workload) or await self._look(workload)
        if watched is None:
            await self._until_none(lambda: self._end_unwatched(workload))
            return await self._run(lambda: self._past(workload))
        # One task watches; the others, and whoever comes when it is cancelled, take their turn.
        async with watched.turn:
            if watched.exit is None:
                await self._until_dead(watched)
                await self._until_none(lambda: watched.end_rest(SLICE_SECONDS))
                watched.exit = await self._run(lambda: self._bury(watched))
            return watched.exit

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        """End the program and every process it left: ask, wait `grace_seconds`, kill."""
        async with self._turn(workload):
            watched = await self._look(workload)
            if watched is None:
                await self._end_rest(workload)
                return
            await self._run(lambda: watched.signal(signal.SIGTERM))
            with trio.move_on_after(grace_seconds):
                await self.wait(workload)
                return
            watched.killed = True
            await self._run(lambda: watched.signal(signal.SIGKILL))
            await self._end_rest(workload)

    async def tail(self, workload: str) -> tuple[str, ...]:
        """The last lines it wrote."""
        folder = self._folder(workload)
        return await self._run(lambda: output.read_tail(folder))

    async def discard(self, workload: str) -> None:
        """Remove the record, the output and the secrets of a workload that has ended."""
        folder = self._folder(workload)
        async with self._turn(workload):
            if await self._look(workload) is not None:
                raise RuntimeFault(f"{workload} still runs; stop it before its record is removed")
            await self._end_rest(workload)
            try:
                await self._run(lambda: shutil.rmtree(folder) if folder.exists() else None)
            except OSError as error:
                raise RuntimeFault(f"{folder} could not be removed: {error.strerror or error}") from error
            self._watched.pop(workload, None)
            if not self._turns[workload].statistics().tasks_waiting:
                del self._turns[workload]

    async def running(self) -> tuple[str, ...]:
        """The ids of all workloads of this peer's instance that run now, known or not."""
        return await self._run(self._running)

    async def kept(self) -> tuple[str, ...]:
        """The ids of all workloads of this peer's instance that left a folder or a process."""
        return await self._run(self._kept)

    async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
        """Of every workload that has a folder, and of what dead ones left; none where there is no /proc."""
        if not HAS_PROC:
            return {}
        watched = tuple(self._watched.items())
        return await self._run(lambda: self._all_processes(watched, among))

    async def processes(self, workload: str) -> frozenset[int]:
        """The program and what it started; empty where the system has no /proc."""
        watched = await self._look(workload)
        if watched is None:
            return frozenset()
        session = None if watched.adopted else watched.identity.pid
        return frozenset(await self._run(lambda: family.members(self.instance, workload, session)))

    def _all_processes(
        self, watched: Iterable[tuple[str, Watched]], among: frozenset[int] | None
    ) -> dict[str, frozenset[int]]:
        own = ((name, one) for name, one in watched if not one.adopted and one.is_running())
        sessions = {one.identity.pid: name for name, one in own}
        found = family.all_members(self.instance, sessions, among)
        return {name: frozenset(found.get(name, ())) for name in {*self._names(), *found}}

    async def _until_dead(self, watched: Watched) -> None:
        folder = self._folder(watched.record.workload)
        while True:
            with trio.move_on_after(self.look_seconds):
                await watched.ended()
                return
            watched.note(await self._run(lambda: self.kills(watched.identity.pid)))
            if await self._run(lambda: output.shorten(folder)):
                logger.debug("shortened the output of %s", watched.record.workload)

    def _bury(self, watched: Watched) -> Exit:
        """Take a dead program's code and write its end down. Blocks."""
        record = watched.record
        code = watched.reap()
        out_of_memory = code == _KILLED and not watched.killed and watched.oom_killed()
        folder = self._folder(record.workload)
        try:
            write_record(folder, attrs.evolve(record, ended=Ended(code, out_of_memory)))
        except OSError as error:
            logger.warning("the end of %s could not be written down: %s", record.workload, error)
        return Exit(code, output.read_tail(folder), out_of_memory)

    def _past(self, workload: str) -> Exit:
        """The end of a program that this object did not see. Blocks."""
        folder = self._folder(workload)
        record = read_record(folder)
        ended = None if record is None else record.ended
        lines = output.read_tail(folder)
        return Exit(None, lines) if ended is None else Exit(ended.code, lines, ended.out_of_memory)

    async def _look(self, workload: str) -> Watched | None:
        """The workload's living program, adopted where its record alone knows it."""
        known = self._watched.get(workload)
        if known is not None:
            return known if known.is_running() else None
        record = await self._run(lambda: self._read(workload))
        if record is None:
            return None
        # Another task may have adopted it during the read.
        return self._watched.setdefault(workload, Watched(record, adopted=True))

    def _read(self, workload: str) -> Record | None:
        """The record of a program of this peer that lives now. Blocks."""
        record = read_record(self._folder(workload))
        if record is None or record.ended is not None or record.instance != self.instance:
            return None
        return record if Watched(record, adopted=True).is_running() else None

    def _running(self) -> tuple[str, ...]:
        found = set(family.labelled(self.instance))
        found.update(name for name in self._names() if self._read(name) is not None)
        return tuple(sorted(found))

    def _kept(self) -> tuple[str, ...]:
        found = set(family.labelled(self.instance))
        for name in self._names():
            record = read_record(self._folder(name))
            # One that cannot be read is what a start left that was cut off.
            if record is None or record.instance == self.instance:
                found.add(name)
        return tuple(sorted(found))

    def _names(self) -> list[str]:
        """What the folders of this peer's workloads are named."""
        records = self.data / RECORDS
        names = [path.name for path in records.iterdir()] if records.is_dir() else []
        return [name for name in names if WORKLOAD_ID.fullmatch(name)]

    async def _end_rest(self, workload: str) -> None:
        """See a program that is dead or killed to its end, and kill what it left.

        Raises:
            NotEnded: some of it is still there.
        """
        with trio.move_on_after(KILL_SECONDS):
            await self.wait(workload)
            return
        raise NotEnded(f"{workload} was killed and some process of it is still there")

    async def _until_none(self, end: Callable[[], bool]) -> None:
        """Repeat a killing that is bounded, so that the task can be cancelled in between."""
        while not await self._run(end):
            await trio.lowlevel.checkpoint()

    def _end_unwatched(self, workload: str) -> bool:
        return family.end_family(self.instance, workload, None, seconds=SLICE_SECONDS)

    def _turn(self, workload: str) -> trio.Lock:
        """What starting, stopping and removing one workload take turns by."""
        return self._turns.setdefault(workload, trio.Lock())

    def _handle(self, watched: Watched) -> Handle:
        record = watched.record
        secret = None
        if record.secret is not None:
            try:
                with secret_path(self._folder(record.workload), record.secret).open("rb") as file:
                    secret = file.read(MAX_SECRET).decode("utf-8", "replace")
            except OSError:
                # The program runs on with its key; without it here, it will refuse and be found so.
                logger.warning("the key of %s cannot be read", record.workload)
        return Handle(
            workload=record.workload,
            holder=record.holder,
            base_url=f"http://127.0.0.1:{record.port}",
            secret=secret,
            adopted=watched.adopted,
            detail=record.detail,
        )

    def _folder(self, workload: str) -> Path:
        return record_path(self.data, workload)

    async def _run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._threads)
