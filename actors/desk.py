"""The one thing the door talks to: takes commands, answers retries, admits, reserves (F3, F7, F8, F18).

A decision is made in one go: no checkpoint stands between reading the fold and reserving in it. What was
reserved comes back when the disk does not keep the command. Once durable a command is carried out whether or
not its sender still waits.
"""

import attrs
import msgspec
import trio

from actors.available import available_now
from actors.counts import CommandCounts
from actors.house import House
from actors.log.accepted import Record
from actors.log.journal import Batch, JournalUnavailable
from actors.log.linefile import NoRoom
from actors.messages.commands import (
    Accepted,
    Command,
    DeployModel,
    Prompt,
    PullImage,
    RunJob,
    StopJob,
    UndeployModel,
)
from actors.messages.times import time_text
from actors.readings import Reading, Readings
from actors.rules.images import check_image
from actors.rules.pace import Pace
from actors.rules.placement import place, place_job
from actors.rules.refusal import Refusal
from actors.rules.shares import check_deployment, check_job
from actors.rules.workloads import deployment_to_end, deployment_to_prompt, job_to_stop
from actors.state.keys import Key
from actors.store import Hooks, Store
from actors.tree import Tree
from adapters.engine.port import Engine, EngineFault, PromiseTooSmall
from adapters.gpu.port import Device

MOST_UNFINISHED = 10_000
"""Accepted commands that may be unfinished on a door; past it new ones are refused, not piled up."""


@attrs.frozen
class Submission:
    """A command that passed its envelope, its schema and its scope.

    Args:
        id: the sender's id of it.
        correlation: the sender's, if it named one.
        body: the command.
        data: the same as JSON, to be kept.
        hash: of its content: what makes a retry the same.
    """

    id: str
    correlation: str | None
    body: Command
    data: bytes
    hash: str


@attrs.frozen
class Receipt:
    """What a sender is answered, the first time and every time it asks again."""

    id: str
    correlation: str


