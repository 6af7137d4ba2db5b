"""The program itself on a machine with NVIDIA's driver: a made-up one, scripted from here (F17, F18)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.support.agents import envelope
from tests.support.nvml.driver import GIB, Instance, NvmlDriver, Process, card, hang
from tests.support.peers import PeerProcess, environment, listen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

ROOT = Path(__file__).parents[2]
HANG_SECONDS = 60.0
"""A bound on a hang, no measure of speed."""


@pytest.fixture
def driver(nvml_library: Path, tmp_path: Path) -> NvmlDriver:
    """A driver with one card, for the program alone."""
    folder = tmp_path / "driver"
    folder.mkdir()
    return NvmlDriver(folder, nvml_library, [card(0)])


def settings(driver: NvmlDriver, **more: str) -> dict[str, str]:
    return {"BEST_PEER_GPU": "nvml", "LD_LIBRARY_PATH": str(driver.folder), "BEST_PEER_BUSY": "off", **more}


@attrs.frozen
class Served:
    """A peer that serves, and an agent of its that may do everything."""

    peer: PeerProcess
    client: httpx.Client

    def hardware(self) -> dict[str, Any]:
        """What get-hardware-state answers."""
        answer = self.client.get("/queries/get-hardware-state")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first answer of which something holds: what was read a moment ago is shown again."""
        deadline = time.monotonic() + HANG_SECONDS
        while not holds(shown := self.hardware()):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        return shown

    def run_job(self, **data: Any) -> httpx.Response:
        """Send a run-job."""
        job = {"image": "busybox", "command": ["sleep", "600"], **data}
        return self.client.post("/commands", json=envelope(self.peer.endpoint, "RunJob", job))

    def started(self, **data: Any) -> dict[str, Any]:
        """The data of JobStarted of a job that is taken."""
        answer = self.run_job(**data)
        assert answer.status_code == 201, answer.text
        told = listen(self.client, answer.json()["correlationId"], until="JobStarted")
        found: dict[str, Any] = told[-1]["data"]
        return found


@contextmanager
def serving(folder: Path, driver: NvmlDriver) -> Iterator[Served]:
    driver.write()
    with PeerProcess(folder, settings(driver)) as peer:
        key = peer.sign_in()
        with peer.client(**{"x-api-key": key}) as client:
            yield Served(peer, client)


