"""Starting a dockerd that touches nothing of the host's own, and ending it wholly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import httpx

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 30.0
TAIL_LINES = 40


class EngineDidNotStart(Exception):
    """Raised when a dockerd does not answer; the text ends with its last lines."""


@attrs.define
class Engine:
    """A dockerd of a test's own.

    Args:
        folder: its socket, its pid file, its output (`dockerd.log`) and what lives while it runs.
        data: its data root.
        cgroup: parent of the control groups of its containers.
        flags: what else it is started with.
        environment: what is set in it beyond what is set here; a value of None leaves a variable out.
    """

    folder: Path
    data: Path
    cgroup: str
    flags: Sequence[str] = ()
    environment: dict[str, str] = attrs.field(factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """Where it listens; the path must stay below 108 bytes."""
        return self.folder / "docker.sock"

    @property
    def docker_host(self) -> str:
        """What `DOCKER_HOST` says to reach it."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """Of dockerd itself."""
        assert self._process, "this engine was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def client(self, timeout: float = 30.0) -> httpx.Client:
        """A plain client of its API, version and all; close it."""
        transport = httpx.HTTPTransport(uds=str(self.socket))
        return httpx.Client(transport=transport, base_url="http://engine", timeout=timeout, trust_env=False)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            EngineDidNotStart: it ended, or did not answer in a minute.
        """
        if self.is_running:
            return
        # What containerd and runc put aside for a moment stays when they are killed.
        aside = self.folder / "tmp"
        for folder in (self.folder, self.data, self.folder / "exec", aside):
            folder.mkdir(parents=True, exist_ok=True)
        nothing = self.folder / "daemon.json"
        nothing.write_text("{}")
        # After a kill -9 the pid is in its file still, and may be another process's by now.
        (self.folder / "dockerd.pid").unlink(missing_ok=True)
        argv = [
            "dockerd", "--config-file", str(nothing), "--host", self.docker_host,
            "--data-root", str(self.data), "--exec-root", str(self.folder / "exec"),
            "--pidfile", str(self.folder / "dockerd.pid"), "--cgroup-parent", self.cgroup,
            "--exec-opt", "native.cgroupdriver=cgroupfs", "--max-download-attempts", "1",
            "--shutdown-timeout", "5", *self.flags,
        ]  # fmt: skip
        with (self.folder / "dockerd.log").open("ab") as log:
            # In a session of its own, since Ctrl-C is for the tests, which end before it does.
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "TMPDIR": str(aside), **self.environment},
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                raise EngineDidNotStart(f"dockerd did not start; its last lines:\n{self.tail()}")
            time.sleep(0.02)

    def answers(self) -> bool:
        """Whether it answers now."""
        # Not by httpx, which leaves a socket open when nobody listens.
        with suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(5)
            asking.connect(str(self.socket))
            asking.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b" 200 " in asking.recv(64)
        return False

    def api_version(self) -> str:
        """The API version that it speaks."""
        with self.client() as client:
            return str(client.get("/version").raise_for_status().json()["ApiVersion"])

    def tail(self) -> str:
        """Its last lines."""
        log = self.folder / "dockerd.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(it wrote nothing)"]
        return "\n".join(lines[-TAIL_LINES:])

    def stop(self) -> None:
        """Ask it to end and wait until it has; a kill after half a minute."""
        if self._process is None:
            return
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it with kill -9 and wait until it has; what it ran goes on."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
