"""Runs workloads in containers of a Docker Engine (F21, F25, F30-F32, F37).

A container bears the peer's instance id and the workload's id in its name and labels, and outlives the peer
and its end: whatever is asked of a workload, its container is looked at first. Nothing of it is kept here but
which containers this object started, and which it asked to end.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import attrs
import trio

from adapters.images.port import Images
from adapters.runtime.docker.client import DockerClient, Parameters
from adapters.runtime.docker.confine import bind_address
from adapters.runtime.docker.containers import Containers, Found
from adapters.runtime.docker.ends import Asked
from adapters.runtime.docker.events import ANSWER_SECONDS, listen
from adapters.runtime.docker.faults import BadAnswer, DockerFault, EngineError, EngineGone
from adapters.runtime.docker.info import EngineInfo, examine
from adapters.runtime.docker.labels import HOLDER, PORT, SECRET, detail_of
from adapters.runtime.docker.networks import LEAVE_SECONDS, OwnNetwork
from adapters.runtime.docker.output import Chunks, Nothing, read_tail
from adapters.runtime.docker.pids import processes_of_all
from adapters.runtime.docker.probe import PROBE, probe
from adapters.runtime.docker.starting import RunsAlready, Starter, unavailable
from adapters.runtime.docker.watch import Watch
from adapters.runtime.output import last_lines
from adapters.runtime.port import (
    Chunk,
    Container,
    EngineEvent,
    Exit,
    Handle,
    Isolation,
    NotEnded,
    RuntimeFault,
    RuntimeUnavailable,
    StartFailed,
    WorkloadSpec,
)

logger = logging.getLogger("best_peer.runtime")

STARTS_AT_ONCE: Final = 16
_RUNNING: Final = frozenset({"running", "paused", "restarting"})


@attrs.define(eq=False)
class DockerRuntime:
    """Runtime of one Docker Engine; opened as an async context manager, which looks at the engine first.

    Args:
        client: speaks to it, open.
        instance: the peer's own id, which all its containers bear.
        images: the engine's images.
        engine_host: where the peer reaches the ports of containers (`BEST_PEER_ENGINE_HOST`).
    """

    client: DockerClient
    instance: str
    images: Images
    engine_host: str = "127.0.0.1"
    _engine: EngineInfo | None = attrs.field(default=None, init=False)
    _troubles: tuple[str, ...] = attrs.field(default=(), init=False)
    _containers: Containers = attrs.field(init=False)
    _network: OwnNetwork = attrs.field(init=False)
    _own: set[str] = attrs.field(factory=set, init=False)
    """Ids of containers that this object started: the others are adopted."""
    _asked: dict[str, Asked] = attrs.field(factory=dict, init=False)
    _prepared: dict[str, tuple[str, WorkloadSpec]] = attrs.field(factory=dict, init=False)
    _turns: dict[str, trio.Lock] = attrs.field(factory=dict, init=False)
    _starts: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(STARTS_AT_ONCE), init=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        """Know its containers by the instance's id."""
        self._containers = Containers(self.client, self.instance)
        self._network = OwnNetwork(self.client, self.instance)

    async def __aenter__(self) -> Self:
        """Look what the engine is, start an empty box on it, and remove what an earlier peer never started.

        The peer's network is found or made as well; what keeps it from that is a remark.

        Raises:
            EngineRefused: it cannot keep what the peer promises.
            DockerFault: it does not answer, or answers what cannot be understood.
        """
        info = await self.client.call("GET", "/info")
        version = await self.client.call("GET", "/version")
        if not isinstance(info, dict) or not isinstance(version, dict):
            raise BadAnswer("what the container engine says of itself is no object")
        engine = examine(info, version)
        self._engine, box = await probe(self._containers, self._network, engine)
        network = await self._network.trouble()
        self._troubles = (
            *([f"no job can be started as it is: {box}"] if box else ()),
            *([f"no engine and no open job can be started as it is: {network}"] if network else ()),
        )
        for workload, state in (await self._containers.listed()).items():
            if state == "created":
                await self._remove(workload)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Containers run on, and the peer's network is there while one is on it."""
        with trio.move_on_after(LEAVE_SECONDS, shield=True):
            await self._network.leave()

    @property
    def name(self) -> str:
        """The name `BEST_PEER_RUNTIME` chooses it by."""
        return "docker"

    @property
    def engine(self) -> EngineInfo:
        """What the engine is."""
        assert self._engine is not None, "the runtime is not open"
        return self._engine

    @property
    def isolation(self) -> Isolation:
        """As the engine's own info says it (F32)."""
        return self.engine.isolation

    @property
    def has_jobs(self) -> bool:
        """Jobs run in containers."""
        return True

    def remarks(self) -> tuple[str, ...]:
        """What the owner should know when the peer starts, one line each."""
        return (*self.engine.remarks(), *self._troubles)

    async def prepare(self, spec: WorkloadSpec) -> None:
        """Make the workload's container and start nothing."""
        async with self._turn(spec.workload), self._starts:
            found = await self._look_to_start(spec.workload)
            if found is None or not found.is_running:
                with suppress(RunsAlready):
                    await self._made(spec, found)

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Start the workload's container, or find the one already running under its id."""
        async with self._turn(spec.workload), self._starts:
            found = await self._look_to_start(spec.workload)
            if found is None or not found.is_running:
                with suppress(RunsAlready):
                    await self._start(spec, found)
                found = await self._look_to_start(spec.workload)
            if found is None:
                raise StartFailed(
                    "its container was removed as soon as it was started", fix="send the command again"
                )
            return self._handle(found)

    async def find(self, workload: str) -> Handle | None:
        """The running container of a workload, None when there is none."""
        try:
            found = await self._containers.look(workload)
        except DockerFault as fault:
            raise RuntimeUnavailable(str(fault)) from fault
        return self._handle(found) if found is not None and found.is_running else None

    async def wait(self, workload: str) -> Exit:
        """Wait until the container has ended, whoever ended it, and as long as the engine is away."""
        return await self._watch().wait(workload)

    async def stop(self, workload: str, *, grace_seconds: float) -> None:
        """End the container: its own stop signal, wait `grace_seconds`, kill."""
        async with self._turn(workload):
            try:
                found = await self._containers.look(workload)
                if found is not None and found.is_fresh:
                    # The engine may be starting it still, for a start that was dropped.
                    await self._remove(workload)
                elif found is not None and found.is_running:
                    await self._watch().stop(found, grace_seconds)
            except DockerFault as fault:
                raise NotEnded(f"{workload} may run still: {fault}") from fault

    async def tail(self, workload: str) -> tuple[str, ...]:
        """The last lines it wrote; none while the engine does not answer."""
        try:
            found = await self._containers.look(workload)
            if found is None or found.is_fresh:
                return ()
            return last_lines(await read_tail(self.client, found.id))
        except (DockerFault, RuntimeUnavailable) as fault:
            logger.debug("the last lines of %s cannot be read: %s", workload, fault)
            return ()

    async def discard(self, workload: str) -> None:
        """Remove the container of a workload that has ended, with its output, its secret and its volumes."""
        async with self._turn(workload):
            try:
                found = await self._containers.look(workload)
                if found is not None and found.is_running:
                    raise RuntimeFault(f"{workload} still runs; stop it before its container is removed")
                await self._remove(workload)
            except EngineError as error:
                raise RuntimeFault(f"the container of {workload} could not be removed: {error}") from error
            except DockerFault as fault:
                raise RuntimeUnavailable(str(fault)) from fault
            if not self._turns[workload].statistics().tasks_waiting:
                del self._turns[workload]

    async def running(self) -> tuple[str, ...]:
        """The ids of all workloads of this peer's instance that run now, known or not."""
        return tuple(name for name, state in (await self._listed()).items() if state in _RUNNING)

    async def kept(self) -> tuple[str, ...]:
        """The ids of all workloads of this peer's instance that have a container."""
        return tuple(await self._listed())

    def follow(self, workload: str) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """What a container writes, out and error apart, to its end."""
        return self._follow(workload)

    async def all_processes(self, among: frozenset[int] | None = None) -> Mapping[str, frozenset[int]]:
        """Of every container that runs: by their control groups, and the engine's word where those hide."""
        try:
            return await processes_of_all(self._containers, among)
        except DockerFault as fault:
            raise RuntimeUnavailable(str(fault)) from fault

    async def processes(self, workload: str) -> frozenset[int]:
        """The container's processes by the host's pids; empty when it does not run."""
        try:
            found = await self._containers.look(workload)
            if found is None or not found.is_running:
                return frozenset()
            return await self._containers.processes(found.id)
        except DockerFault as fault:
            raise RuntimeUnavailable(str(fault)) from fault

    def events(self) -> AbstractAsyncContextManager[AsyncIterator[EngineEvent]]:
        """What the engine does to this peer's containers from now on."""
        return listen(self.client, self.instance)

    async def _look_to_start(self, workload: str) -> Found | None:
        try:
            return await self._containers.look(workload)
        except EngineGone as gone:
            raise unavailable(gone) from gone
        except DockerFault as fault:
            raise StartFailed(str(fault), fix="look at the log of the container engine") from fault

    async def _start(self, spec: WorkloadSpec, found: Found | None) -> None:
        identity = await self._made(spec, found)
        del self._prepared[spec.workload]
        self._own.add(identity)
        try:
            await self._starter().start(spec, _container(spec), identity)
        except StartFailed:
            self._own.discard(identity)
            raise

    async def _made(self, spec: WorkloadSpec, found: Found | None) -> str:
        """The workload's container, made now or when it was prepared."""
        prepared = self._prepared.pop(spec.workload, None)
        if found is not None and found.is_fresh and prepared == (found.id, spec):
            identity = found.id
        else:
            identity = await self._starter().make(spec, _container(spec), found)
        self._prepared[spec.workload] = (identity, spec)
        return identity

    async def _remove(self, workload: str) -> None:
        """Remove a container that does not run, or is only about to; nothing where there is none."""
        found = await self._containers.look(workload)
        if found is not None:
            await self._containers.remove(found.id, even_if_running=found.is_fresh)
            if found.is_fresh:
                await self._containers.end_leftovers(found.id)
            self._own.discard(found.id)
            self._asked.pop(found.id, None)
        self._prepared.pop(workload, None)

    async def _listed(self) -> dict[str, str]:
        try:
            listed = await self._containers.listed()
        except DockerFault as fault:
            raise RuntimeUnavailable(str(fault)) from fault
        return {name: listed[name] for name in sorted(listed) if name != PROBE}

    @asynccontextmanager
    async def _follow(self, workload: str) -> AsyncIterator[AsyncIterator[Chunk]]:
        async with AsyncExitStack() as stack:
            chunks: AsyncIterator[Chunk] | None = None
            try:
                with trio.move_on_after(ANSWER_SECONDS):
                    found = await self._containers.look(workload)
                    if found is None:
                        chunks = Nothing()
                    else:
                        chunks = Chunks(await stack.enter_async_context(self._stream(found)))
            except DockerFault as fault:
                raise RuntimeUnavailable(str(fault)) from fault
            if chunks is None:
                raise RuntimeUnavailable("the container engine does not answer")
            yield chunks

    def _stream(self, found: Found) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        both: Parameters = {"stdout": 1, "stderr": 1}
        if found.is_fresh:
            # Kept output has gaps where a container writes faster than it is rotated; this has none.
            return self.client.stream("POST", f"/containers/{found.id}/attach", params={**both, "stream": 1})
        return self.client.stream(
            "GET", f"/containers/{found.id}/logs", params={**both, "follow": int(found.is_running)}
        )

    def _handle(self, found: Found) -> Handle:
        port = found.labels.get(PORT)
        secret = found.labels.get(SECRET)
        return Handle(
            workload=found.workload,
            holder=found.labels.get(HOLDER, ""),
            base_url=f"http://{self._host()}:{_published(found, port)}" if port else "",
            secret=_variable(found, secret) if secret else None,
            adopted=found.id not in self._own,
            detail=detail_of(found.labels),
        )

    def _host(self) -> str:
        return f"[{self.engine_host}]" if ":" in self.engine_host else self.engine_host

    def _watch(self) -> Watch:
        return Watch(self._containers, self.engine, self._asked)

    def _starter(self) -> Starter:
        return Starter(self._containers, self._network, self.engine, bind_address(self.engine_host))

    def _turn(self, workload: str) -> trio.Lock:
        """What starting, stopping and removing one workload take turns by."""
        return self._turns.setdefault(workload, trio.Lock())


def _container(spec: WorkloadSpec) -> Container:
    if not isinstance(spec.program, Container):
        raise StartFailed(
            "the container engine runs images, and this engine has none for the device",
            fix="name another engine, or run the peer with BEST_PEER_RUNTIME=process",
        )
    return spec.program


def _published(found: Found, port: str) -> int:
    """The port of the engine's machine; 0, where nothing ever listens, for a container that has ended."""
    bindings = found.ports.get(f"{port}/tcp") or ()
    return next((int(binding["HostPort"]) for binding in bindings if binding.get("HostPort")), 0)


def _variable(found: Found, name: str) -> str | None:
    return next(
        (line.partition("=")[2] for line in found.environment if line.partition("=")[0] == name), None
    )
