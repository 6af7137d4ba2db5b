"""Peers for tests: one in this process over real sockets, and the program itself as another process.

`open_door` puts a whole peer together with the fake runtime and serves it; `PeerProcess` starts `best-peer`,
kills it and starts it again. Both hand out `Agent`s: a key, and a client that speaks for it.
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

import attrs
import httpx
import trio

import peer.compose
from actors.kernel.services import Service, Services
from adapters.clock.system import SystemClock
from adapters.engine.fake import FakeEngine
from adapters.runtime.fake import FakeRuntime
from peer import lifecycle
from peer.door.server import bind
from peer.folder import DataFolder, DoorRecord, read_admin_token
from peer.settings import Settings
from tests.support.agents import DEVICE_GRANT, Agent, plain_tls, sign_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from adapters.clock.fake import FakeClock
    from peer.compose import Peer

MODEL_BYTES = 1 << 20
START_SECONDS = 60.0
STOP_SECONDS = 20.0
"""Bounds on a hang, no measures of speed."""


def environment(folder: Path, port: int = 0, *, https: bool = False, path: str = "") -> dict[str, str]:
    """Settings of a peer with nothing real behind it, its data under `folder`.

    Args:
        folder: also its home.
        port: where it listens on loopback; 0 lets the system choose, which an https endpoint cannot say.
        https: with a certificate that the peer makes.
        path: the endpoint's.
    """
    environ = {
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "BEST_PEER_DATA": str(folder / "peer"),
        "BEST_PEER_GPU": "none",
        "BEST_PEER_RUNTIME": "fake",
        "BEST_PEER_LISTEN": f"127.0.0.1:{port}",
    }
    if https or path:
        environ["BEST_PEER_ENDPOINT"] = f"{'https' if https else 'http'}://127.0.0.1:{port}{path}"
    return environ


@attrs.define(eq=False)
class OpenDoor:
    """A peer that serves in this process. Clients made by it live as long as it."""

    peer: Peer
    endpoint: str
    admin_token: str = attrs.field(repr=False)
    tls: ssl.SSLContext
    services: Services
    front: lifecycle.Front
    _clients: list[httpx.AsyncClient] = attrs.field(factory=list)

    @property
    def runtime(self) -> FakeRuntime:
        """Where its workloads seem to run."""
        runtime = self.peer.house.runtime
        assert isinstance(runtime, FakeRuntime)
        return runtime

    def engine(self, name: str = "llamacpp") -> FakeEngine:
        """One of its engines."""
        engine = self.peer.house.engines[name]
        assert isinstance(engine, FakeEngine)
        return engine

    def client(self, **headers: str) -> httpx.AsyncClient:
        """A client of its own connections."""
        client = httpx.AsyncClient(
            base_url=self.endpoint,
            verify=self.tls,
            trust_env=False,
            timeout=httpx.Timeout(20, read=None),
            headers=headers,
        )
        self._clients.append(client)
        return client

    async def admin(self, method: str, name: str, **more: Any) -> httpx.Response:
        """One request as the owner."""
        headers = {"authorization": f"Bearer {self.admin_token}"}
        return await self.client().request(method, f"/admin/{name}", headers=headers, **more)

    async def approve(self, user_code: str, **grant: Any) -> httpx.Response:
        """Let an agent in as the owner would."""
        return await self.admin("POST", "approve", json={"user_code": user_code, **grant})

    async def sign_in(self, connection: str | None = None, **grant: Any) -> Agent:
        """A key by the device flow, approved with `grant` (nothing: it may do everything)."""
        answer = await sign_in(self.client(), self.approve, connection, **grant)
        return self.agent(answer["access_token"], answer["tenant_id"])

    def agent(self, key: str, holder: str = "") -> Agent:
        """Who holds a key: after a restart, say."""
        return Agent(self.client(**{"x-api-key": key}), key, holder, self.endpoint, self.tls)

    async def deploy(self, agent: Agent, memory_bytes: int = MODEL_BYTES, **data: Any) -> str:
        """A deployment that is ready."""
        sent = {"model": "small", "engine": "llamacpp", "memory_bytes": memory_bytes, **data}
        correlation = await agent.command("DeployModel", sent)
        ready = await agent.wait_for("DeploymentReady", correlation)
        deployment: str = ready["data"]["deployment"]
        return deployment

    async def close_clients(self) -> None:
        """Close every connection of every client."""
        while self._clients:
            await self._clients.pop().aclose()


@asynccontextmanager
async def open_door(
    folder: Path,
    *,
    https: bool = False,
    path: str = "",
    clock: FakeClock | None = None,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[OpenDoor]:
    """Serve a peer until the block is left, then stop it as a signal would.

    Args:
        folder: where its data lies; the same folder again is a restart.
        https: with a certificate that the peer makes.
        path: the endpoint's.
        clock: its wall clock, the system's if None.
        settings: more `BEST_PEER_*` variables.
    """
    sock = bind("127.0.0.1", 0)
    environ = environment(folder, sock.getsockname()[1], https=https, path=path)
    chosen = Settings.read({**environ, **(settings or {})})
    with DataFolder.open(chosen.data) as data:
        source = lifecycle.certificate_source(chosen, data, chosen.endpoint)
        shown = None if source is None else lifecycle._load(source)
        async with AsyncExitStack() as stack:
            with patch.object(peer.compose, "SystemClock", SystemClock if clock is None else lambda: clock):
                opened = peer.compose.open_peer(chosen, data, endpoint=str(chosen.endpoint))
                made = await stack.enter_async_context(opened)
            front = lifecycle.Front(made, sock, shown)
            services = Services(
                [
                    Service("the log", made.house.store.run, grace_seconds=2.0),
                    Service("the workloads", lifecycle.Work(made).run, made.house.workers.stop),
                    Service("the door", front.run, front.stop, grace_seconds=2.5),
                ]
            )
            trusted = plain_tls() if shown is None else ssl.create_default_context(cafile=shown.certificate)
            door = OpenDoor(made, str(chosen.endpoint), data.admin_token, trusted, services, front)
            async with trio.open_nursery() as nursery:
                await nursery.start(services.run)
                try:
                    yield door
                finally:
                    with trio.CancelScope(shield=True):
                        await door.close_clients()
                    services.stop()


@attrs.define(eq=False)
class PeerProcess:
    """The program `best-peer` in a process of its own; start it again for a restart.

    Blocks, so it is for tests in plain functions and threads. Use as a context manager: a process that is
    still there at the end is killed.
    """

    folder: Path
    settings: Mapping[str, str] = attrs.field(factory=dict)
    https: bool = False
    process: subprocess.Popen[str] | None = None
    door: DoorRecord | None = None
    ready_line: str = ""
    """What it printed once its door was open."""
    _port: int = 0

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "peer"

    @property
    def log(self) -> Path:
        """What it wrote to stderr, over all starts."""
        return self.folder / "peer.log"

    @property
    def endpoint(self) -> str:
        """Its door's address, known while it serves."""
        assert self.door is not None
        return self.door.endpoint

    @property
    def tls(self) -> ssl.SSLContext:
        """What a client needs to trust it."""
        if self.door is None or self.door.certificate is None:
            return plain_tls()
        return ssl.create_default_context(cafile=self.door.certificate)

    def start(self) -> Self:
        """Start it, and wait until its door is open."""
        if self.https and not self._port:
            with bind("127.0.0.1", 0) as sock:
                self._port = sock.getsockname()[1]
        environ = {**environment(self.folder, self._port, https=self.https), **self.settings}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "peer"],
                env=environ,
                cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        hangs = threading.Timer(START_SECONDS, self.process.kill)
        hangs.start()
        try:
            line = self.process.stdout.readline()
        finally:
            hangs.cancel()
        assert "is serving its door" in line, self.log.read_text()
        self.ready_line = line
        self.door = DoorRecord.read(self.data / "door.json")
        return self

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """End it as its owner would; its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(STOP_SECONDS)
        self.process.stdout.close()
        return code

    def client(self, **headers: str) -> httpx.Client:
        """A client of its door; the caller closes it."""
        return httpx.Client(
            base_url=self.endpoint, verify=self.tls, trust_env=False, timeout=20, headers=headers
        )

    def approve(self, client: httpx.Client, user_code: str, **grant: Any) -> None:
        """Let an agent in, with the admin token in the data folder."""
        headers = {"authorization": f"Bearer {read_admin_token(self.data)}"}
        body = {"user_code": user_code, **grant}
        answer = client.post("/admin/approve", json=body, headers=headers)
        assert answer.status_code == 200, answer.text

    def poll(self, client: httpx.Client, device_code: str) -> httpx.Response:
        """Ask once for the key of a sign-in that `best-mcp` began."""
        form = {"grant_type": DEVICE_GRANT, "device_code": device_code, "client_id": "best-mcp"}
        return client.post("/oauth/token", data=form)

    def sign_in(self, **grant: Any) -> str:
        """A key."""
        with self.client() as client:
            begun = client.post("/oauth/device", data={"client_id": "best-mcp"}).json()
            self.approve(client, begun["user_code"], **grant)
            key: str = self.poll(client, begun["device_code"]).json()["access_token"]
            return key

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        if self.process is not None:
            self.kill()


def listen(client: httpx.Client, correlation: str, *, until: str) -> list[dict[str, Any]]:
    """Every event under a correlation up to the first of a type, told already or still to come."""
    told: list[dict[str, Any]] = []
    parameters, headers = {"correlationId": correlation}, {"last-event-id": "from the beginning"}
    with client.stream("GET", "/events/stream", params=parameters, headers=headers) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                told.append(json.loads(line.removeprefix("data: ")))
                if told[-1]["type"] == until:
                    break
    return told
