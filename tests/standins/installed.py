"""An Ollama as it is installed on a machine: a process that comes and goes at one address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import attrs
import trio

from adapters.engine.json_http import JsonHttp
from adapters.engine.port import EngineUnreachable
from tests.standins.local import MODULES, OLLAMA, ROOT, python_environment

if TYPE_CHECKING:
    from pathlib import Path

START_SECONDS = 30.0


@attrs.define(eq=False)
class Installed:
    """The stand-in for Ollama on a loopback port of its own.

    Args:
        library: where it keeps its models.
        registry: where it pulls them from.
        more: further variables.
    """

    library: Path
    registry: Path
    more: dict[str, str] = attrs.field(factory=dict)
    port: int = attrs.field(init=False)
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Take a port that is free now."""
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port = bound.getsockname()[1]

    @property
    def base_url(self) -> str:
        """Where it listens when it runs."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        process = self._begin()
        with trio.fail_after(START_SECONDS):
            while not await self.answers():
                assert process.poll() is None, "the stand-in did not start"

    def _begin(self) -> subprocess.Popen[bytes]:
        environment = {
            **python_environment(),
            "OLLAMA_HOST": f"127.0.0.1:{self.port}",
            "OLLAMA_MODELS": str(self.library),
            "STANDIN_REGISTRY": str(self.registry),
            **self.more,
        }
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", MODULES[OLLAMA]],
            env=environment,
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return process

    async def answers(self) -> bool:
        """Whether it answers now."""
        async with JsonHttp() as http:
            try:
                return (await http.ask(self.base_url, "GET", "/api/version")).status == 200
            except EngineUnreachable:
                return False

    async def about(self) -> dict[str, Any]:
        """What was asked of it; see `ollama_server`."""
        return await self._ask("GET", "/standin", None)

    async def loaded(self) -> list[str]:
        """The models that are loaded."""
        found = (await self._ask("GET", "/api/ps", None))["models"]
        return [entry["name"] for entry in found]

    async def world(self, **does: Any) -> None:
        """Let something happen to it."""
        await self._ask("POST", "/standin", does)

    async def remove(self, model: str) -> None:
        """What `ollama rm` does."""
        await self._ask("DELETE", "/api/delete", {"model": model})

    def kill(self) -> None:
        """End it and what it started, at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    async def _ask(self, method: str, path: str, question: Any) -> dict[str, Any]:
        async with JsonHttp() as http:
            body = (await http.ask(self.base_url, method, path, question)).body
        return body if isinstance(body, dict) else {}
