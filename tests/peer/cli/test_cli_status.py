"""`best-peer status`: tables a person reads on eighty columns, words where there is nothing, JSON alone."""

from __future__ import annotations

import io
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from peer.cli.tables import Column, console_on, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

STATUS = "GET /admin/status"
HOLDER = "h-1234567890123456789012"
DEPLOYMENT = "dep-AbCdEfGhIjKlMnOpQrStUv"
GIB = 1 << 30


def key(**more: Any) -> dict[str, Any]:
    return {
        "name": "lab",
        "holder": HOLDER,
        "state": "open",
        "grant": {"scopes": ["deploy", "prompt"], "memory_bytes": 40 * GIB},
        "agent_label": "Claude",
        "issued_ms": 0,
        "expires_ms": None,
        "held_bytes": GIB,
        "deployments": 1,
        "jobs": 0,
        **more,
    }


def answer(**more: Any) -> dict[str, Any]:
    return {
        "peer": {"instance": "p-1", "version": "0.1.0"},
        "endpoint": "https://peer.example:7777",
        "data": "/data",
        "streams": 2,
        "devices": [
            {
                "id": "gpu-0/mig-1",
                "name": "NVIDIA H200 MIG 3g.71gb",
                "memory_total_bytes": 141 * GIB,
                "memory_free_bytes": None,
                "memory_promised_bytes": 0,
                "utilisation_ratio": 0.42,
                "availability": {"state": "free"},
            }
        ],
        "engines": [
            {"engine": "llamacpp", "apis": ["cpu"], "models": [{"model": "smollm2"}]},
            {"engine": "ollama", "apis": ["cpu"]},
        ],
        "workloads": {
            "deployments": [
                {
                    "deployment": DEPLOYMENT,
                    "model": "SmolLM2-135M-Instruct-Q4_K_M",
                    "engine": "llamacpp",
                    "device": "cpu",
                    "memory_bytes": GIB,
                    "phase": "ready",
                    "holder": HOLDER,
                }
            ]
        },
        "keys": [key()],
        **more,
    }


