"""A house of actors over a real store on disk, with no door: what happens between admission and the log.

`open_house` starts the log and the workers and recovers, as a peer's start does; leaving it stops them as a
peer's end does. The same folder opened again is a restart: the fake runtime remembers there what ran.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs
import cattrs
import msgspec
import pytest
import trio

from actors import holding, owner, revoker
from actors.approver import AdminTokenApprover
from actors.desk import Desk, Receipt, Submission
from actors.house import Bounds, House
from actors.kernel.child import Backoff, ChildSpec
from actors.kernel.services import Service, Services
from actors.kernel.workers import Workers
from actors.log.index import EventQuery
from actors.log.linefile import LineFile, NoRoom
from actors.messages.commands import Command, DeployModel, Prompt, RunJob, StopJob, Turn, UndeployModel
from actors.messages.envelope import EnvelopeEncoder
from actors.registrar import Registrar
from actors.revoker import wake_revoker
from actors.state.keys import Grant, Issued, Key
from actors.store import Store
from actors.tree import Tree
from adapters.clock.fake import FakeClock
from adapters.engine.fake import FakeEngine
from adapters.gpu.fake import FakeGpu
from adapters.runtime.fake import FakeRuntime
from peer.lifecycle import Work
from tests.support.soak.history import Fact, living, problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from actors.rules.busy import Thresholds
    from adapters.engine.port import Engine
    from adapters.gpu.port import Gpu
    from adapters.images.fake import FakeImages, HeldPull
    from adapters.runtime.port import Runtime
    from peer.compose import Peer

STANDING = (revoker.NAME, holding.NAME, owner.NAME)
"""Actors that are always there."""

HANG = 15.0
"""A bound on a hang, no measure of speed."""

MIB = 1 << 20


@attrs.define(eq=False)
class Household:
    """A running house and what a test asks of it."""

    house: House
    tree: Tree
    desk: Desk
    registrar: Registrar
    runtime: FakeRuntime
    engine: FakeEngine
    gpu: FakeGpu
    clock: FakeClock
    accepted: dict[str, str] = attrs.field(factory=dict)
    """The type of each command that was sent and acknowledged, by its id."""
    background: tuple[ChildSpec, ...] = ()
    """Workers that serve the adapters, as a peer has them."""
    pull: HeldPull | None = None
    """The pull that `job_in` holds up."""
    _names: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    @property
    def images(self) -> FakeImages:
        """Its registry and what its engine holds."""
        return cast("FakeImages", self.runtime.images)

    @property
    def store(self) -> Store:
        """Its log and its fold."""
        return self.house.store

    async def key(self, name: str = "agent", **grant: Any) -> Key:
        """A key that may do everything, or what `grant` says."""
        number = len(self.store.ring) + 1
        key = Key(f"h-{name}-{number}", name, Grant(**grant), self.clock.now_ms())
        await self.store.keys.append(Issued(key=key, digest=f"digest-{number}", device_digest=""))
        return key

    async def send(
        self, key: Key, body: Command, *, identifier: str | None = None, correlation: str | None = None
    ) -> str:
        """Submit a command as the door would; its id. Raises what the desk refuses with."""
        return (await self.submit(key, body, identifier=identifier, correlation=correlation)).id

    async def submit(
        self, key: Key, body: Command, *, identifier: str | None = None, correlation: str | None = None
    ) -> Receipt:
        """The same, and the receipt."""
        identifier = identifier or f"cmd-{len(self.store.accepted)}-{next(self._names)}"
        data = msgspec.json.encode(_plain(body))
        content = hashlib.blake2b(data + str(correlation).encode(), digest_size=16).hexdigest()
        with trio.fail_after(HANG):
            receipt = await self.desk.submit(key, Submission(identifier, correlation, body, data, content))
        self.accepted[receipt.id] = type(body).__name__
        return receipt

    async def check(self, *, removed: bool = True) -> None:
        """Wait until nothing is under way, and see that everything was told once and promises add up.

        Args:
            removed: nothing is kept of what has ended.
        """
        await self.at_rest()
        facts = await self.facts()
        assert problems(facts, self.accepted) == []
        world = self.store.world
        assert sum(world.promised.values()) == sum(living(facts).values())
        assert {*world.deployments, *world.jobs} == set(living(facts)) == set(await self.runtime.running())
        if removed:
            assert set(await self.runtime.kept()) == set(living(facts))

    async def deploying(self, key: Key, memory_bytes: int = 64 * MIB, **more: Any) -> tuple[str, str]:
        """A deploy that is accepted: the command's id and the deployment's."""
        command = await self.send(key, deploy(memory_bytes, **more))
        found = [d.id for d in self.store.world.deployments.values() if d.command == command]
        # It may have come and gone already.
        return command, found[0] if found else ""

    async def ready(self, key: Key, memory_bytes: int = 64 * MIB, **more: Any) -> str:
        """A deployment that is ready."""
        command = await self.send(key, deploy(memory_bytes, **more))
        fact = await self.told("DeploymentReady", causation=command)
        await self.until(lambda: self.house.addresses.get(fact["data"]["deployment"]) is not None)
        deployment: str = fact["data"]["deployment"]
        return deployment

    async def undeploy(self, key: Key, deployment: str) -> str:
        """An undeploy that is accepted; its id."""
        return await self.send(key, UndeployModel(deployment))

    async def prompt(self, key: Key, deployment: str, words: str = "say this") -> str:
        """A prompt that is accepted; its id."""
        return await self.send(key, Prompt(deployment, (Turn("user", words),)))

    async def running(self, key: Key, *command: str, **more: Any) -> str:
        """A job that runs; without a command until a test ends it."""
        run = await self.send(key, job(*command, **more))
        fact = await self.told("JobStarted", causation=run)
        name: str = fact["data"]["job"]
        return name

    async def job_in(self, key: Key, phase: str, **more: Any) -> tuple[str, str]:
        """A run-job whose job has come so far and no farther: the command's id and the job's.

        pulling: its image is fetched; starting: its container is about to be started; running.
        """
        if phase == "pulling":
            self.pull = self.images.hold_pull("busybox")
        if phase == "starting":
            self.runtime.hold_starts()
        run = await self.send(key, job(**more))
        kind = {"starting": "ImagePulled", "running": "JobStarted"}.get(phase, "ImagePulling")
        name: str = (await self.told(kind, causation=run))["data"]["job"]
        if self.pull is not None:
            with trio.fail_after(HANG):
                await self.pull.begun.wait()
        return run, name

    async def stop_job(self, key: Key, name: str, *, correlation: str | None = None) -> str:
        """A stop-job that is accepted; its id."""
        return await self.send(key, StopJob(name), correlation=correlation)

    async def facts(self, causation: str | None = None) -> list[Fact]:
        """Everything told so far, or what one command caused, in order."""
        found: list[Fact] = []
        after: int | None = None
        while True:
            page = await self.store.events.page(EventQuery(reader=None), after, 1000)
            found += [json.loads(line) for line in page.lines]
            if page.after is None:
                break
            after = page.after
        return [f for f in found if causation is None or f.get("causationid") == causation]

    async def types(self, causation: str | None = None) -> list[str]:
        """The types of those."""
        return [fact["type"] for fact in await self.facts(causation)]

    async def told(self, kind: str, *, causation: str | None = None) -> Fact:
        """The first fact of a type, told already or soon."""
        with trio.fail_after(HANG):
            while True:
                end = self.store.events.end
                for fact in await self.facts(causation):
                    if fact["type"] == kind:
                        return fact
                await self.store.events.wait_for_news(end)

    async def completed(self, *commands: str) -> None:
        """Wait until commands have completed."""
        await self.until(lambda: not any(c in self.store.world.unfinished for c in commands))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that nothing tells of."""
        with trio.fail_after(HANG):
            while not holds():  # noqa: ASYNC110 - threads and actors make no event of it
                await trio.sleep(0.001)

    async def at_rest(self) -> None:
        """Wait until every command has completed and no actor but the standing ones is at work."""

        def holds() -> bool:
            world = self.store.world
            living = (*world.deployments, *world.jobs)
            has_actors = all(self.house.workers.get(workload) is not None for workload in living)
            standing = [name for name in STANDING if self.house.workers.get(name) is not None]
            is_alone = len(self.house.workers) == len(living) + len(standing)
            return not world.unfinished and has_actors and is_alone

        await self.until(holds)

    async def revoke(self, key: Key) -> None:
        """Take a key back, as the owner would."""
        await self.registrar.revoke(key.holder, ends_work=True)


