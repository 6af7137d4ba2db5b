"""Keys close at once, whoever leaves and whatever the disk keeps, and their work ends (F13)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.log.journal import Batch, JournalUnavailable
from actors.log.linefile import NoRoom
from actors.log.records import RecordLog
from actors.messages.commands import RevokeAgent
from actors.rules.refusal import Refusal
from actors.state.keys import Grant, Issued, Key, KeyRecord, KeyRing, Revoked
from tests.support.houses import Disk, Household, deploy, open_house

if TYPE_CHECKING:
    from pathlib import Path


def records(folder: Path, *kinds: str) -> list[tuple[str, str]]:
    """Kind and holder of what the disk has kept of keys' ends, in order."""
    lines = [json.loads(line) for line in (folder / "keys.jsonl").read_text().splitlines()]
    return [(r["record"], r["holder"]) for r in lines if r["record"] in (kinds or ("revoked", "work-ended"))]


def is_open(house: Household, key: Key) -> bool:
    """Whether a key opens anything: the fold and what is remembered beside it."""
    known = house.store.ring.get(key.holder)
    assert known is not None
    return known.is_open(house.clock.now_ms()) and not house.registrar.ends.is_closing(key.holder)


async def all_kept(house: Household, *keys: Key) -> None:
    await house.until(lambda: all(house.registrar.ends.is_kept(key.holder) for key in keys))


