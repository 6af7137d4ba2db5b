"""A door's durable state: its facts, its accepted commands, its keys, and what follows from them."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import attrs
import cattrs
import msgspec
import trio

from actors.log.accepted import AcceptedLog, Record
from actors.log.eventlog import EventLog
from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.log.records import RecordLog
from actors.messages.commands import Accepted, UnknownCommand, structure_command
from actors.messages.envelope import EnvelopeEncoder
from actors.state.keys import KeyRecord, KeyRing
from actors.state.world import World
from adapters.clock.port import Clock


@attrs.frozen
class Hooks:
    """What the desk does when a command is durable, and when it was not kept after all."""

    kept: Callable[[Accepted], None]
    failed: Callable[[Accepted], None]


class Store:
    """Opens, folds and writes. The first service to start and the last to stop.

    Its attributes are made anew at each start: read them through the store, keep none.
    """

    events: EventLog
    accepted: AcceptedLog
    keys: "RecordLog[KeyRecord]"

    def __init__(self, data: Path, encoder: EnvelopeEncoder, clock: Clock) -> None:
        self._data = data
        self._encoder = encoder
        self._clock = clock
        self._hooks: Hooks | None = None
        self._admitted: dict[str, Accepted] = {}
        self.world = World()
        self.ring = KeyRing()

    def connect(self, hooks: Hooks) -> None:
        """Say who is told of durable commands; once, before `run`."""
        self._hooks = hooks

    def admit(self, accepted: Accepted, record: Record) -> None:
        """Remember the command of a record that was put, until it is durable or failed."""
        self._admitted[record.id] = accepted

    def is_waiting(self, identifier: str) -> bool:
        """Whether the disk has yet to say if it has kept a command."""
        return identifier in self._admitted

    async def wait_settled(self, identifier: str) -> None:
        """Wait until it is sure whether the disk has kept a command: the fold then says which."""
        found = self.accepted.find(identifier)
        if found is None or found[1] is None:
            return
        with contextlib.suppress(NoRoom, JournalUnavailable):
            await found[1].wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Replay, then write until cancelled. Whoever puts entries has stopped before.

        Raises:
            OSError: a file is in an unknown state; run again to look.
        """
        await self._open()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.events.run)
            await nursery.start(self.accepted.run)
            await nursery.start(self.keys.run)
            task_status.started()

    async def _open(self) -> None:
        self.world, self.ring = World(), KeyRing()
        self._admitted.clear()
        self.keys = await RecordLog.open(self._data / "keys.jsonl", KeyRecord, self.ring.apply)
        self.accepted = await AcceptedLog.open(
            self._data / "accepted.jsonl",
            unfinished=self.world.unfinished.keys,
            found=self._found,
            kept=self._kept,
            failed=self._failed,
        )
        self.events = await EventLog.open(self._data, self._encoder, self._clock, self.world)
        self.world.settle()

    def _found(self, record: Record) -> None:
        if not record.is_whole:
            return
        try:
            body = structure_command(record.type, msgspec.json.decode(record.data))
        except (KeyError, TypeError, cattrs.BaseValidationError, msgspec.DecodeError):
            body = UnknownCommand(record.type)
        self.world.remember(
            Accepted(
                id=record.id,
                holder=record.holder,
                correlation=record.correlationid,
                at=record.at,
                body=body,
                subject=record.subject,
                device=record.device,
                device_uuid=record.device_uuid,
                boxed=record.boxed,
            )
        )

    def _kept(self, record: Record) -> None:
        accepted = self._admitted.pop(record.id, None)
        if accepted is not None and self._hooks is not None:
            self._hooks.kept(accepted)

    def _failed(self, record: Record) -> None:
        accepted = self._admitted.pop(record.id, None)
        if accepted is not None:
            self.world.withdraw(accepted)
            if self._hooks is not None:
                self._hooks.failed(accepted)
