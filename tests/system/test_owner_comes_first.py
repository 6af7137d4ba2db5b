"""The program itself and its owner, who comes first: holds through kill -9, a card in use (F28, F29)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from peer.folder import read_admin_token
from tests.support.agents import envelope
from tests.support.nvml.driver import GIB, NvmlDriver, Process, card
from tests.support.peers import PeerProcess, environment, listen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
HANG_SECONDS = 60.0
"""A bound on a hang, no measure of speed."""
HOLD = "hold-0123456789abcdef"
WHY = "held by its owner: maintenance"
JOB = {"image": "busybox", "command": ["sleep", "600"]}


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[PeerProcess]:
    with PeerProcess(tmp_path) as peer:
        yield peer


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def facts(peer: PeerProcess) -> list[dict[str, Any]]:
    """What the log has, whole lines alone."""
    days = sorted((peer.data / "events").glob("*.jsonl"))
    lines = [line for day in days for line in day.read_bytes().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def types(peer: PeerProcess) -> list[str]:
    return [fact["type"] for fact in facts(peer)]


def as_owner(peer: PeerProcess, name: str, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {read_admin_token(peer.data)}"}
    with peer.client(**headers) as client:
        return client.post(f"/admin/{name}", json=body)


def run_job(peer: PeerProcess, key: str) -> str:
    """A job that runs; its id."""
    with peer.client(**{"x-api-key": key}) as client:
        answer = client.post("/commands", json=envelope(peer.endpoint, "RunJob", JOB))
        assert answer.status_code == 201, answer.text
        told = listen(client, answer.json()["correlationId"], until="JobStarted")
    name: str = told[-1]["data"]["job"]
    return name


def refused(peer: PeerProcess, key: str) -> str | None:
    """The code that a job is refused with, None when it is taken."""
    with peer.client(**{"x-api-key": key}) as client:
        answer = client.post("/commands", json=envelope(peer.endpoint, "RunJob", JOB))
    code: str | None = None if answer.status_code == 201 else answer.json()["error"]["code"]
    return code


@pytest.mark.parametrize("seen", ["asked", "DeviceHeldV1", "JobStopped"])
def test_a_peer_killed_while_it_takes_a_device_back_ends_the_work_or_never_held(
    peer: PeerProcess, seen: str
) -> None:
    """Whatever was told has its whole effect after the restart, once; what was not told has none."""
    key = peer.sign_in()
    jobs = [run_job(peer, key) for _ in range(3)]

    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):
            as_owner(peer, "hold", hold=HOLD, now=True, reason="maintenance")

    asking = threading.Thread(target=ask)
    asking.start()
    if seen != "asked":
        until(lambda: seen in types(peer))
    peer.kill()
    asking.join(HANG_SECONDS)
    peer.start()
    if "DeviceHeldV1" in types(peer):
        until(lambda: types(peer).count("JobStopped") == len(jobs))
        stopped = [fact for fact in facts(peer) if fact["type"] == "JobStopped"]
        assert {fact["data"]["job"] for fact in stopped} == set(jobs)
        assert {fact["data"]["reason"] for fact in stopped} == {WHY}
        assert refused(peer, key) == "DEVICE_BUSY"
    else:
        assert seen == "asked"
        assert refused(peer, key) is None
    assert types(peer).count("DeviceHeldV1") <= 1


def test_a_hold_outlives_kill_9_and_is_told_over_once(peer: PeerProcess) -> None:
    """docker/for-linux#15: what had been stopped by hand came back with a restart."""
    key = peer.sign_in()
    job = run_job(peer, key)
    assert as_owner(peer, "hold", hold=HOLD, seconds=3600).status_code == 200
    for _ in range(2):
        peer.kill()
        peer.start()
        assert refused(peer, key) == "DEVICE_BUSY"
    assert as_owner(peer, "release").json()["released"][0]["device"] == "cpu"
    peer.kill()
    peer.start()
    assert refused(peer, key) is None
    assert types(peer).count("DeviceReleasedV1") == 1
    assert job not in [fact["data"].get("job") for fact in facts(peer) if fact["type"] == "JobStopped"]


