"""Makes and starts a container: looked for before, looked at after any call that was dropped (F19, F25).

Dropping a call does not stop what the engine does for it. So the two calls that make something are waited for
some seconds even by a task that was cancelled, and what an engine slower than that did is found by its name.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import attrs
import trio

from adapters.runtime.docker.confine import ImageConfig, creation
from adapters.runtime.docker.containers import Containers, Found
from adapters.runtime.docker.failures import (
    OpenFilesRefused,
    SeccompNameRefused,
    image_gone,
    start_failed,
)
from adapters.runtime.docker.faults import BadAnswer, EngineError, EngineGone
from adapters.runtime.docker.info import EngineInfo
from adapters.runtime.docker.labels import labels_of
from adapters.runtime.docker.networks import OwnNetwork, is_network_gone
from adapters.runtime.port import Container, StartFailed, WorkloadSpec

UNCANCELLED_SECONDS: Final = 3.0
"""How long a task that was cancelled still waits for what it asked the engine to do."""
MAKE_SECONDS: Final = 60.0
START_SECONDS: Final = 180.0
"""How long a container may take to be made, and to be started: a card that sleeps takes its time to wake."""
MAX_IMAGE_TEXT: Final = 256 * 1024
"""Twenty times what real images say of themselves; see `MAX_LIST`."""
CLEAN_UP_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.1

T = TypeVar("T")

logger = logging.getLogger("best_peer.runtime")


class RunsAlready(Exception):
    """Raised when a workload's container turns out to run: a start that was dropped came to its end."""


