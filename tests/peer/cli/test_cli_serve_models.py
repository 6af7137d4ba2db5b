"""The real program with models of its own: what it learns of them, and a machine that cannot serve any."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from actors.messages.times import time_text
from tests.peer.cli.conftest import SECONDS
from tests.support.peers import PeerProcess
from tests.support.tinymodel import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.peer.cli.conftest import Ran

PROCESS = {"BEST_PEER_RUNTIME": "process"}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder elsewhere, with a model that its owner put there by hand."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    write_tiny_model(folder / "tiny.gguf")
    return folder


def looks_at(served: PeerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEST_PEER_DATA", str(served.data))


def deploy(served: PeerProcess) -> dict[str, Any]:
    """The refusal of a deploy-model."""
    sent = {
        "specversion": "1.0",
        "id": "one",
        "source": "urn:test",
        "type": "DeployModel",
        "time": time_text(0),
        "datacontenttype": "application/json",
        "dataschema": f"{served.endpoint}/commands/deploy-model/1.0",
        "data": {"model": "tiny", "engine": "llamacpp", "memory_bytes": 1 << 30},
    }
    with served.client(**{"x-api-key": served.sign_in()}) as client:
        answer = client.post("/commands", json=sent)
    assert answer.status_code == 422, answer.text
    refused: dict[str, Any] = answer.json()["error"]
    return refused


def test_the_digest_of_a_model_put_there_by_hand_is_worked_out(
    tmp_path: Path, models: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that does it was made, and nobody ever started it."""
    with PeerProcess(tmp_path, settings={**PROCESS, "BEST_PEER_MODELS": str(models)}) as served:
        looks_at(served, monkeypatch)
        digest, until = None, time.monotonic() + SECONDS
        while digest is None and time.monotonic() < until:
            (model,) = cli("models", "--json").json["models"]
            digest = model["digest"]
        assert digest is not None
        assert (models / "tiny.gguf.sha256").exists()
        assert served.stop() == 0


def test_models_are_looked_for_where_the_running_peer_has_them(
    tmp_path: Path, models: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    with PeerProcess(tmp_path, settings={**PROCESS, "BEST_PEER_MODELS": str(models)}) as served:
        looks_at(served, monkeypatch)
        assert cli("models", "--json").json["folder"] == str(models)
        shutil.copy(models / "tiny.gguf", tmp_path / "small.gguf")
        assert cli("models", "add", str(tmp_path / "small.gguf")).code == 0
        assert (models / "small.gguf").exists()
        monkeypatch.setenv("BEST_PEER_MODELS", str(tmp_path))
        assert cli("models", "--json").json["folder"] == str(tmp_path), "what is said goes before"
        monkeypatch.delenv("BEST_PEER_MODELS")
        assert served.stop() == 0
    assert cli("models", "--json").json["folder"] == str(served.data / "models"), "nobody says it any more"


def test_a_machine_without_llamacpp_says_so_once_at_its_start_and_offers_no_engine(
    tmp_path: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['xllamacpp'] = None\n")
    with PeerProcess(tmp_path, settings={**PROCESS, "PYTHONPATH": str(hidden)}) as served:
        looks_at(served, monkeypatch)
        assert cli("status", "--json").json["engines"] == []
        assert served.log.read_text().count("install.sh --cpu") == 1
        assert "none: the peer's log says what to install" in cli("status").out
        refused = deploy(served)
        assert refused["code"] == "ENGINE_UNAVAILABLE"
        assert "ask the owner of the machine" in refused["message"]
        assert "pip" not in refused["message"]
        assert served.stop() == 0
