"""Waits for a container's end, and brings it about (F19, F25).

An engine without live-restore ends its containers as it goes down, or when it finds them again after it was
killed. That is told apart from an end of the program's own by what the engine remembers: nothing from before
its own start.
"""

import logging
from datetime import UTC, datetime, timedelta
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Final

import attrs
import trio

from adapters.runtime.docker.containers import Containers, Found
from adapters.runtime.docker.ends import KILLED, Asked, exit_of, is_by_signal, is_marked, was_running_at_boot
from adapters.runtime.docker.faults import DockerFault, EngineError, EngineGone
from adapters.runtime.docker.info import EngineInfo
from adapters.runtime.docker.output import read_tail
from adapters.runtime.port import Exit, NotEnded, RuntimeUnavailable

LOOK_SECONDS: Final = 60.0
"""How often a container that is waited for is looked at, however silent the engine is."""
PAUSE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 2.0
KILL_SECONDS: Final = 10.0
ABOUT: Final = timedelta(seconds=60)
"""An engine that goes down, or comes back, takes so long to end its containers."""

logger = logging.getLogger("best_peer.runtime")


@attrs.define
class _Absence:
    """A time when the engine did not answer."""

    noticed: datetime
    over: datetime | None = None

    def is_about(self, when: datetime | None) -> bool:
        over = self.over or datetime.now(UTC)
        return when is not None and self.noticed - ABOUT <= when <= over + ABOUT


@attrs.frozen
class Watch:
    """Watches one peer's containers.

    Args:
        containers: which.
        engine: what runs them.
        asked: what this peer asked each container to do, by its id; written here.
    """

    containers: Containers
    engine: EngineInfo
    asked: dict[str, Asked]

    async def wait(self, workload: str) -> Exit:
        """Wait until the container has ended, whoever ended it, and as long as the engine is away."""
        absence: _Absence | None = None
        was_brief = False
        said = ""
        while True:
            try:
                found = await self.containers.look(workload)
                if absence is not None and absence.over is None:
                    absence.over = datetime.now(UTC)
                if found is None or found.is_fresh:
                    return Exit(None)
                if not found.is_running:
                    return await self._end(found, absence)
                if was_brief:
                    await trio.sleep(PAUSE_SECONDS)
                began = trio.current_time()
                with trio.move_on_after(LOOK_SECONDS):
                    await self.containers.until_ended(found.id)
                was_brief = trio.current_time() - began < PAUSE_SECONDS
                if not await self.containers.is_engine_there():
                    # It goes down: what it ends as it does says nothing of that.
                    absence = _Absence(datetime.now(UTC))
            except (DockerFault, RuntimeUnavailable) as fault:
                if str(fault) != said:
                    logger.warning("the end of %s is not to be known now, asking on: %s", workload, fault)
                said = str(fault)
                if isinstance(fault, EngineGone) and (absence is None or absence.over is not None):
                    absence = _Absence(datetime.now(UTC))
                await trio.sleep(RETRY_SECONDS)

    async def stop(self, found: Found, grace_seconds: float) -> None:
        """Ask a container to end by its own stop signal, wait, kill.

        Raises:
            NotEnded: it was killed, and its end does not come.
            DockerFault: the engine does not answer, or refuses.
        """
        self.asked[found.id] = Asked(to_end=True)
        try:
            await self.containers.signal(found.id, found.stop_signal)
        except EngineError as error:
            # The image names the signal; one that there is not must not keep it from being ended.
            logger.warning("%s cannot be asked to end, so it is killed: %s", found.workload, error)
            grace_seconds = 0
        with trio.move_on_after(grace_seconds):
            await self.wait(found.workload)
            return
        self.asked[found.id] = Asked(to_end=True, was_killed=True)
        await self.containers.signal(found.id, "SIGKILL")
        with trio.move_on_after(KILL_SECONDS):
            await self.wait(found.workload)
            return
        raise NotEnded(f"{found.workload} was killed, and the container engine does not say that it ended")

    async def _end(self, found: Found, absence: _Absence | None) -> Exit:
        asked = self.asked.get(found.id, Asked())
        booted = self._booted()
        went_down = not asked.to_end and await self._went_down(found, absence, booted)
        told_of_memory = not went_down and await self._lacked_memory_unmarked(found, asked)
        try:
            output = await read_tail(self.containers.client, found.id)
        except EngineError as error:
            logger.debug("what %s wrote cannot be read: %s", found.workload, error)
            output = b""
        return exit_of(
            found.state,
            output,
            asked=asked,
            went_down=went_down,
            told_of_memory=told_of_memory,
            booted=booted,
        )

    async def _lacked_memory_unmarked(self, found: Found, asked: Asked) -> bool:
        if asked.was_killed or is_marked(found.state) or found.state.get("ExitCode") != KILLED:
            return False
        return await self.containers.ran_out_of_memory(found)

    async def _went_down(self, found: Found, absence: _Absence | None, booted: datetime | None) -> bool:
        """Whether it was the engine that ended a container, as it went down or was started again."""
        if not is_by_signal(found.state, found.stop_signal):
            return False
        if was_running_at_boot(found.state, booted):
            return True
        if self.engine.survives_restart:
            return False
        if absence is not None and absence.is_about(found.ended):
            return True
        return await self.containers.was_engine_restarted_since(found)

    def _booted(self) -> datetime | None:
        """When this machine was started, where the engine is one of this machine."""
        if self.containers.client.endpoint.socket is None:
            return None
        return datetime.now(UTC) - timedelta(seconds=clock_gettime(CLOCK_BOOTTIME))
