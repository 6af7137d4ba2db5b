"""A revoke while the disk still writes what it takes back: an approval, or the key made of it (F13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from tests.support.agents import HANG, begin, poll
from tests.support.answers import code, flat
from tests.support.houses import Disk, disk_under
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("actors.revoker.RETRY_SECONDS", 0.005)
    return disk_under(monkeypatch)


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(HANG):
        while not holds():  # noqa: ASYNC110 - threads make no event of it
            await trio.sleep(0.005)


def is_asked(door: OpenDoor) -> bool:
    """Whether a revoke waits for the disk."""
    return bool(door.peer.registrar.ends._wishes)  # nothing public changes before the disk answers


async def opens(door: OpenDoor, key: str) -> bool:
    """Whether a key opens the door."""
    answer = await door.client(**{"x-api-key": key}).get("/commands")
    return answer.status_code == 200


async def revoked(door: OpenDoor, name: str, found: dict[str, object]) -> None:
    """Take keys back; what the owner was told goes to `found`."""
    answer = await door.admin("POST", "revoke", json={"name": name})
    assert answer.status_code == 200, answer.text
    found |= answer.json()


async def test_an_approval_that_the_disk_still_writes_is_taken_back(tmp_path: Path, disk: Disk) -> None:
    """The owner's approve hung, they gave it up and revoked, and the agent got its key all the same."""
    async with open_door(tmp_path) as door:
        registrar = door.peer.registrar
        begun = await begin(door.client(), "lab")
        disk.hold("keys.jsonl")
        answer: dict[str, object] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.approve, begun["user_code"])
            await until(lambda: registrar.look(begun["user_code"]).state == "approved")
            nursery.start_soon(revoked, door, "lab", answer)
            await until(lambda: registrar.look(begun["user_code"]).state == "denied")
            disk.release("keys.jsonl")
        assert answer["withdrawn"] == [{"name": "lab", "user_code": begun["user_code"]}]
        assert answer["kept"] is True
        assert flat(await poll(door.client(), begun["device_code"])) == "access_denied"
    async with open_door(tmp_path) as door:
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"


@pytest.mark.parametrize("keeps_the_revoke", [True, False])
async def test_a_key_that_the_disk_still_writes_never_opens(
    tmp_path: Path, disk: Disk, *, keeps_the_revoke: bool
) -> None:
    """It was neither an approval any more nor a key yet, so a revoke by name passed it over."""
    async with open_door(tmp_path) as door:
        ring = door.peer.house.store.ring
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
        disk.hold("keys.jsonl")
        answer: dict[str, object] = {}
        keys: list[str] = []

        async def fetch() -> None:
            got = await poll(door.client(), begun["device_code"])
            keys.append(got.json()["access_token"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await until(lambda: ring.approved_under(begun["user_code"]) is None)
            nursery.start_soon(revoked, door, "lab", answer)
            await until(lambda: is_asked(door))
            # The key is kept, and what takes it back not yet.
            disk.release("keys.jsonl")
            disk.hold("keys.jsonl")
            await until(lambda: bool(keys))
            assert not await opens(door, keys[0])
            if not keeps_the_revoke:
                disk.full.add("keys.jsonl")
            disk.release("keys.jsonl")
        assert [k["name"] for k in answer["revoked"]] == ["lab"]  # type: ignore[attr-defined]
        assert answer["kept"] is keeps_the_revoke
        assert not await opens(door, keys[0])
    async with open_door(tmp_path) as door:
        assert await opens(door, keys[0]) is not keeps_the_revoke


async def test_who_waits_for_a_key_that_was_taken_back_and_not_kept_is_turned_away(
    tmp_path: Path, disk: Disk
) -> None:
    """It was told to poll again, and then that its code is unknown."""
    async with open_door(tmp_path) as door:
        ring = door.peer.house.store.ring
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
        disk.hold("keys.jsonl")
        answer: dict[str, object] = {}
        told: list[str] = []

        async def fetch() -> None:
            told.append(flat(await poll(door.client(), begun["device_code"])))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await until(lambda: ring.approved_under(begun["user_code"]) is None)
            nursery.start_soon(revoked, door, "lab", answer)
            await until(lambda: is_asked(door))
            disk.full.add("keys.jsonl")
            disk.release("keys.jsonl")
        assert told == ["access_denied"]
        assert answer["kept"] is False
        disk.full.clear()
        assert flat(await poll(door.client(), begun["device_code"])) == "access_denied"


async def test_a_key_that_the_disk_did_not_keep_comes_back_neither_as_an_approval(
    tmp_path: Path, disk: Disk
) -> None:
    """Its device had left, and would have asked again once there is room."""
    async with open_door(tmp_path) as door:
        ring = door.peer.house.store.ring
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
        disk.hold("keys.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll, door.client(), begun["device_code"])
            await until(lambda: ring.approved_under(begun["user_code"]) is None)
            nursery.cancel_scope.cancel("the device has left")
        disk.full.add("keys.jsonl")
        refused = disk.refusals
        disk.release("keys.jsonl")
        await until(lambda: disk.refusals > refused)
        answer: dict[str, object] = {}
        await revoked(door, "lab", answer)
        assert answer["withdrawn"] == [{"name": "lab", "user_code": begun["user_code"]}]
        disk.full.clear()
        assert flat(await poll(door.client(), begun["device_code"])) == "access_denied"
        assert code(await door.admin("POST", "revoke", json={"name": "lab"}), 404) == "UNKNOWN_KEY"
    async with open_door(tmp_path) as door:
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"
