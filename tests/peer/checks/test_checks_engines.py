"""What is said of the engines that serve without Docker."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from peer.checks.engines import look_at_llamacpp, look_at_ollama, nothing_real, program
from tests.support.tinymodel import write_tiny_model


async def test_an_ollama_that_is_not_there_is_a_problem() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        (line,) = await look_at_ollama("127.0.0.1", sock.getsockname()[1])
    assert line.state == "problem"
    assert "no Ollama answers at http://127.0.0.1:" in line.what
    assert "BEST_PEER_ENGINE_HOST" in (line.remedy or "")


async def test_a_folder_with_nothing_to_serve_is_a_warning(tmp_path: Path) -> None:
    engine, models = await look_at_llamacpp(tmp_path / "models", Path("/bin/true"))
    assert (engine.state, engine.what) == ("ok", "llama.cpp's server is there: /bin/true")
    assert models.state == "warning"
    assert "best-peer models add" in (models.remedy or "")
    assert not (tmp_path / "models").exists()


async def test_models_are_named_and_broken_ones_told_with_what_to_do(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "tiny.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    _, good, broken = await look_at_llamacpp(tmp_path, None)
    assert (good.state, good.what) == ("ok", f"tiny in {tmp_path}")
    assert broken.state == "warning"
    assert "broken cannot be deployed" in broken.what


@pytest.mark.parametrize(
    ("missing", "state"),
    [(None, "ok"), ("this machine has no llama-server: pip install it", "problem")],
)
def test_a_program_that_is_missing_is_a_problem(missing: str | None, state: str) -> None:
    assert program(missing, None).state == state


def test_a_runtime_that_pretends_is_a_warning() -> None:
    assert nothing_real()[0].state == "warning"
