"""The supervisor of the many: one task a worker, each restarted alone."""

import logging
from typing import Any

import attrs
import trio

from actors.kernel.child import ChildSpec, Restart, RestartCount
from actors.kernel.mailbox import Mailbox, MailboxStatistics

logger = logging.getLogger("best_peer.kernel")


@attrs.frozen
class WorkerStatistics:
    """One worker's mailbox and how often it was restarted."""

    name: str
    mailbox: MailboxStatistics
    restarts: int


class Worker:
    """A living worker: where messages for it go."""

    __slots__ = ("_ended", "_has_ended", "_restarts", "_scope", "mailbox", "spec", "stopping")

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.mailbox: Mailbox[Any] = Mailbox(spec.capacity)
        self.stopping = False
        # The event is made only when somebody waits: most workers end alone, and there may be thousands.
        self._has_ended = False
        self._ended: trio.Event | None = None
        self._scope: trio.CancelScope | None = None
        self._restarts: RestartCount | None = None

    def cancel(self, reason: str) -> None:
        """End the task at its next checkpoint; it is not restarted."""
        self.stopping = True
        if self._scope is not None:
            self._scope.cancel(reason)

    async def wait_ended(self) -> None:
        """Wait until the task has ended for good."""
        if self._has_ended:
            return
        if self._ended is None:
            self._ended = trio.Event()
        await self._ended.wait()

    def statistics(self) -> WorkerStatistics:
        """Depth, peak and restarts."""
        restarts = 0 if self._restarts is None else self._restarts.total
        return WorkerStatistics(self.spec.name, self.mailbox.statistics(), restarts)

    def end(self) -> None:
        """The task has ended for good: answer what is left, and wake who waits."""
        self._has_ended = True
        self.mailbox.close()
        if self._ended is not None:
            self._ended.set()

    async def supervise(self) -> None:
        """Run the actor, and again after each crash, until it ends or its budget is gone."""
        while not self.stopping:
            crash = await self._run_once()
            if self._must_end():
                return
            if crash is None:
                if self.spec.restart is not Restart.PERMANENT:
                    return
                crash = RuntimeError("a permanent worker returned")
                logger.error("%s returned, though it should work for ever", self.spec.name)
            elif self.spec.restart is Restart.TEMPORARY:
                await self._give_up(crash)
                return
            if self._restarts is None:
                self._restarts = RestartCount(self.spec.budget)
            attempt = self._restarts.spend(trio.current_time())
            if attempt is None:
                await self._give_up(crash)
                return
            self.mailbox.drop_current()
            with trio.CancelScope() as self._scope:
                await trio.sleep(self.spec.backoff.seconds(attempt))

    def _must_end(self) -> bool:
        # A call, since to the type checker the attribute cannot have changed over an await.
        return self.stopping

    async def _run_once(self) -> BaseException | None:
        # The scope stands inside the try: a group that holds Cancelled is not an Exception, and the scope
        # takes its own Cancelled out before the except clause sees the rest.
        try:
            with trio.CancelScope() as self._scope:
                await self.spec.make().run(self.mailbox)
        except Exception as crash:
            logger.exception("%s crashed", self.spec.name)
            return crash
        return None

    async def _give_up(self, crash: BaseException) -> None:
        logger.error("%s is given up after repeated crashes: %r", self.spec.name, crash)
        # Before its work is ended, which may take long: nobody will answer these.
        self.mailbox.refuse_all()
        if self.spec.exhausted is None:
            return
        try:
            with trio.CancelScope() as self._scope:
                await self.spec.exhausted(crash)
        except Exception as error:
            logger.critical("%s could not be ended: %r", self.spec.name, error, exc_info=error)


class Workers:
    """A nursery of workers. One worker's crash ends no other's work."""

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._living: dict[str, Worker] = {}
        self._stopping = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the nursery until `stop` was called and every worker has ended, or until cancelled."""
        self._stopping = False
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            for worker in list(self._living.values()):
                worker.end()
            self._living.clear()

    def spawn(self, spec: ChildSpec) -> Worker:
        """Start a worker, or return the living one of that name. Does not wait."""
        worker = self._living.get(spec.name)
        if worker is not None:
            return worker
        if self._nursery is None or self._stopping:
            raise RuntimeError(f"{spec.name}: the supervisor takes no workers now")
        worker = self._living[spec.name] = Worker(spec)
        self._nursery.start_soon(self._keep, worker)
        return worker

    def get(self, name: str) -> Worker | None:
        """The living worker of that name."""
        return self._living.get(name)

    def __len__(self) -> int:
        return len(self._living)

    def statistics(self) -> tuple[WorkerStatistics, ...]:
        """Every living worker's figures."""
        return tuple(worker.statistics() for worker in self._living.values())

    async def stop(self) -> None:
        """Cancel every worker, youngest first, each within its grace."""
        self._stopping = True
        for worker in reversed(list(self._living.values())):
            worker.cancel("the peer is stopping")
        begun = trio.current_time()
        for worker in list(self._living.values()):
            with trio.move_on_at(begun + worker.spec.grace_seconds):
                await worker.wait_ended()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel("every worker was stopped")

    async def _keep(self, worker: Worker) -> None:
        try:
            await worker.supervise()
        finally:
            self._living.pop(worker.spec.name, None)
            worker.end()
