"""A real Prometheus at a real peer with made-up cards, set up as `docs/metrics.md` tells its reader (F36)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.metrics import SERIES
from peer.folder import read_admin_token
from tests.support.agents import DEVICE_GRANT, envelope
from tests.support.nvml.driver import GIB, Instance, NvmlDriver, card
from tests.support.peers import MODEL_BYTES, PeerProcess, listen
from tests.support.prometheus import Prometheus, promtool
from tests.support.scrapes import read_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "metrics.md").read_text()
ALERTS = DOCS / "metrics" / "best-peer-alerts.yml"
DASHBOARD = DOCS / "metrics" / "grafana-best-peer.json"
DEPLOY = {"model": "small", "engine": "ollama", "memory_bytes": MODEL_BYTES}
RUN = {"image": "busybox", "command": ["sleep", "3600"], "memory_bytes": MODEL_BYTES}


def block(language: str) -> str:
    """The one block of the guide in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    text: str = found
    return text


def expressions() -> list[str]:
    """Every question in the guide and in the dashboard, as Prometheus is sent it."""
    asked = re.sub(r"^#.*\n", "", block("promql"), flags=re.MULTILINE)
    found = re.split(r"\n(?=\S)", asked.strip())
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        found += [target["expr"] for target in panel.get("targets", [])]
    known = {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}
    for variable, value in known.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


@pytest.fixture
def cards(nvml_library: Path, tmp_path: Path) -> NvmlDriver:
    """A driver with a card and one that is cut."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    cut = card(1)
    cut.mig, cut.instances = (1, 7), [Instance("MIG-00000000-0000-0000-0000-000000000001")]
    return NvmlDriver(folder, nvml_library, [card(0), cut])


@pytest.fixture
def peer(cards: NvmlDriver, tmp_path: Path) -> Iterator[PeerProcess]:
    settings = {"BEST_PEER_GPU": "nvml", "LD_LIBRARY_PATH": str(cards.folder)}
    with PeerProcess(tmp_path, settings, https=True) as peer:
        yield peer


class Agent:
    """Who sends commands to a peer and waits for what comes of them."""

    def __init__(self, peer: PeerProcess, client: httpx.Client) -> None:
        self._endpoint, self._client = peer.endpoint, client

    def does(self, command: str, data: dict[str, Any], until: str) -> Any:
        """The data of the fact that a command leads to."""
        sent = envelope(self._endpoint, command, data)
        answer = self._client.post("/commands", json=sent)
        assert answer.status_code == 201, answer.text
        return listen(self._client, sent["id"], until=until)[-1]["data"]

    def is_refused(self, command: str, data: dict[str, Any]) -> None:
        """A command that is not accepted."""
        answer = self._client.post("/commands", json=envelope(self._endpoint, command, data))
        assert answer.status_code >= 400, answer.text


@pytest.fixture
def agent(peer: PeerProcess) -> Iterator[Agent]:
    with peer.client(**{"x-api-key": peer.sign_in()}) as client:
        yield Agent(peer, client)


def collectors_key(peer: PeerProcess) -> str:
    """A key for metrics, by the two requests of the guide and its owner's word between them."""
    with peer.client() as client:
        asked = {"client_id": "prometheus", "connection": "prometheus"}
        begun = client.post("/oauth/device", data=asked).json()
        peer.approve(client, begun["user_code"], scopes=["metrics"])
        form = {"client_id": "prometheus", "grant_type": DEVICE_GRANT, "device_code": begun["device_code"]}
        key: str = client.post("/oauth/token", data=form).json()["access_token"]
        return key


@pytest.fixture
def prometheus(peer: PeerProcess, tmp_path: Path) -> Iterator[Prometheus]:
    """One that was set up as the guide says, with its places put in, and asks every second."""
    assert peer.door is not None
    assert peer.door.certificate is not None
    key = tmp_path / "best-peer.key"
    key.write_text(collectors_key(peer) + "\n")
    job = block("yaml")
    places = {
        "/etc/prometheus/best-peer.key": str(key),
        "/etc/prometheus/best-peer-cert.pem": peer.door.certificate,
        "gpu-host.example:7777": peer.endpoint.removeprefix("https://"),
    }
    for written, place in places.items():
        assert job.count(written) == 1
        job = job.replace(written, place)
    often = f"global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{ALERTS}']\n"
    with Prometheus(tmp_path / "prometheus", often + job) as running:
        yield running


