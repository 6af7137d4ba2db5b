"""Who holds what, as a real door tells its owner; and what a restart leaves of sign-ins (F12, F13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors.codes import LIFETIME_SECONDS
from actors.log.journal import JournalUnavailable
from actors.state.keys import Grant, Issued, Key
from adapters.clock.fake import FakeClock
from tests.support.agents import HANG, begin, poll
from tests.support.answers import code, flat
from tests.support.houses import Disk, disk_under
from tests.support.peers import MODEL_BYTES, OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

SECOND, HOUR = 1000, 3_600_000


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return disk_under(monkeypatch)


async def listed(door: OpenDoor, **parameters: str) -> dict[str, Any]:
    """What the owner is told of keys."""
    answer = await door.admin("GET", "keys", params=parameters)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    return found


async def only(door: OpenDoor, **parameters: str) -> dict[str, Any]:
    """The one key there is."""
    (found,) = (await listed(door, **parameters))["keys"]
    assert isinstance(found, dict)
    return found


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that only a look tells."""
    with trio.fail_after(HANG):
        while not await holds():  # noqa: ASYNC110 - nothing makes an event of it
            await trio.sleep(0.01)


async def test_a_key_is_told_with_what_it_may_what_it_holds_and_when_it_was_used(tmp_path: Path) -> None:
    clock = FakeClock()
    began = clock.now_ms()
    async with open_door(tmp_path, clock=clock) as door:
        agent = await door.sign_in("lab", memory_bytes=4 * MODEL_BYTES, deployments=2, expires_seconds=3600)
        issued = clock.now_ms()
        assert (await only(door))["last_used_ms"] is None
        clock.advance(SECOND)
        await door.deploy(agent)
        clock.advance(SECOND)
        async with agent.stream():
            clock.advance(SECOND)
            answer = await listed(door)
        assert (answer["now_ms"], answer["began_ms"], answer["more_ended"]) == (began + 3 * SECOND, began, 0)
        assert answer["keys"] == [
            {
                "name": "lab",
                "holder": agent.holder,
                "state": "open",
                "grant": {
                    "scopes": ["deploy", "jobs", "prompt", "workspaces"],
                    "memory_bytes": 4 * MODEL_BYTES,
                    "deployments": 2,
                    "jobs": None,
                    "workspaces": 8,
                    "expires_seconds": 3600,
                    "open_jobs": False,
                    "accelerators_only": False,
                },
                "agent_label": None,
                "address": "127.0.0.1",
                "issued_ms": issued,
                "expires_ms": issued + HOUR,
                "held_bytes": MODEL_BYTES,
                "deployments": 1,
                "jobs": 0,
                "streams": 1,
                "last_used_ms": began + 2 * SECOND,
                "work": "running",
                "revoked_ms": None,
                "revoked_by": None,
                "work_ended_ms": None,
                "kept": True,
            }
        ]
        status = (await door.admin("GET", "status")).json()["keys"]
        assert [k["holder"] for k in status] == [agent.holder]
        clock.advance(HOUR)
        assert code(await agent.get("/commands"), 401) == "UNAUTHORIZED"
        ran_out = await only(door)
        assert (ran_out["state"], ran_out["work"]) == ("expired", "running")
        assert ran_out["last_used_ms"] == began + 2 * SECOND, "a refused request is no use of it"
    async with open_door(tmp_path, clock=clock) as again:
        assert (await only(again))["last_used_ms"] is None
        assert (await listed(again))["began_ms"] == clock.now_ms()


async def test_what_else_is_let_in_under_a_name_is_told_before_and_with_an_approval(tmp_path: Path) -> None:
    """Whatever a revoke of that name would take back as well: open keys, and codes approved under it."""
    async with open_door(tmp_path) as door:

        async def told(user_code: str) -> Any:
            pending = await door.admin("GET", "pending", params={"user_code": user_code})
            return pending.json()["same_name"]

        one, _ = await door.sign_in("lab"), await door.sign_in("another")
        gone = await door.sign_in("lab")
        await door.admin("POST", "revoke", json={"name": gone.holder})
        waits, second = await begin(door.client(), "lab"), await begin(door.client(), "lab")
        assert await told(second["user_code"]) == {"keys": [one.holder], "codes": []}
        first = await door.approve(waits["user_code"])
        for same_name in (first.json()["same_name"], await told(waits["user_code"])):
            assert same_name == {"keys": [one.holder], "codes": []}, "itself is none of them"
        alike = {"keys": [one.holder], "codes": [waits["user_code"]]}
        assert await told(second["user_code"]) == alike
        assert (await door.approve(second["user_code"])).json()["same_name"] == alike
        stranger = await begin(door.client(), "new")
        assert await told(stranger["user_code"]) == await told("BCDF-GHJK") == {"keys": [], "codes": []}
        revoked = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        assert [each["holder"] for each in revoked["revoked"]] == alike["keys"]
        codes = {waits["user_code"], second["user_code"]}
        assert {each["user_code"] for each in revoked["withdrawn"]} == codes


