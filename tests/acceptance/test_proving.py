"""`scripts/prove-on-gpu`, rehearsed without a card: on stand-ins in containers, through the door."""

import json
import os
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from acceptance.display import Display
from acceptance.facts import Fact
from acceptance.names import Names
from acceptance.problems import Faulty, Refused
from acceptance.proving import host
from acceptance.proving.report import NotTried, Report, without_words
from acceptance.proving.service import Done, DoorClient
from acceptance.proving.trials import EngineOrder, Trials
from tests.standins.images import ollama_image
from tests.support.docker.bed import DockerBed
from tests.support.docker.use import engine_client, push_as

ROOT = Path(__file__).parents[2]
PEER = Path(sys.executable).with_name("best-peer")


def rehearse(bed: DockerBed, folder: Path, *more: str) -> tuple[int, dict[str, Any], str]:
    """Run it with the stand-in for Ollama; its exit code, its report and what it said."""
    reference = push_as(bed, ollama_image(), f"proving/{uuid.uuid4().hex}")
    shell = push_as(bed, "shell", f"proving/{uuid.uuid4().hex}")
    report = folder / "report.json"
    argv = [
        sys.executable, "-m", "acceptance.proving", "--peer", str(PEER), "--rehearse",
        "--report", str(report), "--ollama-image", reference, "--ollama-model", "tiny",
        "--ollama-memory", "200M", "--job-image", shell, "--patience", "120", *more,
    ]  # fmt: skip
    environment = {**os.environ, "DOCKER_HOST": bed.docker_host, "HOME": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    said = json.loads(report.read_text()) if report.exists() else {}
    return done.returncode, said, done.stdout + done.stderr


def results(report: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["result"] for check in report["checks"]}


def holds_no_words(report: dict[str, Any], said: str, home: Path) -> None:
    """No key, no word of a conversation, and no folder of the owner's."""
    text = json.dumps(report)
    answered = [
        fact for one in report["commands"] for fact in one["facts"] if fact["kind"] == "PromptAnswered"
    ]
    assert answered
    for fact in answered:
        assert fact["data"]["content"].endswith(" characters>")
    for secret in ("bp_", "tide", "device_code"):
        assert secret not in text
        assert secret not in said
    assert str(home) not in text, "the home folder is ~"


def test_a_whole_life_is_driven_and_told(docker_bed: DockerBed, tmp_path: Path) -> None:
    code, report, said = rehearse(docker_bed, tmp_path)

    assert code == 0, said
    assert report["rehearsal"] is True
    assert results(report) == {
        "cards": "not tried",
        "ollama ready": "proven",
        "ollama memory": "not tried",
        "ollama place": "proven",
        "ollama answer": "proven",
        "ollama token": "proven",
        "ollama ended": "proven",
        "vllm ready": "not tried",
        "plain job": "proven",
        "job": "not tried",
        "left over": "proven",
        "stopped": "proven",
    }
    told = {one["command"]: [fact["kind"] for fact in one["facts"]] for one in report["commands"]}
    assert told["deploy-model"][-1] == "DeploymentReady"
    assert "ImagePulled" in told["deploy-model"]
    assert told["undeploy-model"] == ["Undeployed"]
    assert report["host"]["docker"]["version"]
    assert any("is serving its door" in line for line in report["log"])
    assert said.count("send it back") == 1
    holds_no_words(report, said, tmp_path)


def test_what_fails_is_told_and_all_is_taken_down(docker_bed: DockerBed, tmp_path: Path) -> None:
    code, report, said = rehearse(docker_bed, tmp_path, "--ollama-model", "embed")

    assert code == 1, said
    assert results(report)["ollama ready"] == "failed"
    assert "embedding" in next(check["said"] for check in report["checks"] if check["name"] == "ollama ready")
    assert results(report)["left over"] == "proven"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("best-peer-prove")] == []
    with engine_client(docker_bed) as client:
        named = client.get("/containers/json", params={"all": "1"}).json()
    assert not [one for one in named if "proving/" in one["Image"]]


