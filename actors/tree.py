"""Which actor carries out which command, and what is started again after a restart (F8, F37)."""

import contextlib
from collections.abc import Callable

import trio

from actors.deployment import deployment_spec, undeployed
from actors.ending import End, named, orphans_spec
from actors.house import House
from actors.job import job_ended, job_spec
from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Mailbox, MailboxFull
from actors.log.linefile import NoRoom
from actors.messages import events as e
from actors.messages.commands import (
    Accepted,
    DeployModel,
    Prompt,
    PullImage,
    RevokeAgent,
    RunJob,
    StopJob,
    UndeployModel,
    UnknownCommand,
)
from actors.messages.envelope import Fact
from actors.prompt import AT_ONCE, prompt_spec
from actors.pull import pull_spec
from actors.registrar import Registrar
from actors.turns import Turns

ROOM_RETRY_SECONDS = 5.0
"""Between two tries to write down that a key was given back, while the disk is full."""


class Tree:
    """Starts and finds the actors of one door."""

    def __init__(self, house: House, registrar: Registrar) -> None:
        self._house = house
        self.registrar = registrar
        self._turns = Turns(AT_ONCE)

    def begin(self, accepted: Accepted) -> None:
        """Carry out a durable command. Never waits; what cannot begin now begins after a restart."""
        match accepted.body:
            case DeployModel():
                assert accepted.subject is not None
                self._house.workers.spawn(deployment_spec(self._house, accepted.subject))
            case UndeployModel(deployment=identifier):
                if not self.end_deployment(identifier, End()):
                    self._spawn(accepted, lambda: undeployed(accepted))
            case Prompt():
                self._house.workers.spawn(prompt_spec(self._house, accepted, self._turns))
            case PullImage():
                self._house.workers.spawn(pull_spec(self._house, accepted))
            case RevokeAgent():
                self._house.workers.spawn(self._revoke_spec(accepted))
            case UnknownCommand(kind=kind):
                reason = (
                    f"{kind} was accepted by another version of this peer, and this one has no such command"
                )
                fix = "send it again in a shape that the catalogue lists"
                self._spawn(accepted, lambda: failed(accepted, "UNKNOWN_COMMAND", reason, fix))
            case RunJob():
                assert accepted.subject is not None
                self._house.workers.spawn(job_spec(self._house, accepted.subject))
            case StopJob(job=identifier):
                if not self.end_job(identifier, End()):
                    self._spawn(accepted, lambda: job_ended(accepted))

    def end_deployment(self, identifier: str, end: End) -> bool:
        """Ask a deployment's actor to end it; False when there is none."""
        is_alive = identifier in self._house.store.world.deployments
        return self._end(identifier, end, deployment_spec if is_alive else None)

    def end_job(self, identifier: str, end: End) -> bool:
        """Ask a job's actor to end it; False when there is none."""
        is_alive = identifier in self._house.store.world.jobs
        return self._end(identifier, end, job_spec if is_alive else None)

    def _end(self, identifier: str, end: End, spec: Callable[[House, str], ChildSpec] | None) -> bool:
        worker = self._house.workers.get(identifier)
        if worker is None:
            if spec is None:
                return False
            worker = self._house.workers.spawn(spec(self._house, identifier))
        with contextlib.suppress(MailboxFull):  # asked that often before, it knows
            worker.mailbox.tell_nowait(end)
        return True

    def recover(self) -> None:
        """After a start: take up what is unfinished, and end what runs without being known. Never waits."""
        house = self._house
        world = house.store.world
        # Before any actor looks for a wish to end its work: one whose program that wish has ended already
        # would tell that it ended by itself.
        self.registrar.ends.take_up()
        # Whoever lined up before has ended; one that was stopped before it ran left its place taken.
        self._turns = Turns(AT_ONCE)
        for identifier in tuple(world.deployments):
            house.workers.spawn(deployment_spec(house, identifier))
        for identifier in tuple(world.jobs):
            house.workers.spawn(job_spec(house, identifier))
        for accepted in tuple(world.unfinished.values()):
            is_alive = accepted.subject in world.deployments or accepted.subject in world.jobs
            # One that is not durable yet begins when it is, as any other.
            if not is_alive and not house.store.is_waiting(accepted.id):
                self.begin(accepted)
        house.workers.spawn(orphans_spec(house))

    def _revoke_spec(self, accepted: Accepted) -> ChildSpec:
        house, registrar = self._house, self.registrar

        class Revoke:
            async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002
                while accepted.id in house.store.world.unfinished:
                    try:
                        key = await registrar.give_back(accepted.holder)
                    except NoRoom:
                        await trio.sleep(ROOM_RETRY_SECONDS)
                        continue
                    event = e.AgentRevoked(holder=accepted.holder, name=key.name)
                    await house.store.events.tell(
                        Fact(event, accepted.holder, accepted.correlation, accepted.id)
                    )

        async def exhausted(crash: BaseException) -> None:
            reason = f"this peer failed over it: {named(crash)}"
            fix = "ask the owner of the machine to take the key back (best-peer revoke)"
            if accepted.id in house.store.world.unfinished:
                await house.store.events.tell(failed(accepted, "INTERNAL", reason, fix))

        return ChildSpec(f"command {accepted.id}", Revoke, exhausted=exhausted, capacity=0)

    def _spawn(self, accepted: Accepted, fact: Callable[[], Fact]) -> None:
        house = self._house

        class Tell:
            async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002
                if accepted.id in house.store.world.unfinished:
                    await house.store.events.tell(fact())

        house.workers.spawn(ChildSpec(f"command {accepted.id}", Tell, capacity=0))


def failed(accepted: Accepted, code: str, reason: str, fix: str) -> Fact:
    """The fact that a command could not be carried out."""
    event = e.CommandFailed(accepted.id, accepted.type, code, reason, fix)
    return Fact(event, accepted.holder, accepted.correlation, accepted.id)
