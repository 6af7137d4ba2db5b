"""BEST 0.9.18, section 2: what the authentication block says is what the door does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peer.door.public import PublicPace
from tests.support.agents import begin, envelope, poll
from tests.support.answers import code, error, flat
from tests.support.best_schemas import best_errors
from tests.support.doorasgi import ask

if TYPE_CHECKING:
    import trio

    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor

ROUTES = [
    "/commands",
    "/commands/deploy-model/1.0",
    "/commands/none/1.0",
    "/events",
    "/events/stream",
    "/events/deployment-ready/1.0",
    "/queries",
    "/queries/get-hardware-state",
    "/queries/get-hardware-state/1.0",
    "/queries/none",
    "/workflows",
    "/workflows/serve-a-model",
]


async def block(door: OpenDoor) -> dict[str, Any]:
    document = (await door.client().get("/.well-known/best")).json()
    found: dict[str, Any] = document["best"]["authentication"]
    return found


async def test_a01_a06_the_block_is_closed_and_whole(door: OpenDoor) -> None:
    found = await block(door)
    assert found["type"] == "apiKey"
    assert {"deviceAuthorizationUrl", "tokenUrl", "note", "scheme", "in"} <= set(found)
    assert best_errors("discovery.json#/$defs/authentication", found) == []
    assert best_errors("discovery.json#/$defs/authentication", {**found, "more": 1})


async def test_a02_the_key_opens_as_declared_and_as_a_bearer_token(door: OpenDoor, agent: Agent) -> None:
    found = await block(door)
    assert found["in"] == "header"
    for headers in (
        {found["scheme"]: agent.key},
        {"authorization": f"Bearer {agent.key}"},
        {"authorization": f"bearer  {agent.key}"},
        {found["scheme"]: "", "authorization": f"Bearer {agent.key}"},
    ):
        assert (await door.client(**headers).get("/commands")).status_code == 200
        assert (await door.client(**headers).get("/queries")).status_code == 200
    for headers in (
        {"authorization": agent.key},
        {"authorization": f"Basic {agent.key}"},
        {"authorization": "Bearer"},
        {"x-api-key": agent.key[:-1]},
        {"x-api-key": "bp_wrong", "authorization": f"Bearer {agent.key}"},
    ):
        assert code(await door.client(**headers).get("/commands"), 401) == "UNAUTHORIZED"


async def test_a03_a05_a08_the_root_block_governs_every_route(door: OpenDoor) -> None:
    clients = [door.client(), door.client(**{"x-api-key": "bp_" + "a" * 43})]
    clients.append(door.client())
    clients[-1].headers["authorization"] = "Bearer é"
    for path in ROUTES:
        for client in clients:
            found = error(await client.get(path), 401)
            assert found["code"] == "UNAUTHORIZED"
            assert found["details"] == {"manifest": f"{door.endpoint}/.well-known/best"}
    command = envelope(door.endpoint, "RevokeAgent", {})
    for client in clients:
        assert code(await client.post("/commands", json=command), 401) == "UNAUTHORIZED"


async def test_a07_signing_in_asks_for_no_key_and_is_paced_by_code(door: OpenDoor) -> None:
    client = door.client()
    code_ = (await begin(client))["device_code"]
    assert flat(await poll(client, code_)) == "authorization_pending"
    assert flat(await poll(client, code_)) == "slow_down"


async def test_a07_s08_what_needs_no_key_is_paced_by_address(
    door: OpenDoor, mock_clock: trio.testing.MockClock
) -> None:
    app = door.peer.app
    app._public = PublicPace(per_minute=3)
    for path in ("/.well-known/best", "/device", "/.well-known/best"):
        assert (await ask(app, "GET", path, "2001:db8::1")).status_code == 200
    again = await ask(app, "GET", "/device", "2001:db8::ffff:1")  # the same /64
    assert error(again, 429)["code"] == "TOO_MANY_REQUESTS"
    assert again.headers["retry-after"] == "20"
    assert (await ask(app, "GET", "/device", "203.0.113.8")).status_code == 200
    for _ in range(4):
        assert (await ask(app, "GET", "/device", "127.0.0.1")).status_code == 200
    mock_clock.jump(20)
    assert (await ask(app, "GET", "/device", "2001:db8::1")).status_code == 200
    assert (await ask(app, "GET", "/device", "2001:db8::1")).status_code == 429


async def test_a07_an_address_past_its_pace_is_told_so_in_words_of_the_sign_in(
    door: OpenDoor, mock_clock: trio.testing.MockClock
) -> None:
    app = door.peer.app
    app._public = PublicPace(per_minute=1)
    assert (await ask(app, "GET", "/device", "203.0.113.7")).status_code == 200
    begun = await ask(app, "POST", "/oauth/device", "203.0.113.7", form={"client_id": "x"})
    assert flat(begun, 503) == "temporarily_unavailable"
    polled = await ask(app, "POST", "/oauth/token", "203.0.113.7", form={"client_id": "x"})
    assert flat(polled) == "slow_down"
    assert begun.headers["retry-after"] == polled.headers["retry-after"] == "60"


async def test_a11_a_key_in_the_query_opens_nothing(door: OpenDoor, agent: Agent) -> None:
    for name in ("access_token", "api_key", "apikey", "X-Api-Key"):
        answer = await door.client().get("/commands", params={name: agent.key})
        assert code(answer, 401) == "UNAUTHORIZED"
        assert agent.key not in answer.text


async def test_a12_s03_a_key_may_send_what_it_was_approved_for_and_no_more(door: OpenDoor) -> None:
    prompter = await door.sign_in(scopes=["prompt"])
    listed = {one["commandType"] for one in (await prompter.get("/commands")).json()["commands"]}
    assert listed == {"Prompt", "RevokeAgent"}
    refused = await prompter.send(
        "DeployModel", {"model": "m", "engine": "llamacpp", "memory_bytes": 1 << 20}
    )
    found = error(refused, 403)
    assert found["code"] == "FORBIDDEN"
    assert found["details"] == {
        "needs": "deploy",
        "scopes": ["prompt"],
        "allowed": ["Prompt", "RevokeAgent"],
    }
    reader = await door.sign_in(scopes=["workspaces"])
    assert (await reader.get("/queries/get-hardware-state")).status_code == 200


async def test_a13_the_key_alone_says_whose_data_it_is(door: OpenDoor) -> None:
    one = await door.sign_in("one", memory_bytes=1 << 30)
    two = await door.sign_in("two", memory_bytes=1 << 30)
    deployment = await door.deploy(one)
    assert one.endpoint == two.endpoint
    assert [d["deployment"] for d in (await one.query("get-workloads"))["deployments"]] == [deployment]
    assert (await two.query("get-workloads"))["deployments"] == []
