"""Runtimes of every kind for tests, each with what happens to its programs from outside."""

import secrets
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import unix_endpoint
from adapters.runtime.docker.images import DockerImages
from adapters.runtime.docker.runtime import DockerRuntime
from adapters.runtime.fake import FakeRuntime
from adapters.runtime.port import Container, Exit, Handle, Runtime, WorkloadSpec
from adapters.runtime.process import ProcessRuntime
from tests.support.docker.bed import DockerBed
from tests.support.docker.contents import PYTHON, build_python_image
from tests.support.docker.gated import until_said
from tests.support.docker.use import push_as
from tests.support.puppeteer import PUPPET, SECRET, puppet, tell, until_gone

PORT = 8000


class World(Protocol):
    """A runtime and what happens to its programs from outside."""

    @property
    def runtime(self) -> Runtime:
        """The runtime of the peer that lives now."""
        ...

    @property
    def knows_ends(self) -> bool:
        """Whether the code of a program is known to a peer that did not start it."""
        ...

    def spec(self, workload: str = "dep-1", **changes: Any) -> WorkloadSpec:
        """A workload whose program is the puppet."""
        ...

    async def restart(self) -> None:
        """Have a new runtime in place of one whose peer was killed."""

    async def end(self, handle: Handle, code: int) -> None:
        """Let a program end by itself."""

    async def write(self, handle: Handle, text: str) -> None:
        """Let a program write."""

    async def ignore_term(self, handle: Handle) -> None:
        """Let a program not end when asked."""

    async def leave(self, workload: str) -> None:
        """Have something run under this peer's name that no record names."""


@attrs.define
class ProcessWorld:
    """Real processes."""

    data: Path
    # A peer finds its processes by this across the machine, tests that run beside this one included.
    instance: str = attrs.field(factory=lambda: secrets.token_hex(8), init=False)
    runtime: Runtime = attrs.field(init=False)
    knows_ends: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.runtime = ProcessRuntime(self.data, self.instance)

    def spec(self, workload: str = "dep-1", **changes: Any) -> WorkloadSpec:
        return puppet(workload, **changes)

    async def restart(self) -> None:
        self.runtime = ProcessRuntime(self.data, self.instance)

    async def end(self, handle: Handle, code: int) -> None:
        await tell(handle, "exit", code)

    async def write(self, handle: Handle, text: str) -> None:
        await tell(handle, "write", text)

    async def ignore_term(self, handle: Handle) -> None:
        await tell(handle, "ignore-term")

    async def leave(self, workload: str) -> None:
        other = ProcessRuntime(self.data, self.instance)
        handle = await other.start(puppet(workload))
        await tell(handle, "spawn")
        leader = (await tell(handle, "look"))["pid"]
        await tell(handle, "exit", 0)
        await until_gone(leader)


@attrs.define
class FakeWorld:
    """Programs that are only remembered."""

    data: Path
    is_contained: bool = False
    runtime: FakeRuntime = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.runtime = FakeRuntime(self.data)

    @property
    def knows_ends(self) -> bool:
        return self.is_contained

    def spec(self, workload: str = "dep-1", **changes: Any) -> WorkloadSpec:
        return (
            contained_puppet("puppet", workload, **changes)
            if self.is_contained
            else puppet(workload, **changes)
        )

    async def restart(self) -> None:
        self.runtime = FakeRuntime(self.data)

    async def end(self, handle: Handle, code: int) -> None:
        self.runtime.end(handle.workload, code)

    async def write(self, handle: Handle, text: str) -> None:
        self.runtime.write(handle.workload, text)

    async def ignore_term(self, handle: Handle) -> None:
        self.runtime.make_stubborn(handle.workload)

    async def leave(self, workload: str) -> None:
        self.runtime.plant(workload)