@attrs.frozen
class Starter:
    """Makes and starts one peer's containers.

    Args:
        containers: where.
        network: what those are on that are not boxed.
        engine: what they are confined by.
        publish_on: the address their ports are bound to.
    """

    containers: Containers
    network: OwnNetwork
    engine: EngineInfo
    publish_on: str

    async def make(self, spec: WorkloadSpec, container: Container, earlier: Found | None) -> str:
        """Make a workload's container in place of an earlier one that does not run; its id.

        Raises:
            StartFailed: it cannot be made.
            RunsAlready: there is one, which runs.
        """
        try:
            if earlier is not None:
                await self._remove(earlier)
            image = await self._image(container.image)
            if not container.is_boxed:
                await self.network.ensure()
            body = creation(
                spec,
                container,
                image,
                self.engine,
                labels=labels_of(spec, self.containers.instance),
                network=self.network.name,
                publish_on=self.publish_on,
            )
            with trio.move_on_after(MAKE_SECONDS):
                identity = await self._create(spec, body)
                await self._check_volumes(spec, container)
                return identity
        except EngineGone as gone:
            raise unavailable(gone) from gone
        except (EngineError, BadAnswer) as error:
            raise self._failed(spec, container, _words(error)) from error
        raise start_failed(f"it was not made within {MAKE_SECONDS:.0f} s")

    async def start(self, spec: WorkloadSpec, container: Container, identity: str) -> None:
        """Start a container that was made. One that is not started is removed.

        Raises:
            StartFailed: it cannot be started.
        """
        try:
            with trio.move_on_after(START_SECONDS):
                await self._start(spec.workload, identity)
                return
            problem = start_failed(f"it was not started within {START_SECONDS:.0f} s")
        except EngineGone as gone:
            # It may run, once the engine is back: whoever ends the workload ends that too.
            raise unavailable(gone) from gone
        except (EngineError, BadAnswer) as error:
            problem = self._failed(spec, container, _words(error))
            problem.__cause__ = error
        await self._clean_up(identity)
        raise problem

    async def _image(self, reference: str) -> ImageConfig:
        path = f"/images/{reference}/json"
        try:
            inspected = await self.containers.client.call("GET", path, ok=(404,), most_bytes=MAX_IMAGE_TEXT)
        except BadAnswer as fault:
            # Labels, variables and commands of an image are part of every look at its containers, all of
            # them together at some.
            raise StartFailed(
                f"the image says more of itself than {MAX_IMAGE_TEXT // 1024} KiB, or what cannot be read",
                fix="build the image with fewer or shorter labels and variables",
            ) from fault
        if inspected is None:
            raise image_gone()
        return ImageConfig.read(inspected)

    async def _create(self, spec: WorkloadSpec, body: dict[str, Any]) -> str:
        while True:
            is_network_missing = False
            try:
                made = await _waited_for(lambda: self.containers.create(spec.workload, body))
                if made is not None:
                    return made
            except EngineGone as gone:
                if not gone.may_have_acted:
                    raise
            except EngineError as error:
                is_network_missing = is_network_gone(error)
                if error.status == 404 and not is_network_missing:
                    raise image_gone() from error
                if error.status != 409 and not is_network_missing:
                    raise
            if is_network_missing:
                await self.network.ensure()
                continue
            # Dropped, or the name is taken: by what an earlier call made, or by somebody else.
            await self._clear_the_name(spec.workload)

    async def _clear_the_name(self, workload: str) -> None:
        left = await self.containers.look(workload)
        if left is not None:
            await self._remove(left)
        elif await self.containers.is_name_foreign(workload):
            name = self.containers.name(workload)
            raise StartFailed(
                f"the container engine has a container named {name} which is not this peer's",
                fix=f"remove it, or rename it (docker rename {name} NEW), and send the command again",
            )
        else:
            # It is being made or removed just now.
            await trio.sleep(LOOK_SECONDS)

    async def _remove(self, left: Found) -> None:
        if left.is_running:
            raise RunsAlready
        try:
            await self.containers.remove(left.id)
        except EngineError as error:
            if error.status == 409:
                raise RunsAlready from error
            raise
        if left.is_fresh:
            await self.containers.end_leftovers(left.id)

    async def _check_volumes(self, spec: WorkloadSpec, container: Container) -> None:
        """See that the engine made no folder on its disk for a box, whatever the image calls its volumes."""
        if not container.is_boxed:
            return
        made = await self.containers.look(spec.workload)
        if made is not None and made.volumes:
            await self._clean_up(made.id)
            raise StartFailed(
                f"the image's volume {made.volumes[0][:200]!r} was given room on the container engine's disk",
                fix="build the image with absolute paths in VOLUME",
            )

    async def _start(self, workload: str, identity: str) -> None:
        while True:
            try:
                if await _waited_for(lambda: self._start_once(identity)):
                    return
            except EngineGone as gone:
                if not gone.may_have_acted:
                    raise
            except EngineError as error:
                if not is_network_gone(error):
                    raise
                # It was removed since the container was made.
                await self.network.ensure()
                continue
            found = await self.containers.look(workload)
            if found is None or found.id != identity:
                raise EngineError(404, "somebody removed its container while it was being started")
            if found.is_fresh and found.why_not_started:
                raise EngineError(500, found.why_not_started)
            if not found.is_fresh:
                return
            # It is being started just now, or was never asked to: asking again does no harm.
            await trio.sleep(LOOK_SECONDS)

    async def _start_once(self, identity: str) -> bool:
        await self.containers.start(identity)
        return True

    def _failed(self, spec: WorkloadSpec, container: Container, message: str) -> StartFailed:
        hidden = [str(mount.source) for mount in container.mounts]
        hidden.append(self.engine.root)
        if container.secret is not None:
            hidden.append(container.secret[1])
        problem = start_failed(message, hidden)
        is_learned = isinstance(problem, OpenFilesRefused | SeccompNameRefused)
        logger.log(
            logging.DEBUG if is_learned else logging.WARNING, "%s was not started: %s", spec.workload, message
        )
        return problem

    async def _clean_up(self, identity: str) -> None:
        with trio.move_on_after(CLEAN_UP_SECONDS, shield=True):
            try:
                await self.containers.remove(identity, even_if_running=True)
                await self.containers.end_leftovers(identity)
            except (EngineError, EngineGone, BadAnswer) as fault:
                logger.warning("a container that was not started is left for later: %s", fault)


def unavailable(gone: EngineGone) -> StartFailed:
    """What a start fails with when the engine does not answer."""
    return StartFailed(str(gone), fix=gone.fix, code="RUNTIME_UNAVAILABLE")


async def _waited_for(call: Callable[[], Awaitable[T]]) -> T | None:
    """What a call gave; None when it took longer than even a cancelled task waits for it."""
    with trio.move_on_after(UNCANCELLED_SECONDS, shield=True):
        return await call()
    await trio.lowlevel.checkpoint()
    return None


def _words(error: EngineError | BadAnswer) -> str:
    return error.message if isinstance(error, EngineError) else str(error)
