"""The other end of a `Child`, in a process that runs Trio: questions in on stdin, answers out on stdout."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import trio

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def answer_questions(handlers: Mapping[str, Handler]) -> None:
    """Answer each question by the handler that its `do` names, until stdin ends."""
    stdin = trio.lowlevel.FdStream(os.dup(0))
    received = b""
    async with stdin:
        while got := await stdin.receive_some():
            *lines, received = (received + bytes(got)).split(b"\n")
            for line in lines:
                question = json.loads(line)
                say(await handlers[question["do"]](question))


def say(answer: Mapping[str, Any]) -> None:
    """Write one answer."""
    print(json.dumps(answer), flush=True)


async def cpu(_: dict[str, Any]) -> dict[str, Any]:
    """Processor time of this process in seconds, its threads' too."""
    await trio.lowlevel.checkpoint()
    return {"cpu": time.process_time()}


async def memory(_: dict[str, Any]) -> dict[str, Any]:
    """Its memory in bytes. Asked apart from the processor time, because the collection costs some."""
    await trio.lowlevel.checkpoint()
    return {"memory": resident_bytes()}


USAGE: Mapping[str, Handler] = MappingProxyType({"cpu": cpu, "memory": memory})


def resident_bytes() -> int:
    """Memory of this process that is its own, in bytes, after a collection."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status says no RssAnon")
