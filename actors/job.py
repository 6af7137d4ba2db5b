"""A job: its image made ready, its container run once to its end, which is told once (F25, F31, F37).

As with a deployment the actor's state is the fold's: at each start it looks what the fold says and what
really runs or ran, and goes on from there. What has been started is never started a second time.
"""

from collections.abc import Iterable

import attrs
from msgspec import UNSET, UnsetType

from actors.away import UNAVAILABLE, find, start
from actors.cards import promised_device
from actors.ending import End, named, stop_for_good, sweep_spec
from actors.house import House
from actors.image import ensure_image
from actors.jobends import end_of, was_over
from actors.kernel.child import ChildSpec
from actors.messages import events as e
from actors.messages.commands import Accepted, RunJob
from actors.messages.envelope import Fact
from actors.messages.times import time_ms
from actors.release import look_before, not_waited_for
from actors.state.workloads import Job
from actors.state.world import World
from actors.workload import WorkloadActor
from adapters.images.port import ImageFault
from adapters.runtime.port import Container, Exit, RuntimeUnavailable, StartFailed, WorkloadSpec


def job_spec(house: House, identifier: str) -> ChildSpec:
    """How a job's actor is supervised."""

    async def exhausted(crash: BaseException) -> None:
        await JobActor(house, identifier).give_up(crash)

    return ChildSpec(
        name=identifier,
        make=lambda: JobActor(house, identifier),
        exhausted=exhausted,
        grace_seconds=1.0,
    )


def job_ended(stop: Accepted) -> Fact:
    """The fact that completes a stop-job whose job ended by itself meanwhile."""
    event = e.CommandFailed(
        command=stop.id,
        command_type=stop.type,
        code="JOB_ENDED",
        reason="the job ended otherwise before this stopped it",
        fix="read how under the correlation id of its run-job, in the job's last event",
    )
    return Fact(event, stop.holder, stop.correlation, stop.id)