def cli(peer: PeerProcess, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "peer", *arguments],
        env=environment(peer.folder),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_hold_lasts_while_a_process_does_over_a_restart_of_the_peer(peer: PeerProcess) -> None:
    key = peer.sign_in()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as watched:
        assert watched.stdin is not None
        with cli(peer, "hold", "--while", str(watched.pid)) as holding:
            until(lambda: "DeviceHeldV1" in types(peer))
            assert refused(peer, key) == "DEVICE_BUSY"
            peer.kill()
            peer.start()
            assert refused(peer, key) == "DEVICE_BUSY"
            watched.stdin.close()
            out, _ = holding.communicate(timeout=HANG_SECONDS)
    assert holding.returncode == 0
    assert out.splitlines()[-1] == "The process has ended. Released: cpu."
    assert refused(peer, key) is None


def test_a_release_in_another_terminal_ends_the_one_that_holds(peer: PeerProcess) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as watched:
        with cli(peer, "hold", "--while", str(watched.pid)) as holding:
            until(lambda: "DeviceHeldV1" in types(peer))
            with cli(peer, "release") as releasing:
                assert releasing.communicate(timeout=HANG_SECONDS)[0] == "Released: cpu takes work again.\n"
            out, _ = holding.communicate(timeout=HANG_SECONDS)
        assert (holding.returncode, watched.poll()) == (0, None)
        assert "released elsewhere" in out.splitlines()[-1]
        assert watched.stdin is not None
        watched.stdin.close()
    assert types(peer).count("DeviceReleasedV1") == 1


def test_a_card_that_its_owner_computes_on_takes_no_work_and_nothing_is_kept_of_it(
    nvml_library: Path, tmp_path: Path
) -> None:
    """By the real library's calls, on a made-up driver: a program that is not the peer's holds 3 GiB."""
    folder = tmp_path / "driver"
    folder.mkdir()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as game:
        first, second = card(0), card(1)
        first.processes.append(Process(game.pid, 3 * GIB))
        driver = NvmlDriver(folder, nvml_library, [first, second])
        driver.write()
        settings = {
            "BEST_PEER_GPU": "nvml",
            "LD_LIBRARY_PATH": str(folder),
            "BEST_PEER_BUSY_AFTER": "0",
            "BEST_PEER_FREE_AFTER": "0",
            "BEST_PEER_LOG": "debug",
        }
        with PeerProcess(tmp_path, settings) as peer:
            key = peer.sign_in()
            with peer.client(**{"x-api-key": key}) as client:

                def states() -> list[dict[str, str]]:
                    shown = client.get("/queries/get-hardware-state").json()
                    return [device["availability"] for device in shown["devices"]]

                until(lambda: states() == [{"state": "busy"}, {"state": "free"}, {"state": "free"}])
                sent = client.post(
                    "/commands", json=envelope(peer.endpoint, "RunJob", {**JOB, "device": "gpu-0"})
                )
                assert sent.json()["error"]["code"] == "DEVICE_BUSY"
                assert sent.json()["error"]["details"] == {"device": "gpu-0"}
                first.processes.clear()
                driver.write()
                until(lambda: all(state == {"state": "free"} for state in states()))
            assert facts(peer) == []
            assert "busy" not in peer.log.read_text()
            assert str(game.pid) not in peer.log.read_text()
        assert game.stdin is not None
        game.stdin.close()


def test_the_start_up_line_says_what_makes_a_card_busy(nvml_library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    driver = NvmlDriver(folder, nvml_library, [card(0)])
    driver.write()
    base = {"BEST_PEER_GPU": "nvml", "LD_LIBRARY_PATH": str(folder)}
    words = "more than 2 GiB or used more than 30% of it for 30 s, and free 5 min after"
    for more, said in (({}, words), ({"BEST_PEER_BUSY": "off"}, "BEST_PEER_BUSY=off")):
        with PeerProcess(tmp_path, {**base, **more}) as peer:
            assert said in peer.ready_line