async def test_an_owner_who_leaves_loses_the_answer_alone(tmp_path: Path, disk: Disk) -> None:
    """The second key of a name opened again after a restart, and nobody ended the work of either."""
    async with open_house(tmp_path) as house:
        keys = [await house.key("lab") for _ in range(3)]
        for key in keys:
            await house.ready(key)
        disk.hold("keys.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: house.registrar.revoke("lab", ends_work=True))
            await house.until(lambda: not any(is_open(house, key) for key in keys))
            nursery.cancel_scope.cancel("the owner has left")
        disk.release("keys.jsonl")
        await house.until(lambda: not house.store.ring.ending())
        assert house.store.world.promised == {}
        await all_kept(house, *keys)
        await house.check()
    assert [holder for _, holder in records(tmp_path, "revoked")] == [key.holder for key in keys]
    async with open_house(tmp_path) as again:
        assert not any(is_open(again, key) for key in keys)
        await again.at_rest()


async def test_what_the_disk_has_no_room_for_is_written_once_it_has(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        await house.running(key)
        disk.full.add("keys.jsonl")
        revoked = await house.registrar.revoke(key.holder, ends_work=True)
        assert not revoked.kept
        assert not is_open(house, key)
        assert not house.registrar.ends.is_kept(key.holder)
        # Its work ends all the same.
        await house.told("JobStopped")
        tried = disk.refusals
        await house.until(lambda: disk.refusals > tried + 2)
        assert records(tmp_path) == []
        disk.full.clear()
        await all_kept(house, key)
        await house.until(lambda: not house.store.ring.ending())
        await house.check()
    assert records(tmp_path) == [("revoked", key.holder), ("work-ended", key.holder)]


async def test_a_key_whose_end_a_crash_took_away_is_ended_by_the_next_revoke(
    tmp_path: Path, disk: Disk
) -> None:
    """Its work was seen to end before: that may not spare what it runs since."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        await house.ready(key)
        disk.full.add("keys.jsonl")
        assert not (await house.registrar.revoke(key.holder, ends_work=True)).kept
        await house.until(lambda: not house.store.world.promised)
        tried = disk.refusals
        await house.until(lambda: disk.refusals > tried + 2)
        assert house.store.ring.ending() == (key.holder,)
    disk.full.clear()
    assert records(tmp_path) == []
    async with open_house(tmp_path) as again:
        assert is_open(again, key), "the disk has kept nothing"
        await again.ready(key)
        await again.revoke(key)
        await again.until(lambda: not again.store.ring.ending())
        assert again.store.world.promised == {}
        await again.at_rest()


async def test_a_log_that_is_opened_anew_opens_no_key_that_was_closed(tmp_path: Path, disk: Disk) -> None:
    """The disk fails as the revoke is written: the fold is made again, from what it has kept."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        await house.running(key)
        disk.full.add("keys.jsonl")
        disk.broken.append("keys.jsonl")
        ring = house.store.ring
        assert not (await house.registrar.revoke(key.holder, ends_work=True)).kept
        await house.until(lambda: house.store.ring is not ring and house.store.ring.ending() == (key.holder,))
        assert not is_open(house, key)
        await house.told("JobStopped")
        disk.full.clear()
        await all_kept(house, key)
        await house.until(lambda: not house.store.ring.ending())
        await house.check()
    assert records(tmp_path)[-2:] == [("revoked", key.holder), ("work-ended", key.holder)]


async def test_a_key_that_was_closed_is_closed_before_any_work_is_taken_up(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose program the revoke had ended already was told as finished by itself."""
    monkeypatch.setattr("actors.revoker.RETRY_SECONDS", float("inf"))
    async with open_house(tmp_path) as house:
        key = await house.key()
        disk.full.add("keys.jsonl")
        assert not (await house.registrar.revoke(key.holder, ends_work=True)).kept
        house.store.ring = KeyRing()
        await RecordLog.open(tmp_path / "keys.jsonl", KeyRecord, house.store.ring.apply)
        assert house.store.ring.ending() == ()

        house.tree.recover()

        assert house.store.ring.ending() == (key.holder,)
        assert not is_open(house, key)


async def test_a_revoke_that_was_not_kept_is_written_when_it_is_run_again(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.revoker.RETRY_SECONDS", float("inf"))
    async with open_house(tmp_path) as house:
        key = await house.key("lab")
        disk.full.add("keys.jsonl")
        assert not (await house.registrar.revoke("lab", ends_work=False)).kept
        disk.full.clear()
        again = await house.registrar.revoke("lab", ends_work=True)
        assert again.kept
        assert [k.holder for k in again.keys] == [key.holder]
        with pytest.raises(Refusal, match="nothing of it runs"):
            await house.registrar.revoke("lab", ends_work=True)
        await house.until(lambda: not house.store.ring.ending())
    assert records(tmp_path) == [("revoked", key.holder), ("work-ended", key.holder)]


@pytest.mark.parametrize("first", ["agent", "owner"])
async def test_a_key_that_both_end_keeps_what_each_has_said(tmp_path: Path, disk: Disk, first: str) -> None:
    """The agent gives it back, the owner takes it back with its work, and neither is on the disk yet."""
    async with open_house(tmp_path) as house:
        key = await house.key()
        await house.ready(key)
        disk.full.add("keys.jsonl")
        for who in (first, "owner" if first == "agent" else "agent"):
            if who == "agent":
                with pytest.raises(NoRoom):
                    await house.registrar.give_back(key.holder)
            else:
                assert not (await house.registrar.revoke(key.holder, ends_work=True)).kept
        disk.full.clear()
        await house.until(lambda: not house.store.ring.ending())
        assert house.store.world.promised == {}
        ending = house.store.ring.ending_of(key.holder)
        assert ending is not None
        assert (ending.by, ending.ends_work) == (first, True)
        await house.check()
    lines = [json.loads(line) for line in (tmp_path / "keys.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["record"] == "revoked"]
    assert (kept[0]["by"], kept[0]["ends_work"]) == (first, True)
    async with open_house(tmp_path) as again:
        assert not is_open(again, key)
        assert not again.store.ring.ending()


async def test_a_key_given_back_without_room_is_closed_and_written_later(tmp_path: Path, disk: Disk) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        deployment = await house.ready(key)
        disk.full.add("keys.jsonl")
        command = await house.send(key, RevokeAgent())
        await house.until(lambda: not is_open(house, key))
        assert command in house.store.world.unfinished
        disk.full.clear()
        await house.completed(command)
        assert await house.types(command) == ["AgentRevoked"]
        assert deployment in house.store.world.deployments
        await house.check()
    assert {holder for _, holder in records(tmp_path)} == {key.holder}


async def test_a_log_that_takes_nothing_closes_the_key_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        key, other = await house.key(), await house.key("other")

        def nothing(record: object) -> None:
            raise JournalUnavailable("the log takes nothing now")

        with monkeypatch.context() as failing:
            failing.setattr(house.store.keys, "put", nothing)
            assert not (await house.registrar.revoke(key.holder, ends_work=True)).kept
            with pytest.raises(JournalUnavailable):
                await house.registrar.give_back(other.holder)
            assert not is_open(house, key)
            assert not is_open(house, other)
        await all_kept(house, key, other)
        await house.until(lambda: not house.store.ring.ending())
    assert sorted(records(tmp_path, "revoked")) == sorted(("revoked", k.holder) for k in (key, other))


async def test_of_keys_taken_back_together_one_that_was_not_kept_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(tmp_path) as house:
        kept, lost = await house.key("lab"), await house.key("lab")
        put = house.store.keys.put

        def all_but_one(record: KeyRecord) -> Batch[KeyRecord]:
            if isinstance(record, Revoked) and record.holder == lost.holder:
                raise JournalUnavailable("the log takes nothing now")
            return put(record)

        with monkeypatch.context() as failing:
            failing.setattr(house.store.keys, "put", all_but_one)
            assert not (await house.registrar.revoke("lab", ends_work=True)).kept
            assert house.registrar.ends.is_kept(kept.holder)
            assert not house.registrar.ends.is_kept(lost.holder)
        await all_kept(house, lost)


async def test_keys_taken_back_together_end_together_though_one_does_not_stop(tmp_path: Path) -> None:
    """One that hangs holds up no other, and is tried until it stops."""
    async with open_house(tmp_path) as house:
        stuck, free = await house.key("lab"), await house.key("lab")
        stubborn = await house.ready(stuck)
        await house.ready(free)
        house.runtime.make_stubborn(stubborn)
        await house.registrar.revoke("lab", ends_work=True)
        await house.until(lambda: house.store.ring.ending() == (stuck.holder,))
        ended = house.store.ring.ending_of(free.holder)
        assert ended is not None
        assert ended.work_ended_ms is not None
        assert house.store.ring.ending_of(stuck.holder) != ended
    async with open_house(tmp_path) as again:
        await again.until(lambda: not again.store.ring.ending())
        assert await again.runtime.running() == ()


async def test_a_key_that_has_run_out_leaves_its_work_which_a_revoke_ends(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        now = house.clock.now_ms()
        key = Key("h-lab", "lab", Grant(expires_seconds=60), now, expires_ms=now + 60_000)
        await house.store.keys.append(Issued(key=key, digest="digest", device_digest=""))
        await house.ready(key)
        house.clock.advance(3_600_000)
        assert not is_open(house, key)
        await house.at_rest()
        assert house.store.world.holding(key.holder).deployments
        with pytest.raises(Refusal) as refused:
            await house.send(key, deploy())
        assert refused.value.code == "UNAUTHORIZED"
        revoked = await house.registrar.revoke("lab", ends_work=True)
        assert [k.holder for k in revoked.keys] == [key.holder]
        await house.until(lambda: not house.store.ring.ending())
        assert house.store.world.promised == {}
        await house.check()


async def test_what_is_accepted_and_not_durable_as_its_key_closes_ends_as_well(
    tmp_path: Path, disk: Disk
) -> None:
    async with open_house(tmp_path) as house:
        key = await house.key()
        disk.hold("accepted.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.send, key, deploy())
            await house.until(lambda: bool(house.store.world.deployments))
            await house.registrar.revoke(key.holder, ends_work=True)
            assert house.store.ring.ending() == (key.holder,)
            disk.release("accepted.jsonl")
        await house.until(lambda: not house.store.ring.ending())
        assert house.store.world.promised == {}
        await house.check()


async def test_a_disk_that_hangs_over_one_key_keeps_the_work_of_no_other_running(
    tmp_path: Path, disk: Disk
) -> None:
    async with open_house(tmp_path) as house:
        idle, busy = await house.key(), await house.key()
        job = await house.running(busy)
        disk.hold("keys.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.revoke, idle)
            await house.until(lambda: not is_open(house, idle))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(house.revoke, busy)
            await house.told("JobStopped")
            assert job not in house.store.world.jobs
            disk.release("keys.jsonl")
        await house.until(lambda: not house.store.ring.ending())
    assert sorted(records(tmp_path, "work-ended")) == sorted(
        ("work-ended", key.holder) for key in (idle, busy)
    )