class Terminal(io.StringIO):
    """What a terminal of eighty columns would get."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def test_devices_workloads_and_keys_are_tables(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[STATUS] = 200, answer()
    ran = cli("status")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert "  door      https://peer.example:7777" in lines
    assert "  streams   2 open" in lines
    assert "  llamacpp  smollm2" in lines
    assert "  ollama    fetches what is named" in lines
    row = next(line for line in lines if line.startswith("gpu-0/mig-1"))
    assert row.split()[5:] == ["141", "GiB", "unknown", "0", "bytes", "42%", "free"]
    row = next(line for line in lines if line.startswith(DEPLOYMENT))
    assert row.split()[1:] == [
        "SmolLM2-135M-Instruct-Q4_K_M", "llamacpp", "cpu", "1", "GiB", "ready", "lab",
    ]  # fmt: skip
    row = next(line for line in lines if line.startswith("lab"))
    assert re.split(r"  +", row) == [
        "lab", HOLDER, "deploy, prompt", "1 GiB of 40 GiB; 1 deployment; 0 jobs", "open",
    ]  # fmt: skip


def test_what_bounds_a_key_is_shown_with_what_it_holds_as_keys_does(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    narrow = {"scopes": ["all"], "deployments": 2, "jobs": 0, "accelerators_only": True}
    collector = key(name="prometheus", grant={"scopes": ["metrics"]}, deployments=0, held_bytes=0)
    keys = [key(name="narrow", grant=narrow, jobs=0), key(name="wide", grant={"scopes": ["all"]}), collector]
    door.answers[STATUS] = 200, answer(keys=keys)
    door.answers["GET /admin/keys"] = 200, {"keys": keys}
    rows = {line.split()[0]: re.split(r"  +", line) for line in cli("status").out.splitlines() if line}
    assert rows["narrow"][2:4] == ["all; never this host's CPU", "1 GiB; 1 of 2 deployments; 0 of 0 jobs"]
    assert rows["wide"][2:4] == ["all", "1 GiB; 1 deployment; 0 jobs"]
    assert rows["prometheus"][2:4] == ["metrics", "nothing"]
    listed = cli("keys").out.splitlines()
    for may, holds, *_ in (rows["narrow"][2:], rows["wide"][2:]):
        assert f"  may    {may}" in listed
        assert f"  holds  {holds}" in listed


def test_empty_states_say_what_to_do(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[STATUS] = 200, answer(devices=[], workloads={"deployments": []}, keys=[], engines=[])
    out = cli("status").out
    assert "The peer sees no device." in out
    assert "An agent that was let in serves one with deploy-model." in out
    assert "No job runs." in out
    assert "best-peer approve CODE" in out


def test_jobs_are_a_table_of_their_own(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    row = {"image": "busybox:1", "phase": "running", "holder": HOLDER}
    jobs = [
        {"job": "job-one", "boxed": True, "device": "gpu-0", "memory_bytes": GIB, **row},
        {"job": "job-two", "boxed": False, **row},
    ]
    keys = [key(state="revoked", deployments=0, jobs=2)]
    door.answers[STATUS] = 200, answer(workloads={"deployments": [], "jobs": jobs}, keys=keys)
    lines = [line.split() for line in cli("status").out.splitlines()]
    assert ["job-one", "busybox:1", "gpu-0", "1", "GiB", "closed", "running", "lab"] in lines
    assert ["job-two", "busybox:1", "none", "none", "open", "running", "lab"] in lines
    assert any(line[:1] == ["lab"] for line in lines), "a key whose jobs run is shown"


def test_json_is_the_doors_answer_and_nothing_else(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    evil = {"name": "\x1b[2J\x9b\u202e"}
    door.answers[STATUS] = 200, answer(keys=[key(**evil)])
    ran = cli("status", "--json")
    assert ran.json == answer(keys=[key(**evil)])
    assert ran.err == ""
    assert ran.out.strip().isprintable()


def test_keys_that_ended_are_counted_unless_work_of_theirs_runs(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    ended = [
        key(name="gone", state="revoked", deployments=0),
        key(name="late", state="expired", deployments=0),
        key(name="stuck", state="revoked", deployments=1),
    ]
    door.answers[STATUS] = 200, answer(keys=[*ended, key()])
    out = cli("status").out
    assert "2 more keys have ended; best-peer keys --all shows all." in out
    assert "gone" not in out
    assert next(line for line in out.splitlines() if line.startswith("stuck")).rstrip().endswith("revoked")


def test_when_a_key_ends_is_said(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    now = time.time()
    door.answers[STATUS] = (
        200,
        answer(
            keys=[
                key(name="soon", expires_ms=int((now + 7230) * 1000)),
                key(name="far", expires_ms=4_070_908_800_000),
                key(name="odd", expires_ms=1 << 70, grant={"scopes": ["all"], "memory_bytes": None}),
            ]
        ),
    )
    lines = {line.split()[0]: line for line in cli("status").out.splitlines() if line.strip()}
    assert "ends in 2 h" in lines["soon"]
    assert "ends 20" in lines["far"]
    assert "ends unknown" in lines["odd"]


def test_an_answer_of_another_release_is_shown_as_far_as_it_goes(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    workloads: dict[str, Any] = {"deployments": [{}], "jobs": [{}]}
    door.answers[STATUS] = 200, {"keys": [{}], "devices": [{}], "workloads": workloads}
    ran = cli("status")
    assert ran.code == 0
    assert "unknown" in ran.out


def test_nothing_an_agent_chose_acts_on_the_terminal(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    evil = "\x1b]0;owned\x07[red]\u202e"
    workload = {**answer()["workloads"]["deployments"][0], "model": evil}
    door.answers[STATUS] = 200, answer(keys=[key(name=evil)], workloads={"deployments": [workload]})
    out = cli("status").out
    assert all(c.isprintable() or c == "\n" for c in out)
    assert r"\x1b]0;owned\x07[red]" in out


def test_long_names_do_not_break_eighty_columns(
    door: FakeDoor, cli: Callable[..., Ran], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.answers[STATUS] = 200, answer(keys=[key(name="x" * 64)])
    monkeypatch.setattr(sys, "stdout", terminal)
    assert cli("status").code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    lines = [line.rstrip() for line in plain.splitlines()]
    assert max(map(len, lines)) <= 80
    for shown in ("141 GiB", "ready", "open", "deploy", "x" * 64):
        assert any(shown in line for line in lines), shown


def test_ids_and_images_are_whole_on_eighty_columns(
    door: FakeDoor, cli: Callable[..., Ran], terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = "registry.example.com/team/" + "image" * 8 + ":1.2.3"
    job = {"job": "job-AbCdEfGhIjKlMnOpQrStUv", "image": image, "holder": HOLDER, "phase": "running"}
    workloads = {**answer()["workloads"], "jobs": [{**job, "memory_bytes": GIB, "device": "gpu-0/mig-1"}]}
    door.answers[STATUS] = 200, answer(workloads=workloads)
    monkeypatch.setattr(sys, "stdout", terminal)
    assert cli("status").code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    lines = [line.rstrip() for line in plain.splitlines()]
    assert job["job"] in lines
    assert f"  Image: {image}" in lines
    assert "  Device: gpu-0/mig-1   Memory: 1 GiB   Box: closed   Phase: running   Key: lab" in lines
    assert any(DEPLOYMENT in line for line in lines)
    assert any(HOLDER in line for line in lines)
    assert "…" not in plain


def test_a_runtime_that_does_not_answer_is_said_with_what_to_do(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    door.answers[STATUS] = 200, answer(runtime={"name": "docker", "answers": False})
    out = cli("status").out
    assert re.search(r"^  runtime +docker does not answer: ", out, re.MULTILINE)
    assert "journalctl -u docker" in out
    door.answers[STATUS] = 200, answer(runtime={"name": "docker", "answers": True})
    assert "runtime" not in cli("status").out


def test_an_engine_that_no_device_runs_is_told_as_such(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    cpu = {**answer()["devices"][0], "apis": [{"api": "cpu"}]}
    engines = [{"engine": "ollama", "apis": ["cpu", "cuda"]}, {"engine": "vllm", "apis": ["cuda"]}]
    door.answers[STATUS] = 200, answer(devices=[cpu], engines=engines)
    lines = [line.split(maxsplit=1) for line in cli("status").out.splitlines()]
    assert ["vllm", "no device here runs it: it needs cuda"] in lines
    assert ["ollama", "fetches what is named"] in lines


def test_what_mends_a_driver_is_not_cut(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    fix = "load it again " * 30 + "and look"
    fault = {"code": "DRIVER_GONE", "reason": "it is gone", "fix": fix}
    door.answers[STATUS] = 200, answer(driver={"condition": "gone", "fault": fault})
    assert f"to mend it: {fix}" in cli("status").out


def test_colour_is_for_a_terminal_and_not_under_no_color(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    console_on(terminal).print("words", style="red")
    assert "\x1b[31m" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.truncate(0)
    console_on(terminal).print("words", style="red")
    assert "31m" not in terminal.getvalue()
    monkeypatch.setenv("FORCE_COLOR", "1")
    plain = io.StringIO()
    console_on(plain).print("words", style="red")
    assert plain.getvalue() == "words\n"


def test_a_table_elsewhere_is_plain_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    table("Things", [Column("One", gives=True), Column("Two", right=True)], [["x" * 300, "1"]], "none")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Things"
    assert lines[1].split() == ["One", "Two"]
    assert lines[2].startswith("x" * 200 + "...(300 characters)")


def test_a_card_that_its_owner_uses_says_to_them_by_what(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[STATUS] = 200, answer(busy={"GPU-gone": "memory"})
    words = "GPU-gone takes no new work: programs that are not the peer's hold much of its memory."
    assert words in cli("status").out.splitlines()


def test_what_the_owner_holds_is_shown_and_nothing_where_nothing_is(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    held = {"hold": "hold-1", "device": "gpu-0", "until": None, "reason": None, "now": True}
    door.answers[STATUS] = (
        200,
        answer(holds=[held, {**held, "device": "cpu", "reason": "mine", "now": False}]),
    )
    lines = cli("status").out.splitlines()
    at = lines.index("Held by you")
    shown = [re.split(r"  +", line.strip()) for line in lines[at + 1 : at + 4]]
    assert shown == [
        ["Device", "Until", "Reason", "What runs there"],
        ["gpu-0", "best-peer release", "none", "ends"],
        ["cpu", "best-peer release", "mine", "runs on"],
    ]
    assert not any(line.startswith("Nothing runs") for line in lines), "a peer that does not tell"
    door.answers[STATUS] = 200, answer()
    assert "Held" not in cli("status").out


def test_who_is_affected_by_what_the_owner_holds_is_said_in_words(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    held = {"hold": "hold-1", "device": "gpu-0", "until": None, "reason": None, "now": True}
    work = {"workload": DEPLOYMENT, "what": "small", "device": "gpu-0", "started": True, "holder": HOLDER}
    one, other = {**work, "name": "lab", "ends": True}, {**work, "device": "cpu", "ends": False}
    starting = {**one, "started": False, "name": "\x1b[31mlab\r"}

    def said(*affected: dict[str, Any]) -> list[str]:
        door.answers[STATUS] = 200, answer(holds=[held], affected=list(affected))
        lines = cli("status").out.splitlines()
        return lines[lines.index("Held by you") + 4 : lines.index("Deployments") - 1]

    assert said(one, other, starting) == [
        "Of what runs on them, this ends:",
        "  dep-AbCdEfGh  small on gpu-0, key lab",
        r"  dep-AbCdEfGh  small on gpu-0, key \x1b[31mlab\r, not started yet",
        "This runs on:",
        "  dep-AbCdEfGh  small on cpu, holder h-12345678",
    ]
    assert said() == ["Nothing runs on them."]
    assert said(*[one] * 25)[-1] == "  and 5 more; all are listed below"