class Desk:
    """Admits commands for one door; `counts` has how many it accepted, and were refused before or by it."""

    def __init__(self, house: House, tree: Tree, *, commands_per_minute: int) -> None:
        self._house = house
        self._store: Store = house.store
        self._tree = tree
        self._readings = Readings(house)
        self._pace = Pace(commands_per_minute)
        self.counts = CommandCounts()
        self._store.connect(Hooks(kept=self._kept, failed=self._failed))

    async def submit(self, key: Key, submission: Submission) -> Receipt:
        """Take a command: durable on return, or refused.

        Cancelling the wait loses the answer alone: the same command sent again gets it.

        Raises:
            Refusal: with what to send instead.
        """
        again = self._retry(key, submission)
        if again is None:
            prepared = await self._prepare(key, submission.body)
            again = self._retry(key, submission)  # somebody may have sent the same meanwhile
            if again is None:
                again = self._admit(key, submission, prepared)
        receipt, batch = again
        if batch is not None:
            try:
                await batch.wait()
            except NoRoom as full:
                raise _no_room() from full
            except JournalUnavailable as error:
                raise _not_now() from error
        return receipt

    def _retry(self, key: Key, submission: Submission) -> tuple[Receipt, Batch[Record] | None] | None:
        found = self._store.accepted.find(submission.id)
        if found is not None:
            record, batch = found
            if record.holder == key.holder and record.hash == submission.hash:
                return Receipt(record.id, record.correlationid), batch
            if record.holder == key.holder:
                raise Refusal(
                    "DUPLICATE_ID",
                    "a command with this id and other content was accepted before; "
                    "give a new command a new id",
                    field="/id",
                )
        self._check_owner(key, submission.id, "/id")
        if submission.correlation is not None:
            self._check_owner(key, submission.correlation, "/correlationid")
        return None

    def _check_owner(self, key: Key, name: str, field: str) -> None:
        owner = self._store.accepted.owner(name)
        if owner is not None and owner != key.holder:
            raise Refusal(
                "ID_NOT_YOURS",
                f"the {field[1:]} was used by another credential on this door; "
                "choose another, a random UUID for instance",
                field=field,
            )

    def _check_open(self, key: Key) -> None:
        # It may have been taken back, and its work ended, while the engine was asked about the command.
        now = self._store.ring.get(key.holder)
        if now is not None and not now.is_open(self._house.clock.now_ms()):
            raise Refusal("UNAUTHORIZED", "this key was taken back or ran out before its command was taken")

    async def _prepare(self, key: Key, body: Command) -> "_Prepared":
        """Ask the world what a decision needs; nothing is promised yet."""
        match body:
            case DeployModel():
                # What the key may not have is said before what the machine does not; it is decided below.
                holding = self._store.world.holding(key.holder)
                check_deployment(key, holding, body.memory_bytes)
                return await self._prepare_deploy(body)
            case RunJob():
                return await self._prepare_job(body)
        return _Prepared()

    async def _prepare_deploy(self, body: DeployModel) -> "_Prepared":
        engine = self._house.engines.get(body.engine)
        if engine is None:
            engines = sorted(self._house.engines)
            instead = (
                f"deploy with one of: {', '.join(engines)}"
                if engines
                else "ask the owner of the machine to install one: the peer's log says what"
            )
            raise Refusal(
                "ENGINE_UNAVAILABLE",
                f"this peer has no engine {body.engine}; {instead}",
                engine=body.engine,
                engines=engines,
            )
        try:
            await engine.plan(body.model, body.memory_bytes)
        except PromiseTooSmall as small:
            raise _from_engine(small, least_bytes=small.least_bytes) from small
        except EngineFault as fault:
            raise _from_engine(fault) from fault
        return _Prepared(engine, await self._readings.for_promise(body.memory_bytes))

    async def _prepare_job(self, body: RunJob) -> "_Prepared":
        runtime = self._house.runtime
        if not runtime.has_jobs:
            raise _no_jobs(runtime.name)
        check_image(runtime.images, body.image, runtime=runtime.name)
        if body.memory_bytes is None and body.device is None:
            return _Prepared()
        return _Prepared(None, await self._readings.for_promise(body.memory_bytes or 0))

    def _admit(
        self, key: Key, submission: Submission, prepared: "_Prepared"
    ) -> tuple[Receipt, Batch[Record]]:
        """Decide and reserve in one go. Never a checkpoint."""
        world = self._store.world
        self._check_open(key)
        if key.is_tenant:
            self._pace.check(key.holder, trio.current_time())
        if len(world.unfinished) >= MOST_UNFINISHED:
            raise Refusal(
                "TOO_MANY_UNFINISHED",
                f"{MOST_UNFINISHED} commands are under way on this peer; "
                "send it again when some have completed",
                limit=MOST_UNFINISHED,
                retry_after_seconds=5,
            )
        decided = self._decide(key, submission.body, prepared)
        accepted = Accepted(
            id=submission.id,
            holder=key.holder,
            correlation=submission.correlation or submission.id,
            at=time_text(self._house.clock.now_ms()),
            body=submission.body,
            subject=decided.subject,
            device=None if decided.device is None else decided.device.id,
            device_uuid=None if decided.device is None else decided.device.uuid,
            boxed=decided.boxed,
        )
        record = Record(
            id=accepted.id,
            holder=accepted.holder,
            correlationid=accepted.correlation,
            hash=submission.hash,
            type=accepted.type,
            at=accepted.at,
            subject=accepted.subject,
            device=accepted.device,
            device_uuid=accepted.device_uuid,
            boxed=accepted.boxed,
            data=msgspec.Raw(submission.data),
        )
        try:
            batch = self._store.accepted.put(record)
        except JournalUnavailable as error:
            raise _not_now() from error
        self._store.admit(accepted, record)
        world.accept(accepted)
        if key.is_tenant:
            self._pace.count(key.holder, trio.current_time())
        return Receipt(accepted.id, accepted.correlation), batch

    def _decide(self, key: Key, body: Command, prepared: "_Prepared") -> "_Decided":
        world = self._store.world
        match body:
            case DeployModel():
                return self._decide_deploy(key, body, prepared)
            case UndeployModel(deployment=identifier):
                deployment_to_end(key, identifier, world)
            case Prompt(deployment=identifier, max_tokens=max_tokens):
                deployment_to_prompt(key, identifier, world, max_tokens=max_tokens)
            case PullImage(image=image):
                runtime = self._house.runtime
                check_image(runtime.images, image, runtime=runtime.name)
            case RunJob():
                return self._decide_job(key, body, prepared)
            case StopJob(job=identifier):
                job_to_stop(key, identifier, world)
            case _:
                pass
        return _Decided()

    def _decide_deploy(self, key: Key, body: DeployModel, prepared: "_Prepared") -> "_Decided":
        world = self._store.world
        assert prepared.engine is not None
        check_deployment(key, world.holding(key.holder), body.memory_bytes)
        device = place(
            engine=body.engine,
            apis=prepared.engine.apis,
            memory_bytes=body.memory_bytes,
            wanted_device=body.device,
            wanted_isolation=body.isolation,
            isolation=self._house.runtime.isolation,
            devices=prepared.reading.devices,
            grant=key.grant,
            world=world,
            uses=prepared.reading.uses,
            availability=available_now(self._house, prepared.reading.devices),
        )
        return _Decided(self._house.new_id("dep-"), device)

    def _decide_job(self, key: Key, body: RunJob, prepared: "_Prepared") -> "_Decided":
        world = self._store.world
        check_job(key, world.holding(key.holder), body.memory_bytes)
        device = place_job(
            memory_bytes=body.memory_bytes,
            wanted_device=body.device,
            wanted_isolation=body.isolation,
            isolation=self._house.runtime.isolation,
            devices=prepared.reading.devices,
            grant=key.grant,
            world=world,
            uses=prepared.reading.uses,
            availability=available_now(self._house, prepared.reading.devices),
        )
        return _Decided(self._house.new_id("job-"), device, boxed=key.boxes_jobs)

    def _kept(self, accepted: Accepted) -> None:
        self.counts.accept(accepted.type)
        try:
            self._tree.begin(accepted)
        except RuntimeError:
            # The peer is stopping: the command is durable and begins at the next start.
            return

    def _failed(self, accepted: Accepted) -> None:
        self._pace.take_back(accepted.holder)


@attrs.frozen
class _Prepared:
    engine: Engine | None = None
    reading: Reading = attrs.field(factory=Reading)


@attrs.frozen
class _Decided:
    """What a command that makes a workload makes, and where; and whether a job is boxed."""

    subject: str | None = None
    device: Device | None = None
    boxed: bool | None = None


def _from_engine(fault: EngineFault, **details: int) -> Refusal:
    return Refusal(fault.code, f"{fault.reason}; {fault.fix}", fix=fault.fix, **details)


def _no_jobs(runtime: str) -> Refusal:
    return Refusal(
        "JOBS_UNAVAILABLE",
        f"this peer's runtime ({runtime}) runs no jobs; send it to a peer whose runtime runs containers, "
        "or deploy a model and prompt it",
        runtime=runtime,
    )


def _no_room() -> Refusal:
    return Refusal(
        "NO_ROOM",
        "this peer's disk has no room to keep the command, so it was not accepted; "
        "its owner frees room on the file system of its data folder, then send it again",
        retry_after_seconds=30,
    )


def _not_now() -> Refusal:
    return Refusal(
        "LOG_UNAVAILABLE",
        "this peer cannot keep commands right now; send the same one again, with the same id, in a moment",
        retry_after_seconds=2,
    )
