"""What pulls do to each other, and what one may do to the engine's disk."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from adapters.images.port import NoRoom, PullLimits, RoomUnknown, TooLarge
from adapters.images.reference import parse
from adapters.runtime.docker import room
from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.endpoint import Endpoint, unix_endpoint
from adapters.runtime.docker.progress import PullTracker
from adapters.runtime.docker.pulls import Pull, Pulls
from adapters.runtime.docker.room import Gauge, image_folder
from tests.support.docker.bed import DockerBed

ASKED = parse("registry.example/thing")
HERE = {"Name": os.uname().nodename, "KernelVersion": os.uname().release}
CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]


def gauge(free: int | None, **limits: int) -> Gauge:
    return Gauge(ASKED, PullLimits(**limits), Path("/"), free)


def tracker(*, has_fetched: bool = True, has_shared: bool = False) -> PullTracker:
    return PullTracker(has_fetched=has_fetched, has_shared=has_shared)


@pytest.mark.parametrize(("free", "fetched"), [(899, 0), (1000, 101), (None, 101), (899, 101)])
def test_a_pull_past_its_bound_is_too_large(free: int | None, fetched: int) -> None:
    fault = gauge(1000, most_bytes=100).judge(free, fetched)
    assert isinstance(fault, TooLarge)
    assert fault.limit_bytes == 100
    assert "at least 101 bytes" in fault.reason


@pytest.mark.parametrize(("free", "fetched"), [(900, 100), (1000, 0), (2000, 100), (None, 100)])
def test_a_pull_within_its_bound_goes_on(free: int | None, fetched: int) -> None:
    assert gauge(1000, most_bytes=100).judge(free, fetched) is None


def test_less_room_than_has_to_stay_is_no_room() -> None:
    held = gauge(1000, least_free_bytes=500)
    assert isinstance(held.judge(499, 0), NoRoom)
    assert held.judge(500, 10_000) is None
    # A reading that failed on the way is no reading of nothing.
    assert held.judge(None, 10_000) is None


def test_no_limits_are_none() -> None:
    assert gauge(1000).judge(0, 1 << 60) is None


@pytest.mark.parametrize(
    ("free", "seen", "is_too_large"),
    [
        (1000, tracker(), True),
        (None, tracker(), True),
        (1000, tracker(has_fetched=False), False),
        (1000, tracker(has_fetched=False, has_shared=True), False),
        # What is shared did not land, and the disk tells how much did.
        (1000, tracker(has_shared=True), False),
        # With no disk to read nobody tells: the bound holds.
        (None, tracker(has_shared=True), True),
    ],
)
def test_an_image_is_judged_by_its_size_when_it_landed(
    free: int | None, seen: PullTracker, is_too_large: bool
) -> None:
    assert isinstance(gauge(free, most_bytes=100).judge_size(101, seen), TooLarge) is is_too_large
    assert gauge(free, most_bytes=100).judge_size(100, seen) is None
    assert gauge(free).judge_size(101, seen) is None


async def test_a_gauge_reads_the_disk_that_its_folder_is_on(tmp_path: Path) -> None:
    begun = await Gauge.begin(ASKED, PullLimits(most_bytes=1 << 60, least_free_bytes=1), tmp_path)
    assert begun.free_at_start is not None
    assert begun.free_at_start > 0
    assert await begun.read(0) is None
    with pytest.raises(NoRoom):
        await Gauge.begin(ASKED, PullLimits(least_free_bytes=1 << 60), tmp_path)


@pytest.mark.parametrize("folder", [None, Path("/nowhere/at/all")])
async def test_a_floor_needs_a_disk_to_be_read(folder: Path | None) -> None:
    with pytest.raises(RoomUnknown) as caught:
        await Gauge.begin(ASKED, PullLimits(least_free_bytes=1), folder)
    assert "run the peer where the engine runs" in caught.value.fix
    begun = await Gauge.begin(ASKED, PullLimits(most_bytes=100), folder)
    assert isinstance(await begun.read(101), TooLarge)


@pytest.mark.parametrize(
    ("info", "is_found"),
    [
        ({}, True),
        ({"Name": "another-machine"}, False),
        ({"KernelVersion": "6.5.0-linuxkit"}, False),
        ({"DockerRootDir": "/nowhere/at/all"}, False),
        ({"DockerRootDir": "relative"}, False),
        ({"DockerRootDir": None}, False),
        ({"DriverStatus": [["Backing Filesystem", "extfs"]]}, True),
        ({"DriverStatus": None}, True),
    ],
)
def test_the_folder_is_the_engines_when_it_runs_here(
    info: Mapping[str, Any], is_found: bool, tmp_path: Path
) -> None:
    said = {**HERE, "DockerRootDir": str(tmp_path), **info}
    assert image_folder(unix_endpoint(), said) == (tmp_path if is_found else None)
    assert image_folder(Endpoint("https://engine.example:2376"), said) is None


def test_images_that_containerd_keeps_are_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {**HERE, "DockerRootDir": "/", "DriverStatus": CONTAINERD}
    monkeypatch.setattr(room, "CONTAINERD_FOLDER", tmp_path)
    assert image_folder(unix_endpoint(), said) == tmp_path
    monkeypatch.setattr(room, "CONTAINERD_FOLDER", tmp_path / "none")
    assert image_folder(unix_endpoint(), said) is None


async def test_a_real_engine_beside_us_is_found_to_be_here(docker_bed: DockerBed) -> None:
    async with DockerClient(unix_endpoint(docker_bed.socket)) as client:
        info = await client.call("GET", "/info")
        assert image_folder(client.endpoint, info) == Path(info["DockerRootDir"])


def test_what_another_pull_of_the_image_wants_is_not_taken_back() -> None:
    pulls = Pulls()
    with pulls.one("a") as first:
        assert pulls.may_take_back(first)
        with pulls.one("b") as stranger:
            pulls.succeed(stranger)
        assert pulls.may_take_back(first)
        with pulls.one("a") as second:
            assert not pulls.may_take_back(first)
        # It ended without its image: there is nobody left who wants it.
        assert pulls.may_take_back(first)
        with pulls.one("a") as third:
            pulls.succeed(third)
        assert not pulls.may_take_back(first)
    with pulls.one("a") as later:
        assert pulls.may_take_back(later)
    assert second.is_wanted is False


async def test_a_pull_that_waits_for_its_turn_lasts_as_long_as_others_get_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An engine fetches three parts at once: the fourth is silent for as long as those take."""
    pulls = Pulls(stall_seconds=300)

    async def be_silent(pull: Pull) -> float:
        began = trio.current_time()
        pull.patience.deadline = began + pulls.stall_seconds
        with pull.patience:
            await trio.sleep_forever()
        return trio.current_time() - began

    lasted: dict[str, float] = {}

    async def follow(name: str, pull: Pull) -> None:
        lasted[name] = await be_silent(pull)

    with pulls.one("busy") as busy, pulls.one("waiting") as waiting, pulls.one("stalled") as stalled:
        waiting.tracker.take({"id": "a", "status": "Waiting"})
        stalled.tracker.take({"id": "a", "status": "Downloading"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, "waiting", waiting)
            nursery.start_soon(follow, "stalled", stalled)
            for _ in range(10):
                await trio.sleep(200)
                pulls.heard(busy)
    assert lasted == {"stalled": pytest.approx(300), "waiting": pytest.approx(2300)}
