"""BEST 0.9.18, sections 3 to 5: agent registration (RFC 8628), its fixed words, the credential it ends in."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import trio

from actors.issuing import KEY_PREFIX
from peer.door.manifest import SignInGuidance
from tests.support.agents import DEVICE_GRANT, begin, poll
from tests.support.answers import code, flat
from tests.support.best_schemas import guidance
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.agents import Agent

WORDS = SignInGuidance.load()
SHAPE = "^[a-z0-9][a-z0-9-]{0,63}$"


async def test_r01_r02_a_form_with_any_client_id_begins_a_sign_in(door: OpenDoor) -> None:
    client = door.client()
    for client_id in ("best-mcp", "never heard of", "https://client.example/id", "日本"):
        answer = await client.post("/oauth/device", data={"client_id": client_id})
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
    for form in ({}, {"client_id": ""}, {"client_id": "x" * 257}, {"client_id": "a\x1b[2J"}):
        assert flat(await client.post("/oauth/device", data={"other": "1", **form})) == "invalid_request"


async def test_r03_a_connection_has_one_shape_and_is_told_which(door: OpenDoor) -> None:
    client = door.client()
    for name in ("lab", "0", "a-b-c", "9" * 64):
        assert (await begin(client, name))["device_code"]
    assert (await begin(client, ""))["device_code"]  # empty is absent (RFC 6749 3.1)
    for name in ("Not One Word", "-lab", "a" * 65, "Lab", "läb", "a_b", "lab\n", " lab"):
        answer = await client.post("/oauth/device", data={"client_id": "x", "connection": name})
        assert flat(answer) == "invalid_request"
        assert SHAPE in answer.json()["error_description"]


async def test_r04_a_label_is_shown_and_can_do_nothing(door: OpenDoor) -> None:
    label = "<script>alert(1)</script>\u202e\x1b[31m & co"
    begun = await begin(door.client(), agent_label=label)
    page = (await door.client().get("/device", params={"user_code": begun["user_code"]})).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&amp; co" in page
    assert not {"<script", "\u202e", "\x1b"} & {
        part for part in ("<script", "\u202e", "\x1b") if part in page
    }
    asked = await door.admin("GET", "pending", params={"user_code": begun["user_code"]})
    assert asked.json()["agent_label"] == "<script>alert(1)</script>[31m & co"


async def test_r05_a_session_gets_eight_hours_and_says_so(door: OpenDoor) -> None:
    for lifetime, expected in (("session", 8 * 3600), ("durable", None), ("", None)):
        begun = await begin(door.client(), credential_lifetime=lifetime)
        await door.approve(begun["user_code"])
        answer = (await poll(door.client(), begun["device_code"])).json()
        assert answer.get("expires_in") == expected
    wrong = await door.client().post("/oauth/device", data={"client_id": "x", "credential_lifetime": "ever"})
    assert flat(wrong) == "invalid_request"


async def test_r06_r07_r08_g02_the_answer_has_codes_links_and_the_fixed_words(door: OpenDoor) -> None:
    answers = [await begin(door.client(), "lab") for _ in range(20)]
    for answer in answers:
        assert set(answer) == {
            "device_code",
            "user_code",
            "verification_uri",
            "verification_uri_complete",
            "expires_in",
            "interval",
            "note",
        }
        assert answer["expires_in"] == 600
        assert answer["interval"] == 5
        assert answer["note"] == WORDS.device
        assert len(answer["device_code"]) >= 43
        assert answer["user_code"] in answer["verification_uri_complete"]
        for link in ("verification_uri", "verification_uri_complete"):
            assert answer["device_code"] not in answer[link]
        assert urlsplit(answer["verification_uri"]).netloc == urlsplit(door.endpoint).netloc
    assert len({answer["device_code"] for answer in answers}) == 20
    assert len({answer["user_code"] for answer in answers}) == 20


async def test_r08_the_persons_link_is_https_where_the_door_is(tmp_path: Path) -> None:
    async with open_door(tmp_path, https=True) as door:
        answer = await begin(door.client())
        assert answer["verification_uri"].startswith("https://")
        assert (await door.client().get(answer["verification_uri_complete"])).status_code == 200


async def test_r09_unapproved_it_has_no_effect_and_runs_out(door: OpenDoor, mock_clock: MockClock) -> None:
    begun = await begin(door.client())
    for secret in (begun["device_code"], begun["user_code"]):
        assert code(await door.client(**{"x-api-key": secret}).get("/commands"), 401) == "UNAUTHORIZED"
    assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"
    mock_clock.jump(600)
    assert flat(await poll(door.client(), begun["device_code"])) == "expired_token"
    assert code(await door.approve(begun["user_code"]), 410) == "CODE_EXPIRED"
    assert (await door.admin("GET", "status")).json()["keys"] == []


async def test_r10_r11_each_state_of_a_poll_has_its_error(door: OpenDoor, mock_clock: MockClock) -> None:
    client = door.client()
    begun = await begin(client)
    device = begun["device_code"]
    assert flat(await poll(client, device)) == "authorization_pending"
    mock_clock.jump(4)
    assert flat(await poll(client, device)) == "slow_down"
    mock_clock.jump(9)
    assert flat(await poll(client, device)) == "slow_down"
    mock_clock.jump(15)
    assert flat(await poll(client, device)) == "authorization_pending"
    assert flat(await poll(client, device, "another-agent")) == "invalid_grant"
    await door.approve(begun["user_code"])
    mock_clock.jump(15)
    assert (await poll(client, device)).status_code == 200
    mock_clock.jump(15)
    assert flat(await poll(client, device)) == "invalid_grant"
    assert flat(await poll(client, "no-such-device-code")) == "invalid_grant"
    assert flat(await poll(client, begun["user_code"])) == "invalid_grant"
    refused, late = await begin(client), await begin(client)
    assert (await door.admin("POST", "deny", json={"user_code": refused["user_code"]})).status_code == 200
    for _ in range(2):
        assert flat(await poll(client, refused["device_code"])) == "access_denied"
    mock_clock.jump(600)
    assert flat(await poll(client, late["device_code"])) == "expired_token"
    assert flat(await poll(client, refused["device_code"])) == "access_denied"
    for form, expected in (
        ({"device_code": device, "client_id": "x"}, "invalid_request"),
        ({"grant_type": "password", "device_code": device, "client_id": "x"}, "unsupported_grant_type"),
        ({"grant_type": DEVICE_GRANT, "client_id": "x"}, "invalid_request"),
        ({"grant_type": DEVICE_GRANT, "device_code": device}, "invalid_request"),
    ):
        assert flat(await client.post("/oauth/token", data=form)) == expected


async def test_r12_of_two_polls_at_once_one_gets_the_key(door: OpenDoor) -> None:
    begun = await begin(door.client())
    await door.approve(begun["user_code"])
    answers = []

    async def ask() -> None:
        answers.append(await poll(door.client(), begun["device_code"]))

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(ask)
    assert sorted(answer.status_code for answer in answers) == [200, *[400] * 7]
    assert len((await door.admin("GET", "status")).json()["keys"]) == 1


async def test_r13_r14_c01_c02_the_token_answer_has_its_members(door: OpenDoor) -> None:
    client = door.client()
    for connection, name in (("lab", "lab"), (None, urlsplit(door.endpoint).netloc)):
        begun = await begin(client, connection)
        await door.approve(begun["user_code"], expires_seconds=3600)
        answer = await poll(client, begun["device_code"])
        assert answer.headers["cache-control"] == "no-store"
        body = answer.json()
        assert body["access_token"].startswith(KEY_PREFIX)
        assert body["token_type"] == body["auth_header"] == "X-Api-Key"
        assert body["name"] == name
        assert body["tenant_id"].startswith("h-")
        assert body["expires_in"] == 3600
        assert body["endpoint"] == door.endpoint
        headers = {body["auth_header"]: body["access_token"]}
        for url in (body["manifest"], body["ready_check"]):
            assert (await client.get(url, headers=headers)).status_code == 200


async def test_r14_the_address_of_a_door_below_a_path_is_its_name(tmp_path: Path) -> None:
    async with open_door(tmp_path, path="/machine") as door:
        begun = await begin(door.client())
        await door.approve(begun["user_code"])
        body = (await poll(door.client(), begun["device_code"])).json()
        assert body["name"] == f"{urlsplit(door.endpoint).netloc}/machine"
        assert list(body["mcp"]) == [body["name"]]


async def test_r15_r16_what_is_no_form_is_refused_in_the_flat_shape(door: OpenDoor) -> None:
    client = door.client()
    form = {"content-type": "application/x-www-form-urlencoded"}
    for path in ("/oauth/device", "/oauth/token"):
        for more in (
            {"json": {"client_id": "x"}},
            {"content": b""},
            {"content": b"client_id=x", "headers": {"content-type": "text/plain"}},
            {"content": b"client_id=%FF", "headers": form},
            {"content": b"client_id=\xff", "headers": form},
            {"content": b"client_id=x&client_id=y", "headers": form},
            {"content": b"a=1&" * 40, "headers": form},
            {"content": b"client_id=" + b"x" * 9000, "headers": form},
        ):
            assert flat(await client.post(path, **more)) == "invalid_request"


async def test_r15_what_the_server_itself_refuses_there_is_flat_too(tmp_path: Path) -> None:
    """A body past the server's own limit was answered in BEST's shape, before the sign-in saw it."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    large = b"client_id=" + b"x" * 300_000

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(large), 50_000):
            yield large[at : at + 50_000]

    async with open_door(tmp_path, path="/machine") as door:
        for path in ("/oauth/device", "/oauth/token", "//oauth/token"):
            for content in (large, pieces()):
                answer = await door.client(**form).post(f"{door.endpoint}{path}", content=content)
                assert flat(answer) == "invalid_request"
                assert "262144 bytes" in answer.json()["error_description"]
        elsewhere = await door.client().post(f"{door.endpoint}/commands", content=large)
        assert code(elsewhere, 413) == "PAYLOAD_TOO_LARGE"