def target_of(prometheus: Prometheus) -> tuple[str, str]:
    """The health of the one target, and what its latest scrape failed over."""
    (target,) = prometheus.ask("targets")["activeTargets"]
    return target["health"], target["lastError"]


def are_well(prometheus: Prometheus) -> bool:
    """Whether every alert was asked for and could be answered."""
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    return {rule["health"] for rule in rules} == {"ok"}


def test_a_prometheus_set_up_by_the_guide_charts_a_peer(
    peer: PeerProcess, agent: Agent, cards: NvmlDriver, prometheus: Prometheus
) -> None:
    deployment = agent.does("DeployModel", DEPLOY, "DeploymentReady")["deployment"]
    job = agent.does("RunJob", RUN, "JobStarted")["job"]
    said = {"deployment": deployment, "messages": [{"role": "user", "content": "three words here"}]}
    agent.does("Prompt", said, "PromptAnswered")
    agent.is_refused("DeployModel", {})

    # Each of these is there once a scrape has come after it.
    prometheus.find("best_peer_commands_refused_total > 0")
    prometheus.until(lambda: target_of(prometheus) == ("up", ""))
    prometheus.find('up{job="best-peer", cloud="lab"} == 1')

    names = set(prometheus.ask("label/__name__/values"))
    assert {series.name for series in SERIES} <= names
    # Its unit is told in OpenMetrics alone: that is what it asked for, and was given.
    for family, kind, unit in (
        ("best_peer_device_memory_total_bytes", "gauge", "bytes"),
        ("best_peer_prompts", "counter", ""),
        ("best_peer_device", "info", ""),
    ):
        (found,) = prometheus.until(lambda: prometheus.ask("targets/metadata", metric=family))  # noqa: B023
        assert (found["type"], found["unit"]) == (kind, unit)

    ((_, total),) = prometheus.find('sum(best_peer_device_memory_total_bytes{api!="cpu"})')
    assert total == (140 + 16) * GIB
    powered = [labels["device"] for labels, _ in prometheus.find("best_peer_device_power_watts")]
    assert powered == ["gpu-0"]
    (running,) = prometheus.find('best_peer_job_phase{phase="running"} == 1')
    assert running[0]["exported_job"] == job
    assert running[0]["job"] == "best-peer"
    (tokens,) = prometheus.find('best_peer_prompt_tokens_total{kind="prompt"}')
    assert (tokens[0]["deployment"], tokens[1]) == (deployment, 3)

    asked = expressions()
    assert len(asked) > 25
    for expression in asked:
        prometheus.query(expression)
    (rules,) = (group["rules"] for group in prometheus.ask("rules")["groups"])
    assert len(rules) > 5
    prometheus.until(lambda: are_well(prometheus))

    # What ends is gone with the next scrape, and not five minutes later.
    agent.does("UndeployModel", {"deployment": deployment}, "Undeployed")
    agent.does("StopJob", {"job": job}, "JobStopped")
    gone = '{__name__=~"best_peer_(deployment|job|prompt).*"}'
    prometheus.until(lambda: prometheus.query("up == 1") and not prometheus.query(gone))
    # A driver that is gone leaves the peer up and the devices away.
    cards.session = None
    cards.write()
    prometheus.find("best_peer_hardware_readable == 0")
    assert prometheus.query('{__name__=~"best_peer_device_.*"}') == []
    prometheus.find("up == 1")
    cards.session = 2
    cards.write()
    prometheus.find("best_peer_device_power_watts")


def test_a_key_that_is_taken_back_is_told_where_an_owner_looks(
    peer: PeerProcess, prometheus: Prometheus
) -> None:
    prometheus.find("up == 1")
    with peer.client(authorization=f"Bearer {read_admin_token(peer.data)}") as owner:
        assert owner.post("/admin/revoke", json={"name": "prometheus"}).status_code == 200
    prometheus.until(lambda: "401" in target_of(prometheus)[1])
    prometheus.find("up == 0")


def test_promtool_finds_nothing_to_mend_in_the_text(peer: PeerProcess, agent: Agent) -> None:
    agent.does("DeployModel", DEPLOY, "DeploymentReady")
    agent.does("RunJob", RUN, "JobStarted")
    agent.is_refused("DeployModel", {})
    with peer.client(authorization=f"Bearer {collectors_key(peer)}") as client:
        text = client.get("/metrics").text
    assert set(read_page(text).series) == {series.name for series in SERIES}
    assert promtool("check", "metrics", text=text) == ""
