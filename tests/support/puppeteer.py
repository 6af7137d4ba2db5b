"""Tells `puppet.py` what to do, and makes the workloads that run it."""

import json
import sys
from pathlib import Path
from typing import Any

import attrs
import trio

from adapters.runtime.port import API_KEY, Executable, Handle, WorkloadSpec

PUPPET = Path(__file__).with_name("puppet.py")
SECRET = "sk-never-in-argv"


def puppet(workload: str = "dep-1", **changes: Any) -> WorkloadSpec:
    """A workload whose program is the puppet."""
    spec = WorkloadSpec(
        workload=workload,
        holder="h-1",
        program=Executable(
            argv=(sys.executable, "-I", "-S", str(PUPPET), "{port}", "{secret:api-key}"),
            secret_files={API_KEY: SECRET},
        ),
        detail={"model": "tiny"},
    )
    return attrs.evolve(spec, **changes)


async def tell(handle: Handle, order: str, argument: Any = None) -> Any:
    """Have a puppet do something; what it answers, None when it ended instead."""
    port = int(handle.base_url.rpartition(":")[2])
    with trio.fail_after(30):
        stream = await _connect(port)
        async with stream:
            try:
                await stream.send_all(json.dumps([order, argument]).encode() + b"\n")
                answer = b"".join([part async for part in stream])
            except trio.BrokenResourceError:
                return None
    return json.loads(answer) if answer else None


async def _connect(port: int) -> trio.SocketStream:
    while True:
        try:
            return await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:  # It has not yet begun to listen.
            await trio.sleep(0.01)


async def until_gone(pid: int) -> None:
    """Wait until a process is no more, or is a zombie."""
    with trio.fail_after(30):
        while lives(pid):  # noqa: ASYNC110 - another process sets no event
            await trio.sleep(0.01)


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return raw.rpartition(")")[2].split()[0] not in "ZX"