async def test_r17_only_the_owner_approves(door: OpenDoor, agent: Agent) -> None:
    begun = await begin(door.client())
    body = {"user_code": begun["user_code"]}
    for headers in ({}, {"x-api-key": agent.key}, {"authorization": f"Bearer {agent.key}"}):
        client = door.client(**headers)
        assert code(await client.post("/admin/approve", json=body), 401) == "UNAUTHORIZED"
        assert (await client.post("/device", data=body)).status_code == 405
    assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"


async def test_r18_r19_nothing_in_the_catalogues_is_named_after_signing_in(agent: Agent) -> None:
    names = [one["schema"] for one in (await agent.get("/commands")).json()["commands"]]
    names += [one["schema"] for one in (await agent.get("/queries")).json()["queries"]]
    names += [one["id"] for one in (await agent.get("/workflows")).json()["workflows"]]
    for name in names:
        assert not any(word in name for word in ("sign", "log", "regist", "auth", "connect"))


async def test_r20_an_agent_gives_its_key_back_by_a_command_under_it(door: OpenDoor, agent: Agent) -> None:
    owner = await door.sign_in("owner")
    deployment = await door.deploy(agent)
    async with agent.stream() as listener:
        correlation = await agent.command("RevokeAgent", {})
        assert await listener.next() is None  # a stream ends with its key
    assert code(await agent.get("/events", correlationId=correlation), 401) == "UNAUTHORIZED"
    listed = (await owner.query("get-workloads"))["deployments"]
    assert [(one["deployment"], one["phase"]) for one in listed] == [(deployment, "ready")]


