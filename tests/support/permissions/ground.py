"""A door with one kind of key before it: its own work, another holder's, and what the owner's routes need."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch
from urllib.parse import urlsplit

import attrs
import trio

import peer.compose
from actors.desk import Desk, Submission
from actors.messages.commands import Command, DeployModel, RunJob
from actors.state.keys import Grant, Key
from adapters.clock.fake import FakeClock
from adapters.gpu.fake import FakeGpu, cpu_device, cuda_device
from tests.support.agents import Listener, begin, connect, poll
from tests.support.peers import OpenDoor, open_door
from tests.support.permissions.answers import OK, Answer, read
from tests.support.permissions.kinds import ADMIN_AS_KEY, EXPIRES_SECONDS, MALFORMED, OWNER, UNKNOWN, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx

    from peer.settings import Settings

HANG: Final = 20.0
"""A bound on a hang, no measure of speed."""
GIB: Final = 1 << 30
MIB: Final = 1 << 20
CARD: Final = cuda_device(0, 64 * GIB)
CPU: Final = cpu_device(64 * GIB)
HELD: Final = cuda_device(1, 64 * GIB)
"""A card that its owner holds, with a reason."""
REASON: Final = "maintenance"
ENGINE: Final = "ollama"
IMAGE: Final = "busybox"
RUNS_ON: Final = ("sleep", "3600")
"""A job that does not end by itself."""

STREAM: Final = "/events/stream"


@attrs.frozen
class Request:
    """What is sent, with whatever key."""

    method: str
    path: str
    json: Any = None
    form: dict[str, str] | None = None
    query: dict[str, str] | None = None


@attrs.frozen
class Work:
    """One holder's deployment that is ready and job that runs, and the command that made the deployment."""

    holder: str
    deployment: str
    job: str
    command: str

    @property
    def correlation(self) -> str:
        """What the deployment's facts are told under: the command named none."""
        return self.command


NOBODYS: Final = Work("h-nobody", "dep-nobodys0deployment0aa", "job-nobodys0job00000000aa", "nobodys-command")
"""What a kind of key names as its own that can hold nothing."""


@attrs.frozen
class Ground:
    """A door, one kind of key before it, and what there is.

    Args:
        headers: what carries the key; a key that is none has no fields.
        bearer: the same as a bearer token.
        own: its own work; `NOBODYS` where it was never a key.
        theirs: another holder's.
        spare: the name of a key that is nobody's, for the owner to take back.
        codes: sign-ins that wait, by user code; the last one's device code is `device_code`.
    """

    door: OpenDoor
    kind: Kind
    headers: dict[str, str]
    bearer: dict[str, str]
    own: Work
    theirs: Work
    spare: str
    codes: tuple[str, ...]
    device_code: str
    client: httpx.AsyncClient

    @property
    def desk(self) -> Desk:
        """What admits on this door."""
        return desk_of(self.door)

    async def ask(self, request: Request, headers: dict[str, str] | None = None) -> Answer:
        """Send a request with the key, and what came of it."""
        headers = self.headers if headers is None else headers
        with trio.fail_after(HANG):
            if request.path == STREAM and await self._opens(headers):
                return OK
            return read(await self.send(request, headers))

    async def send(self, request: Request, headers: dict[str, str] | None = None) -> httpx.Response:
        """Send a request with the key; the whole answer. Not for a stream that opens."""
        return await self.client.request(
            request.method,
            request.path,
            json=request.json,
            data=request.form,
            params=request.query,
            headers=self.headers if headers is None else headers,
        )

    async def get(self, path: str, **query: str) -> Any:
        """The JSON of what the key reads at a path."""
        answer = await self.send(Request("GET", path, query=query))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def _opens(self, headers: dict[str, str]) -> bool:
        async with await connect(self.door.endpoint, self.door.tls) as wire:
            return await Listener(wire).ask(f"{urlsplit(self.door.endpoint).path}{STREAM}", headers) == 200


def desk_of(door: OpenDoor) -> Desk:
    """The desk of a door that serves."""
    return door.peer.app._door.desk


@asynccontextmanager
async def open_ground(folder: Path, kind: Kind) -> AsyncIterator[Ground]:
    """A door with a card and a CPU, and everything in place for a kind of key to ask."""

    @asynccontextmanager
    async def gpu(settings: Settings) -> AsyncIterator[FakeGpu]:
        await trio.lowlevel.checkpoint()
        yield FakeGpu((CARD, HELD, CPU))

    clock = FakeClock()
    with patch.object(peer.compose, "open_gpu", gpu):
        async with open_door(folder, clock=clock) as door:
            yield await _arrange(door, clock, kind)