async def work_has_ended(door: OpenDoor) -> bool:
    return (await only(door, all="1"))["work_ended_ms"] is not None


async def test_when_the_work_of_a_key_that_was_taken_back_has_ended_is_told(tmp_path: Path) -> None:
    """Easily missed 20: after a restart too."""
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        agent = await door.sign_in("lab")
        await door.deploy(agent)
        clock.advance(HOUR)
        await door.admin("POST", "revoke", json={"name": "lab"})
        await until(lambda: work_has_ended(door))
        found = await only(door, all="1")
        assert (found["state"], found["revoked_by"], found["work"]) == ("revoked", "owner", "none")
        assert found["revoked_ms"] == found["work_ended_ms"] == clock.now_ms()
    async with open_door(tmp_path, clock=clock) as door:
        again = await only(door, name="lab")
        assert {**again, "last_used_ms": found["last_used_ms"]} == found


async def test_what_still_runs_is_named_and_told_as_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.door.admin_keys.STOP_WAIT_SECONDS", 0.0)
    monkeypatch.setattr("actors.revoker.RETRY_SECONDS", 0.005)
    monkeypatch.setattr("actors.ending.RETRY_SECONDS", 0.005)
    async with open_door(tmp_path) as door:
        agent = await door.sign_in("lab")
        deployment = await door.deploy(agent)
        come_back = door.runtime.go_away()
        answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        assert answer["still_running"] == [deployment]
        found = await only(door)
        assert (found["state"], found["work"], found["work_ended_ms"]) == ("revoked", "ending", None)
        come_back()
        await until(lambda: work_has_ended(door))