async def test_r22_the_page_says_whom_it_lets_in_and_how_to_lend_less(door: OpenDoor) -> None:
    begun = await begin(door.client(), "lab", agent_label="A helper", credential_lifetime="session")
    page = (await door.client().get(begun["verification_uri_complete"])).text
    for words in (begun["user_code"], "lab", "A helper", "an-agent", "127.0.0.1", "eight hours", "--expires"):
        assert words in page
    assert begun["device_code"] not in page


async def test_r23_nothing_but_a_key_proves_anything(door: OpenDoor, agent: Agent) -> None:
    answer = await agent.send("DeployModel", {"model": "m", "engine": "llamacpp", "memory_bytes": 1 << 20})
    ids = list(answer.json().values())
    ready = await agent.wait_for("DeploymentReady", ids[1])
    token = door.admin_token
    for secret in (*ids, agent.holder, ready["id"], ready["data"]["deployment"], "tester", token):
        client = door.client(**{"x-api-key": secret})
        assert code(await client.get("/commands"), 401) == "UNAUTHORIZED"
        if secret != token:
            headers = {"authorization": f"Bearer {secret}"}
            assert code(await door.client().get("/admin/status", headers=headers), 401) == "UNAUTHORIZED"


async def test_r24_two_names_are_two_keys_that_live_side_by_side(door: OpenDoor) -> None:
    agents = [await door.sign_in(name) for name in ("lab", "office", "lab")]
    assert len({one.key for one in agents}) == len({one.holder for one in agents}) == 3
    for one in agents:
        assert (await one.get("/commands")).status_code == 200