@attrs.define
class DockerWorld:
    """Real containers. Made by `open_docker_world`."""

    client: DockerClient
    image: str
    instance: str
    runtime: DockerRuntime
    knows_ends: bool = attrs.field(default=True, init=False)

    def spec(self, workload: str = "dep-1", **changes: Any) -> WorkloadSpec:
        return contained_puppet(self.image, workload, **changes)

    async def restart(self) -> None:
        self.runtime = await docker_runtime(self.client, self.instance).__aenter__()

    async def end(self, handle: Handle, code: int) -> None:
        await until_up(handle)
        await tell(handle, "exit", code)

    async def write(self, handle: Handle, text: str) -> None:
        await until_up(handle)
        await tell(handle, "write", text)
        # The engine reads what a program wrote in its own time, and tells no line before its end.
        *_, last, _unended = ["", *text.split("\n")]
        if last:
            await until_said(self.runtime, handle.workload, last)

    async def ignore_term(self, handle: Handle) -> None:
        await until_up(handle)
        await tell(handle, "ignore-term")

    async def leave(self, workload: str) -> None:
        async with docker_runtime(self.client, self.instance) as other:
            await other.start(self.spec(workload))

    def job(
        self, *command: str, workload: str = "job-1", memory: int | None = None, **program: Any
    ) -> WorkloadSpec:
        """A workload that runs a command in the world's image, which has a shell and a Python."""
        container = Container(image=program.pop("image", self.image), command=command or None, **program)
        return WorkloadSpec(workload, "h-1", container, memory_bytes=memory)

    async def run(self, spec: WorkloadSpec) -> Exit:
        """Start a workload and wait for its end."""
        with trio.fail_after(60):
            await self.runtime.start(spec)
            return await self.runtime.wait(spec.workload)


@asynccontextmanager
async def open_docker_world(
    bed: DockerBed, *, socket: Path | None = None, patience: float = 30
) -> AsyncIterator[DockerWorld]:
    """Containers of an instance of its own, all of which are removed in the end.

    Args:
        bed: whose registry the image comes from.
        socket: another engine's than the bed's.
        patience: seconds for which calls are tried again while the engine is away.
    """
    async with AsyncExitStack() as stack:
        endpoint = unix_endpoint(socket or bed.socket)
        client = await stack.enter_async_context(DockerClient(endpoint, patience_seconds=patience))
        image = await pulled(bed, client, puppet_image(bed))
        instance = f"p-{secrets.token_hex(8)}"
        runtime = await stack.enter_async_context(docker_runtime(client, instance))
        stack.push_async_callback(remove_all, runtime)
        yield DockerWorld(client, image, instance, runtime)


def docker_runtime(client: DockerClient, instance: str) -> DockerRuntime:
    """A runtime on an engine; open it."""
    return DockerRuntime(client, instance, DockerImages(client))


def puppet_image(bed: DockerBed) -> str:
    """A reference that nobody else has to an image with the puppet in it."""
    image = build_python_image(files={"/puppet.py": PUPPET.read_bytes()})
    return push_as(bed, image, f"runtime/{uuid.uuid4().hex}")


async def pulled(bed: DockerBed, client: DockerClient, reference: str) -> str:
    """Have an engine pull an image; what to run it by."""
    return (await DockerImages(client).pull(reference, lambda progress: None)).run


async def remove_all(runtime: DockerRuntime) -> None:
    """End and remove every container of a runtime's instance."""
    with trio.fail_after(60), trio.CancelScope(shield=True):
        for workload in await runtime.kept():
            await runtime.stop(workload, grace_seconds=0)
            await runtime.discard(workload)


def contained_puppet(
    image: str, workload: str = "dep-1", environment: Mapping[str, str] | None = None, **changes: Any
) -> WorkloadSpec:
    """A workload whose program is the puppet in an image; `changes` are the specification's."""
    program = Container(
        image=image,
        command=(PYTHON, "-I", "-S", "/puppet.py", str(PORT)),
        environment={"PUPPET_HOST": "0.0.0.0", **(environment or {})},
        secret=("PUPPET_KEY", SECRET),
        port=PORT,
    )
    return attrs.evolve(
        WorkloadSpec(workload=workload, holder="h-1", program=program, detail={"model": "tiny"}), **changes
    )


async def until_up(handle: Handle) -> None:
    """Wait until a puppet in a container answers: its port takes connections before it does."""
    with trio.fail_after(30):
        while await tell(handle, "look") is None:  # noqa: ASYNC110 - another process sets no event
            await trio.sleep(0.02)


def how(end: Exit) -> Exit:
    """An end without its time."""
    return attrs.evolve(end, ended_at=None)
