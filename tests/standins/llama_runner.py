"""A real llama.cpp server as a child process: what a stand-in's answers come from.

With nothing but the standard library, since it runs in containers too.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "adapters" / "engine" / "xllama_server.py"
LOAD_SECONDS = 60.0


class RunnerEnded(Exception):
    """Raised when the server is not there any more."""


class LlamaRunner:
    """Serves one GGUF file with so many slots of so much context."""

    def __init__(self, model: Path, *, context: int, slots: int) -> None:
        self.port = _free_port()
        key = tempfile.NamedTemporaryFile("w", suffix=".key", delete=False)  # noqa: SIM115 - the server reads it
        self._key = secrets.token_urlsafe(16)
        with key:
            key.write(self._key)
        self._key_file = Path(key.name)
        options: dict[str, object] = {
            "site": _site(),
            "model": model,
            "alias": "model",
            "port": self.port,
            "key-file": key.name,
            "context": context * slots,
            "slots": slots,
            "threads": 1,
            "http-threads": 8,
        }
        argv = [sys.executable, "-I", "-S", str(SCRIPT)]
        for name, value in options.items():
            argv += [f"--{name}", str(value)]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def chat(self, question: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Ask in OpenAI's way; the status and what was answered.

        Raises:
            RunnerEnded: there is no answer.
        """
        return self._ask("POST", "/v1/chat/completions", {**question, "model": "model", "stream": False})

    def kill(self) -> None:
        """End it as the kernel ends what takes too much memory."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
        self._key_file.unlink(missing_ok=True)

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self.process.poll() is None

    def _wait(self) -> None:
        until = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < until:
            if not self.is_running:
                raise RunnerEnded(f"llama-server ended with code {self.process.returncode}")
            try:
                if self._ask("GET", "/health", None)[0] == 200:
                    return
            except RunnerEnded:
                pass
            time.sleep(0.02)
        raise RunnerEnded("llama-server did not become ready")

    def _ask(self, method: str, path: str, question: object) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LOAD_SECONDS)
        try:
            body = None if question is None else json.dumps(question)
            head = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
            connection.request(method, path, body, head)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException) as error:
            raise RunnerEnded(str(error)) from error
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _site() -> str:
    """The folder that the package with llama.cpp lies in."""
    for folder in map(Path, [*os.environ.get("PYTHONPATH", "").split(":"), *sys.path]):
        if (folder / "xllamacpp").is_dir():
            return str(folder)
    raise RunnerEnded("there is no xllamacpp here")
