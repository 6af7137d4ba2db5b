"""What every measurement is given: its scratch folder, how much to do, and servers and clients to start."""

from __future__ import annotations

import http.client
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from actors.state.keys import Grant
from tests.support.bench.child import Child, plain_environment
from tests.support.bench.figures import NotMeasured
from tests.support.bench.history import History, write_history, write_key
from tests.support.bench.wire import ID

READY_SECONDS = 60
MIB = 1 << 20


@attrs.frozen
class Door:
    """A served door and a key to it, for setting up what is measured."""

    port: int
    key: str

    def request(self, method: str, path: str, body: bytes = b"", accept: str = "application/json") -> bytes:
        """A request as raw bytes, for a client that sends nothing else."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nX-Api-Key: {self.key}\r\n"
        head += f"Accept: {accept}\r\n"
        if method == "POST":
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    def stream(self, query: str = "") -> str:
        """The request of an event stream."""
        return self.request("GET", f"/events/stream{query}", accept="text/event-stream").decode()

    def command(self, kind: str, data: dict[str, Any], name: str | None = None) -> bytes:
        """A command's envelope; without a name, one with the place for it."""
        return json.dumps(
            {
                "specversion": "1.0",
                "id": ID.decode() if name is None else name,
                "source": "urn:bench:client",
                "type": kind,
                "datacontenttype": "application/json",
                "dataschema": self._dataschema(kind),
                "time": "2026-10-19T12:00:00.000Z",
                "data": data,
            }
        ).encode()

    def get(self, path: str) -> Any:
        """An answer's JSON; NotMeasured where it is no success."""
        return self._call("GET", path)

    def text(self, path: str) -> str:
        """An answer's body as it stands; NotMeasured where it is no success."""
        return self._ask("GET", path).decode()

    def send(self, kind: str, data: dict[str, Any]) -> str:
        """Send a command; its correlation id."""
        name = str(uuid.uuid4())
        correlation: str = self._call("POST", "/commands", self.command(kind, data, name))["correlationId"]
        return correlation

    def deploy(self, model: str = "tiny", memory_bytes: int = 100 * MIB) -> str:
        """A deployment that is ready; its id."""
        correlation = self.send(
            "DeployModel", {"model": model, "engine": "llamacpp", "memory_bytes": memory_bytes}
        )
        ready = self.wait_for(correlation, "DeploymentReady", fails="DeploymentFailed")
        deployment: str = ready["deployment"]
        return deployment

    def wait_for(self, correlation: str, kind: str, *, fails: str | None = None) -> dict[str, Any]:
        """The data of the first fact of a type under a correlation."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for event in self.get(f"/events?correlationId={correlation}")["events"]:
                if event["type"] == kind:
                    data: dict[str, Any] = event["data"]
                    return data
                if event["type"] == fails:
                    raise NotMeasured(f"{fails}: {event['data']}")
            time.sleep(0.02)
        raise NotMeasured(f"no {kind} within {READY_SECONDS} s")

    def _dataschema(self, kind: str) -> str:
        listed = self.get("/commands")["commands"]
        return next(str(entry["dataschema"]) for entry in listed if entry["commandType"] == kind)

    def _call(self, method: str, path: str, body: bytes = b"") -> Any:
        return json.loads(self._ask(method, path, body))

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            headers = {"X-Api-Key": self.key, "Content-Type": "application/json"}
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise NotMeasured(f"{method} {path}: {answer.status} {text[:400].decode()}")
        return text


@attrs.frozen
class Served:
    """A peer in a process of its own, and its door."""

    child: Child
    door: Door


@attrs.define
class Bench:
    """One run of the benchmarks.

    Args:
        scratch: a folder on a disk, removed when the run ends.
        quick: small counts: a look whether everything works, whose figures mean nothing.
        grant: what the key to each served door may do.
    """

    scratch: Path
    quick: bool = False
    grant: Grant = attrs.field(factory=Grant)
    _million: History | None = None
    _folders: int = 0

    def pick(self, usual: int, quick: int) -> int:
        """A count: the usual one, or the one of a quick look."""
        return quick if self.quick else usual

    def folder(self, name: str) -> Path:
        """A new folder."""
        self._folders += 1
        made = self.scratch / f"{name}-{self._folders}"
        made.mkdir(mode=0o700)
        return made

    def history(self, facts: int) -> History:
        """A log of so many facts, commands and all, in a folder of its own."""
        self.say(f"writing {facts:,} facts")
        return write_history(self.folder("history"), facts)

    def million(self) -> History:
        """The long log, written once a run: do not change it."""
        if self._million is None:
            self._million = self.history(self.pick(1_000_000, 20_000))
        return self._million

    @contextmanager
    def served(
        self, data: Path | None = None, prepare: Callable[[Path], None] | None = None, /, **settings: str
    ) -> Iterator[Served]:
        """A peer that serves from `data`, a fresh folder without; on the fake runtime unless told.

        Args:
            data: a folder that may have a past, but no keys.
            prepare: puts more into it, once it has the key of the door that is handed out.
            settings: more `BEST_PEER_*` variables.
        """
        home = self.folder("peer")
        folder = data or home / "data"
        key = write_key(folder, self.grant)
        if prepare is not None:
            prepare(folder)
        chosen = {"BEST_PEER_GPU": "none", "BEST_PEER_RUNTIME": "fake", **settings}
        environment = plain_environment(home, **chosen)
        child = Child.start(["tests.support.bench.served", str(folder)], home, environment=environment)
        with child:
            port = child.answer(READY_SECONDS)["port"]
            yield Served(child, Door(port, key))

    def client(self) -> Child:
        """A client process, to be closed by who asked for it."""
        return Child.start(["tests.support.bench.load"], self.folder("client"))

    def say(self, what: str) -> None:
        """Tell the person who waits."""
        print(f"  {what}", file=sys.stderr, flush=True)
