"""A real Prometheus, of a test's own: Debian's program on loopback, asked by its own HTTP API.

`scripts/test` installs it; nothing of the machine's own Prometheus, if it has one, is used or seen.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs
import httpx

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

SECONDS = 60.0
"""A bound on a hang, no measure of speed."""
PACKAGE = "this test needs Prometheus: apt-get install prometheus, or run scripts/test as root"


def program(name: str) -> str:
    """Where `prometheus` or `promtool` is.

    Raises:
        AssertionError: it is not installed.
    """
    found = shutil.which(name)
    assert found is not None, PACKAGE
    return found


def promtool(*arguments: str, text: str | None = None) -> str:
    """What promtool says, which has to find no fault."""
    ran = subprocess.run(
        [program("promtool"), *arguments],
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    return said


def free_port() -> int:
    """A port of loopback that nobody has yet: Prometheus has to be told one."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@attrs.define(eq=False)
class Prometheus:
    """One that scrapes as its configuration says. Use as a context manager.

    Args:
        folder: its own.
        configuration: the text of its `prometheus.yml`.
    """

    folder: Path
    configuration: str
    _port: int = attrs.field(factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        settings = self.folder / "prometheus.yml"
        settings.write_text(self.configuration)
        promtool("check", "config", str(settings))
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={settings}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API that is a success; None where it does not answer yet."""
        assert self._process is not None
        log = (self.folder / "log").read_text
        assert self._process.poll() is None, log()
        try:
            url = f"http://127.0.0.1:{self._port}/api/v1/{path}"
            answer = httpx.get(url, params=parameters, trust_env=False, timeout=SECONDS)
        except httpx.ConnectError:
            return None
        if answer.status_code == 503:
            return None  # it is starting
        body = answer.json()
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What an expression gives now: each sample's labels and its value."""
        found = self.ask("query", query=expression)
        rows = [] if found is None else found["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def find(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The same, once it gives something: on a busy machine a scrape may come too late now and then."""
        return self.until(lambda: self.query(expression))

    def until(self, look: Callable[[], T | None]) -> T:
        """What a look finds, which is not nothing, once it does."""
        ends = time.monotonic() + SECONDS
        while not (found := look()):
            assert time.monotonic() < ends, (self.ask("targets"), (self.folder / "log").read_text())
            time.sleep(0.05)
        return found
