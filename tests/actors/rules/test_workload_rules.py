"""Which workload a command may name, whose, and in which phase (F13, F19, F23)."""

from __future__ import annotations

import pytest

from actors.messages import events as e
from actors.messages.commands import Accepted, DeployModel, RunJob, StopJob, UndeployModel
from actors.messages.envelope import Fact
from actors.rules.refusal import Refusal
from actors.rules.workloads import deployment_to_end, deployment_to_prompt, job_to_stop
from actors.state.keys import Grant, Key
from actors.state.world import World

OWN = Key("h-own", "own", Grant(scopes=("deploy", "prompt")), 0)
OTHER = Key("h-other", "other", Grant(scopes=("deploy", "prompt")), 0)
ALL = Key("h-all", "all", Grant(), 0)
PHASES = ("accepted", "starting", "loading", "ready", "ending")


def world(phase: str) -> World:
    made = World()
    made.accept(Accepted("d", "h-own", "c", "t", DeployModel("m", "vllm", 5), "dep-1", "cpu", "cpu"))
    steps = [
        e.DeploymentStarted("dep-1", "m", "vllm", "cpu", "cpu", 5, "process", "h-own"),
        e.WeightsLoading("dep-1"),
        e.DeploymentReady("dep-1", "m", "vllm", "cpu"),
    ]
    for step in steps[: PHASES.index(phase)]:
        made.apply(Fact(step, "h-own", "c", "d"), "t")
    if phase == "ending":
        made.accept(Accepted("u", "h-own", "c", "t", UndeployModel("dep-1")))
    return made


def code(check: object, *args: object) -> str | None:
    try:
        check(*args)  # type: ignore[operator]
    except Refusal as refused:
        return refused.code
    return None


@pytest.mark.parametrize("phase", PHASES)
def test_a_deployment_is_ended_in_any_phase_but_once(phase: str) -> None:
    expected = "DEPLOYMENT_ENDING" if phase == "ending" else None
    assert code(deployment_to_end, OWN, "dep-1", world(phase)) == expected
    assert code(deployment_to_end, ALL, "dep-1", world(phase)) == expected


@pytest.mark.parametrize("phase", PHASES)
def test_a_prompt_goes_to_a_ready_deployment_alone(phase: str) -> None:
    expected = {"ready": None, "ending": "DEPLOYMENT_ENDING"}.get(phase, "DEPLOYMENT_NOT_READY")
    assert code(deployment_to_prompt, OWN, "dep-1", world(phase)) == expected


def test_an_answer_longer_than_a_conversation_holds_is_refused() -> None:
    known = world("ready")
    known.deployments["dep-1"].context_tokens = 4096
    assert deployment_to_prompt(OWN, "dep-1", known, max_tokens=4096).id == "dep-1"
    with pytest.raises(Refusal) as refused:
        deployment_to_prompt(OWN, "dep-1", known, max_tokens=4097)
    assert refused.value.code == "MAX_TOKENS_TOO_LARGE"
    assert refused.value.details["limit"] == 4096
    assert deployment_to_prompt(OWN, "dep-1", world("ready"), max_tokens=100_000), "nobody knows its context"


def test_another_keys_deployment_is_as_unknown_as_none() -> None:
    """An `all` key sees and ends everybody's workloads, and prompts its own alone."""
    for name in ("dep-1", "dep-9"):
        with pytest.raises(Refusal) as refused:
            deployment_to_end(OTHER, name, world("ready"))
        assert refused.value.code == "UNKNOWN_DEPLOYMENT"
        assert refused.value.details == {"deployment": name}
        assert code(deployment_to_prompt, OTHER, name, world("ready")) == "UNKNOWN_DEPLOYMENT"
        assert code(deployment_to_prompt, ALL, name, world("ready")) == "UNKNOWN_DEPLOYMENT"


def test_a_prompt_too_early_is_told_the_phase() -> None:
    with pytest.raises(Refusal) as refused:
        deployment_to_prompt(OWN, "dep-1", world("loading"))
    assert refused.value.details["phase"] == "loading"


JOB_PHASES = ("accepted", "starting", "running", "ending")


def world_with_job(phase: str) -> World:
    made = World()
    made.accept(Accepted("r", "h-own", "c", "t", RunJob("image"), "job-1", boxed=False))
    steps = [
        e.ImagePulling("image", job="job-1"),
        e.JobStarted("job-1", "image", False, "container", "h-own"),
    ]
    for step in steps[: JOB_PHASES.index(phase)]:
        made.apply(Fact(step, "h-own", "c", "r"), "t")
    if phase == "ending":
        made.accept(Accepted("s", "h-own", "c", "t", StopJob("job-1")))
    return made


@pytest.mark.parametrize("phase", JOB_PHASES)
def test_a_job_is_stopped_in_any_phase_but_once(phase: str) -> None:
    expected = "JOB_ENDING" if phase == "ending" else None
    for key in (OWN, ALL):
        assert code(job_to_stop, key, "job-1", world_with_job(phase)) == expected


def test_another_keys_job_is_as_unknown_as_none() -> None:
    for name in ("job-1", "job-9"):
        with pytest.raises(Refusal) as refused:
            job_to_stop(OTHER, name, world_with_job("running"))
        assert refused.value.code == "UNKNOWN_JOB"
        assert refused.value.details == {"job": name}
