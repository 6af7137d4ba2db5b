"""Stand-ins as plain processes of this machine, started by what an engine says of its container."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from adapters.runtime.port import API_KEY, Container, Executable, Handle
from adapters.runtime.process import ProcessRuntime

if TYPE_CHECKING:
    from adapters.runtime.port import WorkloadSpec

ROOT = Path(__file__).resolve().parents[2]
OLLAMA = "stand-in/ollama"
VLLM = "stand-in/vllm"
MODULES = {OLLAMA: "tests.standins.ollama_server", VLLM: "tests.standins.vllm_server"}


@attrs.define(eq=False)
class LocalRuntime(ProcessRuntime):
    """Runs the containers of stand-ins without a container engine.

    Args:
        more: variables that the stand-ins find beside those of their containers, as an image brings them.
    """

    more: dict[str, str] = attrs.field(factory=dict)

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start the stand-in that the image names, on a loopback port instead of its own."""
        program = spec.program
        if isinstance(program, Container):
            program = self._local(program, spec.workload)
        return await super().start(attrs.evolve(spec, program=program))

    def _local(self, container: Container, workload: str) -> Executable:
        environment = {**python_environment(), **self.more, **container.environment}
        for mount in container.mounts:
            environment = {
                name: str(mount.source) if value == mount.target else value
                for name, value in environment.items()
            }
        if container.image == OLLAMA:
            environment["OLLAMA_HOST"] = "127.0.0.1:{port}"
            environment.setdefault("OLLAMA_MODELS", str(self.data / f"{workload}-models"))
        command = list(container.command or ())
        for option, value in (("--host", "127.0.0.1"), ("--port", "{port}")):
            if option in command:
                command[command.index(option) + 1] = value
        secret_files = {}
        if container.secret is not None:
            name, key = container.secret
            environment[name] = secret_files[API_KEY] = key
        return Executable(
            argv=(sys.executable, "-m", MODULES[container.image], *command),
            environment=environment,
            secret_files=secret_files,
            folder=ROOT,
        )


def python_environment() -> dict[str, str]:
    """What a program of this tree needs to find its modules."""
    site = [path for path in sys.path if path.endswith("site-packages")]
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *site]), "PATH": os.environ.get("PATH", "")}
