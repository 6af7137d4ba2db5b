"""The supervisor of the few: services that start in order and stop in reverse.

When one fails, it and all after it are restarted (Erlang's rest_for_one): each may rely on those before it.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from actors.kernel.child import Backoff, Budget, RestartCount

logger = logging.getLogger("best_peer.kernel")


class ServiceFailed(Exception):
    """Raised when a service failed more often than its budget allows: the peer must end."""

    def __init__(self, name: str, cause: BaseException) -> None:
        super().__init__(f"{name} failed and could not be restarted: {cause!r}")
        self.service = name
        self.cause = cause


class Run(Protocol):
    """A service's task: calls `task_status.started()` once it serves, runs until cancelled."""

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve."""
        ...


@attrs.frozen
class Service:
    """A service's specification.

    Args:
        name: for people and logs.
        run: its task.
        stop: asked first when it must end; the task is cancelled when `grace_seconds` have passed.
        budget: restarts before the peer gives up.
        backoff: wait before each.
        grace_seconds: how long `stop` and the task's end may take.
    """

    name: str
    run: Run
    stop: "Stop | None" = None
    budget: Budget = attrs.field(factory=lambda: Budget(restarts=3, seconds=60.0))
    backoff: Backoff = attrs.field(factory=lambda: Backoff(first=0.2))
    grace_seconds: float = 1.0


class Stop(Protocol):
    """Asks a service to end by itself."""

    async def __call__(self) -> None:
        """Begin to end; returns when there is nothing more to ask."""
        ...


class _Running:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.crash: BaseException | None = None


class Services:
    """Runs services so that each one may rely on all before it."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)
        self._running: list[_Running] = []
        self._restarts = {s.name: RestartCount(s.budget) for s in services}
        self._changed = trio.Event()
        self._stop_wanted = False

    def stop(self) -> None:
        """Begin to stop: reverse order, each within its grace."""
        self._stop_wanted = True
        self._changed.set()

    def restarts(self) -> dict[str, int]:
        """How often each service was restarted."""
        return {name: count.total for name, count in self._restarts.items()}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`, restarting what fails and all after it.

        Raises:
            ServiceFailed: a service exhausted its budget. What ran before was stopped in order.
        """
        async with trio.open_nursery() as nursery:
            try:
                await self._start_from(0, nursery)
                task_status.started()
                while not self._stop_wanted:
                    await self._changed.wait()
                    self._changed = trio.Event()
                    await self._mend(nursery)
            finally:
                # Shielded, because the order matters most when somebody cancels from outside; bounded by
                # the sum of the graces.
                with trio.CancelScope(shield=True):
                    await self._stop_from(0)

    async def _mend(self, nursery: trio.Nursery) -> None:
        while not self._stop_wanted:
            failed = next((i for i, r in enumerate(self._running) if r.ended.is_set()), None)
            if failed is None:
                return
            crash: BaseException | None = self._running[failed].crash
            while crash is not None and not self._stop_wanted:
                await self._stop_from(failed)
                await self._wait_for_restart(self._services[failed], crash)
                try:
                    await self._start_from(failed, nursery)
                except Exception as again:  # noqa: BLE001 - a supervisor is where crashes end
                    failed, crash = len(self._running), again
                else:
                    crash = None

    async def _wait_for_restart(self, service: Service, crash: BaseException) -> None:
        attempt = self._restarts[service.name].spend(trio.current_time())
        if attempt is None:
            raise ServiceFailed(service.name, crash) from crash
        seconds = service.backoff.seconds(attempt)
        logger.error("%s failed; it and all after it start again in %.1f s", service.name, seconds)
        with trio.move_on_after(seconds):
            while not self._stop_wanted:
                await self._changed.wait()
                self._changed = trio.Event()

    async def _start_from(self, first: int, nursery: trio.Nursery) -> None:
        for service in self._services[first:]:
            if self._stop_wanted:
                return
            running = _Running(service)
            await nursery.start(self._keep, running)
            self._running.append(running)

    async def _keep(self, running: _Running, *, task_status: trio.TaskStatus[None]) -> None:
        started = _Started(task_status)
        try:
            with running.scope:
                await running.service.run(task_status=started)
                running.crash = RuntimeError("it returned, though it should serve until stopped")
        except Exception as crash:
            if not started.called:
                # A service that cannot even start tells its starter, who knows whether that is fatal.
                raise
            running.crash = crash
            logger.exception("%s crashed", running.service.name)
        finally:
            running.ended.set()
            self._changed.set()

    async def _stop_from(self, first: int) -> None:
        for running in reversed(self._running[first:]):
            if not running.ended.is_set():
                with trio.move_on_after(running.service.grace_seconds):
                    if running.service.stop is not None:
                        await running.service.stop()
                        await running.ended.wait()
                running.scope.cancel("stopped by its supervisor")
                await running.ended.wait()
        del self._running[first:]


class _Started:
    """Remembers whether a service got as far as serving."""

    def __init__(self, inner: trio.TaskStatus[None]) -> None:
        self._inner = inner
        self.called = False

    def started(self, value: None = None) -> None:
        self.called = True
        self._inner.started(value)