async def test_what_is_told_of_a_keys_work_follows_from_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That all has ended is written down a moment later: until then nothing is said to be ended still."""

    async def not_yet(*_: object) -> None:
        await trio.sleep_forever()

    async with open_door(tmp_path) as door:
        monkeypatch.setattr("actors.revoker.Revoker._note_end", not_yet)
        await door.deploy(await door.sign_in("lab"))
        answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        assert answer["still_running"] == []
        found = await only(door, all="1")
        assert (found["state"], found["work"], found["work_ended_ms"]) == ("revoked", "none", None)
        assert (await listed(door))["more_ended"] == 1


@pytest.mark.parametrize("keep_running", [True, False])
async def test_a_key_whose_end_the_disk_has_not_kept_is_listed_though_it_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep_running: bool
) -> None:
    """It would open again after a restart."""

    def fail(_: object) -> None:
        raise JournalUnavailable("the log is not written")

    async with open_door(tmp_path) as door:
        await door.sign_in("lab")
        monkeypatch.setattr(door.peer.house.store.keys, "put", fail)
        await door.admin("POST", "revoke", json={"name": "lab", "keep_running": keep_running})
        found = await only(door)
        assert (found["state"], found["work"], found["kept"]) == ("revoked", "none", False)


async def test_a_key_that_ran_out_before_it_was_taken_back_is_told_as_such(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        await door.sign_in("lab", expires_seconds=60)
        await door.sign_in("lab")
        clock.advance(HOUR)
        answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        assert [each["ran_out"] for each in answer["revoked"]] == [True, False]


async def test_keys_that_have_ended_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        agents = [await door.sign_in(name) for name in ("lab", "lab", "office")]
        await door.deploy(agents[0])
        for agent in agents[:2]:
            await door.admin("POST", "revoke", json={"name": agent.holder, "keep_running": True})
        answer = await listed(door)
        assert [k["holder"] for k in answer["keys"]] == [agents[0].holder, agents[2].holder]
        assert answer["more_ended"] == 1
        everything = await listed(door, all="1")
        assert [k["holder"] for k in everything["keys"]] == [a.holder for a in agents]
        assert everything["more_ended"] == 0
        of_one = await listed(door, name="lab")
        assert [k["holder"] for k in of_one["keys"]] == [a.holder for a in agents[:2]]
        assert [k["name"] for k in (await listed(door, name=agents[2].holder))["keys"]] == ["office"]
        assert code(await door.admin("GET", "keys", params={"name": "nobody"}), 404) == "UNKNOWN_KEY"


async def test_who_waits_is_told_and_who_was_let_in_and_did_not_come(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    clock = FakeClock()

    async def waiting(door: OpenDoor) -> list[tuple[str, str, int]]:
        found = (await listed(door))["waiting"]
        return [(w["user_code"], w["state"], w["seconds_left"]) for w in found]

    async with open_door(tmp_path, clock=clock) as door:
        assert await waiting(door) == []
        first = await begin(door.client(), "lab", agent_label="Claude", credential_lifetime="session")
        mock_clock.jump(60)
        second = await begin(door.client(), "office")
        shown = (await listed(door))["waiting"][0]
        assert (shown["name"], shown["client_id"], shown["agent_label"]) == ("lab", "an-agent", "Claude")
        assert (shown["address"], shown["lifetime"]) == ("127.0.0.1", "session")
        await door.approve(second["user_code"])
        assert await waiting(door) == [
            (first["user_code"], "pending", 540),
            (second["user_code"], "approved", 600),
        ]
        await door.admin("POST", "deny", json={"user_code": first["user_code"]})
        assert [w[0] for w in await waiting(door)] == [second["user_code"]]
        mock_clock.jump(599)
        third = await begin(door.client(), "late")
        await door.approve(third["user_code"])
        mock_clock.jump(1)
        assert [w[0] for w in await waiting(door)] == [third["user_code"]], "the second has run out"
    clock.advance(120 * SECOND)
    async with open_door(tmp_path, clock=clock) as door:
        # Its ten minutes are counted by the wall clock from its approval now.
        assert await waiting(door) == [(w["user_code"], "approved", 480) for w in (second, third)]
        assert (await poll(door.client(), second["device_code"])).status_code == 200
        assert await waiting(door) == [(third["user_code"], "approved", 480)]
    clock.advance(481 * SECOND)
    async with open_door(tmp_path, clock=clock) as door:
        assert await waiting(door) == []
        assert flat(await poll(door.client(), third["device_code"])) == "invalid_grant"


async def test_an_approval_is_taken_back_before_its_key_is_fetched(tmp_path: Path) -> None:
    """Its owner saw whom they had let in, and could do nothing until the agent had come."""
    async with open_door(tmp_path) as door:
        begun, other = await begin(door.client(), "lab"), await begin(door.client(), "office")
        for each in (begun, other):
            assert (await door.approve(each["user_code"])).status_code == 200
        answer = (await door.admin("POST", "revoke", json={"name": "lab"})).json()
        assert answer["withdrawn"] == [{"name": "lab", "user_code": begun["user_code"]}]
        assert (answer["revoked"], answer["kept"]) == ([], True)
        assert flat(await poll(door.client(), begun["device_code"])) == "access_denied"
        assert code(await door.approve(begun["user_code"]), 409) == "CODE_DENIED"
        assert code(await door.admin("POST", "revoke", json={"name": "lab"}), 404) == "UNKNOWN_KEY"
        assert [w["name"] for w in (await listed(door))["waiting"]] == ["office"]
    async with open_door(tmp_path) as door:
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"
        again = await begin(door.client(), "office")
        await door.approve(again["user_code"])
        answer = (await door.admin("POST", "revoke", json={"name": "office"})).json()
        assert [w["user_code"] for w in answer["withdrawn"]] == [other["user_code"], again["user_code"]]
        assert flat(await poll(door.client(), other["device_code"])) == "access_denied"
    async with open_door(tmp_path) as door:
        for each in (other, again):
            assert flat(await poll(door.client(), each["device_code"])) == "invalid_grant"


async def test_an_approval_whose_end_the_disk_did_not_keep_is_taken_back_once_it_does(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.revoker.RETRY_SECONDS", 0.005)
    async with open_door(tmp_path) as door:
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
    async with open_door(tmp_path) as door:
        disk.full.add("keys.jsonl")
        assert (await door.admin("POST", "revoke", json={"name": "lab"})).json()["kept"] is False
        assert flat(await poll(door.client(), begun["device_code"])) == "access_denied"
        disk.full.clear()

        async def is_kept() -> bool:
            return b"withdrawn" in (door.peer.folder.path / "keys.jsonl").read_bytes()

        await until(is_kept)
    async with open_door(tmp_path) as door:
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"


async def test_a_restart_forgets_what_waited_was_denied_or_ran_out_and_says_so(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """None of them has any effect; strangers begin them, so none is written."""
    async with open_door(tmp_path) as door:
        late, denied = await begin(door.client()), await begin(door.client())
        await door.admin("POST", "deny", json={"user_code": denied["user_code"]})
        mock_clock.jump(LIFETIME_SECONDS)
        waited = await begin(door.client())
        assert code(await door.approve(late["user_code"]), 410) == "CODE_EXPIRED"
        assert code(await door.approve(denied["user_code"]), 409) == "CODE_DENIED"
    async with open_door(tmp_path) as door:
        for begun in (late, denied, waited):
            answer = await door.approve(begun["user_code"])
            assert code(answer, 404) == "UNKNOWN_CODE"
            assert "was last started is gone, and its agent begins again" in answer.json()["error"]["message"]
            told = await poll(door.client(), begun["device_code"])
            assert flat(told) == "invalid_grant"
            assert "begin again" in told.json()["error_description"]


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_owner_who_leaves_as_they_approve_has_approved_or_not(
    tmp_path: Path, disk: Disk, *, is_kept: bool
) -> None:
    """Nobody heard whether the disk kept it; the code says which."""
    async with open_door(tmp_path) as door:
        registrar, ring = door.peer.registrar, door.peer.house.store.ring
        begun = await begin(door.client(), "lab")
        user_code = begun["user_code"]

        async def stands(state: str) -> bool:
            return registrar.look(user_code).state == state

        disk.hold("keys.jsonl")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.approve, user_code)
            await until(lambda: stands("approved"))
            nursery.cancel_scope.cancel("the owner has left")
        assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"
        if is_kept:
            disk.release("keys.jsonl")

            async def is_durable() -> bool:
                return ring.approved_under(user_code) is not None

            await until(is_durable)
            assert code(await door.approve(user_code), 409) == "CODE_APPROVED"
            return
        disk.full.add("keys.jsonl")
        disk.release("keys.jsonl")
        await until(lambda: stands("pending"))
        disk.full.clear()
        assert (await door.approve(user_code)).status_code == 200


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_device_that_left_before_its_key_was_told_asks_again(
    tmp_path: Path, disk: Disk, *, is_kept: bool
) -> None:
    """A client that times out polls again (RFC 8628 3.5); its key was lost, and nobody could use it."""
    async with open_door(tmp_path) as door:
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
        ring = door.peer.house.store.ring
        disk.hold("keys.jsonl")

        async def is_redeemed() -> bool:
            return ring.approved_under(begun["user_code"]) is None

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll, door.client(), begun["device_code"])
            await until(is_redeemed)
            assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"
            assert flat(await poll(door.client(), begun["device_code"], "another")) == "invalid_grant"
            nursery.cancel_scope.cancel("the device has left")
        if not is_kept:
            disk.full.add("keys.jsonl")
        disk.release("keys.jsonl")
        answers = []

        async def is_answered() -> bool:
            answers.append(await poll(door.client(), begun["device_code"]))
            return answers[-1].status_code != 400

        await until(is_answered)
        if not is_kept:
            assert flat(answers[-1], 503) == "temporarily_unavailable"
            disk.full.clear()
            answers.append(await poll(door.client(), begun["device_code"]))
        told = answers[-1].json()
        assert (await door.agent(told["access_token"]).get("/commands")).status_code == 200
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"
        assert [k["holder"] for k in (await listed(door, all="1"))["keys"]] == [told["tenant_id"]]


async def test_a_key_that_nobody_came_for_is_forgotten(
    tmp_path: Path, disk: Disk, mock_clock: MockClock
) -> None:
    async with open_door(tmp_path) as door:
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
        issuing = door.peer.registrar._issuing
        approved = door.peer.house.store.ring.approved_under(begun["user_code"])
        assert approved is not None
        issue = issuing.redeem(approved)
        await issue.batch.wait()
        assert issuing.find(approved.device_digest) is issue
        assert issue.credential.secret not in repr(issue)
        mock_clock.jump(LIFETIME_SECONDS + 1)
        assert issuing.find(approved.device_digest) is None


async def test_a_thousand_keys_are_listed_and_each_is_found_as_before(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        store = door.peer.house.store
        now = door.peer.house.clock.now_ms()
        for number in range(1000):
            key = Key(f"h-{number}", f"agent-{number}", Grant(memory_bytes=1 << 30), now)
            batch = store.keys.put(Issued(key=key, digest=f"digest-{number}", device_digest=""))
        await batch.wait()
        agent = await door.sign_in("lab")
        assert (await agent.get("/commands")).status_code == 200
        answer = await listed(door)
        assert len(answer["keys"]) == 1001
        assert [k["holder"] for k in answer["keys"] if k["last_used_ms"] is not None] == [agent.holder]
