"""One folder's peer, killed and started again as often as it is told to, checked after each restart."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import trio

from tests.support.agents import plain_tls
from tests.support.peers import PeerProcess
from tests.support.soak import checks
from tests.support.soak.agents import GONE, Load, SoakAgent
from tests.support.soak.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REST_SECONDS = 90.0
"""A bound on a hang, no measure of speed."""

POLL_SECONDS = 0.02


@attrs.frozen
class Kind:
    """What is killed.

    Args:
        name: for people.
        settings: the peer's own.
        load: what its agents send.
        busy_seconds: the least and the most that it is kept busy before a kill.
        start_seconds: the most that a start is let come along before a kill.
        loops: how many things each agent does at once.
        running: the programs that run, by workload, found without the peer.
    """

    name: str
    settings: Mapping[str, str]
    load: Load
    busy_seconds: tuple[float, float]
    start_seconds: float
    loops: int
    running: Callable[[Path], dict[str, list[int]]]


@attrs.define
class Tally:
    """What a soak came to."""

    kills: int = 0
    in_a_start: int = 0
    under_way: int = 0
    """Kills with commands under way."""
    commands_under_way: int = 0
    torn: int = 0
    keys_revoked: int = 0
    accepted: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    """Commands whose sender was not answered: the peer was killed first."""
    unanswered_kept: int = 0
    facts: int = 0
    delivered: int = 0
    seconds: float = 0.0
    problems: list[str] = attrs.field(factory=list)

    def add(self, other: Tally) -> None:
        """Take another's figures."""
        for field in attrs.fields(Tally):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Soak:
    """Kills one folder's peer."""

    def __init__(self, kind: Kind, folder: Path, seed: str, say: Callable[[str], None]) -> None:
        self._kind = kind
        self._random = random.Random(seed)
        self._say = say
        folder.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # The same place in every life, as a peer has: its clients find it again.
        self._peer = PeerProcess(folder, kind.settings, port=port)
        self._ledger = Ledger()
        self._agents: list[SoakAgent] = []
        self._tally = Tally()
        self._unanswered: set[str] = set()

    @property
    def data(self) -> Path:
        """The peer's data folder."""
        return self._peer.data

    async def run(self, kills: int) -> Tally:
        """Kill it so often; stops at the first restart after which something is wrong."""
        begun = time.monotonic()
        try:
            await self._start()
            while self._tally.kills < kills and not self._tally.problems:
                await self._live_and_die(kills)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is a finding, told with its seed
            self._tally.problems.append(f"after {self._tally.kills} kills: {error!r}\n{self._last_words()}")
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._end)
        ledger, tally = self._ledger, self._tally
        tally.acknowledged = len(ledger.of("acknowledged"))
        tally.unanswered = len(self._unanswered)
        kept = set(checks.accepted_ids(self.data))
        tally.accepted, tally.unanswered_kept = len(kept), len(kept & self._unanswered)
        tally.facts = len(checks.whole_lines(checks.log_bytes(self.data)))
        tally.delivered = len(ledger.seen)
        tally.seconds = time.monotonic() - begun
        return tally

    async def _live_and_die(self, kills: int) -> None:
        await self._renew_agents()
        await self._be_busy(self._random.uniform(*self._kind.busy_seconds))
        self._unanswered |= set(self._ledger.of("unknown"))
        before = self._look_at_the_dead()
        while self._tally.kills < kills and self._random.random() < 0.25:
            await self._die_in_a_start(self._random.uniform(0, self._kind.start_seconds))
            log = self._look_at_the_dead()
            if not log.startswith(before[: before.rfind(b"\n") + 1]):
                self._tally.problems.append("a start that was killed changed what had been told")
            before = log
        if self._random.random() < 0.2:
            self._tear()
        await self._start()
        await self._settle()
        await self._check(before)

    async def _start(self) -> None:
        await trio.to_thread.run_sync(self._peer.start)

    async def _die_in_a_start(self, seconds: float) -> None:
        def start() -> None:
            try:
                self._peer.start()
            except (AssertionError, OSError):
                return  # killed before its line, as it should be

        before = self._process()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, start)
            while self._process() is before:  # noqa: ASYNC110 - a thread starts it
                await trio.sleep(0.001)
            await trio.sleep(seconds)
            self._process().kill()
        await trio.to_thread.run_sync(self._process().wait)
        self._tally.kills += 1
        self._tally.in_a_start += 1

    async def _be_busy(self, seconds: float) -> None:
        """Keep it busy, kill it, and wait until every agent has noticed."""
        async with self._client() as http:
            with trio.move_on_after(seconds + REST_SECONDS):
                async with trio.open_nursery() as nursery:
                    for agent in self._agents:
                        nursery.start_soon(agent.listen, http)
                        for _ in range(self._kind.loops):
                            nursery.start_soon(agent.busy, http)
                    await trio.sleep(seconds / 2)
                    nursery.start_soon(self._perhaps_close_a_key, http)
                    await trio.sleep(seconds / 2)
                    self._process().kill()
        await trio.to_thread.run_sync(self._peer.kill)
        self._tally.kills += 1

    def _look_at_the_dead(self) -> bytes:
        open_commands = checks.under_way(self.data, {c.id: c.type for c in self._ledger.sent.values()})
        self._tally.under_way += bool(open_commands)
        self._tally.commands_under_way += open_commands
        return checks.log_bytes(self.data)

    def _tear(self) -> None:
        """What a power cut may leave: the beginning of a line that was not acknowledged."""
        days = sorted((self.data / "events").glob("*.jsonl"))
        path = self._random.choice([*days[-1:], self.data / "accepted.jsonl"])
        lines = path.read_bytes().split(b"\n")[:-1]
        if lines:
            line = self._random.choice(lines)
            with path.open("ab") as file:
                file.write(line[: self._random.randrange(1, len(line))])
            self._tally.torn += 1

    async def _renew_agents(self) -> None:
        """One key of the owner's and some with a share, in place of those that were closed."""
        self._agents = [a for a in self._agents if not a.closed]
        if not any(a.sees_all for a in self._agents):
            await self._sign_in(sees_all=True)
        while len(self._agents) < 4:
            await self._sign_in(sees_all=False)

    async def _sign_in(self, *, sees_all: bool) -> None:
        share: dict[str, Any] = {} if sees_all else {"memory_bytes": 6 * max(self._kind.load.sizes)}
        scopes = {} if sees_all else {"scopes": ["deploy", "jobs", "prompt"]}
        key = await trio.to_thread.run_sync(lambda: self._peer.sign_in(**share, **scopes))
        agent = SoakAgent(
            f"agent-{self._random.getrandbits(32):x}",
            key,
            self._kind.load,
            self._ledger,
            random.Random(self._random.getrandbits(64)),
            sees_all=sees_all,
        )
        open_keys = [k for k in (await self._admin("GET", "status"))["keys"] if k["state"] == "open"]
        agent.holder = open_keys[-1]["holder"]  # the newest stands last
        self._agents.append(agent)

    async def _perhaps_close_a_key(self, http: httpx.AsyncClient) -> None:
        """Now and then an agent gives its key back, or the owner takes one."""
        if self._random.random() > 0.2:
            return
        agent = self._random.choice([a for a in self._agents if not a.sees_all])
        self._tally.keys_revoked += 1
        try:
            if self._random.random() < 0.5:
                await agent.give_back(http)
            else:
                await self._admin("POST", "revoke", name=agent.holder)
        except GONE:
            return

    async def _admin(self, method: str, route: str, **body: Any) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {(self.data / 'admin-token').read_text().strip()}"}
        async with self._client() as http:
            answer = await http.request(method, f"/admin/{route}", json=body or None, headers=headers)
        found: dict[str, Any] = answer.json()
        return found

    async def _settle(self) -> None:
        """Ask again what was not answered, and wait until every command that was kept has completed."""
        types = {c.id: c.type for c in self._ledger.sent.values()}
        async with self._client() as http, trio.open_nursery() as nursery:
            for agent in self._agents:
                nursery.start_soon(agent.settle, http)
        with trio.move_on_after(REST_SECONDS):
            while checks.under_way(self.data, types) or await self._is_ending():  # noqa: ASYNC110
                await trio.sleep(POLL_SECONDS)

    async def _is_ending(self) -> bool:
        """Whether work of a key that was taken back still runs, an orphan does, or a job is about to end."""
        status = await self._admin("GET", "status")
        rows = [*status["workloads"]["deployments"], *status["workloads"]["jobs"]]
        facts = checks.facts_of(checks.log_bytes(self.data))
        if checks.ending_jobs(facts, self._ledger):
            return True
        taken = {k["holder"] for k in status["keys"] if k["state"] == "revoked"}
        given_back = {f["holder"] for f in facts if f["type"] == "AgentRevoked"}
        known = {row.get("deployment") or row["job"] for row in rows}
        return any(row["holder"] in taken - given_back for row in rows) or bool(
            set(self._kind.running(self.data)) - known
        )

    async def _check(self, before: bytes) -> None:
        found = checks.files(self.data, before, self._ledger)
        facts = checks.facts_of(checks.log_bytes(self.data))
        async with self._client() as http:
            for agent in self._agents:
                hardware = await agent.state(http)
                if "devices" not in hardware:
                    continue  # its key is closed
                found += checks.promises(hardware, facts)
                if not agent.sees_all:
                    found += checks.reading(await agent.pages(http), facts, agent.holder)
                    found += checks.holdings(await agent.workloads(http), facts, agent.holder)
        found += checks.orphans(self._kind.running(self.data), facts)
        self._tally.problems += [f"after {self._tally.kills} kills: {each}" for each in found]

    def _process(self) -> subprocess.Popen[str]:
        process = self._peer.process
        assert process is not None
        return process

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._peer.endpoint,
            verify=plain_tls(),
            trust_env=False,
            timeout=httpx.Timeout(30, read=None),
            limits=httpx.Limits(max_connections=200),
        )

    def _last_words(self) -> str:
        try:
            return "\n".join(self._peer.log.read_text().splitlines()[-12:])
        except OSError:
            return "it wrote nothing"

    def _end(self) -> None:
        if self._peer.process is not None and self._process().poll() is None:
            self._peer.kill()
        checks.end_all({w: [p for p in pids if p] for w, pids in self._kind.running(self.data).items()})

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self._peer.folder, ignore_errors=True)


async def soak(
    kind: Kind, kills: int, folder: Path, seed: int, say: Callable[[str], None], *, each: int = 20
) -> Tally:
    """Kill so often, with a fresh folder every `each` kills; what it came to."""
    total = Tally()
    part = 0
    while total.kills < kills and not total.problems:
        wanted = min(each, kills - total.kills)
        one = Soak(kind, folder / f"{kind.name}-{part}", f"{seed}/{kind.name}/{part}", say)
        tally = await one.run(wanted)
        total.add(tally)
        part += 1
        say(
            f"{kind.name}: {total.kills} of {kills} kills, {total.under_way} of them with "
            f"{total.commands_under_way} commands under way; {total.accepted} commands, {total.facts} facts, "
            f"{len(total.problems)} problems, {total.seconds:.0f} s"
        )
        if not tally.problems:
            one.remove()
    return total
