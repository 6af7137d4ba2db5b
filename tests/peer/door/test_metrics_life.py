"""What the metrics of a door say of what happens there, and that no series outlives its subject (F36)."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from actors.state.workloads import JobPhase, Phase
from adapters.engine.port import PromptRefused
from adapters.gpu.fake import cpu_device, cuda_device
from adapters.runtime.pretence import obeys, runs_on
from tests.support.answers import code
from tests.support.peers import MODEL_BYTES, OpenDoor, open_door
from tests.support.scrapes import HangingGpu, put_cards, scrape, scrape_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.agents import Agent
    from tests.support.scrapes import Page

CARD, CPU = cuda_device(), cpu_device()
DEPLOY = {"model": "small", "engine": "ollama", "memory_bytes": MODEL_BYTES}
OF_WORKLOADS = ("best_peer_deployment_", "best_peer_job_", "best_peer_prompt")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> HangingGpu:
    return put_cards(monkeypatch, CARD, CPU)


@pytest.fixture
async def door(gpu: HangingGpu, tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


@pytest.fixture
async def agent(door: OpenDoor) -> Agent:
    return await door.sign_in()


def phase_of(page: Page, kind: str, identifier: str) -> str | None:
    """The one phase that is 1; each other is there and 0. None where there is none of it."""
    phases = get_args(Phase if kind == "deployment" else JobPhase)
    found = {p: page.value(f"best_peer_{kind}_phase", **{kind: identifier}, phase=p) for p in phases}
    if set(found.values()) == {None}:
        return None
    assert sorted(found.values(), key=str) == [*[0.0] * (len(phases) - 1), 1.0], found
    (now,) = (str(phase) for phase, value in found.items() if value)
    return now


def of_workloads(page: Page) -> set[str]:
    return {name for name in page.series if name.startswith(OF_WORKLOADS)}


async def test_a_deployments_phases_are_a_set_and_go_with_it(door: OpenDoor, agent: Agent) -> None:
    loads = door.engine("ollama").hold_loads()
    correlation = await agent.command("DeployModel", DEPLOY)
    page = await scrape(agent)
    (deployment,) = page.labels("best_peer_deployment_info", "deployment")
    assert page.value("best_peer_deployment_info", model="small", engine="ollama", holder=agent.holder) == 1
    assert page.value("best_peer_deployment_memory_promised_bytes", deployment=deployment) == MODEL_BYTES
    await agent.wait_for("WeightsLoading", correlation)
    assert phase_of(await scrape(agent), "deployment", deployment) == "loading"
    loads.set()
    await agent.wait_for("DeploymentReady", correlation)
    page = await scrape(agent)
    assert phase_of(page, "deployment", deployment) == "ready"
    assert page.value("best_peer_device_memory_promised_bytes", device="gpu-0") == MODEL_BYTES
    door.runtime.make_stubborn(deployment)
    ending = await agent.command("UndeployModel", {"deployment": deployment})
    assert phase_of(await scrape(agent), "deployment", deployment) == "ending"
    await agent.wait_for("Undeployed", ending)
    page = await scrape(agent)
    assert of_workloads(page) == set()
    assert page.value("best_peer_device_memory_promised_bytes", device="gpu-0") == 0


async def test_a_jobs_phases_are_a_set_and_go_with_it(door: OpenDoor, agent: Agent) -> None:
    starts = door.runtime.hold_starts()
    correlation = await agent.command("RunJob", {"image": "busybox", "command": ["sleep", "3600"]})
    await agent.wait_for("ImagePulled", correlation)
    page = await scrape(agent)
    (job,) = page.labels("best_peer_job_info", "job")
    assert phase_of(page, "job", job) == "starting"
    starts.set()
    await agent.wait_for("JobStarted", correlation)
    page = await scrape(agent)
    assert phase_of(page, "job", job) == "running"
    # It was given no device: there is no memory of one that could be promised to it.
    assert page.value("best_peer_job_info", job=job, device="", holder=agent.holder) == 1
    assert "best_peer_job_memory_promised_bytes" not in page.series
    promised = {"image": "busybox", "command": ["sleep", "3600"], "memory_bytes": MODEL_BYTES}
    second = (await agent.wait_for("JobStarted", await agent.command("RunJob", promised)))["data"]["job"]
    page = await scrape(agent)
    assert page.value("best_peer_job_memory_promised_bytes", job=second, device="gpu-0") == MODEL_BYTES
    for each in (job, second):
        door.runtime.end(each, 0)
        page = await scrape_until(agent, lambda page, each=each: phase_of(page, "job", each) is None)  # type: ignore[misc]
    assert of_workloads(page) == set()


async def test_prompts_and_tokens_are_counted_while_their_deployment_lives(
    door: OpenDoor, agent: Agent
) -> None:
    deployment = await door.deploy(agent, engine="ollama")
    page = await scrape(agent)
    assert page.value("best_peer_prompts_total", deployment=deployment, outcome="answered") == 0
    assert page.value("best_peer_prompts_total", deployment=deployment, outcome="failed") == 0

    async def prompt(words: str, kind: str) -> None:
        sent = {"deployment": deployment, "messages": [{"role": "user", "content": words}], "max_tokens": 3}
        await agent.wait_for(kind, await agent.command("Prompt", sent))

    await prompt("five words are sent here", "PromptAnswered")
    await prompt("two words", "PromptAnswered")
    door.engine("ollama").fail_next_answer(PromptRefused("no", fix="say less"))
    await prompt("none", "PromptFailed")
    page = await scrape(agent)
    for outcome, count in (("answered", 2), ("failed", 1)):
        assert page.value("best_peer_prompts_total", deployment=deployment, outcome=outcome) == count
    for kind, count in (("prompt", 7), ("completion", 5)):
        assert page.value("best_peer_prompt_tokens_total", deployment=deployment, kind=kind) == count
    assert page.value("best_peer_events_total", event="PromptAnswered") == 2
    await agent.wait_for("Undeployed", await agent.command("UndeployModel", {"deployment": deployment}))
    assert of_workloads(await scrape(agent)) == set()


async def test_a_prompt_that_found_its_deployment_gone_is_among_the_facts_alone(
    door: OpenDoor, agent: Agent
) -> None:
    deployment = await door.deploy(agent, engine="ollama")
    door.engine("ollama").hold_answers()
    sent = {"deployment": deployment, "messages": [{"role": "user", "content": "say this"}]}
    correlation = await agent.command("Prompt", sent)
    await agent.wait_for("Undeployed", await agent.command("UndeployModel", {"deployment": deployment}))
    await agent.wait_for("PromptFailed", correlation)
    page = await scrape(agent)
    assert page.value("best_peer_events_total", event="PromptFailed") == 1
    assert "best_peer_prompts_total" not in page.series


async def test_commands_are_counted_by_type_and_code_and_a_retry_is_none(
    door: OpenDoor, agent: Agent
) -> None:
    tenant = await door.sign_in("tenant", scopes=["prompt"])
    hostile = 'Deploy"} 1\nbest_peer_info{version="9'
    sent = agent.envelope("DeployModel", DEPLOY)
    for _ in range(3):
        assert (await agent.http.post("/commands", json=sent)).status_code == 201
    assert code(await agent.http.post("/commands", json={**sent, "data": {**DEPLOY, "model": "b"}}), 409)
    assert code(await agent.send("DeployModel", {**DEPLOY, "memory_bytes": 1 << 49}), 422)
    assert code(await agent.send("DeployModel", {}), 400)
    assert code(await agent.http.post("/commands", json={**sent, "id": ""}), 400)
    assert code(await agent.http.post("/commands", json={**sent, "type": hostile}), 400)
    assert code(
        await agent.http.post("/commands", content=b"{", headers={"content-type": "application/json"}), 400
    )
    assert code(await agent.http.post("/commands", content=b"{}"), 415)
    assert code(await agent.http.post("/commands", content=b"a" * (300 << 10)), 413)
    assert code(await tenant.send("DeployModel", DEPLOY), 403)
    assert code(await door.client().post("/commands", json=sent), 401)
    page = await scrape(agent)
    accepted = page.series["best_peer_commands_accepted_total"]
    assert page.value("best_peer_commands_accepted_total", command="DeployModel") == 1
    assert sum(accepted.values()) == 1
    assert len(accepted) > 5, "the others are there from the start, at 0"
    assert {
        (dict(labels)["command"], dict(labels)["code"]): count
        for labels, count in page.series["best_peer_commands_refused_total"].items()
    } == {
        ("DeployModel", "DUPLICATE_ID"): 1,
        ("DeployModel", "INSUFFICIENT_MEMORY"): 1,
        ("DeployModel", "SCHEMA_VALIDATION"): 1,
        ("DeployModel", "INVALID_ENVELOPE"): 1,
        ("DeployModel", "FORBIDDEN"): 1,
        ("unknown", "UNKNOWN_COMMAND"): 1,
        ("unknown", "INVALID_JSON"): 1,
        ("unknown", "UNSUPPORTED_MEDIA_TYPE"): 1,
        ("unknown", "PAYLOAD_TOO_LARGE"): 1,
        ("unknown", "UNAUTHORIZED"): 1,
    }


async def test_what_a_door_counts_begins_with_the_peer_and_its_facts_with_the_log(
    gpu: HangingGpu, tmp_path: Path
) -> None:
    async with open_door(tmp_path) as door:
        agent = await door.sign_in()
        deployment = await door.deploy(agent, engine="ollama")
        sent = {"deployment": deployment, "messages": [{"role": "user", "content": "say this"}]}
        await agent.wait_for("PromptAnswered", await agent.command("Prompt", sent))
        assert code(await agent.send("DeployModel", {}), 400)
        before = await scrape(agent)
        assert sum(before.series["best_peer_commands_accepted_total"].values()) == 2
    async with open_door(tmp_path) as door:
        after = await scrape(door.agent(agent.key))
    assert sum(after.series["best_peer_commands_accepted_total"].values()) == 0
    assert "best_peer_commands_refused_total" not in after.series
    for name in ("best_peer_events_total", "best_peer_prompts_total", "best_peer_prompt_tokens_total"):
        assert after.series[name] == before.series[name]


async def test_streams_are_counted_while_they_are_open(door: OpenDoor, agent: Agent) -> None:
    assert (await scrape(agent)).value("best_peer_event_streams") == 0
    async with agent.stream(), agent.stream():
        assert (await scrape(agent)).value("best_peer_event_streams") == 2
    await scrape_until(agent, lambda page: page.value("best_peer_event_streams") == 0)


async def test_fifty_short_workloads_leave_no_series_behind(door: OpenDoor, agent: Agent) -> None:
    """XuehaiPan/nvitop#106: figures of processes that ended stayed in the metrics for ever."""
    door.runtime.scripts = obeys
    before = await scrape(agent)
    for number in range(25):
        deployment = await door.deploy(agent, engine="ollama")
        job = await agent.command("RunJob", {"image": "busybox", "command": ["echo", str(number)]})
        await agent.wait_for("JobFinished", job)
        undeploy = await agent.command("UndeployModel", {"deployment": deployment})
        await agent.wait_for("Undeployed", undeploy)
    after = await scrape(agent)
    assert {name: set(found) for name, found in after.series.items()} == {
        name: set(found) for name, found in before.series.items()
    }
    assert after.value("best_peer_events_total", event="JobFinished") == 25


async def test_nothing_of_a_conversation_or_of_a_job_is_in_it(door: OpenDoor, agent: Agent) -> None:
    door.runtime.scripts = runs_on
    secret = "marked-and-not-to-be-told"
    deployment = await door.deploy(agent, engine="ollama")
    sent = {"deployment": deployment, "messages": [{"role": "user", "content": secret}], "stop": [secret]}
    correlation = await agent.command("Prompt", sent, correlationid=f"about-{secret}")
    await agent.wait_for("PromptAnswered", correlation)
    job = {"image": f"busybox:{secret}", "command": ["sleep", secret], "env": {"TOKEN": secret}}
    await agent.wait_for("JobStarted", await agent.command("RunJob", job))
    page = await scrape(agent)
    assert page.labels("best_peer_job_info", "job")
    assert secret not in page.text
    assert agent.key not in page.text