async def test_g01_g04_the_manifest_carries_the_words_of_its_own_version(door: OpenDoor) -> None:
    best = (await door.client().get("/.well-known/best")).json()["best"]
    assert best["authentication"]["note"] == WORDS.manifest == guidance("manifest")[best["version"]]
    assert guidance("device")[best["version"]] == WORDS.device
    assert guidance("token")[best["version"]] == WORDS.token


async def token_answer(door: OpenDoor, connection: str, **grant: Any) -> dict[str, Any]:
    begun = await begin(door.client(), connection)
    await door.approve(begun["user_code"], **grant)
    answer: dict[str, Any] = (await poll(door.client(), begun["device_code"])).json()
    return answer


async def test_g03_c06_c07_the_answer_says_the_fixed_words_alone_and_the_key_twice(door: OpenDoor) -> None:
    answer = await token_answer(door, "lab")
    key = answer["access_token"]
    assert answer["note"] == WORDS.token
    assert json.dumps(answer).count(key) == 2
    assert key in json.dumps(answer["mcp"])
    # No member but the note is prose.
    for name in set(answer) - {"note", "mcp", "http"}:
        assert " " not in str(answer[name])


async def test_c03_each_name_is_one_entry_with_its_own_key(door: OpenDoor) -> None:
    entries = []
    for name in ("lab", "2nd-lab"):
        answer = await token_answer(door, name)
        assert list(answer["mcp"]) == [answer["name"]] == [name]
        entry = answer["mcp"][name]
        assert set(entry) == {"command", "args", "env"}
        # The connector finds BEST_<word>_BASE_URL where the word is upper case and begins with a letter.
        words = {variable.removesuffix("_BASE_URL").removesuffix("_API_KEY") for variable in entry["env"]}
        assert len(words) == 1
        word = words.pop().removeprefix("BEST_")
        assert word[0] in string.ascii_uppercase
        assert set(word) <= set(string.ascii_uppercase + string.digits)
        assert set(entry["env"].values()) == {door.endpoint, answer["access_token"]}
        entries.append(entry)
    assert entries[0]["env"] != entries[1]["env"]


async def test_c04_c05_the_urls_are_of_this_door_and_the_header_holds_no_secret(door: OpenDoor) -> None:
    answer = await token_answer(door, "lab")
    http = dict(answer["http"])
    assert http.pop("header") == "X-Api-Key: <access_token>"
    client = door.client(**{"x-api-key": answer["access_token"]})
    for url in http.values():
        assert (await client.get(url)).status_code == 200
    urls = [*http.values(), answer["endpoint"], answer["manifest"], answer["ready_check"]]
    assert {urlsplit(url).netloc for url in urls} == {urlsplit(door.endpoint).netloc}


async def test_c02_a_key_for_metrics_is_promised_nothing_that_it_does_not_open(door: OpenDoor) -> None:
    answer = await token_answer(door, "collector", scopes=["metrics"])
    assert answer["scope"] == "metrics"
    assert "mcp" not in answer
    collector = door.client(**{"x-api-key": answer["access_token"]})
    assert set(answer["http"]) == {"header", "metrics"}
    for url in (answer["ready_check"], answer["http"]["metrics"]):
        assert (await collector.get(url)).status_code == 200
