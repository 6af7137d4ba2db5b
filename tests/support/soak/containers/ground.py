"""Where it happens: an engine, a registry and a peer to be killed, and the wires between them."""

from __future__ import annotations

import json
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import trio

from adapters.runtime.docker.labels import network_name
from tests.support.agents import envelope, plain_tls
from tests.support.docker.contents import build_image, files_layer
from tests.support.docker.images import Image, make_image
from tests.support.docker.layers import Layer
from tests.support.docker.own import OwnEngine, OwnRegistry, open_own_engine, own_registry
from tests.support.docker.proxy import RegistryProxy, open_proxy
from tests.support.docker.registry import put_image
from tests.support.peers import PeerProcess
from tests.support.soak import checks

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from tests.support.docker.bed import DockerBed
    from tests.support.soak.history import Fact

HANG = 120.0
"""A bound on a hang, no measure of speed."""

LOOK_SECONDS = 0.02
NOISE_BYTES = 400_000
OLLAMA = "soak/ollama"
PACE = {"BEST_PEER_COMMANDS_PER_MINUTE": "1000000", "BEST_PEER_LOG": "info,door=warning"}


class Hung(Exception):
    """Raised when what was waited for did not come."""


@attrs.define(eq=False)
class Runs:
    """Counts the runs of jobs' programs: each connects to it, says its name, and ends when it is let go."""

    port: int = 0
    told: list[str] = attrs.field(factory=list)
    _begun: dict[str, trio.Event] = attrs.field(factory=dict)
    _let_go: dict[str, trio.Event] = attrs.field(factory=dict)

    def command(self, name: str, gateway: str) -> list[str]:
        """A job that says its name here."""
        return ["sh", "-c", f"echo {name} | nc {gateway} {self.port} > /dev/null; exit 7"]

    def begun(self, name: str) -> trio.Event:
        """Set once it runs."""
        return self._begun.setdefault(name, trio.Event())

    def let_go(self, name: str) -> None:
        """Let it end, now and whenever it runs."""
        self._let_go.setdefault(name, trio.Event()).set()

    async def serve(
        self, host: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen on the bridge that the engine's containers are at."""
        (listener,) = await trio.open_tcp_listeners(0, host=host)
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._run, [listener])

    async def _run(self, stream: trio.SocketStream) -> None:
        try:
            said = b""
            while not said.endswith(b"\n"):
                piece = await stream.receive_some(100)
                if not piece:
                    return
                said += piece
            name = said.decode().strip()
            self.told.append(name)
            self.begun(name).set()
            await self._let_go.setdefault(name, trio.Event()).wait()
        except trio.BrokenResourceError:
            return  # its container was killed


