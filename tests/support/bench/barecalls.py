"""The baseline of jobs and deployments: the calls that a peer makes of Docker and of an engine, and no more.

`python -m tests.support.bench.barecalls SOCKET API` says `{}` once it is there and then answers questions. It
keeps nothing, promises nothing, tells nobody, and takes every answer for the one that was hoped for.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import attrs
import httpx
import trio

from tests.support.bench import control

CONNECTIONS = 64
TIMEOUT_SECONDS = 120.0
FIRST_POLL_SECONDS = 0.05
LAST_POLL_SECONDS = 1.0
"""Pauses between two looks whether an engine answers: the peer's own, each twice the last."""


class Unexpected(Exception):
    """Raised when an answer is not the one that was hoped for."""


@attrs.frozen
class Bare:
    """A client of one Docker Engine, and of what it starts there.

    Args:
        docker: speaks to the engine's socket.
        engines: speaks to the ports of containers.
    """

    docker: httpx.AsyncClient
    engines: httpx.AsyncClient

    async def jobs(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Run `count` containers made as `body` says, all at once."""
        return await _at_once(question["count"], partial(self._job, question["body"]))

    async def deploys(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Have `count` containers made as `body` says serve `model`, all at once, and remove them."""
        one = partial(self._deploy, question["body"], question["port"], question["model"])
        return await _at_once(question["count"], one)

    async def _job(self, body: Mapping[str, Any], told: Callable[[], None]) -> None:
        identity = await self._started(body)
        try:
            await self._call("POST", f"/containers/{identity}/wait")
            await self._call("GET", f"/containers/{identity}/logs?stdout=1&stderr=1&tail=20")
            told()
        finally:
            await self._remove(identity)

    async def _deploy(self, body: Mapping[str, Any], port: str, model: str, told: Callable[[], None]) -> None:
        identity = await self._started(body)
        try:
            found = (await self._call("GET", f"/containers/{identity}/json")).json()
            base = f"http://127.0.0.1:{found['NetworkSettings']['Ports'][port][0]['HostPort']}"
            await self._until_it_answers(base)
            await self._ask("GET", f"{base}/api/tags")
            await self._ask("POST", f"{base}/api/pull", {"model": model, "stream": True})
            await self._ask("GET", f"{base}/api/tags")
            await self._ask("POST", f"{base}/api/chat", _chat(model, []))
            await self._ask("GET", f"{base}/api/ps")
            hello = [{"role": "user", "content": "Hi"}]
            await self._ask("POST", f"{base}/api/chat", _chat(model, hello))
            told()
        finally:
            await self._remove(identity)

    async def _started(self, body: Mapping[str, Any]) -> str:
        name = f"bench-{uuid.uuid4().hex[:16]}"
        made = await self._call("POST", f"/containers/create?name={name}", body)
        identity: str = made.json()["Id"]
        await self._call("POST", f"/containers/{identity}/start")
        return identity

    async def _until_it_answers(self, base: str) -> None:
        pause = FIRST_POLL_SECONDS
        with trio.fail_after(TIMEOUT_SECONDS):
            while True:
                try:
                    await self._ask("GET", f"{base}/api/version")
                except httpx.TransportError:
                    await trio.sleep(pause)
                    pause = min(pause * 2, LAST_POLL_SECONDS)
                else:
                    return

    async def _remove(self, identity: str) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + TIMEOUT_SECONDS):
            await self._call("DELETE", f"/containers/{identity}?v=1&force=1")

    async def _call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return _good(await self.docker.request(method, path, json=body))

    async def _ask(self, method: str, address: str, body: Any = None) -> httpx.Response:
        return _good(await self.engines.request(method, address, json=body))


async def _at_once(count: int, one: Callable[[Callable[[], None]], Awaitable[None]]) -> dict[str, Any]:
    """Run so many; `seconds` until the last had told its end, and the `median` seconds of one."""
    took: list[float] = []
    failures: list[str] = []
    begun = time.perf_counter()

    async def run_one() -> None:
        try:
            await one(lambda: took.append(time.perf_counter() - begun))
        except (Unexpected, httpx.HTTPError, trio.TooSlowError) as failed:
            failures.append(str(failed) or type(failed).__name__)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(run_one)
    if failures:
        return {"failed": f"{len(failures)} of {count} failed: {failures[0]}"}
    return {"count": count, "seconds": max(took), "median": median(took)}


def _chat(model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "model": model,
        "messages": messages,
        "stream": False,
        "keep_alive": -1,
        "options": {"num_predict": 1, "num_gpu": 0},
    }


def _good(answer: httpx.Response) -> httpx.Response:
    if answer.status_code >= 300:
        where = f"{answer.request.method} {answer.request.url.path}"
        raise Unexpected(f"{where}: {answer.status_code} {answer.text[:300]}")
    return answer


async def _main(socket: str, api: str) -> None:
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    transport = httpx.AsyncHTTPTransport(uds=socket, limits=limits)
    async with (
        httpx.AsyncClient(
            transport=transport, base_url=api, timeout=TIMEOUT_SECONDS, trust_env=False
        ) as docker,
        httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits, trust_env=False) as engines,
    ):
        bare = Bare(docker, engines)
        control.say({})
        await control.answer_questions({**control.USAGE, "jobs": bare.jobs, "deploys": bare.deploys})


if __name__ == "__main__":
    trio.run(_main, sys.argv[1], sys.argv[2])
