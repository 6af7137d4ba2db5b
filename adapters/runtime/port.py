"""How a workload's program is started, found again, watched and ended (F21, F37).

Everything a runtime makes bears the peer's instance id and the workload's id, so that a restarted peer
finds it; recovery repeats every effect, so each one first looks whether it is already there.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, Protocol

import attrs

from adapters.images.port import Images

Isolation = Literal["process", "container", "user-namespace", "vm"]


class RuntimeFault(Exception):
    """Base of what a runtime may raise. The text is for people and names no secret."""


class StartFailed(RuntimeFault):
    """Raised when a program could not be started; nothing of it is left behind.

    `code` is `START_FAILED`, or what is known of it: `COMMAND_NOT_FOUND`, `NO_COMMAND`, `IMAGE_GONE`,
    `DEVICE_UNAVAILABLE`, `NO_ROOM`, `RUNTIME_UNAVAILABLE`.
    """

    def __init__(self, reason: str, *, fix: str, code: str = "START_FAILED") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.code = code


class RuntimeUnavailable(RuntimeFault):
    """Raised when what runs programs does not answer itself: then nothing is known of them."""


class NotEnded(RuntimeFault):
    """Raised when a program was killed and is still there: the wish to stop it has to be kept."""


API_KEY = "api-key"
"""The secret file whose content becomes `Handle.secret`."""


@attrs.frozen
class Executable:
    """A program of this machine.

    `argv` never carries a secret: it is readable by every user of the machine. `secret_files` are written
    by the runtime beside the workload's record, mode 0600, and named to the program as `{secret:NAME}`
    in `argv` or `environment` values, which the runtime replaces by the file's path. `{port}` becomes a
    free loopback port, which another program may take before this one does. `folder` is where it runs,
    so that what it prints need not name the owner's paths; None is the workload's own folder. `detail` is
    what the engine has to know again of this very start, beside what its plan settled.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    secret_files: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    folder: Path | None = None
    detail: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Mount:
    """A folder of the host that a container sees at `target`."""

    source: Path
    target: str
    is_read_only: bool = True


@attrs.frozen
class Container:
    """A program in an image, run confined: the image and the program have no say in it (F30, F31).

    Args:
        image: what the engine holds, as `adapters.images.port.Image.run` says.
        command: the program's arguments; None for the image's own. The image's entry point stays.
        environment: what it finds set. Variables that say which devices it sees are not passed on.
        secret: name and value of one more variable, the key the program asks its callers for; it becomes
            `Handle.secret`.
        port: where it listens inside, published on loopback alone; None when nobody calls it.
        mounts: folders of the host.
        tasks: processes and threads it may have at once; None is no ceiling.
        is_boxed: a tenant's job: read-only files, no network, nobody's user, half the cores; see F31. What
            is not boxed has a network, on which it reaches no other workload's container.
        shared_memory_bytes: size of its private `/dev/shm`, which counts in its memory; None is the
            engine's own size (64 MiB). A box keeps its own bound.
        detail: what the engine has to know again of this very start, beside what its plan settled.
    """

    image: str
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    secret: tuple[str, str] | None = attrs.field(default=None, repr=False)
    port: int | None = None
    mounts: tuple[Mount, ...] = ()
    tasks: int | None = 4096
    is_boxed: bool = False
    shared_memory_bytes: int | None = None
    detail: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class WorkloadSpec:
    """What to run for one workload.

    Args:
        workload: the workload's id, `dep-…` or `job-…`; the name it is found by.
        holder: whose it is.
        program: what to execute; which of the two a runtime takes is the engine's to know.
        device_uuids: the accelerators handed over, by UUID; a container sees no other.
        memory_bytes: host memory ceiling, swap counted in; None is no ceiling. The process runtime holds
            nothing to it.
        detail: what the engine needs to know of it again after a restart (no secrets), kept in the record:
            its plan's detail with its program's over it.
    """

    workload: str
    holder: str
    program: Executable | Container
    device_uuids: tuple[str, ...] = ()
    memory_bytes: int | None = None
    detail: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Handle:
    """A program that was started and can be reached.

    `base_url` is where the peer reaches it, empty for one that nobody calls. `secret` is what the engine
    asks for (its API key), never logged.
    """

    workload: str
    holder: str
    base_url: str
    secret: str | None = attrs.field(default=None, repr=False)
    adopted: bool = False
    detail: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Exit:
    """How a program ended. `code` is None when it is not known: an adopted program's always is.

    A program killed by signal N has code 128 + N. `output` is its last lines, oldest first.

    Args:
        out_of_memory: it was ended for want of memory, by the evidence of what ran it.
        lost_process: it went on, or ended by itself, after one of its processes was so ended.
        not_found: its command is not there, or is no program.
        interrupted: what ran it ended it as it went down or was started again itself: neither the program
            nor anybody who asked for its end. The code is then that of the signal.
        ended_at: when, RFC 3339, where what ran it knows.
        before: lines that stood before its last ones, 400 at most, where they are kept: for who looks for
            why an engine failed, since that is said well above the last line by some. Never told.
    """

    code: int | None
    output: tuple[str, ...] = ()
    out_of_memory: bool = False
    lost_process: bool = False
    not_found: bool = False
    interrupted: bool = False
    ended_at: str | None = None
    before: tuple[str, ...] = ()


