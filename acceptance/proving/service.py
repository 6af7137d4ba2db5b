"""A peer of this run's own: started with a folder of its own, asked through its door, stopped, cleaned up."""

import os
import shlex
import signal
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acceptance.discovery import Surface, read_manifest
from acceptance.display import Display
from acceptance.facts import Fact, FactReader
from acceptance.names import Names
from acceptance.problems import Faulty, Refused
from acceptance.signin import sign_in
from acceptance.stream import Follower
from acceptance.transcript import Transcript
from acceptance.wire import Wire

SERVES = "is serving its door"
START_SECONDS = 60.0
STOP_SECONDS = 8.0
CONNECTION = "prove-on-gpu"
SOURCE = "urn:prove-on-gpu"


class Service:
    """The program, as its owner runs it.

    Args:
        program: `best-peer`.
        folder: of this run; its data and its log lie there.
        settings: beside where it listens and where its data lie.
    """

    def __init__(self, program: Path, folder: Path, settings: dict[str, str]) -> None:
        self.program = program
        self.data = folder / "data"
        self.log = folder / "log"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            Refused: it ended instead, with its own last line.
        """
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{bound.getsockname()[1]}"
        self.endpoint = f"https://{address}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BEST_PEER_")}
        environment = {
            **kept,
            **self._settings,
            "BEST_PEER_DATA": str(self.data),
            "BEST_PEER_LISTEN": address,
            "BEST_PEER_ENDPOINT": self.endpoint,
        }
        with self.log.open("ab") as log:
            # In a session of its own: Ctrl-C is for this run, which stops it in its turn.
            self._process = subprocess.Popen(
                [str(self.program)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while SERVES not in self.said():
            if self._process.poll() is not None:
                lines = self.lines()
                raise Refused(f"the peer did not start: {lines[-1] if lines else 'it said nothing'}")
            if time.monotonic() > until:
                raise Refused(f"the peer did not serve within {START_SECONDS:.0f} s")
            time.sleep(0.1)

    def stop(self) -> int | None:
        """Ask it to end, and insist; its code, None where it had to be killed or never ran."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def said(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def lines(self) -> list[str]:
        """The same, by lines."""
        return self.said().splitlines()

    @property
    def certificate(self) -> Path:
        """The one it made itself."""
        return self.data / "tls" / "cert.pem"

    @property
    def instance(self) -> str | None:
        """The id that its containers bear; None before it has one."""
        path = self.data / "instance"
        return path.read_text().strip() if path.exists() else None

    @property
    def approve(self) -> str:
        """The owner's word for a sign-in, as a command."""
        return shlex.join(["env", f"BEST_PEER_DATA={self.data}", str(self.program)]) + " approve {code} --yes"


@dataclass(frozen=True)
class Done:
    """A command with its facts: each with the seconds since it was sent."""

    facts: tuple[tuple[float, Fact], ...]

    @property
    def last(self) -> Fact:
        """What completed it, or ended it."""
        return self.facts[-1][1]

    def first(self, kind: str) -> Fact | None:
        """The first fact of a kind."""
        return next((fact for _, fact in self.facts if fact.kind == kind), None)

    def seconds(self, kind: str) -> float | None:
        """When the first fact of a kind came."""
        return next((seconds for seconds, fact in self.facts if fact.kind == kind), None)

    def told(self) -> list[tuple[float, str, dict[str, Any]]]:
        """For the report."""
        return [(seconds, fact.kind, fact.data) for seconds, fact in self.facts]


class DoorClient:
    """Who uses the peer: signed in, and speaking through its door alone.

    Args:
        service: the peer.
        names: told what to hide.
        display: shows what happens.
    """

    def __init__(self, service: Service, names: Names, display: Display) -> None:
        self._display = display
        # Kept in memory and thrown away: words are in it.
        transcript = Transcript(names)
        self._wire = Wire(transcript, service.certificate)
        self._surface: Surface = read_manifest(self._wire, service.endpoint)
        sign_in(
            self._wire,
            self._surface,
            display,
            names,
            connection=CONNECTION,
            approve_with=service.approve,
        )
        self._reader = FactReader(self._wire, self._surface)
        entries = self._wire.document(self._surface.url("commands"))["commands"]
        self._commands = {str(entry["schema"]): entry for entry in entries}

    def close(self) -> None:
        """End every connection."""
        self._wire.close()

    def offers(self, command: str) -> bool:
        """Whether the peer takes a command from this key."""
        return command in self._commands

    def query(self, name: str) -> Any:
        """A query's answer."""
        answer = self._wire.get(self._surface.url("queries", name))
        if answer.status != 200:
            raise Faulty(f"{name} answered {answer.status}")
        return answer.body

    def command(self, name: str, data: dict[str, Any], *, ends: frozenset[str], patience: float) -> Done:
        """Send a command and follow its facts to one that ends it.

        Args:
            name: the command's schema.
            data: what to send.
            ends: kinds of facts that end it, beside every failure.
            patience: seconds to wait.

        Raises:
            Refused: the door refused it, or nothing ended it in time.
        """
        entry = self._commands.get(name)
        if entry is None:
            raise Refused(f"the peer does not offer {name} to this key")
        envelope = {
            "specversion": "1.0",
            "id": str(uuid.uuid4()),
            "source": SOURCE,
            "type": str(entry["commandType"]),
            "datacontenttype": "application/json",
            "dataschema": str(entry["dataschema"]),
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "correlationid": str(uuid.uuid4()),
            "data": data,
        }
        correlation = str(envelope["correlationid"])
        facts: list[tuple[float, Fact]] = []
        with Follower(self._wire, self._surface, correlation) as follower:
            sent = time.monotonic()
            self._wire.post_json(self._surface.url("commands"), envelope)
            with self._display.waiting(f"following {name}"):
                for told in follower.facts(patience):
                    fact = self._reader.read(told, correlation)
                    facts.append((time.monotonic() - sent, fact))
                    self._display.progress(fact.percent)
                    if fact.kind in ends or fact.went_wrong:
                        break
        return Done(tuple(facts))


def must(done: Done, kind: str) -> Fact:
    """The fact that a command was to end in.

    Raises:
        Refused: it ended in another.
    """
    if done.last.kind != kind:
        words = "; ".join(f"{name}: {value}" for name, value in done.last.data.items())
        raise Refused(f"it ended in {done.last.kind} and not in {kind}: {words}")
    return done.last
