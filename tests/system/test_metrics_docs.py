"""What is written of the metrics names the series that there are, and no other; the alerts do as they say."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from actors.metrics import SERIES
from tests.support.prometheus import promtool

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "metrics.md").read_text()
ALERTS = DOCS / "metrics" / "best-peer-alerts.yml"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "metrics" / "grafana-best-peer.json").read_text())
OF_ONES_OWN = ("best_peer_deployment_", "best_peer_job_", "best_peer_prompt")
BY_NAME = {series.name: series for series in SERIES}
OF_THE_TARGET = {"job", "instance"}
"""Labels that Prometheus gives to every series; a label `job` of ours it calls `exported_job`."""


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def expressions() -> list[str]:
    """Every expression of the dashboard and of the alerts."""
    drawn = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    rules = re.findall(r"^ +expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", ALERTS.read_text(), re.MULTILINE)
    return [*drawn, *(several or one for several, one in rules)]


def test_the_table_lists_every_series_with_its_labels_type_and_readers() -> None:
    section = GUIDE.partition("## Every series")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\| (\w+) \| (\w+) \| [^|]+ \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| `")
    written = [(name, tuple(re.findall(r"`(\w+)`", labels)), kind, who) for name, labels, kind, who in rows]
    assert written == [
        (
            series.name,
            series.labels,
            series.kind,
            "door"
            if series.readers == "all or metrics"
            else "own"
            if series.name.startswith(OF_ONES_OWN)
            else "every",
        )
        for series in SERIES
    ]


def test_nothing_else_is_named_anywhere() -> None:
    texts = [GUIDE, ALERTS.read_text(), json.dumps(DASHBOARD)]
    for text in texts:
        named = set(re.findall(r"\bbest_peer_\w+", text)) - {
            "best_peer_device_",
            "best_peer_job_",
            "best_peer_",
        }
        assert named <= BY_NAME.keys()
    assert {name for text in texts[1:] for name in re.findall(r"\bbest_peer_\w+", text)} >= BY_NAME.keys()


def test_every_label_that_is_asked_for_is_one_of_the_series() -> None:
    for expression in expressions():
        named = re.findall(r"\b(best_peer_\w+|up)\b", expression)
        labels = {label for name in named if name in BY_NAME for label in BY_NAME[name].labels}
        labels = OF_THE_TARGET | {"exported_job" if label == "job" else label for label in labels}
        asked = set(re.findall(r"(\w+) *(?:=~|!~|!=|=)\"", expression))
        for listed in re.findall(r"\b(?:by|on|group_left|without) \(([^)]*)\)", expression):
            asked |= {label.strip() for label in listed.split(",") if label.strip()}
        assert asked <= labels, expression


def test_the_guide_explains_each_alert_and_no_other() -> None:
    section = GUIDE.partition("## Alerts")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == re.findall(
        r"- alert: (\w+)", ALERTS.read_text()
    )


def test_the_dashboard_can_be_imported_as_it_is() -> None:
    assert DASHBOARD["id"] is None, "a number of another Grafana's"
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    drawn = [panel for panel in panels() if panel["type"] != "row"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert len({panel["title"] for panel in panels()}) == len(panels())
    source = {"type": "prometheus", "uid": "${datasource}"}
    for each in (*drawn, *(target for panel in drawn for target in panel["targets"])):
        assert each["datasource"] == source
    for name in set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}:
        assert name in variables
    for panel in panels():
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    assert not [(one["title"], two["title"]) for one, two in combinations(panels(), 2) if overlap(one, two)]


def overlap(one: dict[str, Any], two: dict[str, Any]) -> bool:
    a, b = one["gridPos"], two["gridPos"]
    return all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in (("x", "w"), ("y", "h")))


CARD = 'instance="m:7777",job="best-peer",device="gpu-0",vendor="nvidia",api="cuda"'
PEER = 'instance="m:7777",job="best-peer"'


@pytest.mark.parametrize(
    ("alert", "series", "after"),
    [
        ("BestPeerDown", {f"up{{{PEER}}}": "0x200"}, "10m"),
        ("BestPeerDriverSilent", {f"best_peer_hardware_readable{{{PEER}}}": "0x200"}, "10m"),
        (
            "BestPeerDeviceGone",
            {
                f"best_peer_device_memory_free_bytes{{{CARD}}}": "",
                f"best_peer_device_temperature_celsius{{{CARD}}}": "",
            },
            "10m",
        ),
        # A card whose driver says nothing of its memory is not one that is gone.
        ("none", {f"best_peer_device_memory_free_bytes{{{CARD}}}": ""}, "60m"),
        ("BestPeerDeviceHot", {f"best_peer_device_temperature_celsius{{{CARD}}}": "88x200"}, "15m"),
        (
            "BestPeerMemoryPromisedToNobody",
            {
                f"best_peer_device_memory_total_bytes{{{CARD}}}": "24000000000x200",
                f"best_peer_device_memory_free_bytes{{{CARD}}}": "4000000000x200",
                f"best_peer_device_memory_promised_bytes{{{CARD}}}": "10000000000x200",
            },
            "35m",
        ),
        (
            "BestPeerDeploymentStuck",
            {
                f'best_peer_deployment_phase{{{PEER},deployment="dep-1",phase="starting"}}': "1x30 0x170",
                f'best_peer_deployment_phase{{{PEER},deployment="dep-1",phase="loading"}}': "0x30 1x170",
                f'best_peer_deployment_phase{{{PEER},deployment="dep-1",phase="ready"}}': "0x200",
            },
            "100m",
        ),
        (
            "BestPeerDeploymentsFail",
            {f'best_peer_events_total{{{PEER},event="DeploymentFailed"}}': "0x5 1x200"},
            "10m",
        ),
        (
            "BestPeerPromptsFail",
            {
                f'best_peer_prompts_total{{{PEER},deployment="dep-1",outcome="failed"}}': "0+1x200",
                f'best_peer_prompts_total{{{PEER},deployment="dep-1",outcome="answered"}}': "0+4x200",
            },
            "30m",
        ),
        (
            "BestPeerKeepsNothing",
            {f'best_peer_commands_refused_total{{{PEER},command="RunJob",code="NO_ROOM"}}': "_x5 1x200"},
            "10m",
        ),
    ],
)
def test_an_alert_is_raised_by_what_it_is_for_and_not_at_once_or_else(
    alert: str, series: dict[str, str], after: str, tmp_path: Path
) -> None:
    """Judged by promtool. What is well raises none of them; series without values are not there."""
    well = {
        f"up{{{PEER}}}": "1x200",
        f"best_peer_hardware_readable{{{PEER}}}": "1x200",
        f"best_peer_device_info{{{CARD}}}": "1x200",
        f"best_peer_device_temperature_celsius{{{CARD}}}": "60x200",
        f"best_peer_device_memory_total_bytes{{{CARD}}}": "24000000000x200",
        f"best_peer_device_memory_free_bytes{{{CARD}}}": "14000000000x200",
        f"best_peer_device_memory_promised_bytes{{{CARD}}}": "10000000000x200",
        f'best_peer_events_total{{{PEER},event="DeploymentFailed"}}': "3x200",
        f'best_peer_prompts_total{{{PEER},deployment="dep-2",outcome="failed"}}': "1x200",
        f'best_peer_prompts_total{{{PEER},deployment="dep-2",outcome="answered"}}': "0+9x200",
        f'best_peer_commands_refused_total{{{PEER},command="RunJob",code="FORBIDDEN"}}': "0+1x200",
    }
    names = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    troubled = {name: values for name, values in {**well, **series}.items() if values}
    tests = [
        case(well, after, dict.fromkeys(names, 0)),
        case(troubled, "0m", dict.fromkeys(names, 0)),
        case(troubled, after, {name: int(name == alert) for name in names}),
    ]
    file = tmp_path / "alerts.test.yml"
    # JSON is YAML.
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def case(series: dict[str, str], after: str, raised: dict[str, int]) -> dict[str, Any]:
    """How many of each alert are raised after a time over these series."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": after,
                "exp_samples": [{"labels": "{}", "value": count}],
            }
            for name, count in raised.items()
        ],
    }


def test_promtool_takes_the_alerts() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))