def refusal(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 422, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


def status(peer: PeerProcess) -> dict[str, Any]:
    """What `best-peer status --json` shows the owner."""
    shown = subprocess.run(
        [sys.executable, "-m", "peer", "status", "--json"],
        env=environment(peer.folder),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=True,
    )
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def test_without_a_driver_the_start_is_refused_in_one_line_with_what_serves_without_it(
    driver: NvmlDriver, tmp_path: Path
) -> None:
    driver.session = None
    driver.write()
    ended = subprocess.run(
        [sys.executable, "-m", "peer"],
        env={**environment(tmp_path), **settings(driver)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert ended.returncode not in (0, 1), "said and not crashed"
    assert "is installed and not loaded" in ended.stderr
    assert "BEST_PEER_GPU=none" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_driver_that_arrives_late_is_waited_for(driver: NvmlDriver, tmp_path: Path) -> None:
    """ollama/ollama#7669: started at boot before its card, it never looked again."""
    driver.session = None
    driver.write()
    peer = PeerProcess(tmp_path, settings(driver, BEST_PEER_DRIVER_WAIT="60"))

    def arrive() -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while not (peer.log.exists() and "waiting for the NVIDIA driver" in peer.log.read_text()):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
        driver.session = 1
        driver.write()

    arriving = threading.Thread(target=arrive)
    arriving.start()
    with peer:
        arriving.join()
        key = peer.sign_in()
        with peer.client(**{"x-api-key": key}) as client:
            shown = Served(peer, client).hardware()
    assert [device["id"] for device in shown["devices"]] == ["gpu-0", "cpu"]
    assert shown["driver"] == {"condition": "ready", "version": driver.version}


def test_a_driver_that_goes_and_comes_back_is_shown_and_takes_no_work_meanwhile(
    driver: NvmlDriver, tmp_path: Path
) -> None:
    with serving(tmp_path, driver) as served:
        before = served.hardware()
        driver.session = None
        driver.write()
        shown = served.until(lambda now: now["driver"]["condition"] == "lost")
        assert shown["driver"]["fault"]["code"] == "DRIVER_NOT_LOADED"
        lost, cpu = shown["devices"]
        assert (lost["uuid"], lost["condition"], lost["memory_free_bytes"]) == (
            driver.cards[0].uuid,
            "lost",
            None,
        )
        assert cpu["condition"] == "ready"
        refused = refusal(served.run_job(memory_bytes=GIB, device="gpu-0"))
        assert (refused["code"], refused["details"]["condition"]) == ("DEVICE_NOT_READY", "lost")
        assert served.started(memory_bytes=1 << 20)["device"] == "cpu", "the processor takes it meanwhile"

        driver.reload()
        back = served.until(lambda now: now["driver"]["condition"] == "ready")
        assert [d["uuid"] for d in back["devices"]] == [d["uuid"] for d in before["devices"]]
        assert served.started(memory_bytes=GIB)["device_uuid"] == driver.cards[0].uuid


def test_a_call_that_does_not_return_makes_cards_late_and_blocks_no_door(
    driver: NvmlDriver, tmp_path: Path
) -> None:
    driver.cards = [card(0), card(1)]
    driver.cards[0].rules.append(hang("nvmlDeviceGetMemoryInfo"))
    driver.write()
    with serving_after_hanging(tmp_path, driver) as served:
        shown = served.until(lambda now: any(d["condition"] == "late" for d in now["devices"]))
        assert served.client.get("/commands").status_code == 200
        assert "condition_reason" in next(d for d in shown["devices"] if d["condition"] == "late")
        refused = refusal(served.run_job(memory_bytes=GIB, device="gpu-0"))
        assert (refused["code"], refused["details"]["condition"]) == ("DEVICE_NOT_READY", "late")
        assert served.started(memory_bytes=1 << 20, device="cpu")["device"] == "cpu"


@contextmanager
def serving_after_hanging(folder: Path, driver: NvmlDriver) -> Iterator[Served]:
    """A peer whose driver began to hang after it had started."""
    with serving(folder, driver) as served, driver.gate():
        yield served


def test_instances_stand_in_place_of_their_card(driver: NvmlDriver, tmp_path: Path) -> None:
    driver.cards[0].mig = (1, 7)
    driver.cards[0].instances = [Instance("MIG-a", 0, ids=(1, 0)), Instance("MIG-b", 3, ids=(2, 0))]
    with serving(tmp_path, driver) as served:
        devices = served.hardware()["devices"]
        assert [(d["id"], d["slicing"]) for d in devices] == [
            ("gpu-0/mig-0", "mig"),
            ("gpu-0/mig-3", "mig"),
            ("cpu", "none"),
        ]
        assert "utilisation_ratio" not in devices[0], "of an instance it is unknown, not zero"
        started = served.started(memory_bytes=GIB, device="gpu-0/mig-3")
        assert started["device_uuid"] == "MIG-b"


def test_promises_stay_with_their_card_when_the_driver_numbers_anew(
    driver: NvmlDriver, tmp_path: Path
) -> None:
    driver.cards = [card(0), card(1)]
    with serving(tmp_path, driver) as served:
        second = driver.cards[1].uuid
        assert served.started(memory_bytes=5 * GIB, device="gpu-1")["device_uuid"] == second
        driver.cards.reverse()
        driver.reload()
        shown = served.until(lambda now: now["devices"][0]["uuid"] == second)
        promised = {d["uuid"]: (d["id"], d["memory_promised_bytes"]) for d in shown["devices"]}
        assert promised[second] == ("gpu-0", 5 * GIB)
        assert promised[driver.cards[1].uuid] == ("gpu-1", 0)


def test_what_the_driver_does_not_support_is_unknown_and_hides_nothing(
    driver: NvmlDriver, tmp_path: Path
) -> None:
    driver.cards = [card(0), card(1)]
    bare = driver.cards[0]
    bare.memory = bare.temperature = bare.power = bare.energy = bare.utilisation = None
    with serving(tmp_path, driver) as served:
        first, second, _ = served.hardware()["devices"]
        assert (first["memory_total_bytes"], first["memory_free_bytes"]) == (None, None)
        figures = {"temperature_celsius", "power_watts", "utilisation_ratio", "energy_joules"}
        assert not figures & set(first)
        assert figures <= set(second)
        refused = refusal(served.run_job(memory_bytes=GIB, device="gpu-0"))
        assert refused["code"] == "INSUFFICIENT_MEMORY"
        assert refused["details"]["unpromised_bytes"] is None
        assert served.started(device="gpu-0")["device_uuid"] == bare.uuid, (
            "without a promise it is handed over"
        )


def test_a_promise_that_the_driver_contradicts_is_refused_with_both_figures(
    driver: NvmlDriver, tmp_path: Path
) -> None:
    stranger = os.getpid()
    driver.cards[0].memory = (140 * GIB, 2 * GIB, 137 * GIB, GIB)
    driver.cards[0].processes = [Process(stranger, 137 * GIB)]
    with serving(tmp_path, driver) as served:
        refused = refusal(served.run_job(memory_bytes=3 * GIB, device="gpu-0"))
        assert refused["code"] == "INSUFFICIENT_MEMORY"
        assert refused["details"] == {
            "requested_bytes": 3 * GIB,
            "available_bytes": 2 * GIB,
            "unpromised_bytes": 140 * GIB,
            "driver_bytes": 2 * GIB,
            "device": "gpu-0",
        }
        card_use = status(served.peer)["cards"][0]
        # In a container whose numbers are its own nobody can say whose it is.
        (shown,) = card_use["others"] + card_use["unsure"]
        assert (shown["pid"], shown["memory_bytes"]) == (stranger, 137 * GIB)
        assert str(stranger) not in str(served.hardware())
        assert str(137 * GIB) not in served.peer.log.read_text()

        driver.cards[0].memory = (140 * GIB, 139 * GIB, 0, GIB)
        driver.cards[0].processes = []
        driver.write()
        assert served.started(memory_bytes=3 * GIB)["device"] == "gpu-0"
