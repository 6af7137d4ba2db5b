"""How a workload's program is started, found again, watched and ended (F21, F37).

Everything a runtime makes bears the peer's instance id and the workload's id, so that a restarted peer
finds it; recovery repeats every effect, so each one first looks whether it is already there.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

import attrs

Isolation = Literal["process", "container", "user-namespace", "vm"]


class RuntimeFault(Exception):
    """Base of what a runtime may raise. The text is for people and names no secret."""


class StartFailed(RuntimeFault):
    """Raised when a program could not be started; nothing of it is left behind."""

    def __init__(self, reason: str, *, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


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
    so that what it prints need not name the owner's paths; None is the workload's own folder.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    secret_files: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    folder: Path | None = None


@attrs.frozen
class WorkloadSpec:
    """What to run for one workload.

    Args:
        workload: the workload's id, `dep-…`; the name it is found by.
        holder: whose it is.
        program: what to execute.
        device_uuids: the devices handed over, by UUID.
        memory_bytes: host memory ceiling, where the owner set one; None is no ceiling. The runtime says
            what it can hold a program to.
        detail: what the engine needs to know of it again after a restart (no secrets), kept in the record.
    """

    workload: str
    holder: str
    program: Executable
    device_uuids: tuple[str, ...] = ()
    memory_bytes: int | None = None
    detail: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Handle:
    """A program that was started and can be reached.

    `base_url` is loopback alone. `secret` is what the engine asks for (its API key), never logged.
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
    """

    code: int | None
    output: tuple[str, ...] = ()
    out_of_memory: bool = False


class Runtime(Protocol):
    """Runs workloads. One instance a peer; every method may be cancelled at any await."""

    @property
    def name(self) -> str:
        """`process`, `fake`; later `docker`, `native`."""
        ...

    @property
    def isolation(self) -> Isolation:
        """What stands between a workload and the host (F32)."""
        ...

    @property
    def has_jobs(self) -> bool:
        """Whether `run-job` can be served at all."""
        ...

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start the workload's program, or find the one already running under its id.

        A start that is cancelled may have happened; starting again finds it.

        Raises:
            StartFailed: it could not be started; nothing is left behind.
        """
        ...

    async def find(self, workload: str) -> Handle | None:
        """The running program of a workload, None when there is none."""
        ...

    async def wait(self, workload: str) -> Exit:
        """Wait until the program has ended, whoever ended it, and everything it left has too.

        Returns at once for a workload that does not run. May be called by several tasks.
        """
        ...

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        """End the program and every process it left: ask, wait `grace_seconds`, kill.

        Returns when it is gone. Ending what does not run is no error, and ends what a program left
        that is gone itself.

        Raises:
            NotEnded: it did not end within ten seconds of being killed.
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


RECORDS = "workloads"
"""Folder under the data folder where a runtime keeps what it must find again."""


WORKLOAD_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""A workload's id; it names a folder."""


def record_path(data: Path, workload: str) -> Path:
    """Where a workload's record lies; a ValueError for a text that is no workload's id."""
    if WORKLOAD_ID.fullmatch(workload) is None:
        raise ValueError(f"{workload!r} is no workload's id")
    return data / RECORDS / workload
