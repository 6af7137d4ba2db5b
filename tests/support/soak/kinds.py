"""What can be killed: a peer whose engines are remembered, and one whose engines are real."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.soak import checks
from tests.support.soak.agents import Load
from tests.support.soak.run import Kind

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
PACE = {"BEST_PEER_COMMANDS_PER_MINUTE": "1000000", "BEST_PEER_LOG": "info,door=warning"}


def fake() -> Kind:
    """The whole product but for its engines, which the fake runtime keeps in the data folder."""
    return Kind(
        name="fake",
        settings={"BEST_PEER_GPU": "none", "BEST_PEER_RUNTIME": "fake", **PACE},
        load=Load(
            engine="llamacpp",
            model="small",
            sizes=(16 * MIB, 32 * MIB, 64 * MIB),
            jobs=(
                ("exit", "0"),
                ("exit", "7"),
                ("oom",),
                ("say", "something"),
                ("sleep", "0.1"),
                checks.ENDLESS,
            ),
        ),
        busy_seconds=(0.02, 1.2),
        start_seconds=1.2,
        loops=2,
        running=checks.remembered_programs,
    )


def real(models: Path) -> Kind:
    """The product as it is: processes of llama.cpp that serve a tiny model."""
    from tests.support.tinymodel import write_tiny_model

    models.mkdir(parents=True)
    write_tiny_model(models / "tiny.gguf")

    def running(data: Path) -> dict[str, list[int]]:
        return checks.labelled_processes((data / "instance").read_text().strip())

    return Kind(
        name="real",
        settings={
            "BEST_PEER_GPU": "none",
            "BEST_PEER_RUNTIME": "process",
            "BEST_PEER_MODELS": str(models),
            **PACE,
        },
        load=Load(
            engine="llamacpp",
            model="tiny.gguf",
            sizes=(128 * MIB,),
            most=1,
            at_once=2,
            early=0.02,
            prompt={"max_tokens": 16},
        ),
        busy_seconds=(0.3, 6.0),
        start_seconds=1.5,
        loops=2,
        running=running,
    )
