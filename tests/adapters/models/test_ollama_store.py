"""A store as `ollama pull` leaves it, and what else may lie there."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from adapters.models import ollama_store
from adapters.models.faults import BadName
from adapters.models.ollama_name import parse_name
from adapters.models.ollama_store import OllamaStore, StoreUnreadable
from tests.standins.library import add_model, make_library
from tests.support.tinymodel import write_tiny_model


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return make_library(tmp_path / "library")


@pytest.fixture
def weights(tmp_path: Path) -> bytes:
    return write_tiny_model(tmp_path / "weights.gguf").read_bytes()


@pytest.mark.parametrize(
    ("text", "parts", "short"),
    [
        ("tiny", ("registry.ollama.ai", "library", "tiny", "latest"), "tiny:latest"),
        ("tiny:1b", ("registry.ollama.ai", "library", "tiny", "1b"), "tiny:1b"),
        ("library/tiny", ("registry.ollama.ai", "library", "tiny", "latest"), "tiny:latest"),
        ("some_one/tiny-2.5", ("registry.ollama.ai", "some_one", "tiny-2.5", "latest"), None),
        ("hf.co/who/what:Q4_K_M", ("hf.co", "who", "what", "Q4_K_M"), "hf.co/who/what:Q4_K_M"),
        ("host:5000/ns/m", ("host:5000", "ns", "m", "latest"), "host:5000/ns/m:latest"),
    ],
)
def test_what_a_name_leaves_out_is_ollamas_default(
    text: str, parts: tuple[str, ...], short: str | None
) -> None:
    name = parse_name(text)

    assert name.parts == parts
    assert name.short == (short or f"{text}:latest")


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "..", "../x", "a/../b", "x:../../y", "/a", "a//b", "a/b/c/d", "m:", ":t", "-m", "--model",
        "http://host/ns/m", "https://host/ns/m", "m@sha256:00", "a b", "a\nb", "ü", "host:80/m", "x" * 300,
        "m:.hidden", "./m", "ns/./m",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        parse_name(text)


def test_names_are_alike_whatever_their_letters_and_defaults() -> None:
    name = parse_name("Tiny")

    assert name.is_called("tiny:latest")
    assert name.is_called("registry.ollama.ai/library/TINY:latest")
    assert not name.is_called("tiny:1b")
    assert not name.is_called("a//b")
    assert not name.is_called(None)


@pytest.mark.parametrize(
    ("text", "is_cloud"), [("m:cloud", True), ("m:20b-cloud", True), ("m:clouds", False)]
)
def test_a_model_of_the_cloud_is_known_by_its_tag(text: str, is_cloud: bool) -> None:
    assert parse_name(text).is_of_the_cloud == is_cloud


async def test_a_model_is_found_by_its_manifest(library: Path, weights: bytes) -> None:
    add_model(library, "tiny:1b", weights)
    store = OllamaStore(library)

    found = await store.find(parse_name("tiny:1b"))

    assert found is not None
    manifest = library / "manifests/registry.ollama.ai/library/tiny/1b"
    assert found.digest == f"sha256:{hashlib.sha256(manifest.read_bytes()).hexdigest()}"
    assert found.weights_bytes >= len(weights)
    assert found.size_bytes > found.weights_bytes
    assert found.family == "llama"
    assert not found.is_remote
    assert found.facts is not None
    assert found.facts.architecture == "llama"
    assert (await store.find(parse_name("TINY:1B"))) is not None
    assert (await store.find(parse_name("tiny"))) is None
    assert (await store.find(parse_name("other/tiny:1b"))) is None


async def test_weights_that_are_no_gguf_are_left_to_the_engine(library: Path) -> None:
    add_model(library, "odd", b"safetensors or whatever", config={"model_family": "Gemma"})

    found = await OllamaStore(library).find(parse_name("odd"))

    assert found is not None
    assert (found.facts, found.family) == (None, "gemma")


async def test_a_model_that_others_machines_answer_for_is_told(library: Path) -> None:
    add_model(library, "far", None, config={"remote_host": "https://ollama.com", "remote_model": "far"})

    found = await OllamaStore(library).find(parse_name("far"))

    assert found is not None
    assert found.is_remote


def _manifest(library: Path) -> Path:
    return library / "manifests/registry.ollama.ai/library/tiny/latest"


def _weights(library: Path) -> Path:
    return max((library / "blobs").iterdir(), key=lambda blob: blob.stat().st_size)


def _cut(library: Path) -> None:
    os.truncate(_weights(library), 1000)


def _remove(library: Path) -> None:
    _weights(library).unlink()


def _link_out(library: Path) -> None:
    weights = _weights(library)
    weights.rename(library.parent / "elsewhere")
    weights.symlink_to(library.parent / "elsewhere")


def _folder(library: Path) -> None:
    weights = _weights(library)
    weights.unlink()
    weights.mkdir()


def _no_json(library: Path) -> None:
    _manifest(library).write_bytes(b"\xff not json")


def _too_long(library: Path) -> None:
    _manifest(library).write_bytes(b"{" + b" " * ollama_store.MAX_MANIFEST)


def _too_deep(library: Path) -> None:
    _manifest(library).write_bytes(b"[" * 500_000)


def _no_layers(library: Path) -> None:
    _manifest(library).write_text(json.dumps({"layers": 7}))


def _bad_digest(library: Path) -> None:
    manifest: dict[str, Any] = json.loads(_manifest(library).read_text())
    manifest["layers"][0]["digest"] = "sha256:../../../etc/passwd"
    _manifest(library).write_text(json.dumps(manifest))


def _manifest_is_a_list(library: Path) -> None:
    _manifest(library).write_text("[]")


def _manifest_leads_out(library: Path) -> None:
    _manifest(library).rename(library.parent / "manifest")
    _manifest(library).symlink_to(library.parent / "manifest")


@pytest.mark.parametrize(
    "harm",
    [
        _cut, _remove, _link_out, _folder, _no_json, _too_long, _too_deep, _no_layers, _bad_digest,
        _manifest_is_a_list, _manifest_leads_out,
    ],
)  # fmt: skip
async def test_a_model_that_is_not_whole_is_not_held(library: Path, weights: bytes, harm: Any) -> None:
    add_model(library, "tiny", weights)
    store = OllamaStore(library)
    assert await store.find(parse_name("tiny")) is not None

    harm(library)

    assert await store.find(parse_name("tiny")) is None


async def test_a_link_within_the_store_is_followed(library: Path, weights: bytes) -> None:
    add_model(library, "tiny", weights)
    blob = _weights(library)
    blob.rename(library / "blobs" / "kept")
    blob.symlink_to("kept")

    assert await OllamaStore(library).find(parse_name("tiny")) is not None


@pytest.mark.parametrize("missing", ["manifests", "blobs"])
def test_a_folder_that_is_no_store_is_refused_with_its_path(library: Path, missing: str) -> None:
    (library / missing).rmdir()

    with pytest.raises(StoreUnreadable) as caught:
        OllamaStore(library)
    assert str(library) in caught.value.reason
    assert missing in caught.value.reason
    assert "OLLAMA_MODELS" in caught.value.fix


def test_a_path_that_depends_on_where_one_stands_is_refused() -> None:
    with pytest.raises(StoreUnreadable, match="absolute"):
        OllamaStore(Path("models"))


async def test_a_store_that_went_away_is_told_without_its_path(library: Path, weights: bytes) -> None:
    add_model(library, "tiny", weights)
    store = OllamaStore(library)
    manifests = library / "manifests"
    manifests.rename(library / "gone")
    # What a disk that is gone looks like to whoever reads it; rights do not stop the superuser.
    manifests.symlink_to(manifests)

    with pytest.raises(StoreUnreadable) as caught:
        await store.find(parse_name("tiny"))
    assert "the operator's model store" in caught.value.reason
    assert str(library.parent) not in f"{caught.value.reason} {caught.value.fix}"
