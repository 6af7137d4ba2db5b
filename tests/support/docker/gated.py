"""Programs in containers that wait for a test, and tests that wait for them: no moment is left to chance."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from adapters.runtime.port import Exit, Runtime
    from tests.support.runtimes import DockerWorld

_GATE: Final = "/tmp/go"
SHUT: Final = f"while [ ! -e {_GATE} ]; do sleep 0.05; done"
"""What a shell says that goes on once `open_gate` was called."""

HANG: Final = 60.0
"""A bound on a hang, no measure of speed."""


async def open_gate(runtime: Runtime, workload: str) -> None:
    """Let a program that waits at `SHUT` go on."""
    (pid, *_) = sorted(await runtime.processes(workload))
    os.mknod(f"/proc/{pid}/root{_GATE}")


async def run_once_started(world: DockerWorld, *command: str, memory: int, is_boxed: bool = False) -> Exit:
    """Run a job whose command begins only when its engine has answered that it started it; how it ended.

    An engine begins to look at a container's memory as it starts it: what runs out before, it may miss.
    """
    spec = world.job("sh", "-c", f'{SHUT}; exec "$@"', "sh", *command, memory=memory, is_boxed=is_boxed)
    with trio.fail_after(HANG):
        await world.runtime.start(spec)
        await open_gate(world.runtime, spec.workload)
        return await world.runtime.wait(spec.workload)


async def until_said(runtime: Runtime, workload: str, line: str) -> None:
    """Wait until the engine has kept a line that a program wrote."""
    with trio.fail_after(HANG):
        while line not in await runtime.tail(workload):  # noqa: ASYNC110 - a container sets no event
            await trio.sleep(0.02)
