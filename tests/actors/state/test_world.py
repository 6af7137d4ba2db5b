"""The fold, fact by fact: what no history may break, and what each fact changes (F37)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from actors.messages import events as e
from actors.messages.commands import (
    Accepted,
    DeployModel,
    Prompt,
    RunJob,
    StopJob,
    Turn,
    UndeployModel,
    UnknownCommand,
)
from actors.messages.envelope import Fact, Head
from actors.messages.times import time_text
from actors.state.workloads import Deployment, Job
from actors.state.world import World
from tests.support.worlds import ENCODER, START_MS, decode_head, picture

names = st.sampled_from(["dep-known", "dep-unknown", "job-known", ""])
jobs = st.sampled_from(["job-known", "job-running", "job-unknown", "dep-known", ""])
text = st.text(max_size=5)
devices = st.sampled_from(["cpu", "GPU-1", ""])
whole = st.none() | st.integers(-(1 << 62), 1 << 62)
event = st.one_of(
    st.builds(e.DeploymentStarted, names, text, text, text, text, st.integers(0, 1 << 50), text, text),
    st.builds(e.WeightsLoading, names, st.integers()),
    st.builds(e.DeploymentReady, names, text, text, text),
    st.builds(e.DeploymentFailed, names, text, text, text),
    st.builds(e.DeploymentEnded, names, text, whole),
    st.builds(e.OutOfMemory, names, text, text),
    st.builds(e.Undeployed, names),
    st.builds(e.ImagePulling, text, job=jobs | st.just(UNSET)),
    st.builds(e.ImagePulled, text, st.none() | text, st.booleans(), job=jobs | st.just(UNSET)),
    st.builds(
        e.JobStarted,
        jobs,
        text,
        st.booleans(),
        text,
        text,
        device=text | st.just(UNSET),
        device_uuid=text | st.just(UNSET),
        memory_bytes=st.integers(0, 1 << 50) | st.just(UNSET),
        host_memory_bytes=st.integers(0, 1 << 50) | st.just(UNSET),
    ),
    st.builds(e.JobFinished, jobs, st.integers(0, 255), st.just(())),
    st.builds(e.JobFailed, jobs, text, text, text),
    st.builds(e.JobStopped, jobs),
    st.builds(e.PromptAnswered, names, text, text, whole, whole),
    st.builds(e.PromptFailed, names, text, text, text),
    st.builds(e.CommandFailed, text, text, text, text, text),
    st.builds(e.AgentRevoked, text, text),
    st.builds(e.DeviceHeldV1, text, text, devices, st.booleans(), st.booleans(), text | st.just(UNSET)),
    st.builds(e.DeviceReleasedV1, text, text, devices, st.just("released")),
)
cause = st.sampled_from(
    [None, "cmd-deploy", "cmd-undeploy", "cmd-run", "cmd-stop", "cmd-unknown", "cmd-other"]
)


def world_with_one() -> World:
    """A deployment and a job that were accepted, what ends them, and a command of another version."""
    world = World()
    world.accept(
        Accepted("cmd-deploy", "h-a", "c", "t", DeployModel("m", "llamacpp", 5), "dep-known", "cpu", "cpu")
    )
    world.accept(Accepted("cmd-undeploy", "h-a", "c", "t", UndeployModel("dep-known")))
    run = RunJob("image", memory_bytes=7)
    world.accept(Accepted("cmd-run", "h-a", "c", "t", run, "job-known", "cpu", "cpu", boxed=True))
    world.accept(Accepted("cmd-stop", "h-a", "c", "t", StopJob("job-known")))
    world.accept(Accepted("cmd-unknown", "h-a", "c", "t", UnknownCommand("FlyAway")))
    return world


@given(st.lists(st.tuples(event, cause), max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_told_fact_fails_the_fold_whatever_it_says(facts: list[tuple[Any, str | None]]) -> None:
    """Also facts about what nobody knows, twice, and out of order; told or read, they fold the same."""
    live, read = world_with_one(), world_with_one()
    for number, (fact, causation) in enumerate(facts):
        made = Fact(fact, "h-a", "c", causation)
        live.apply(made, time_text(START_MS))
        try:
            line = ENCODER.line(made, number, START_MS)
        except OverflowError:
            line = b""
        if line:
            read.replay(decode_head(line))
        assert all(left >= 0 for left in live.promised.values())
        held = sum(d.memory_bytes for d in live.deployments.values())
        held += sum(j.memory_bytes or 0 for j in live.jobs.values() if j.device_uuid is not None)
        assert held == sum(live.promised.values())
    assert picture(live) == picture(read)


json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([*(c.__name__ for c in e.Event.__args__), "FromTheFuture"]),
    st.dictionaries(
        st.sampled_from(["deployment", "job", "memory_bytes", "prompt_tokens", "hold", "device_uuid"]),
        json_value,
    )
    | json_value,
)
def test_no_line_of_another_version_fails_the_fold(kind: str, data: Any) -> None:
    """Whatever its data: it says nothing to this fold, and stays readable."""
    world = world_with_one()
    world.replay(
        Head(id="evt-1", type=kind, time="t", causationid=None, data=msgspec.Raw(msgspec.json.encode(data)))
    )
    assert all(isinstance(d, Deployment) for d in world.deployments.values())
    assert all(isinstance(j, Job) for j in world.jobs.values())
    assert world.events_told[kind] == 1


def test_a_deploy_of_another_shape_completes_by_the_facts_it_always_did() -> None:
    """After an upgrade, what had completed is not told to have failed."""
    world = World()
    world.remember(Accepted("cmd-1", "h-a", "c", "t", UnknownCommand("DeployModel"), "dep-1"))
    world.replay(
        decode_head(
            ENCODER.line(Fact(e.DeploymentReady("dep-1", "m", "x", "cpu"), "h-a", "c", "cmd-1"), 1, 1)
        )
    )
    world.settle()
    assert not world.unfinished


def test_an_unknown_command_completes_in_its_failure_alone() -> None:
    world = world_with_one()
    accepted = world.unfinished["cmd-unknown"]
    assert accepted.type == "FlyAway"
    world.apply(Fact(e.DeploymentReady("dep-9", "m", "x", "cpu"), "h-a", "c", "cmd-unknown"), "t")
    assert "cmd-unknown" in world.unfinished
    world.apply(
        Fact(e.CommandFailed("cmd-unknown", "FlyAway", "X", "r", "f"), "h-a", "c", "cmd-unknown"), "t"
    )
    assert "cmd-unknown" not in world.unfinished


def test_a_deployment_is_ending_from_the_moment_its_undeploy_is_accepted() -> None:
    """Easily missed 16; and it is what it was when the disk did not keep the undeploy."""
    world = World()
    world.accept(Accepted("d", "h-a", "c", "t0", DeployModel("m", "llamacpp", 5), "dep-1", "cpu", "cpu"))
    started = e.DeploymentStarted("dep-1", "m", "llamacpp", "cpu", "cpu", 5, "process", "h-a")
    world.apply(Fact(started, "h-a", "c", "d"), "t1")
    world.apply(Fact(e.WeightsLoading("dep-1"), "h-a", "c", "d"), "t2")
    undeploy = Accepted("u", "h-b", "c2", "t3", UndeployModel("dep-1"))
    world.accept(undeploy)
    deployment = world.deployments["dep-1"]
    assert (deployment.phase, deployment.since) == ("ending", "t3")
    world.withdraw(undeploy)
    assert (deployment.phase, deployment.since) == ("loading", "t2")


def test_accepting_twice_reserves_once() -> None:
    world = World()
    accepted = Accepted("d", "h-a", "c", "t", DeployModel("m", "llamacpp", 5), "dep-1", "cpu", "cpu")
    world.accept(accepted)
    world.accept(accepted)
    assert world.promised == {"cpu": 5}
    assert world.holding("h-a").memory_bytes == 5


def test_counts_what_prompts_used() -> None:
    world = world_with_one()
    world.apply(Fact(e.PromptAnswered("dep-known", "hi", "m", 3, None)), "t")
    world.apply(Fact(e.PromptAnswered("dep-known", "hi", "m", 4, 5)), "t")
    world.apply(Fact(e.PromptFailed("dep-known", "X", "r", "f")), "t")
    known = world.deployments["dep-known"]
    assert (known.prompts_answered, known.prompts_failed) == (2, 1)
    assert (known.prompt_tokens, known.completion_tokens) == (7, 5)


def test_counts_the_prompts_in_flight() -> None:
    world = world_with_one()
    world.accept(Accepted("p", "h-a", "c", "t", Prompt("dep-known", (Turn("user", "x"),))))
    assert world.prompts_in_flight() == 1
    assert [a.id for a in world.undeploys_of("dep-known")] == ["cmd-undeploy"]


def test_a_stage_is_never_gone_back_from() -> None:
    """An engine that was started again loads anew, and what was told stays true."""
    world = world_with_one()
    for fact in (e.DeploymentReady("dep-known", "m", "x", "cpu"), e.WeightsLoading("dep-known")):
        world.apply(Fact(fact, "h-a", "c", "cmd-deploy"), "t")
    assert world.deployments["dep-known"].was_ready


def test_the_undeploy_that_came_first_ends_it() -> None:
    world = world_with_one()
    world.accept(Accepted("cmd-late", "h-a", "c", "t", UndeployModel("dep-known")))
    ended_by = world.deployments["dep-known"].ended_by
    assert ended_by is not None
    assert ended_by.id == "cmd-undeploy"


def run(world: World, name: str = "job-1", correlation: str = "c-run", **more: Any) -> Accepted:
    """A run-job that was accepted."""
    body = RunJob("image", **more)
    device = None if body.memory_bytes is None else "GPU-1"
    accepted = Accepted(f"run-{name}", "h-a", correlation, "t0", body, name, device, device, boxed=False)
    world.accept(accepted)
    return accepted


def test_a_jobs_phases_follow_its_facts() -> None:
    world = World()
    accepted = run(world, memory_bytes=5)
    job = world.jobs["job-1"]
    told = [(job.phase, job.since)]
    for time, fact in (
        ("t1", e.ImagePulling("image", 40, job="job-1")),
        ("t2", e.ImagePulled("image", None, held=False, job="job-1")),
        ("t3", e.JobStarted("job-1", "image", False, "container", "h-a", host_memory_bytes=9)),
    ):
        world.apply(Fact(fact, "h-a", "c-run", accepted.id), time)
        told.append((job.phase, job.since))
    assert told == [("accepted", "t0"), ("starting", "t1"), ("starting", "t1"), ("running", "t3")]
    assert job.host_memory_bytes == 9
    world.accept(Accepted("stop", "h-a", "c-stop", "t4", StopJob("job-1")))
    assert (job.phase, job.since, job.started) == ("ending", "t4", True)
    assert world.promised == {"GPU-1": 5}
    world.apply(Fact(e.JobStopped("job-1"), "h-a", "c-run", accepted.id), "t5")
    assert world.jobs == {}
    assert world.promised == {}
    assert list(world.unfinished) == ["stop"]


def test_a_stop_of_the_same_correlation_completes_the_run_as_well() -> None:
    """One JobStopped is told then, caused by the stop: the job had not started."""
    for told in (World.apply, None):
        world = World()
        accepted = Accepted("run", "h-a", "c", "t", RunJob("image"), "job-1", boxed=True)
        stop = Accepted("stop", "h-a", "c", "t", StopJob("job-1"))
        fact = Fact(e.JobStopped("job-1"), "h-a", "c", "stop")
        for command in (accepted, stop):
            world.accept(command) if told else world.remember(command)
        if told:
            told(world, fact, "t")
        else:
            world.replay(decode_head(ENCODER.line(fact, 1, 1)))
            world.settle()
        assert world.unfinished == {}
        assert world.jobs == {}


def test_a_job_without_a_device_holds_a_place_and_no_memory() -> None:
    world = World()
    run(world)
    assert world.promised == {}
    assert world.holding("h-a").jobs == {"job-1"}
    assert world.holding("h-a").memory_bytes == 0


def test_a_job_whose_box_was_not_written_down_is_boxed() -> None:
    """The safe side: only what was settled as open is run open."""
    world = World()
    world.accept(Accepted("run", "h-a", "c", "t", RunJob("image"), "job-1"))
    assert world.jobs["job-1"].boxed


def test_the_stops_of_a_job_are_found() -> None:
    world = world_with_one()
    assert [a.id for a in world.stops_of("job-known")] == ["cmd-stop"]
    assert world.stops_of("dep-known") == ()
    ended_by = world.jobs["job-known"].ended_by
    assert ended_by is not None
    assert ended_by.id == "cmd-stop"


def test_what_is_told_of_a_job_after_its_end_brings_nothing_back() -> None:
    world = World()
    accepted = run(world)
    failed = e.CommandFailed(accepted.id, "RunJob", "X", "r", "f")
    for fact in (failed, e.ImagePulling("image", job="job-1"), e.JobFinished("job-1", 0, ())):
        world.apply(Fact(fact, "h-a", "c-run", accepted.id), "t")
    assert (world.jobs, world.unfinished) == ({}, {})
