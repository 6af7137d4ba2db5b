"""Signing in at a door that serves: ceilings, states, lifetimes, and what a restart leaves (F10 to F12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

import actors.codes
from actors.approver import AdminTokenApprover, Registration
from actors.codes import INTERVAL_SECONDS, LIFETIME_SECONDS
from actors.log.journal import JournalUnavailable
from actors.state.keys import Grant
from adapters.clock.fake import FakeClock
from tests.support.agents import DEVICE_GRANT, begin, poll
from tests.support.answers import code, error, flat
from tests.support.doorasgi import ask
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

HOUR, DAY = 3600, 86_400


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


async def begin_from(
    door: OpenDoor, host: str, client_id: str = "an-agent", **headers: str
) -> httpx.Response:
    form = {"client_id": client_id}
    return await ask(door.peer.app, "POST", "/oauth/device", host, form=form, headers=headers)


async def full(answer: httpx.Response) -> int:
    """The seconds to wait that a refused sign-in is told."""
    assert flat(answer, 503) == "temporarily_unavailable"
    wait = int(answer.headers["retry-after"])
    assert f"{wait} s" in answer.json()["error_description"]
    return wait


async def test_five_codes_wait_for_one_client_and_sixteen_for_one_address(
    door: OpenDoor, mock_clock: MockClock
) -> None:
    host = "203.0.113.7"
    for _ in range(5):
        assert (await begin_from(door, host, "one")).status_code == 200
        mock_clock.jump(10)
    assert await full(await begin_from(door, host, "one")) == LIFETIME_SECONDS - 50
    for number in range(11):
        assert (await begin_from(door, host, f"client-{number}")).status_code == 200
    assert await full(await begin_from(door, host, "another")) == LIFETIME_SECONDS - 50
    assert (await begin_from(door, "203.0.113.8", "one")).status_code == 200
    mock_clock.jump(LIFETIME_SECONDS - 50)  # the oldest has run out
    assert (await begin_from(door, host, "one")).status_code == 200


@pytest.mark.parametrize(
    ("hosts", "elsewhere"),
    [
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3"], "2001:db8:0:1::1"),
        (["::ffff:203.0.113.7", "203.0.113.7"], "::ffff:203.0.113.8"),
        (["", "unix", "not an address"], "203.0.113.9"),
        (["fe80::1%eth0", "fe80::2%eth1"], "fe81::1"),
    ],
    ids=["a /64", "mapped", "unknown", "link-local"],
)
async def test_an_address_is_counted_by_what_one_client_holds(
    door: OpenDoor, hosts: list[str], elsewhere: str
) -> None:
    for number in range(5):
        assert (await begin_from(door, hosts[number % len(hosts)])).status_code == 200
    for host in hosts:
        await full(await begin_from(door, host))
    assert (await begin_from(door, elsewhere)).status_code == 200


LOOPBACK = ("127.0.0.1", "::1", "127.8.8.8", "::ffff:127.0.0.1")


async def test_sixty_four_wait_in_all_and_this_machine_is_not_counted_among_them(door: OpenDoor) -> None:
    """What runs on this machine could fill them and shut everybody out."""
    for host in LOOPBACK:
        for _ in range(20):
            assert (await begin_from(door, host)).status_code == 200
    for number in range(64):
        assert (await begin_from(door, f"203.0.113.{number}")).status_code == 200
    await full(await begin_from(door, "203.0.113.99"))
    assert (await begin_from(door, "127.0.0.1")).status_code == 200


async def test_this_machines_own_codes_are_bounded_too_and_keep_nobody_else_out(
    door: OpenDoor, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.codes, "FROM_LOOPBACK", 70)
    for number in range(70):
        assert (await begin_from(door, LOOPBACK[number % 4])).status_code == 200
    for host in LOOPBACK:
        assert await full(await begin_from(door, host)) == LIFETIME_SECONDS
    assert (await begin_from(door, "203.0.113.7")).status_code == 200
    mock_clock.jump(LIFETIME_SECONDS)
    assert (await begin_from(door, "127.0.0.1")).status_code == 200


async def test_no_forwarded_address_is_read(door: OpenDoor) -> None:
    for number in range(5):
        forwarded = {"x-forwarded-for": f"198.51.100.{number}", "forwarded": f"for=198.51.100.{number}"}
        assert (await begin_from(door, "203.0.113.7", **forwarded)).status_code == 200
    await full(await begin_from(door, "203.0.113.7", **{"x-forwarded-for": "198.51.100.99"}))


async def test_a_code_that_was_redeemed_waits_no_more(door: OpenDoor) -> None:
    begun = [(await begin_from(door, "203.0.113.7")).json() for _ in range(5)]
    await door.approve(begun[0]["user_code"])
    await full(await begin_from(door, "203.0.113.7"))
    assert (await poll(door.client(), begun[0]["device_code"])).status_code == 200
    assert (await begin_from(door, "203.0.113.7")).status_code == 200


async def test_the_slower_pace_is_kept_for_that_code_alone(door: OpenDoor, mock_clock: MockClock) -> None:
    """cli/oauth#76: a sign-in died when it was asked to poll more slowly."""
    client = door.client()
    hasty, other = await begin(client), await begin(client)
    assert flat(await poll(client, hasty["device_code"])) == "authorization_pending"
    mock_clock.jump(2)
    assert flat(await poll(client, hasty["device_code"])) == "slow_down"
    slower = 2 * INTERVAL_SECONDS
    # The client adds five seconds and goes on; the old pace is too fast from here on.
    mock_clock.jump(slower)
    assert flat(await poll(client, hasty["device_code"])) == "authorization_pending"
    mock_clock.jump(INTERVAL_SECONDS)
    answer = await poll(client, hasty["device_code"])
    assert flat(answer) == "slow_down"
    assert "15 seconds" in answer.json()["error_description"]
    assert flat(await poll(client, other["device_code"])) == "authorization_pending"
    await door.approve(hasty["user_code"])
    mock_clock.jump(15)
    assert (await poll(client, hasty["device_code"])).status_code == 200