class JobActor(WorkloadActor[Job]):
    """One job from its acceptance to its end."""

    # `job` is the base class's third parameter by name; a failed job says the same whichever it was.
    def _given_up(self, job: Job, crash: BaseException, note: str | UnsetType) -> e.Event:  # noqa: ARG002
        reason = f"this peer's own part of it kept failing: {named(crash)}"
        fix = "run the job again; the owner of the machine finds why in its log"
        return e.JobFailed(self._id, "INTERNAL", reason, fix, memory_note=note)

    def _find(self, world: World) -> Job | None:
        return world.jobs.get(self._id)

    def _enders(self, world: World) -> Iterable[Accepted]:
        return world.stops_of(self._id)

    def _ended_otherwise(self, ender: Accepted) -> Fact:
        return job_ended(ender)

    async def _live(self, job: Job) -> None:
        runtime = self._house.runtime
        if not runtime.has_jobs:
            reason = f"this peer was started again with a runtime that runs no jobs ({runtime.name})"
            await self._fail(job, "JOBS_UNAVAILABLE", reason, "run it on a peer that runs containers")
            return
        if not job.started:
            try:
                if not await self._was_begun():
                    await self._start(job)
            except (ImageFault, StartFailed) as fault:
                note: str | UnsetType = UNSET
                if fault.code == UNAVAILABLE:
                    # It may have been started all the same: that is looked after apart.
                    self._house.workers.spawn(sweep_spec(self._house, self._id))
                    note = not_waited_for(job, is_gone=False) or UNSET
                await self._fail(job, fault.code, fault.reason, fault.fix, note)
                return
            await self._tell(job, self._started(job))
        await self._tell_end(job, await runtime.wait(self._id))

    async def _was_begun(self) -> bool:
        """Whether its container runs or ran already: a peer was killed before it could tell so."""
        try:
            handle = await find(self._house, self._id, seconds=self._house.bounds.away)
        except RuntimeUnavailable as away:
            fix = "run the job again once the owner of the machine has its container engine running"
            raise StartFailed(str(away), fix=fix, code=UNAVAILABLE) from away
        return handle is not None or _has_run(await self._house.runtime.wait(self._id))

    async def _start(self, job: Job) -> None:
        async def tell(event: e.Event) -> None:
            await self._tell(job, event)

        house = self._house
        body = house.store.world.unfinished[job.command].body
        assert isinstance(body, RunJob)
        image = await ensure_image(house, job.image, tell, job=self._id)
        program = Container(
            image=image.run,
            command=body.command,
            environment=body.env,
            tasks=house.ceilings.job_tasks,
            is_boxed=job.boxed,
        )
        await start(
            house,
            WorkloadSpec(
                workload=self._id,
                holder=job.holder,
                program=program,
                device_uuids=await self._devices(job),
                memory_bytes=self._host_memory(job),
            ),
        )

    async def _devices(self, job: Job) -> tuple[str, ...]:
        """The cards to hand over; the host's CPU is no such."""
        if job.device_uuid is None:
            return ()
        device = await promised_device(self._house, job.device_uuid, job.device, is_size_needed=False)
        return () if device.is_cpu else (device.uuid,)

    def _host_memory(self, job: Job) -> int | None:
        return self._house.ceilings.job_memory_bytes if job.boxed else None

    async def _stop_and_tell(self, job: Job, end: End) -> None:
        await look_before(self._house, job)
        await stop_for_good(self._house, self._id)
        ended = await self._house.runtime.wait(self._id)
        stop = await self._ender_of(job)
        at_ms = self._asked_at(job, stop)
        if at_ms is not None and was_over(ended, at_ms):
            if not job.started:
                await self._tell(job, self._started(job))
            await self._tell_end(job, ended)
            return
        reason = end.reason or self._why_stopped(job, stop)
        event = e.JobStopped(
            job=self._id,
            reason=reason or UNSET,
            output=ended.output if job.started or _has_run(ended) else UNSET,
            memory_note=await self._memory_note(job),
        )
        if stop is None:
            await self._tell(job, event)
        elif stop.correlation == job.correlation:
            # Told once: the fold completes the run-job by it as well.
            await self._tell_facts(Fact(event, job.holder, stop.correlation, stop.id))
        else:
            again = attrs.evolve(event, reason=UNSET)
            await self._tell_facts(
                self._fact(job, event), Fact(again, stop.holder, stop.correlation, stop.id)
            )

    async def _tell_end(self, job: Job, ended: Exit) -> None:
        note = await self._memory_note(job)
        await self._tell(job, attrs.evolve(end_of(job, ended, self._now()), memory_note=note))

    def _why_stopped(self, job: Job, stop: Accepted | None) -> str | None:
        if stop is not None and stop.holder != job.holder:
            return "it was stopped by a key that was approved for everybody's workloads"
        return None if job.started else "it was stopped before it started"

    def _asked_at(self, job: Job, stop: Accepted | None) -> int | None:
        """When somebody asked for its end, in milliseconds since the epoch."""
        if stop is not None:
            return time_ms(stop.at)
        if job.owners_end is not None:
            return time_ms(job.owners_end.at)
        key = self._house.store.ring.get(job.holder)
        return None if key is None else key.revoked_ms

    async def _fail(self, job: Job, code: str, reason: str, fix: str, note: str | UnsetType = UNSET) -> None:
        await self._tell(job, e.JobFailed(self._id, code, reason, fix, memory_note=note))

    def _started(self, job: Job) -> e.JobStarted:
        return e.JobStarted(
            job=self._id,
            image=job.image,
            boxed=job.boxed,
            isolation=self._house.runtime.isolation,
            holder=job.holder,
            device=_or_unset(job.device),
            device_uuid=_or_unset(job.device_uuid),
            memory_bytes=UNSET if job.memory_bytes is None else job.memory_bytes,
            host_memory_bytes=self._host_memory(job) or UNSET,
        )

    def _now(self) -> int:
        return self._house.clock.now_ms()


def _has_run(ended: Exit) -> bool:
    """Whether a container that does not run was ever started: of one that was something is known."""
    return ended != Exit(None)


def _or_unset(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text
