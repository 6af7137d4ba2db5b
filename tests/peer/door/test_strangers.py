"""Whose programs are on a card is its owner's to see: no key, fact, metric or log line tells (F28)."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from adapters.gpu.fake import GIB, FakeGpu, cpu_device, cuda_device
from adapters.gpu.port import DeviceProcess, Program
from tests.support.peers import open_door

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STRANGER = 98_765
NAME = "owners-secret-game"
SIZE = 1_234_567_891
CARD = cuda_device()


def used_by_a_stranger() -> FakeGpu:
    gpu = FakeGpu((CARD, cpu_device()))
    gpu.others[STRANGER] = Program(5, NAME)
    gpu.hold(CARD.uuid, DeviceProcess(STRANGER, SIZE, "graphics", 0.875))
    return gpu


def kept(folder: Path) -> list[str]:
    """All that a peer left on the disk."""
    return [path.read_text("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]


async def test_a_strangers_program_is_shown_to_the_owner_and_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gpu = used_by_a_stranger()
    monkeypatch.setattr("peer.devices.HostGpu", lambda: gpu)
    async with open_door(tmp_path) as door:
        owner = (await door.admin("GET", "status")).json()
        assert owner["cards"][0]["others"] == [
            {
                "pid": STRANGER,
                "kind": "graphics",
                "memory_bytes": SIZE,
                "name": NAME,
                "utilisation_ratio": 0.875,
            }
        ]

        agent = await door.sign_in()
        collector = await door.sign_in(scopes=["metrics"])
        job = {"image": "busybox", "command": ["sleep", "600"], "memory_bytes": GIB, "device": "gpu-0"}
        run = await agent.command("RunJob", job)
        started = await agent.wait_for("JobStarted", run)
        refused = await agent.send("RunJob", {"image": "busybox", "memory_bytes": 1 << 49})
        assert refused.json()["error"]["code"] == "INSUFFICIENT_MEMORY"
        await agent.command("StopJob", {"job": started["data"]["job"]})
        await agent.wait_for("JobStopped", run)
        said = [refused.text]
        said.append(json.dumps(await agent.query("get-hardware-state")))
        said.append(json.dumps(await agent.query("get-workloads")))
        said.append(json.dumps(await agent.events()))
        for reader in (agent, collector):
            said.append((await reader.get("/metrics")).text)
    said += kept(tmp_path)
    said += [record.getMessage() for record in caplog.records if record.name.startswith("best_peer")]
    for text in said:
        for secret in (str(STRANGER), NAME, str(SIZE), "0.875"):
            assert secret not in text