def test_a_peer_that_does_not_start_ends_it_at_once(docker_bed: DockerBed, tmp_path: Path) -> None:
    code, report, said = rehearse(docker_bed, tmp_path, "--model-store", str(tmp_path / "none"))

    assert code == 2
    assert report == {}
    assert "BEST_PEER_MODEL_STORE" in said


def test_its_help_needs_no_environment(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [ROOT / "scripts" / "prove-on-gpu", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0
    assert "Exit codes" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--engines", "torch"], ["--ollama-memory", "much"], ["--nonsense"]])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "acceptance.proving", "--peer", str(PEER), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "usage" in done.stderr


def a_tool(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an `nvidia-smi` on the path that says this."""
    folder.mkdir(exist_ok=True)
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_cards_are_read_by_the_drivers_own_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "0, NVIDIA H200, GPU-11111111, 143771, 512, 580.65.06, 9.0"
    a_tool(tmp_path / "bin", f"echo '{line}'", monkeypatch)

    (card,) = host.cards()

    assert (card.index, card.name, card.uuid, card.driver) == (0, "NVIDIA H200", "GPU-11111111", "580.65.06")
    assert card.memory_total_bytes == 143771 * 1024**2
    assert card.memory_used_bytes == 512 * 1024**2


@pytest.mark.parametrize("text", ["echo failed; exit 9", "echo what", "echo 'a, b, c, d, e, f, g'"])
def test_a_tool_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    a_tool(tmp_path / "bin", text, monkeypatch)

    with pytest.raises(Faulty, match="nvidia-smi"):
        host.cards()


def test_without_the_tool_there_are_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert host.cards() == []


def a_report(*, is_rehearsal: bool = False) -> Report:
    names = Names()
    return Report(names, Display(sys.stderr, sys.stdout, names), is_rehearsal=is_rehearsal)


def fail(why: Exception) -> None:
    raise why


def test_each_result_has_its_exit_code() -> None:
    proven, failed, untried = a_report(), a_report(), a_report()
    for report in (proven, failed, untried):
        with report.check("one", "it is so"):
            pass
    for report, why in (
        (failed, Refused("it is not")),
        (untried, NotTried("no card")),
        (failed, NotTried("no card")),
    ):
        with report.check("two", "it is so"):
            fail(why)

    assert [report.exit_code for report in (proven, failed, untried)] == [0, 1, 3]
    assert failed.checks[1].said == "it is not"


def test_of_many_facts_of_a_kind_the_first_and_the_last_are_kept() -> None:
    report = a_report()
    facts = [(float(n), "ImagePulling", {"progress_pct": n}) for n in range(5)]
    report.command("deploy-model", [*facts, (9.0, "ImagePulled", {})])

    assert [fact["seconds"] for fact in report.commands[0]["facts"]] == [0.0, 4.0, 9.0]


def test_words_are_counted_and_not_kept() -> None:
    said = {"content": "secret words", "tokens": 3, "more": [{"answer": "no", "exit_code": 1}]}

    assert without_words(said) == {
        "content": "<12 characters>",
        "tokens": 3,
        "more": [{"answer": "<2 characters>", "exit_code": 1}],
    }


UUID = "GPU-11111111-0000-0000-0000-000000000000"
CARD = {
    "id": "gpu-0",
    "uuid": UUID,
    "name": "Card",
    "apis": [{"api": "cuda", "version": "13.0"}],
    "memory_total_bytes": 24 << 30,
    "slicing": "none",
    "isolation": "container",
}


class Client:
    """A door that answers as it was told."""

    def __init__(
        self, *facts: tuple[str, dict[str, Any]], devices: list[dict[str, Any]] | None = None
    ) -> None:
        self.facts = [Done(((1.0, Fact("id", kind, data, {})),)) for kind, data in facts]
        self.devices = [CARD] if devices is None else devices
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def query(self, name: str) -> Any:
        return {"devices": self.devices, "deployments": [], "jobs": []}

    def offers(self, command: str) -> bool:
        return True

    def command(self, name: str, data: dict[str, Any], *, ends: frozenset[str], patience: float) -> Done:
        self.sent.append((name, data))
        return self.facts.pop(0)


def trials(client: Client, *, in_use: tuple[int, ...] = (0,), cards: list[host.Card] | None = None) -> Trials:
    """Trials on a card that holds so many bytes, one reading after another."""
    readings = list(in_use)

    def read() -> list[host.Card]:
        held = readings.pop(0) if len(readings) > 1 else readings[0]
        return [host.Card(0, "Card", UUID, 24 << 30, held, "580", "9.0")]

    made = Trials(a_report(), cast("DoorClient", client), cast("host.Docker", None), 10.0)
    made.read_cards = read if cards is None else lambda: cards
    return made


def result(made: Trials, name: str) -> tuple[str, str]:
    return next((check.result, check.said) for check in made.report.checks if check.name == name)


def test_a_card_that_the_peer_does_not_list_is_a_failure() -> None:
    cards = [host.Card(n, "Card", uuid, 1, 0, "580", "9.0") for n, uuid in enumerate((UUID, "GPU-2"))]
    made = trials(Client(), cards=cards)
    made.hardware()

    assert result(made, "cards") == ("failed", "the peer does not list 1 of 2 cards")


def test_a_peer_that_reads_no_cards_proves_nothing_of_them() -> None:
    cpu = {**CARD, "id": "cpu", "uuid": "cpu", "apis": [{"api": "cpu"}]}
    made = trials(Client(devices=[cpu]))
    made.hardware()
    made.job("ubuntu")

    assert result(made, "cards")[0] == result(made, "job")[0] == "not tried"
    assert made.report.exit_code == 3


@pytest.mark.parametrize(("taken", "expected"), [(3 << 30, "proven"), (5 << 30, "failed")])
def test_what_an_engine_takes_is_held_to_its_promise(taken: int, expected: str) -> None:
    answered = ("PromptAnswered", {"content": "words", "prompt_tokens": 3, "completion_tokens": 2})
    client = Client(
        ("DeploymentReady", {"deployment": "dep-1"}), *[answered] * 6, ("Undeployed", {"deployment": "dep-1"})
    )
    # Read at first, before it was asked for; then while it runs, and when it has ended.
    made = trials(client, in_use=(0, 1 << 30, (1 << 30) + taken, 0, 1 << 30))
    made.hardware()
    made.engine(EngineOrder("ollama", "tiny", 4 << 30))

    assert result(made, "ollama memory")[0] == expected
    assert result(made, "ollama ended")[0] == "proven"
    assert client.sent[0][1]["device"] == "gpu-0"
    assert client.sent[-1] == ("undeploy-model", {"deployment": "dep-1"})


@pytest.mark.parametrize(
    ("code", "output", "expected"),
    [(0, [UUID], "proven"), (0, [UUID, "GPU-2"], "failed"), (0, [], "failed"), (9, ["no driver"], "failed")],
)
def test_a_job_is_to_see_its_card_and_no_other(code: int, output: list[str], expected: str) -> None:
    made = trials(Client(("JobFinished", {"job": "job-1", "exit_code": code, "output": output})))
    made.hardware()
    made.job("ubuntu")

    assert result(made, "job")[0] == expected


def test_a_model_that_ended_up_on_the_cpu_is_a_failure() -> None:
    answered = ("PromptAnswered", {"content": "words", "prompt_tokens": 3, "completion_tokens": 2})
    ready = ("DeploymentReady", {"deployment": "dep-1", "note": "the model is run by the CPU alone"})
    made = trials(Client(ready, *[answered] * 6, ("Undeployed", {})))
    made.hardware()
    made.engine(EngineOrder("ollama", "tiny", 4 << 30))

    assert result(made, "ollama place") == ("failed", "the model is run by the CPU alone")
    assert made.report.exit_code == 1
