"""The server under test: a whole peer as `best-peer` composes and serves it, and views that do nothing.

`python -m tests.support.bench.served DATA` with the `BEST_PEER_*` settings in its environment. What it says
first is where it listens; then it answers questions. The views beside the door go through the same server in
the same process, so that the two differ by what the door does and nothing else.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from socket import socket
from typing import Any

import trio
from quart import Response, request
from quart_trio import QuartTrio

from actors.kernel.services import Service, Services
from actors.messages import events as e
from actors.messages.envelope import Fact
from adapters.engine.fake import FakeEngine
from peer.compose import Peer, open_peer
from peer.door.limits import Limits
from peer.door.server import Server, bind
from peer.folder import DataFolder
from peer.lifecycle import Work
from peer.logs import configure_logging
from peer.requestlog import RequestLog
from peer.settings import Settings
from tests.support.bench import control
from tests.support.bench.history import HOLDER

NOTHING = "/nothing"
"""The path of the views that do nothing: GET answers a constant, POST reads its body first."""
ANSWER = b'{"id":"01234567890123456789","correlationId":"01234567890123456789"}'
DRAINED_SECONDS = 60


def do_nothing() -> QuartTrio:
    """The baseline: the smallest views there can be on the same framework, configured as the door's."""
    app = QuartTrio("nothing", static_folder=None)
    app.config.update(MAX_CONTENT_LENGTH=None, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None)

    @app.get(NOTHING)
    async def get() -> Response:
        return Response(ANSWER, 200, content_type="application/json")

    @app.post(NOTHING)
    async def post() -> Response:
        await request.get_data(as_text=False)
        return Response(ANSWER, 201, content_type="application/json")

    return app


class Beside:
    """The door, and at one path what does nothing."""

    def __init__(self, door: Any) -> None:
        self._door = door
        self._nothing: Any = do_nothing()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        app = self._nothing if scope["path"] == NOTHING else self._door
        await app(scope, receive, send)


class Questions:
    """What the measurement asks of this process."""

    def __init__(self, peer: Peer, server: Server) -> None:
        self._peer = peer
        self._server = server
        self._held: list[trio.Event] = []

    async def tell(self, question: dict[str, Any]) -> dict[str, Any]:
        """Tell `facts` facts in one batch, `times` over with a `pause` after each; the last one's id."""
        events = self._peer.house.store.events
        pause = question.get("pause", 0.0)
        fact = Fact(
            e.PromptAnswered("dep-0123456789abcdef01234567", "x" * 190, "tiny", 87, 40, "stop"),
            HOLDER,
            "0123456789abcdef",
            "0123456789abcdef",
        )
        for _ in range(question.get("times", 1)):
            await events.tell(*[fact] * question["facts"])
            if pause:
                await trio.sleep(pause)
        return {"last": f"evt-{events.end - 1}"}

    async def hold(self, _: dict[str, Any]) -> dict[str, Any]:
        """Let the fake engines answer no prompt for now."""
        await trio.lowlevel.checkpoint()
        self._held = [one.hold_answers() for one in self._engines()]
        return {}

    async def release(self, _: dict[str, Any]) -> dict[str, Any]:
        """Let them answer, and wait until every command has completed."""
        for event in self._held:
            event.set()
        with trio.fail_after(DRAINED_SECONDS):
            while self._peer.house.store.world.unfinished:  # noqa: ASYNC110 - nothing tells of an empty dict
                await trio.sleep(0.01)
        for engine in self._engines():
            engine.asked.clear()
        return {}

    async def authenticate(self, question: dict[str, Any]) -> dict[str, Any]:
        """Look a `secret` up `count` times; the seconds it took."""
        await trio.lowlevel.checkpoint()
        look, secret = self._peer.registrar.authenticate, question["secret"]
        begun = time.perf_counter()
        for _ in range(question["count"]):
            look(secret)
        return {"seconds": time.perf_counter() - begun}

    async def server(self, _: dict[str, Any]) -> dict[str, Any]:
        """How the server's clients fared."""
        await trio.lowlevel.checkpoint()
        statistics = self._server.statistics()
        return {
            "open": statistics.open,
            "dropped_slow_readers": statistics.dropped_slow_readers,
            "crashed": statistics.crashed_connections,
        }

    def handlers(self) -> dict[str, control.Handler]:
        """By their names."""
        return {
            **control.USAGE,
            "tell": self.tell,
            "hold": self.hold,
            "release": self.release,
            "authenticate": self.authenticate,
            "server": self.server,
        }

    def _engines(self) -> list[FakeEngine]:
        return [one for one in self._peer.house.engines.values() if isinstance(one, FakeEngine)]


async def _serve(settings: Settings, folder: DataFolder) -> None:
    sock = bind("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    async with open_peer(settings, folder, endpoint=f"http://127.0.0.1:{port}") as peer:
        await _answer_for(peer, sock)


async def _answer_for(peer: Peer, sock: socket) -> None:
    port: int = sock.getsockname()[1]
    server = Server(Beside(peer.app), sock, tls=None, limits=Limits(), on_request_done=RequestLog())
    services = Services(
        [
            Service("the log", peer.house.store.run, grace_seconds=2.0),
            Service("the workloads", Work(peer).run, peer.house.workers.stop, grace_seconds=1.5),
        ]
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(services.run)
        await nursery.start(server.run)
        # As the peer does when it is ready.
        gc.collect()
        gc.freeze()
        control.say({"port": port})
        await control.answer_questions(Questions(peer, server).handlers())
        peer.streams.end_everything()
        server.stop()
        services.stop()


def main(data: str) -> None:
    """Serve until stdin ends."""
    settings = Settings.read({**os.environ, "BEST_PEER_DATA": data})
    with configure_logging(settings.log), DataFolder.open(Path(data)) as folder:
        trio.run(_serve, settings, folder)


if __name__ == "__main__":
    main(sys.argv[1])
