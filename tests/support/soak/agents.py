"""Agents that keep a peer busy: they deploy, prompt, undeploy, retry, listen, and never wait for each other.

They remember what the door acknowledged and what its streams delivered. A peer that is killed under them is
no fault: what they do not know they ask again once it is back.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import attrs
import httpx
import trio

from tests.support.agents import envelope
from tests.support.soak.ledger import Ledger, Sent

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

GONE = (httpx.TransportError, httpx.StreamError)
"""What a client meets when its peer is killed."""

ANSWER_SECONDS = 20.0
RETRIED = 40
"""How far back an agent looks for a command to send again."""


@attrs.frozen
class Load:
    """What kind of work agents send.

    Args:
        engine, model: what to deploy.
        sizes: promises to choose from, in bytes.
        most: deployments that an agent has at once.
        at_once: what an agent does between two looks at its deployments; some is refused, as is to be.
        early: how likely an undeploy may be one of a deployment that is not ready.
        prompt: what a prompt says beside its messages.
        jobs: commands of jobs to choose from; none where the runtime has none.
        most_jobs: jobs that an agent has at once.
    """

    engine: str
    model: str
    sizes: tuple[int, ...]
    most: int = 6
    at_once: int = 12
    early: float = 0.5
    prompt: dict[str, Any] = attrs.field(factory=dict)
    jobs: tuple[tuple[str, ...], ...] = ()
    most_jobs: int = 4


@attrs.define(eq=False)
class SoakAgent:
    """One key and what is done with it."""

    name: str
    key: str = attrs.field(repr=False)
    load: Load
    ledger: Ledger
    random: random.Random
    sees_all: bool = False
    holder: str = ""
    closed: bool = False
    _last_event: str = "from the beginning"

    async def busy(self, http: httpx.AsyncClient) -> None:
        """Act without pause until the peer is gone or the key is closed."""
        try:
            while not self.closed:
                listed = await self.workloads(http)
                async with trio.open_nursery() as nursery:
                    for _ in range(self.load.at_once):
                        nursery.start_soon(self._act, http, listed)
        except* GONE:
            pass

    async def listen(self, http: httpx.AsyncClient) -> None:
        """Follow the event stream from where it was left until it ends."""
        headers = {"x-api-key": self.key, "last-event-id": self._last_event}
        text = b""
        try:
            async with http.stream("GET", "/events/stream", headers=headers) as answer:
                if answer.status_code != 200:
                    return
                async for chunk in answer.aiter_raw():
                    text += chunk
                    *frames, text = text.split(b"\n\n")
                    for frame in frames:
                        self._take(frame)
        except GONE:
            return

    async def settle(self, http: httpx.AsyncClient) -> None:
        """Send again what the peer did not answer, and some that it did."""
        mine = [c for c in self.ledger.sent.values() if c.sender == self.name]
        known = [c for c in mine[-RETRIED:] if c.state == "acknowledged"]
        again = [c for c in mine if c.state == "unknown"]
        again += self.random.sample(known, min(len(known), 3))
        for command in again:
            await self._post(http, command)

    async def pages(self, http: httpx.AsyncClient) -> list[dict[str, Any]]:
        """Every event it may read, by pages."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            limit = {"limit": 500, **({} if after is None else {"after": after})}
            page = await self._get(http, "/events", **limit)
            found += page.get("events", [])
            after = page.get("nextCursor")
            if after is None:
                return found

    async def state(self, http: httpx.AsyncClient) -> dict[str, Any]:
        """The hardware as it sees it."""
        return await self._get(http, "/queries/get-hardware-state")

    async def workloads(self, http: httpx.AsyncClient) -> dict[str, Any]:
        """The whole answer of get-workloads."""
        return await self._get(http, "/queries/get-workloads")

    async def give_back(self, http: httpx.AsyncClient) -> None:
        """Return the key; its work runs on."""
        await self._send(http, "RevokeAgent", {})

    async def _act(self, http: httpx.AsyncClient, listed: dict[str, Any]) -> None:
        rows, jobs = listed.get("deployments", []), listed.get("jobs", [])
        mine = [r for r in rows if r["holder"] == self.holder]
        ready = [r["deployment"] for r in mine if r["phase"] == "ready"]
        choices: list[tuple[int, Callable[[], Any]]] = [(1, lambda: self._retry(http))]
        if len(mine) < self.load.most:
            choices.append((4, lambda: self._deploy(http)))
        if ready:
            choices.append((8, lambda: self._prompt(http, self.random.choice(ready))))
        if endable := [r for r in rows if r["phase"] == "ready" or self.random.random() < self.load.early]:
            choices.append((2, lambda: self._undeploy(http, self.random.choice(endable)["deployment"])))
        if self.load.jobs and sum(j["holder"] == self.holder for j in jobs) < self.load.most_jobs:
            choices.append((4, lambda: self._run_job(http)))
        if jobs:
            choices.append((3, lambda: self._stop_job(http, self.random.choice(jobs)["job"])))
        weights = [weight for weight, _ in choices]
        (_, act) = self.random.choices(choices, weights)[0]
        await act()

    async def _deploy(self, http: httpx.AsyncClient) -> None:
        size = self.random.choice(self.load.sizes)
        data = {"model": self.load.model, "engine": self.load.engine, "memory_bytes": size}
        await self._send(http, "DeployModel", data)

    async def _prompt(self, http: httpx.AsyncClient, deployment: str) -> None:
        words = f"{self.name} asks {self.random.random()}"
        data = {
            "deployment": deployment,
            "messages": [{"role": "user", "content": words}],
            **self.load.prompt,
        }
        await self._send(http, "Prompt", data)

    async def _undeploy(self, http: httpx.AsyncClient, deployment: str) -> None:
        await self._send(http, "UndeployModel", {"deployment": deployment})

    async def _run_job(self, http: httpx.AsyncClient) -> None:
        data: dict[str, Any] = {"image": "busybox", "command": list(self.random.choice(self.load.jobs))}
        if not self.sees_all or self.random.random() < 0.5:
            data["memory_bytes"] = self.random.choice(self.load.sizes)
        await self._send(http, "RunJob", data)

    async def _stop_job(self, http: httpx.AsyncClient, job: str) -> None:
        await self._send(http, "StopJob", {"job": job})

    async def _retry(self, http: httpx.AsyncClient) -> None:
        mine = [c for c in list(self.ledger.sent.values())[-RETRIED:] if c.sender == self.name]
        if mine:
            await self._post(http, self.random.choice(mine))

    async def _send(self, http: httpx.AsyncClient, kind: str, data: dict[str, Any]) -> None:
        made = envelope(str(http.base_url).rstrip("/"), kind, data)
        made["id"] = str(uuid.UUID(int=self.random.getrandbits(128)))
        if self.random.random() < 0.3:
            made["correlationid"] = f"{self.name}-{self.random.getrandbits(64):x}"
        command = self.ledger.sent[made["id"]] = Sent(made, self.name)
        await self._post(http, command)

    async def _post(self, http: httpx.AsyncClient, command: Sent) -> None:
        if command.state == "refused":
            return
        with trio.fail_after(ANSWER_SECONDS):
            answer = await http.post("/commands", json=command.envelope, headers={"x-api-key": self.key})
        if answer.status_code == 401:
            self.closed = True
        self.ledger.answered(command, answer.status_code, answer.json())

    async def _get(self, http: httpx.AsyncClient, path: str, **parameters: Any) -> dict[str, Any]:
        with trio.fail_after(ANSWER_SECONDS):
            answer = await http.get(path, params=parameters, headers={"x-api-key": self.key})
        if answer.status_code == 401:
            self.closed = True
        found: dict[str, Any] = answer.json()
        return found

    def _take(self, frame: bytes) -> None:
        identifier = line = None
        for part in frame.split(b"\n"):
            if part.startswith(b"id: "):
                identifier = part[4:].decode()
            elif part.startswith(b"data: "):
                line = part[6:]
        if identifier is None or line is None:
            return
        if json.loads(line)["id"] != identifier:
            self.ledger.contradictions.append(f"the frame {identifier} carries another fact: {line!r}")
        if _number(identifier) <= _number(self._last_event):
            self.ledger.contradictions.append(f"{self.name} was sent {identifier} after {self._last_event}")
        self._last_event = identifier
        self.ledger.saw(identifier, line)


def _number(identifier: str) -> int:
    return int(identifier.removeprefix("evt-")) if identifier.startswith("evt-") else -1
