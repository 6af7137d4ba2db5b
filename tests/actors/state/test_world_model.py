"""The fold against a model that only counts, and against itself read back from the log (F37)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import UNSET

from actors.messages import events as e
from actors.messages.commands import (
    COMPLETES,
    Accepted,
    DeployModel,
    Prompt,
    RevokeAgent,
    RunJob,
    StopJob,
    Turn,
    UndeployModel,
)
from actors.messages.envelope import Fact
from actors.messages.times import time_text
from actors.state.workloads import Job
from actors.state.world import World
from tests.support.worlds import HOLDERS, START_MS, picture, replayed

DEVICES = ("cpu", "GPU-1")


@attrs.define
class Life:
    """What the model knows of one workload that lives."""

    command: Accepted
    end: Accepted | None = None
    started: bool = False
    ready: bool = False
    taken: bool = False
    """Its device was held with its work to end while it ran."""

    @property
    def device(self) -> str:
        """What runs with no device runs on the host's processor."""
        return self.command.device or "cpu"

    @property
    def is_job(self) -> bool:
        return isinstance(self.command.body, RunJob)

    @property
    def size(self) -> int:
        """What it asked for."""
        assert isinstance(self.command.body, DeployModel | RunJob)
        return self.command.body.memory_bytes or 0


class WorldAgainstModel(RuleBasedStateMachine):
    """Commands and facts in any order that can happen; the model holds a list and adds up."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.lives: dict[str, Life] = {}
        self.open: dict[str, Accepted] = {}
        self.kept: list[Accepted] = []
        self.waiting: list[Accepted] = []
        """Accepted, and the disk has not answered yet."""
        self.told: list[tuple[Fact, int]] = []
        self.number = 0
        self.held: dict[str, tuple[str, bool, int | None]] = {}
        """By device: the hold, whether work ends, and the number it ends at by itself."""

    def _accept(self, body: Any, holder: str, *, correlation: str | None = None, **more: Any) -> Accepted:
        self.number += 1
        accepted = Accepted(
            id=f"cmd-{self.number}",
            holder=holder,
            correlation=correlation or f"corr-{self.number}",
            at=time_text(START_MS + self.number),
            body=body,
            **more,
        )
        self.world.accept(accepted)
        self.waiting.append(accepted)
        self.open[accepted.id] = accepted
        return accepted

    def _tell(self, event: Any, cause: Accepted | None) -> None:
        self.number += 1
        holder, correlation, causation = (
            (None, None, None) if cause is None else (cause.holder, cause.correlation, cause.id)
        )
        fact = Fact(event, holder, correlation, causation)
        ms = START_MS + self.number
        self.world.apply(fact, time_text(ms))
        self.told.append((fact, ms))
        if cause is not None and fact.type in COMPLETES[cause.type]:
            self.open.pop(cause.id, None)

    def _is_kept(self, accepted: Accepted) -> bool:
        return accepted not in self.waiting

    def _living(self, wanted: Any) -> list[str]:
        return [name for name, life in self.lives.items() if self._is_kept(life.command) and wanted(life)]

    def _deployments(self, wanted: Any) -> list[str]:
        return self._living(lambda life: not life.is_job and wanted(life))

    def _jobs(self, wanted: Any) -> list[str]:
        return self._living(lambda life: life.is_job and wanted(life))

    def _open_kept(self, *kinds: type) -> list[Accepted]:
        return [a for a in self.open.values() if isinstance(a.body, kinds) and self._is_kept(a)]

    @rule(holder=st.sampled_from(HOLDERS), device=st.sampled_from(DEVICES), size=st.integers(1, 1 << 40))
    def deploy(self, holder: str, device: str, size: int) -> None:
        body = DeployModel("m", "llamacpp", size)
        subject = f"dep-{self.number}"
        accepted = self._accept(body, holder, subject=subject, device=device, device_uuid=device)
        self.lives[subject] = Life(accepted)

    @rule(
        holder=st.sampled_from(HOLDERS),
        device=st.none() | st.sampled_from(DEVICES),
        size=st.none() | st.integers(1, 1 << 40),
        boxed=st.booleans(),
    )
    def run_job(self, holder: str, device: str | None, size: int | None, boxed: bool) -> None:
        """With a device and a promise, with a device alone, or on the host."""
        body = RunJob("image", memory_bytes=size if device else None)
        subject = f"job-{self.number}"
        accepted = self._accept(body, holder, subject=subject, device=device, device_uuid=device, boxed=boxed)
        self.lives[subject] = Life(accepted)

    @precondition(lambda self: any(life.end is None for life in self.lives.values()))
    @rule(data=st.data(), holder=st.sampled_from(HOLDERS), together=st.booleans())
    def end(self, data: st.DataObject, holder: str, together: bool) -> None:
        """An undeploy or a stop-job, perhaps under the correlation of what it ends."""
        free = [name for name, life in self.lives.items() if life.end is None]
        name = data.draw(st.sampled_from(free))
        life = self.lives[name]
        if together:
            holder = life.command.holder
        life.end = self._accept(
            StopJob(name) if life.is_job else UndeployModel(name),
            holder,
            correlation=life.command.correlation if together else None,
        )

    @precondition(lambda self: self._deployments(lambda life: life.ready))
    @rule(data=st.data())
    def prompt(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._deployments(lambda life: life.ready)))
        self._accept(Prompt(name, (Turn("user", "x"),)), self.lives[name].command.holder)

    @rule(holder=st.sampled_from(HOLDERS))
    def give_key_back(self, holder: str) -> None:
        self._accept(RevokeAgent(), holder)

    @precondition(lambda self: self.waiting)
    @rule()
    def disk_keeps_all(self) -> None:
        self.kept += self.waiting
        self.waiting.clear()

    @precondition(lambda self: self.waiting)
    @rule()
    def disk_keeps_none(self) -> None:
        for accepted in self.waiting:
            self.world.withdraw(accepted)
            self._forget(accepted)
        self.waiting.clear()

    def _forget(self, accepted: Accepted) -> None:
        self.open.pop(accepted.id, None)
        if isinstance(accepted.body, DeployModel | RunJob):
            assert accepted.subject
            self.lives.pop(accepted.subject, None)
        for life in self.lives.values():
            if life.end is accepted:
                life.end = None

    @rule(
        devices=st.sampled_from([("cpu",), ("GPU-1",), DEVICES]),
        now=st.booleans(),
        lasting=st.none() | st.integers(1, 9),
    )
    def hold(self, devices: tuple[str, ...], now: bool, lasting: int | None) -> None:
        identifier = f"hold-{self.number}"
        until = None if lasting is None else self.number + len(devices) + lasting
        text = UNSET if until is None else time_text(START_MS + until)
        for device in devices:
            event = e.DeviceHeldV1(identifier, device, device, now, devices == DEVICES, text, "mine")
            self._tell(event, None)
            self.held[device] = (identifier, now, until)
            for life in self.lives.values():
                if life.started:
                    self._may_take(life)

    def _may_take(self, life: Life) -> None:
        _, now, until = self.held.get(life.device, ("", False, None))
        life.taken |= now and (until is None or self.number < until)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), stale=st.booleans())
    def release(self, data: st.DataObject, stale: bool) -> None:
        """A hold, or one that a newer one took the place of: that changes nothing."""
        device = data.draw(st.sampled_from(sorted(self.held)))
        identifier = "hold-older" if stale else self.held.pop(device)[0]
        self._tell(e.DeviceReleasedV1(identifier, device, device, "released"), None)

    @precondition(lambda self: self._deployments(lambda life: not life.started))
    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._deployments(lambda life: not life.started)))
        cause, size = self.lives[name].command, self.lives[name].size
        device = cause.device or ""
        self._tell(
            e.DeploymentStarted(name, "m", "llamacpp", device, device, size, "process", cause.holder), cause
        )
        self.lives[name].started = True
        self._may_take(self.lives[name])

    @precondition(lambda self: self._deployments(lambda life: life.started))
    @rule(data=st.data(), percent=st.none() | st.integers(0, 100))
    def loads(self, data: st.DataObject, percent: int | None) -> None:
        name = data.draw(st.sampled_from(self._deployments(lambda life: life.started)))
        event = e.WeightsLoading(name) if percent is None else e.WeightsLoading(name, percent)
        self._tell(event, self.lives[name].command)

    @precondition(lambda self: self._deployments(lambda life: life.started and not life.ready))
    @rule(data=st.data())
    def gets_ready(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._deployments(lambda life: life.started and not life.ready)))
        self._tell(e.DeploymentReady(name, "m", "llamacpp", "cpu"), self.lives[name].command)
        self.lives[name].ready = True

    @precondition(lambda self: self._deployments(lambda life: True))
    @rule(data=st.data(), how=st.sampled_from(["failed", "ended", "memory"]))
    def ends(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(self._deployments(lambda life: True)))
        event: Any = {
            "failed": e.DeploymentFailed(name, "X", "reason", "fix"),
            "ended": e.DeploymentEnded(name, "reason"),
            "memory": e.OutOfMemory(name, "reason", "fix"),
        }[how]
        self._tell(event, self.lives.pop(name).command)

    @precondition(lambda self: self._living(lambda life: not life.started))
    @rule(data=st.data(), held=st.booleans())
    def fetches_its_image(self, data: st.DataObject, held: bool) -> None:
        name = data.draw(st.sampled_from(self._living(lambda life: not life.started)))
        life = self.lives[name]
        subject: dict[str, Any] = {"job" if life.is_job else "deployment": name}
        self._tell(e.ImagePulling("image", 100 if held else 7, **subject), life.command)
        if held:
            self._tell(e.ImagePulled("image", None, held, **subject), life.command)

    @precondition(lambda self: self._jobs(lambda life: not life.started))
    @rule(data=st.data(), ceiling=st.none() | st.integers(1, 1 << 40))
    def job_starts(self, data: st.DataObject, ceiling: int | None) -> None:
        name = data.draw(st.sampled_from(self._jobs(lambda life: not life.started)))
        cause = self.lives[name].command
        assert isinstance(cause.body, RunJob)
        given = {
            "device": cause.device,
            "device_uuid": cause.device_uuid,
            "memory_bytes": cause.body.memory_bytes,
            "host_memory_bytes": ceiling,
        }
        fact = e.JobStarted(
            name,
            "image",
            bool(cause.boxed),
            "container",
            cause.holder,
            **{field: value for field, value in given.items() if value is not None},  # type: ignore[arg-type]
        )
        self._tell(fact, cause)
        self.lives[name].started = True
        self._may_take(self.lives[name])

    @precondition(lambda self: self._jobs(lambda life: life.started))
    @rule(data=st.data(), code=st.integers(0, 255))
    def job_finishes(self, data: st.DataObject, code: int) -> None:
        name = data.draw(st.sampled_from(self._jobs(lambda life: life.started)))
        self._tell(e.JobFinished(name, code, ()), self.lives.pop(name).command)

    @precondition(lambda self: self._jobs(lambda life: True))
    @rule(data=st.data(), revoked=st.booleans())
    def job_breaks_off(self, data: st.DataObject, revoked: bool) -> None:
        name = data.draw(st.sampled_from(self._jobs(lambda life: True)))
        event = e.JobStopped(name, "taken back") if revoked else e.JobFailed(name, "X", "reason", "fix")
        self._tell(event, self.lives.pop(name).command)

    @precondition(lambda self: self._open_kept(UndeployModel))
    @rule(data=st.data())
    def undeployed(self, data: st.DataObject) -> None:
        cause = data.draw(st.sampled_from(self._open_kept(UndeployModel)))
        assert isinstance(cause.body, UndeployModel)
        life = self.lives.get(cause.body.deployment)
        if life is not None and not self._is_kept(life.command):
            return
        if life is not None and life.command.id in self.open:
            self._tell(e.DeploymentEnded(cause.body.deployment, "before it was ready"), life.command)
        self.lives.pop(cause.body.deployment, None)
        self._tell(e.Undeployed(cause.body.deployment), cause)

    @precondition(lambda self: self._open_kept(StopJob))
    @rule(data=st.data())
    def stopped(self, data: st.DataObject) -> None:
        """Once where both commands have one correlation, which completes both; else under each."""
        cause = data.draw(st.sampled_from(self._open_kept(StopJob)))
        assert isinstance(cause.body, StopJob)
        life = self.lives.get(cause.body.job)
        if life is None:
            self._tell(e.CommandFailed(cause.id, "StopJob", "JOB_ENDED", "reason", "fix"), cause)
            return
        if not self._is_kept(life.command):
            return
        del self.lives[cause.body.job]
        if cause.correlation != life.command.correlation:
            self._tell(e.JobStopped(cause.body.job), life.command)
        self._tell(e.JobStopped(cause.body.job), cause)
        self.open.pop(life.command.id, None)

    @precondition(lambda self: self._open_kept(Prompt))
    @rule(data=st.data(), tokens=st.none() | st.integers(0, 1 << 20), fails=st.booleans())
    def answered(self, data: st.DataObject, tokens: int | None, fails: bool) -> None:
        cause = data.draw(st.sampled_from(self._open_kept(Prompt)))
        assert isinstance(cause.body, Prompt)
        name = cause.body.deployment
        if fails:
            self._tell(e.PromptFailed(name, "X", "reason", "fix"), cause)
        else:
            self._tell(e.PromptAnswered(name, "text", "m", tokens, tokens), cause)

    @precondition(lambda self: self._open_kept(object))
    @rule(data=st.data())
    def fails(self, data: st.DataObject) -> None:
        cause = data.draw(st.sampled_from(self._open_kept(object)))
        self._tell(e.CommandFailed(cause.id, cause.type, "X", "reason", "fix"), cause)
        self._forget(cause)

    @invariant()
    def adds_up(self) -> None:
        sizes = Counter[str]()
        for life in self.lives.values():
            if life.size:
                sizes[life.command.device or ""] += life.size
        assert self.world.promised == dict(sizes)
        assert {*self.world.deployments, *self.world.jobs} == set(self.lives)
        assert set(self.world.unfinished) == set(self.open)
        for holder in HOLDERS:
            held = {n: x for n, x in self.lives.items() if x.command.holder == holder}
            holding = self.world.holding(holder)
            assert holding.deployments == {n for n, x in held.items() if not x.is_job}
            assert holding.jobs == {n for n, x in held.items() if x.is_job}
            assert holding.memory_bytes == sum(x.size for x in held.values())

    @invariant()
    def holds_are_the_newest_of_each_device(self) -> None:
        assert {h.device_uuid: h.id for h in self.world.holds} == {d: h[0] for d, h in self.held.items()}
        assert self.world.owners_ends.keys() <= self.lives.keys()

    @invariant()
    def phases_follow(self) -> None:
        for name, life in self.lives.items():
            workload = self.world.jobs[name] if life.is_job else self.world.deployments[name]
            assert (workload.phase == "ending") == (life.end is not None or life.taken)
            assert (workload.owners_end is not None) == (name in self.world.owners_ends) == life.taken
            assert workload.started == life.started
            if isinstance(workload, Job):
                assert workload.boxed == life.command.boxed
            else:
                assert workload.was_ready == life.ready

    @invariant()
    def a_restart_makes_the_same(self) -> None:
        again = replayed(self.told, self.kept)
        for accepted in self.waiting:
            again.accept(accepted)
        assert picture(again) == picture(self.world)


TestWorldAgainstModel = WorldAgainstModel.TestCase
TestWorldAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
