"""What tests of the commands share: a run of the program in this process, and a door to talk to."""

from __future__ import annotations

import json
import os
import ssl
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import pytest

from peer.__main__ import main
from peer.folder import DataFolder, DoorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 20.0
"""A bound on a hang, no measure of speed."""


@attrs.frozen
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be JSON alone."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """Standard error, which must be one line."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder that commands look into, not there yet; nothing else of the environment counts."""
    for name in [name for name in os.environ if name.startswith("BEST_PEER_")]:
        monkeypatch.delenv(name)
    path = tmp_path / "data"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BEST_PEER_DATA", str(path))
    return path


@pytest.fixture
def cli(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Runs one command line of `best-peer` in this process."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["best-peer", *arguments])
        code = main()
        told = capsys.readouterr()
        return Ran(code, told.out, told.err)

    return run


@attrs.frozen
class Request:
    """One request as the door got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


@attrs.define(eq=False)
class FakeDoor:
    """The owner's side of a door, with answers that a test lays down by `METHOD /path`."""

    folder: DataFolder
    port: int
    answers: dict[str, tuple[int, Any]] = attrs.field(factory=dict)
    """Status and JSON value; bytes are sent as they are."""
    requests: list[Request] = attrs.field(factory=list)

    def only(self) -> Request:
        """The one request there was."""
        assert len(self.requests) == 1, self.requests
        return self.requests[0]


@contextmanager
def serve_door(data: Path, certificate: Path | None = None, listen: str = "127.0.0.1") -> Iterator[FakeDoor]:
    """A door over a data folder, held as a peer holds it.

    Args:
        data: the folder.
        certificate: PEM with its key, for https.
        listen: the host that its record names.
    """
    with DataFolder.open(data) as folder:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.daemon_threads = False
        door = FakeDoor(folder, server.server_address[1])
        server.door = door  # type: ignore[attr-defined]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake is the handler's: a client that breaks it off must not break the accepting.
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        DoorRecord(
            endpoint="http://peer.example",
            listen=(f"{listen}:{door.port}",),
            certificate=None if certificate is None else str(certificate),
            pid=os.getpid(),
            version="0.1.0",
        ).write(folder.door)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield door
        finally:
            server.shutdown()
            thread.join(SECONDS)
            server.server_close()


@pytest.fixture
def door(data: Path) -> Iterator[FakeDoor]:
    """A door over plain http on loopback."""
    with serve_door(data) as made:
        yield made


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _answer(self) -> None:
        door: FakeDoor = self.server.door  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        door.requests.append(Request(self.command, self.path, headers, body))
        name = f"{self.command} {self.path.partition('?')[0]}"
        status, value = door.answers.get(name, (404, {"error": {"code": "NOT_FOUND", "message": name}}))
        answer = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(answer)
        self.close_connection = True


def refuse_to_be_asked(_: object) -> NoReturn:
    """In place of `confirm`, where nobody may be asked."""
    raise AssertionError("nobody was to be asked")