async def test_an_approval_outlives_a_restart_and_is_redeemed_once(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        begun = await begin(door.client(), "lab")
        assert (await door.approve(begun["user_code"], expires_seconds=DAY)).status_code == 200
    async with open_door(tmp_path) as door:
        assert flat(await poll(door.client(), begun["device_code"], "another")) == "invalid_grant"
        answer = await poll(door.client(), begun["device_code"])
        assert answer.json()["name"] == "lab"
        assert answer.json()["expires_in"] == DAY
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"
    async with open_door(tmp_path) as door:
        assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"
        agent = door.agent(answer.json()["access_token"])
        assert (await agent.get("/commands")).status_code == 200


async def test_an_approval_that_nobody_fetched_runs_out(tmp_path: Path, mock_clock: MockClock) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        begun, kept = await begin(door.client()), await begin(door.client())
        for each in (begun, kept):
            await door.approve(each["user_code"])
        mock_clock.jump(LIFETIME_SECONDS)
        for _ in range(2):
            assert flat(await poll(door.client(), begun["device_code"])) == "expired_token"
        assert code(await door.approve(begun["user_code"]), 410) == "CODE_EXPIRED"
    clock.advance((LIFETIME_SECONDS + 1) * 1000)
    async with open_door(tmp_path, clock=clock) as door:
        assert flat(await poll(door.client(), kept["device_code"])) == "invalid_grant"
        assert (await door.admin("GET", "status")).json()["keys"] == []


async def test_a_late_poll_is_told_so_after_another_sign_in_began(
    door: OpenDoor, mock_clock: MockClock
) -> None:
    begun = await begin(door.client())
    mock_clock.jump(LIFETIME_SECONDS)
    await begin(door.client())
    assert flat(await poll(door.client(), begun["device_code"])) == "expired_token"


async def test_a_second_approval_says_what_became_of_the_code(door: OpenDoor, mock_clock: MockClock) -> None:
    begun = await begin(door.client())
    user_code = begun["user_code"]
    assert (await door.approve(user_code.lower().replace("-", " "))).status_code == 200
    assert code(await door.approve(user_code), 409) == "CODE_APPROVED"
    assert (await poll(door.client(), begun["device_code"])).status_code == 200
    assert code(await door.approve(user_code), 409) == "CODE_USED"
    late = await begin(door.client())
    mock_clock.jump(LIFETIME_SECONDS)
    assert code(await door.approve(late["user_code"]), 410) == "CODE_EXPIRED"
    for wrong in ("BCDF-GHJK", "x", "ÄÖÜ-ÄÖÜÄ", "1"):
        assert code(await door.approve(wrong), 404) == "UNKNOWN_CODE"


async def deny(door: OpenDoor, user_code: str) -> httpx.Response:
    return await door.admin("POST", "deny", json={"user_code": user_code})


async def test_a_code_that_was_denied_is_told_to_its_device_and_frees_its_place(door: OpenDoor) -> None:
    begun = [(await begin_from(door, "203.0.113.7")).json() for _ in range(5)]
    await full(await begin_from(door, "203.0.113.7"))
    denied, other = begun[0], begun[1]
    answer = await deny(door, denied["user_code"].lower())
    assert answer.json() == {
        "user_code": denied["user_code"],
        "name": door.endpoint.split("://")[1],
        "client_id": "an-agent",
        "agent_label": None,
        "address": "203.0.113.7",
    }
    assert (await begin_from(door, "203.0.113.7")).status_code == 200
    for _ in range(2):
        answer = await poll(door.client(), denied["device_code"], "an-agent")
        assert flat(answer) == "access_denied"
    assert flat(await poll(door.client(), other["device_code"], "an-agent")) == "authorization_pending"
    page = await door.client().get("/device", params={"user_code": denied["user_code"]})
    assert 'data-state="denied"' in page.text


async def test_a_denial_says_what_became_of_a_code_that_does_not_wait(
    door: OpenDoor, mock_clock: MockClock
) -> None:
    begun = await begin(door.client())
    assert (await deny(door, begun["user_code"])).status_code == 200
    assert code(await deny(door, begun["user_code"]), 409) == "CODE_DENIED"
    assert code(await door.approve(begun["user_code"]), 409) == "CODE_DENIED"
    approved = await begin(door.client())
    await door.approve(approved["user_code"])
    assert code(await deny(door, approved["user_code"]), 409) == "CODE_APPROVED"
    assert (await poll(door.client(), approved["device_code"])).status_code == 200
    assert code(await deny(door, approved["user_code"]), 409) == "CODE_USED"
    late = await begin(door.client())
    mock_clock.jump(LIFETIME_SECONDS)
    assert code(await deny(door, late["user_code"]), 410) == "CODE_EXPIRED"
    assert code(await deny(door, "BCDF-GHJK"), 404) == "UNKNOWN_CODE"
    assert code(await door.admin("POST", "deny", json={}), 400) == "SCHEMA_VALIDATION"


async def test_a_denial_while_it_is_being_approved_comes_first(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = await begin(door.client())

    async def admit(approver: AdminTokenApprover, registration: Registration, asked: Grant) -> Grant:
        assert (await deny(door, begun["user_code"])).status_code == 200
        return asked

    monkeypatch.setattr(AdminTokenApprover, "admit", admit)
    assert code(await door.approve(begun["user_code"]), 409) == "CODE_DENIED"
    assert flat(await poll(door.client(), begun["device_code"])) == "access_denied"


async def test_a_used_code_is_known_as_used_after_a_restart(tmp_path: Path) -> None:
    """It was called unknown, and its owner looked for a mistake in the letters."""
    async with open_door(tmp_path) as door:
        begun, later = await begin(door.client()), await begin(door.client())
        for each in (begun, later):
            await door.approve(each["user_code"])
        assert (await poll(door.client(), begun["device_code"])).status_code == 200
    async with open_door(tmp_path) as door:
        assert code(await door.approve(begun["user_code"]), 409) == "CODE_USED"
        assert (await poll(door.client(), later["device_code"])).status_code == 200
        assert code(await door.approve(later["user_code"]), 409) == "CODE_USED"
        assert code(await deny(door, later["user_code"]), 409) == "CODE_USED"
        page = await door.client().get("/device", params={"user_code": later["user_code"]})
        assert 'data-state="used"' in page.text


async def grant_of(door: OpenDoor, lifetime: str, **grant: Any) -> httpx.Response:
    begun = await begin(door.client(), credential_lifetime=lifetime)
    return await door.approve(begun["user_code"], **grant)


@pytest.mark.parametrize(("lifetime", "most"), [("session", 8 * HOUR), ("durable", 366 * DAY)])
async def test_more_than_the_longest_is_refused_and_never_cut(
    door: OpenDoor, lifetime: str, most: int
) -> None:
    for seconds in (1, most):
        answer = await grant_of(door, lifetime, expires_seconds=seconds)
        assert answer.json()["grant"]["expires_seconds"] == seconds
    for seconds in (0, -1, most + 1):
        found = error(await grant_of(door, lifetime, expires_seconds=seconds), 400)
        assert found["code"] == "INVALID_GRANT"
        assert found["details"] == {"limit_seconds": most}


async def test_a_key_ends_when_its_time_is_over(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        agent = await door.sign_in(expires_seconds=HOUR)
        lasting = await door.sign_in()
        clock.advance(HOUR * 1000 - 1)
        assert (await agent.get("/commands")).status_code == 200
        clock.advance(1)
        assert code(await agent.get("/commands"), 401) == "UNAUTHORIZED"
        assert code(await agent.send("RevokeAgent", {}), 401) == "UNAUTHORIZED"
        clock.advance(100 * 366 * DAY * 1000)
        assert (await lasting.get("/commands")).status_code == 200
    async with open_door(tmp_path, clock=clock) as door:
        assert code(await door.agent(agent.key).get("/commands"), 401) == "UNAUTHORIZED"


async def test_a_key_that_was_seen_to_end_stays_closed_though_the_clock_is_set_back(tmp_path: Path) -> None:
    """An afternoon's access came back with a clock that was corrected, or that somebody turned."""
    clock = FakeClock()
    async with open_door(tmp_path, clock=clock) as door:
        ended, unseen = [await door.sign_in(name, expires_seconds=HOUR) for name in ("ended", "unseen")]
        clock.advance(HOUR * 1000)
        assert code(await ended.get("/commands"), 401) == "UNAUTHORIZED"
        clock.advance(-HOUR * 1000)
        assert code(await ended.get("/commands"), 401) == "UNAUTHORIZED"
        assert (await unseen.get("/commands")).status_code == 200
        (told,) = (await door.admin("GET", "keys", params={"name": "ended"})).json()["keys"]
        assert told["state"] == "expired"
    async with open_door(tmp_path, clock=clock) as door:
        assert code(await door.agent(ended.key).get("/commands"), 401) == "UNAUTHORIZED"
        assert (await door.agent(unseen.key).get("/commands")).status_code == 200
        (taken,) = (await door.admin("POST", "revoke", json={"name": "ended"})).json()["revoked"]
        assert taken["ran_out"] is True


async def test_metrics_stands_alone_and_opens_nothing_else(door: OpenDoor) -> None:
    refused = await grant_of(door, "durable", scopes=["metrics", "deploy"])
    assert code(refused, 400) == "INVALID_GRANT"
    collector = await door.sign_in("collector", scopes=["metrics"])
    for path in ("/commands", "/queries/get-workloads", "/events", "/events/stream", "/workflows"):
        found = error(await collector.get(path), 403)
        assert found["code"] == "FORBIDDEN"
        assert found["details"] == {"scopes": ["metrics"]}
    assert code(await collector.send("RevokeAgent", {}), 403) == "FORBIDDEN"


async def test_a_body_that_is_a_form_in_name_only_is_told_so(door: OpenDoor) -> None:
    for body in ("client_id", "&&&", "=x", "client_id=%00", "client_id=%ZZ%FF"):
        answer = await door.client().post(
            "/oauth/device", content=body, headers={"content-type": "application/x-www-form-urlencoded"}
        )
        assert flat(answer) == "invalid_request"
    twice = f"grant_type={DEVICE_GRANT}&device_code=a&device_code=b&client_id=x"
    answer = await door.client().post(
        "/oauth/token", content=twice, headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert flat(answer) == "invalid_request"
    assert "device_code" in answer.json()["error_description"]


async def test_only_posts_are_taken(door: OpenDoor) -> None:
    for path in ("/oauth/device", "/oauth/token"):
        answer = await door.client().get(path)
        assert code(answer, 405) == "METHOD_NOT_ALLOWED"
        assert answer.headers["allow"] == "POST"


async def test_a_key_that_the_disk_does_not_keep_is_not_issued_and_the_poll_may_be_repeated(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    begun = await begin(door.client())
    await door.approve(begun["user_code"])

    def fail(record: Any) -> None:
        raise JournalUnavailable("the log is not written")

    monkeypatch.setattr(door.peer.house.store.keys, "put", fail)
    answer = await poll(door.client(), begun["device_code"])
    assert flat(answer, 503) == "temporarily_unavailable"
    assert answer.headers["retry-after"] == "5"
    monkeypatch.undo()
    mock_clock.jump(5)
    assert (await poll(door.client(), begun["device_code"])).status_code == 200
    assert flat(await poll(door.client(), begun["device_code"])) == "invalid_grant"


async def test_a_code_approved_before_a_restart_is_known_to_page_and_owner(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        begun = await begin(door.client(), "lab")
        await door.approve(begun["user_code"])
    async with open_door(tmp_path) as door:
        assert code(await door.approve(begun["user_code"]), 409) == "CODE_APPROVED"
        page = await door.client().get("/device", params={"user_code": begun["user_code"]})
        assert 'data-state="approved"' in page.text
