"""A peer that starts a puppet and is killed at a chosen moment: `crashing_peer.py DATA INSTANCE MOMENT`."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from adapters.runtime import spawn
from adapters.runtime.process import ProcessRuntime
from tests.support.puppeteer import puppet

MOMENTS = {
    "before the process": "_start_launcher",
    "before the record": "write_record",
    "before the order": "_send",
    "after the order": "_await_exec",
}


def die(*_: Any, **__: Any) -> None:
    """What `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(data: str, instance: str, moment: str) -> None:
    """Start, and die on the way or at once after."""
    step: str | None = MOMENTS.get(moment)
    if step is not None:
        replacement: Callable[..., None] = die
        setattr(spawn, step, replacement)
    trio.run(ProcessRuntime(Path(data), instance).start, puppet())
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