async def _arrange(door: OpenDoor, clock: FakeClock, kind: Kind) -> Ground:
    await _hold(door, "hold-of-the-second-card", HELD.id)
    # Another comes and goes, so that the log has each fact of the owner's.
    await _hold(door, "hold-that-is-over-now", CPU.id)
    released = await door.admin("POST", "release", json={"device": CPU.id})
    assert released.status_code == 200, released.text
    other = await _key(door, "other", Grant())
    theirs = await _work(door, other)
    secret, holder = await _issue(door, kind)
    own = NOBODYS
    if holder is not None:
        key = door.peer.house.store.ring.get(holder)
        assert key is not None
        own = Work(holder, *NOBODYS_IDS) if kind.is_collectors else await _work(door, key)
    await _end(door, clock, kind, secret, holder)
    begun = [_begin(door) for _ in range(3)]
    await _key(door, "spare", Grant())
    headers, bearer = _headers(kind, secret)
    return Ground(
        door=door,
        kind=kind,
        headers=headers,
        bearer=bearer,
        own=own,
        theirs=theirs,
        spare="spare",
        codes=tuple(user for user, _ in begun),
        device_code=begun[-1][1],
        client=door.client(),
    )


NOBODYS_IDS: Final = (NOBODYS.deployment, NOBODYS.job, NOBODYS.command)


async def _hold(door: OpenDoor, name: str, device: str) -> None:
    held = await door.admin("POST", "hold", json={"hold": name, "device": device, "reason": REASON})
    assert held.status_code == 200, held.text


async def _issue(door: OpenDoor, kind: Kind) -> tuple[str, str | None]:
    """What stands in the key's place, and the holder of a key that was one once."""
    if kind in (OWNER, ADMIN_AS_KEY):
        return door.admin_token, None
    if kind is MALFORMED:
        return "not a key at all!", None
    if kind is UNKNOWN:
        return "bp_" + "x" * 43, None
    if kind.grant is None:
        return "", None
    client = door.client()
    lifetime = {"credential_lifetime": "session"} if kind.is_session else {}
    begun = await begin(client, "asker", **lifetime)
    approved = await door.approve(begun["user_code"], **kind.grant)
    assert approved.status_code == 200, approved.text
    answer = (await poll(client, begun["device_code"])).json()
    return answer["access_token"], answer["tenant_id"]


async def _end(door: OpenDoor, clock: FakeClock, kind: Kind, secret: str, holder: str | None) -> None:
    """Close a key that is to ask when it is closed; what runs under it runs on."""
    match kind.stand:
        case "expired":
            clock.advance((EXPIRES_SECONDS + 1) * 1000)
        case "revoked":
            answer = await door.admin("POST", "revoke", json={"name": holder, "keep_running": True})
            assert answer.status_code == 200, answer.text
        case "given back":
            agent = door.agent(secret, holder or "")
            await agent.command("RevokeAgent", {})
            key = door.peer.house.store.ring.get(agent.holder)
            assert key is not None
            await _until(door, lambda: door.peer.registrar.authenticate(secret) is None)
        case _:
            pass


def _headers(kind: Kind, secret: str) -> tuple[dict[str, str], dict[str, str]]:
    bearer = {"authorization": f"Bearer {secret}"}
    if kind.stand == "owner":
        return bearer, bearer
    return ({"x-api-key": secret}, bearer) if secret else ({}, {})


def _begin(door: OpenDoor) -> tuple[str, str]:
    begun = door.peer.registrar.begin(
        client_id="somebody", address="127.0.0.1", name="somebody", agent_label=None, lifetime="durable"
    )
    return begun.user_code, begun.device_code


async def _key(door: OpenDoor, name: str, grant: Grant) -> Key:
    answer = await door.sign_in(name, scopes=list(grant.scopes))
    key = door.peer.house.store.ring.get(answer.holder)
    assert key is not None
    return key


async def _work(door: OpenDoor, key: Key) -> Work:
    """One deployment and one job of a key, whatever its scopes are: the desk does not ask for those."""
    world = door.peer.house.store.world
    deploy = await _submit(door, key, DeployModel("small", ENGINE, 16 * MIB))
    run = await _submit(door, key, RunJob(IMAGE, command=RUNS_ON, memory_bytes=16 * MIB))
    deployment = next(each.id for each in world.deployments.values() if each.command == deploy)
    job = next(each.id for each in world.jobs.values() if each.command == run)
    addresses = door.peer.house.addresses
    await _until(door, lambda: world.deployments[deployment].was_ready and world.jobs[job].started)
    await _until(door, lambda: addresses.get(deployment) is not None)
    return Work(key.holder, deployment, job, deploy)


async def _submit(door: OpenDoor, key: Key, body: Command) -> str:
    name = f"arranged-{key.holder}-{type(body).__name__}"
    await desk_of(door).submit(key, Submission(name, None, body, b"{}", name))
    return name


async def _until(door: OpenDoor, holds: Any) -> None:
    """Wait for something that the log's next facts bring about."""
    with trio.fail_after(HANG):
        while not holds():  # noqa: ASYNC110 - threads and actors make no event of it
            await trio.sleep(0.001)