@asynccontextmanager
async def open_house(
    folder: Path,
    *,
    clock: FakeClock | None = None,
    bounds: Bounds | None = None,
    gpu: FakeGpu | None = None,
    engines: Callable[[FakeEngine], Mapping[str, Engine]] | None = None,
    make_runtime: Callable[[Path], FakeRuntime] = FakeRuntime,
    wrap_runtime: Callable[[FakeRuntime], Runtime] | None = None,
    wrap_gpu: Callable[[FakeGpu], Gpu] | None = None,
    commands_per_minute: int = 60,
    prepare: Callable[[FakeRuntime, FakeEngine], None] | None = None,
    busy: Thresholds | None = None,
) -> AsyncIterator[Household]:
    """A house over the data in `folder`, until the block is left.

    Args:
        folder: the same again is a restart.
        clock: its wall clock.
        bounds: how long things may take.
        gpu: its devices.
        engines: other engines than the one fake, given that.
        make_runtime: another kind of fake.
        wrap_runtime, wrap_gpu: put something before the fake ones.
        commands_per_minute: of a key with a share.
        prepare: called before recovery, so that a test may hold something up from the start.
        busy: when a card takes no new work since others use it; None reads none.
    """
    clock = clock or FakeClock()
    runtime = make_runtime(folder)
    engine = FakeEngine(lives=runtime.is_running)
    gpu = gpu or FakeGpu()
    store = Store(folder, EnvelopeEncoder("urn:test", {}), clock)
    house = House(
        store=store,
        workers=Workers(),
        clock=clock,
        runtime=wrap_runtime(runtime) if wrap_runtime else runtime,
        engines=engines(engine) if engines else {"llamacpp": engine},
        gpu=wrap_gpu(gpu) if wrap_gpu else gpu,
        bounds=bounds or Bounds(),
        busy=busy,
    )
    registrar = Registrar(
        store, clock, AdminTokenApprover("owner"), closed=lambda holder: wake_revoker(house)
    )
    tree = Tree(house, registrar)
    desk = Desk(house, tree, commands_per_minute=commands_per_minute)
    if prepare is not None:
        prepare(runtime, engine)
    made = Household(house, tree, desk, registrar, runtime, engine, gpu, clock)
    services = Services(
        [
            Service("the log", store.run, backoff=Backoff(first=0.005)),
            Service("the workloads", Work(cast("Peer", made)).run, house.workers.stop),
        ]
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(services.run)
        try:
            yield made
        finally:
            services.stop()


def job(*command: str, image: str = "busybox", **more: Any) -> RunJob:
    """A run-job on the host, of a key without a share."""
    return RunJob(image, command=command or None, **more)


def deploy(memory_bytes: int = 64 * MIB, **more: Any) -> DeployModel:
    """A deploy of the one model there is."""
    return DeployModel(**{"model": "small", "engine": "llamacpp", "memory_bytes": memory_bytes, **more})


@attrs.define
class Disk:
    """A disk that a test fills, breaks or holds up.

    Files are named `accepted.jsonl`, `keys.jsonl` and `events`.
    """

    full: set[str] = attrs.field(factory=set)
    broken: list[str] = attrs.field(factory=list)
    """The next write to each fails, and nobody knows what was stored."""
    refusals: int = 0
    """Writes there was no room for."""
    _held: dict[str, threading.Event] = attrs.field(factory=dict)

    def hold(self, name: str) -> None:
        """Let every write to a file wait."""
        self._held[name] = threading.Event()

    def release(self, name: str) -> None:
        """Let them go on."""
        self._held.pop(name).set()

    def append(self, name: str) -> bool:
        """Called before each write, in its thread: whether there is room."""
        held = self._held.get(name)
        if held is not None and not held.wait(HANG):
            raise TimeoutError(f"a write to {name} was held and not released")
        if name in self.broken:
            self.broken.remove(name)
            raise OSError(errno.EIO, "the disk failed")
        if name in self.full:
            self.refusals += 1
            return False
        return True


def disk_under(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk under every house of a test."""
    made = Disk()
    append = LineFile.append

    def before(file: LineFile, data: bytes) -> int:
        if not made.append("events" if file.path.parent.name == "events" else file.path.name):
            raise NoRoom(file.path)
        return append(file, data)

    monkeypatch.setattr(LineFile, "append", before)
    return made


def _plain(body: Command) -> Any:
    return {k: v for k, v in cattrs.unstructure(body).items() if v is not None}
