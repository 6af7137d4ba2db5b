"""The supervisor of the few: services that start in order and stop in reverse.

When one fails, it and all after it are restarted (Erlang's rest_for_one): each may rely on those before it.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
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


class _Interrupted(Exception):
    """Raised when a service was not to be started after all: a stop, or the end of one before it."""


class _Ended(Exception):
    """Raised when a service ended that nobody had asked to."""


class _Running:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.crash: Exception | None = None


class Services:
    """Runs services so that each one may rely on all before it."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = tuple(services)
        self._running: list[_Running] = []
        self._starting: _Running | None = None
        self._restarts = {s.name: RestartCount(s.budget) for s in services}
        self._changed = trio.Event()
        self._stop_wanted = False

    def stop(self) -> None:
        """Begin to stop: reverse order, each within its grace."""
        self._stop_wanted = True
        self._look_again()

    def restarts(self) -> dict[str, int]:
        """How often each service was restarted."""
        return {name: count.total for name, count in self._restarts.items()}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`, restarting what fails and all after it. Being cancelled is a stop.

        Raises:
            ServiceFailed: a service exhausted its budget. What ran was stopped in order.
            Exception: what a service raised that could not even start the first time. Likewise.
        """
        failure: list[Exception] = []
        async with trio.open_nursery() as outer:
            # One cancelled nursery has no order, so the services stand under a shield and only this task
            # hears of a cancel from outside. Their end is bounded by the sum of their graces, and by what
            # they themselves shield.
            outer.start_soon(self._stop_when_cancelled)
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    try:
                        await self._supervise(nursery, task_status)
                    except Exception as error:  # noqa: BLE001 - raised below, bare, once all have stopped
                        failure.append(error)
                    finally:
                        await self._stop_from(0)  # noqa: ASYNC102 - bounded by the graces, see above
            outer.cancel_scope.cancel("all services have ended")
        if failure:
            raise failure[0]

    async def _stop_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.stop()

    async def _supervise(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        announced = False
        while not self._stop_wanted:
            failed = self._first_failed()
            if failed is not None:
                await self._restart_from(failed, nursery)
            elif len(self._running) < len(self._services):
                with suppress(_Interrupted):
                    await self._start_missing(nursery)
            elif not announced:
                announced = True
                task_status.started()
            else:
                await self._wait_for_change()
        if not announced:
            # A stop while they start is obeyed, and no error to whoever waits for the start.
            task_status.started()

    def _first_failed(self) -> int | None:
        return next((i for i, r in enumerate(self._running) if r.ended.is_set()), None)

    async def _restart_from(self, failed: int, nursery: trio.Nursery) -> None:
        """Stop the failed service and all after it, and start them again when its back-off has passed.

        A stop, or the failure of one that the others rely on, ends the attempt: the caller looks again.
        """
        crash: Exception | None = self._running[failed].crash or _Ended("it ended without a word")
        while crash is not None:
            await self._stop_from(failed)
            service = self._services[failed]
            attempt = self._restarts[service.name].spend(trio.current_time())
            if attempt is None:
                raise ServiceFailed(service.name, crash) from crash
            seconds = service.backoff.seconds(attempt)
            logger.error(
                "%s failed (%r); it and all after it start again in %.1f s", service.name, crash, seconds
            )
            with trio.move_on_after(seconds):
                while not self._stop_wanted and self._first_failed() is None:
                    await self._wait_for_change()
            crash = None
            try:
                await self._start_missing(nursery)
            except _Interrupted:
                return
            except Exception as again:  # noqa: BLE001 - a supervisor is where crashes end
                failed, crash = len(self._running), again

    async def _start_missing(self, nursery: trio.Nursery) -> None:
        """Start, in order, every service that does not run.

        Raises:
            _Interrupted: a stop was asked for, or one that runs has failed.
            Exception: what a service raised before it served.
        """
        while len(self._running) < len(self._services):
            if self._is_interrupted():
                raise _Interrupted
            running = self._starting = _Running(self._services[len(self._running)])
            try:
                await nursery.start(self._keep, running)
            except Exception as error:
                if self._is_interrupted():
                    # Not its own fault, then: what it relies on had gone, or was going.
                    raise _Interrupted from error
                raise
            finally:
                self._starting = None
            self._running.append(running)

    def _is_interrupted(self) -> bool:
        return self._stop_wanted or self._first_failed() is not None

    async def _keep(self, running: _Running, *, task_status: trio.TaskStatus[None]) -> None:
        started = _Started(task_status)
        try:
            await _serve(running, started)
        except Exception as crash:
            if not started.called:
                # A service that cannot even start tells its starter, who knows whether that is fatal.
                raise
            running.crash = crash
            if not isinstance(crash, _Ended):
                logger.exception("%s crashed", running.service.name)
        finally:
            running.ended.set()
            self._look_again()

    def _look_again(self) -> None:
        """Something changed: wake the supervisor, also where it waits for a service to start."""
        self._changed.set()
        if self._starting is not None and self._is_interrupted():
            self._starting.scope.cancel("it is not to be started now")

    async def _wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed = trio.Event()

    async def _stop_from(self, first: int) -> None:
        for running in reversed(self._running[first:]):
            if not running.ended.is_set():
                await self._ask_to_stop(running)
                running.scope.cancel("stopped by its supervisor")
                await running.ended.wait()
        del self._running[first:]

    async def _ask_to_stop(self, running: _Running) -> None:
        service = running.service
        if service.stop is None:
            return
        with trio.move_on_after(service.grace_seconds):
            try:
                await service.stop()
            except Exception:
                # Those before it must still be stopped in order: it is cancelled like one that hangs.
                logger.exception("%s failed while it was asked to stop", service.name)
                return
            await running.ended.wait()


async def _serve(running: _Running, started: "_Started") -> None:
    with running.scope:
        await running.service.run(task_status=started)
        raise _Ended("it returned, though it should serve until stopped")
    if not started.called:
        raise _Interrupted


class _Started:
    """Remembers whether a service got as far as serving."""

    def __init__(self, inner: trio.TaskStatus[None]) -> None:
        self._inner = inner
        self.called = False

    def started(self, value: None = None) -> None:
        self.called = True
        self._inner.started(value)