@attrs.define(eq=False)
class Ground:
    """All of it, and an agent that may do everything.

    Args:
        engine: to be killed.
        wire: between the peer and the engine.
        registry: to be killed.
        shelf: between the engine and the registry.
        peer: to be killed.
        runs: what counts the runs of jobs.
        chance: of what makes one image another.
        accepted: the type of each command that was accepted, by its id.
        forgotten: processes of containerd's that an engine which was killed knows no more.
    """

    engine: OwnEngine
    wire: RegistryProxy
    registry: OwnRegistry
    shelf: RegistryProxy
    peer: PeerProcess
    runs: Runs
    chance: random.Random
    _bed: DockerBed
    _ollama: Image
    accepted: dict[str, str] = attrs.field(factory=dict)
    forgotten: set[int] = attrs.field(factory=set)
    _http: httpx.AsyncClient | None = None

    @property
    def gateway(self) -> str:
        """Where containers reach the machine."""
        name = self.engine.bridge.removeprefix("bp-")
        return f"10.{int(name[:2], 16)}.{int(name[2:4], 16)}.1"

    @property
    def network(self) -> str:
        """The peer's own."""
        return network_name((self.peer.data / "instance").read_text().strip())

    def facts(self) -> list[Fact]:
        """Every fact that was told, as they lie on the disk."""
        return checks.facts_of(checks.log_bytes(self.peer.data))

    def caused_by(self, command: str) -> list[Fact]:
        """Those that a command caused."""
        return [fact for fact in self.facts() if fact.get("causationid") == command]

    async def fact(self, told: Callable[[], list[Fact]], kinds: Iterable[str]) -> Fact:
        """Wait for the first fact of these types.

        Raises:
            Hung: it does not come.
        """
        kinds = frozenset(kinds)
        with trio.move_on_after(HANG):
            while True:
                if found := next((fact for fact in told() if fact["type"] in kinds), None):
                    return found
                await trio.sleep(LOOK_SECONDS)
        raise Hung(f"none of {sorted(kinds)} was told in {HANG:.0f} s, but {[f['type'] for f in told()]}")

    async def known(self, fact: Fact) -> None:
        """Wait until the door tells a fact that lies on the disk: the peer acts on it only then.

        Raises:
            Hung: it does not.
        """
        assert self._http is not None
        parameters = {"correlationId": fact["correlationid"], "limit": 500}
        with trio.move_on_after(HANG):
            while True:
                answer = await self._http.get("/events", params=parameters)
                if fact in answer.raise_for_status().json()["events"]:
                    return
                await trio.sleep(LOOK_SECONDS)
        raise Hung(f"the door does not tell {fact}")

    async def publish(self, work: str, name: str) -> str:
        """An image that the engine has not got whole; its reference, the one setting's for deploys."""
        noise = files_layer({"/noise": self.chance.randbytes(NOISE_BYTES)})
        if work == "job":
            image, repository = build_image(noise), f"soak/{name}"
        else:
            image, repository = above(self._ollama, noise), OLLAMA
        await trio.to_thread.run_sync(put_image, self._bed.registry.address, image, repository)
        return f"{self.shelf.address}/{repository}:latest"

    async def send(self, kind: str, data: dict[str, Any]) -> str:
        """A command that is accepted; its id."""
        assert self._http is not None
        made = envelope(self.peer.endpoint, kind, data)
        with trio.fail_after(HANG):
            answer = await self._http.post("/commands", json=made)
        if answer.status_code != 201:
            raise Hung(f"{kind} was answered {answer.status_code}: {answer.text}")
        self.accepted[made["id"]] = kind
        identifier: str = made["id"]
        return identifier

    async def query(self, name: str) -> dict[str, Any]:
        """A query's answer."""
        assert self._http is not None
        with trio.fail_after(HANG):
            answer = await self._http.get(f"/queries/{name}")
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    async def sign_in(self) -> None:
        """Get the key that is used from now on."""
        key = await trio.to_thread.run_sync(self.peer.sign_in)
        self._http = httpx.AsyncClient(
            base_url=self.peer.endpoint,
            verify=plain_tls(),
            trust_env=False,
            timeout=20,
            headers={"x-api-key": key},
            # None is kept: they end with the peer.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        """End the peer."""
        if self._http is not None:
            await self._http.aclose()
        if self.peer.process is not None and self.peer.process.poll() is None:
            await trio.to_thread.run_sync(self.peer.kill)


def above(image: Image, *layers: Layer) -> Image:
    """An image with more layers on top."""
    diff_ids = json.loads(image.blobs[0].path.read_bytes())["rootfs"]["diff_ids"]
    below = [
        Layer(blob.digest, blob.size, blob.path, diff_id)
        for blob, diff_id in zip(image.layers, diff_ids, strict=True)
    ]
    return make_image([*below, *layers], image.config)


@asynccontextmanager
async def open_ground(
    bed: DockerBed, folder: Path, ollama: Image, chance: random.Random, *, is_kept: bool
) -> AsyncIterator[Ground]:
    """Everything started, with the lower layers of the images held by the engine."""
    await trio.Path(folder).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with own_registry(bed) as registry:
        async with (
            open_own_engine(bed, *(["--live-restore"] if is_kept else [])) as engine,
            open_proxy(registry.address) as shelf,
            open_proxy(str(engine.socket)) as wire,
            trio.open_nursery() as nursery,
        ):
            for image, name in ((ollama, "soak/base-ollama"), (bed.images["shell"], "soak/base-shell")):
                put_image(bed.registry.address, image, name)
                await trio.to_thread.run_sync(engine.pull, f"{bed.registry.address}/{name}:latest")
            settings = {
                "BEST_PEER_GPU": "none",
                "BEST_PEER_RUNTIME": "docker",
                "DOCKER_HOST": f"tcp://{wire.address}",
                "BEST_PEER_OLLAMA_IMAGE": f"{shelf.address}/{OLLAMA}:latest",
                **PACE,
            }
            peer = PeerProcess(folder, settings, port=port)
            ground = Ground(engine, wire, registry, shelf, peer, Runs(), chance, bed, ollama)
            await nursery.start(partial(ground.runs.serve, ground.gateway))
            try:
                await trio.to_thread.run_sync(peer.start)
                await ground.sign_in()
                yield ground
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + HANG):
                    await ground.close()
                nursery.cancel_scope.cancel()