@attrs.frozen
class Chunk:
    """What a container wrote at once, as its bytes are."""

    stream: Literal["out", "err"]
    data: bytes


@attrs.frozen
class EngineEvent:
    """What a container engine did on its own: `oom` or `die`, `code` where it says one."""

    workload: str
    kind: Literal["oom", "die"]
    code: int | None = None


class Runtime(Protocol):
    """Runs workloads. One instance a peer; every method may be cancelled at any await."""

    @property
    def name(self) -> str:
        """`docker`, `native`, `process` or `fake`, as `BEST_PEER_RUNTIME` chooses it."""
        ...

    @property
    def isolation(self) -> Isolation:
        """What stands between a workload and the host (F32)."""
        ...

    @property
    def has_jobs(self) -> bool:
        """Whether `run-job` can be served at all."""
        ...

    @property
    def images(self) -> Images | None:
        """What its containers are made of; None where programs need no image."""
        ...

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start the workload's program, or find the one already running under its id.

        A start that is cancelled may have happened; starting again finds it.

        Raises:
            StartFailed: it could not be started; nothing is left behind, or is ended when that can be done.
        """
        ...

    async def find(self, workload: str) -> Handle | None:
        """The running program of a workload, None when there is none.

        Raises:
            RuntimeUnavailable: that is not to be known now.
        """
        ...

    async def wait(self, workload: str) -> Exit:
        """Wait until the program has ended, whoever ended it, and everything it left has too.

        Returns at once for a workload that does not run; how it ended is known until it is discarded. Goes
        on waiting while what runs it does not answer. May be called by several tasks.
        """
        ...

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        """End the program and every process it left: ask, wait `grace_seconds`, kill.

        Returns when it is gone. Ending what does not run is no error, and ends what a program left
        that is gone itself.

        Raises:
            NotEnded: it did not end within ten seconds of being killed, or what runs it does not answer.
        """
        ...

    async def tail(self, workload: str) -> tuple[str, ...]:
        """The last lines it wrote: twenty at most, 2,000 characters at most in all, UTF-8 made safe."""
        ...

    async def discard(self, workload: str) -> None:
        """Remove the record, the output and the secrets of a workload that has ended.

        Raises:
            RuntimeFault: it still runs, or its folder cannot be removed.
        """
        ...

    async def running(self) -> tuple[str, ...]:
        """The ids of all workloads of this peer's instance that run now, known or not.

        One that `find` does not know is what a dead program left: `stop` ends it.
        """
        ...

    async def kept(self) -> tuple[str, ...]:
        """The ids of all workloads of this peer's instance that it keeps anything of, running or ended.

        What was only made and never started is among them: a record, a folder, a container. A peer killed
        between a workload's last fact and its `discard` leaves such; the next one discards it.

        Raises:
            RuntimeUnavailable: that is not to be known now.
        """
        ...

    async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
        """The processes of all that runs, by the host's pids, in one go however many workloads there are.

        One that is not there does not run, or its processes cannot be told from another program's.

        Args:
            among: look at these processes alone; what runs and has none of them is there with none.

        Raises:
            RuntimeUnavailable: that is not to be known now.
        """
        ...

    async def processes(self, workload: str) -> frozenset[int]:
        """A workload's processes by the host's pids; empty when none runs, or they are another program's.

        Raises:
            RuntimeUnavailable: that is not to be known now.
        """
        ...


class ContainerRuntime(Runtime, Protocol):
    """A runtime of containers, which can be looked into."""

    @property
    def images(self) -> Images:
        """What its containers are made of."""
        ...

    async def prepare(self, spec: WorkloadSpec) -> None:
        """Make the workload's container and start nothing; `start` with the same spec starts it.

        Raises:
            StartFailed: as `start`.
        """
        ...

    def follow(self, workload: str) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """What a container writes, out and error apart, to its end.

        Entered between `prepare` and `start` it misses no byte. Entered later it begins with the oldest
        output that is kept. Whoever reads slowly holds the container up: read on, or leave.

        Raises:
            RuntimeUnavailable: the engine went away; what follows is not to be had.
        """
        ...

    def events(self) -> AbstractAsyncContextManager[AsyncIterator[EngineEvent]]:
        """What the engine does to this peer's containers from now on.

        Raises:
            RuntimeUnavailable: the engine went away; look at each container, then listen again.
        """
        ...


RECORDS = "workloads"
"""Folder under the data folder where a runtime keeps what it must find again."""


WORKLOAD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""A workload's id; it names a folder."""


def record_path(data: Path, workload: str) -> Path:
    """Where a workload's record lies; a ValueError for a text that is no workload's id."""
    if WORKLOAD_ID.fullmatch(workload) is None:
        raise ValueError(f"{workload!r} is no workload's id")
    return data / RECORDS / workload
