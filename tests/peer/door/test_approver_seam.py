"""Another approver behind a real door: nothing in the door knows which it is (F15)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

import peer.compose
from actors.state.keys import Grant
from tests.support.agents import begin, poll
from tests.support.answers import code, error, flat
from tests.support.identity import IdentityProvider, token
from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import httpx
    from trio.testing import MockClock

GIB = 1 << 30


@asynccontextmanager
async def open_with(
    provider: IdentityProvider, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OpenDoor]:
    """A door whose composition chose this approver."""
    monkeypatch.setattr(peer.compose, "AdminTokenApprover", lambda token: provider)
    async with open_door(folder) as door:
        yield door


async def ask(door: OpenDoor, proof: str, method: str, name: str, **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {proof}"}
    return await door.client().request(method, f"/admin/{name}", headers=headers, **more)


async def approve(door: OpenDoor, proof: str, user_code: str, **grant: Any) -> httpx.Response:
    return await ask(door, proof, "POST", "approve", json={"user_code": user_code, **grant})


async def test_whoever_it_attests_approves_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = IdentityProvider()
    async with open_with(provider, tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "lab", agent_label="Claude", credential_lifetime="session")
        forged = token("ada").replace(".", ".0", 1)
        for proof in (door.admin_token, forged, "x", "."):
            for method, name in (("POST", "approve"), ("POST", "revoke"), ("GET", "keys"), ("GET", "status")):
                answer = await ask(door, proof, method, name, json={"user_code": begun["user_code"]})
                assert code(answer, 401) == "UNAUTHORIZED"
        assert provider.asked == []
        answer = await approve(door, token("ada"), begun["user_code"])
        assert answer.status_code == 200
        ((registration, asked),) = provider.asked
        assert (registration.user_code, registration.name) == (begun["user_code"], "lab")
        assert (registration.client_id, registration.agent_label) == ("an-agent", "Claude")
        assert (registration.address, registration.is_session) == ("127.0.0.1", True)
        assert registration.proof == token("ada")
        assert registration.proof not in repr(registration)
        assert asked == Grant()
        key = (await poll(door.client(), begun["device_code"])).json()
        assert (key["scope"], key["expires_in"]) == ("all", 8 * 3600)
        revoked = await ask(door, token("ada"), "POST", "revoke", json={"name": "lab"})
        assert [each["holder"] for each in revoked.json()["revoked"]] == [key["tenant_id"]]


async def test_what_it_grants_is_what_the_key_may_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_with(IdentityProvider(), tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "lab")
        answer = await approve(door, token("ada", memory_bytes=GIB), begun["user_code"], deployments=2)
        assert answer.json()["grant"]["memory_bytes"] == GIB
        agent = door.agent((await poll(door.client(), begun["device_code"])).json()["access_token"])
        assert (await agent.query("get-workloads"))["share_bytes"] == GIB
        data = {"model": "small", "engine": "llamacpp", "memory_bytes": GIB + 1}
        assert code(await agent.send("DeployModel", data), 422) == "SHARE_EXCEEDED"


async def test_whom_it_turns_away_waits_on_and_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_with(IdentityProvider(), tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "stranger")
        found = error(await approve(door, token("ada"), begun["user_code"]), 403)
        assert found["code"] == "NOT_ADMITTED"
        assert "stranger is in no group that may use this machine" in found["message"]
        assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"
        denied = await ask(door, token("ada"), "POST", "deny", json={"user_code": begun["user_code"]})
        assert denied.status_code == 200


async def test_one_that_cannot_say_now_leaves_the_code_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = IdentityProvider(is_away=True)
    async with open_with(provider, tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "lab")
        answer = await approve(door, token("ada"), begun["user_code"])
        found = error(answer, 503)
        assert found["code"] == "APPROVAL_UNAVAILABLE"
        assert "the directory does not answer" in found["message"]
        assert int(answer.headers["retry-after"]) > 0
        provider.is_away = False
        assert (await approve(door, token("ada"), begun["user_code"])).status_code == 200
        assert (await poll(door.client(), begun["device_code"])).status_code == 200


async def test_one_that_hangs_is_given_up_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    provider = IdentityProvider(answers=trio.Event())
    async with open_with(provider, tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "lab")

        async def given_up() -> None:
            found = error(await approve(door, token("ada"), begun["user_code"]), 503)
            assert found["code"] == "APPROVAL_UNAVAILABLE"
            assert "no decision came within 10 s" in found["message"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(given_up)
            await provider.began.wait()
            assert (await ask(door, token("ada"), "GET", "keys")).status_code == 200
            assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"
            mock_clock.jump(10)
        assert provider.cancelled
        provider.answers = None
        assert (await approve(door, token("ada"), begun["user_code"])).status_code == 200


async def test_what_happens_while_it_decides_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two approvals at once one is told that it came second; a denial meanwhile stands."""
    provider = IdentityProvider(answers=trio.Event())
    async with open_with(provider, tmp_path, monkeypatch) as door:
        twice, denied = await begin(door.client(), "lab"), await begin(door.client(), "lab")
        answers: list[httpx.Response] = []

        async def one(user_code: str) -> None:
            answers.append(await approve(door, token("ada"), user_code))

        async with trio.open_nursery() as nursery:
            for user_code in (twice["user_code"], twice["user_code"], denied["user_code"]):
                nursery.start_soon(one, user_code)
            while len(provider.asked) < 3:  # noqa: ASYNC110 - requests make no event of it
                await trio.sleep(0.001)
            await ask(door, token("ada"), "POST", "deny", json={"user_code": denied["user_code"]})
            assert provider.answers is not None
            provider.answers.set()
        said = sorted("OK" if a.status_code == 200 else code(a, 409) for a in answers)
        assert said == ["CODE_APPROVED", "CODE_DENIED", "OK"]
        assert flat(await poll(door.client(), denied["device_code"])) == "access_denied"


@pytest.mark.parametrize(
    ("widens", "said"),
    [
        (lambda asked: attrs.evolve(asked, scopes=("all",)), "--may"),
        (lambda asked: attrs.evolve(asked, memory_bytes=asked.memory_bytes + 1), "--memory"),
        (lambda asked: attrs.evolve(asked, expires_seconds=None), "--expires"),
        (lambda asked: attrs.evolve(asked, expires_seconds=0), "what cannot be"),
        (lambda asked: attrs.evolve(asked, scopes=()), "what cannot be"),
    ],
)
async def test_one_that_grants_what_was_not_asked_for_grants_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widens: Callable[[Grant], Grant], said: str
) -> None:
    provider = IdentityProvider(widens=widens)
    async with open_with(provider, tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "lab")
        asked = {"scopes": ["deploy"], "memory_bytes": GIB, "expires_seconds": 60}
        found = error(await approve(door, token("ada"), begun["user_code"], **asked), 503)
        assert found["code"] == "APPROVAL_UNAVAILABLE"
        assert said in found["message"]
        assert flat(await poll(door.client(), begun["device_code"])) == "authorization_pending"
        assert (await ask(door, token("ada"), "GET", "keys")).json()["keys"] == []


async def test_one_that_fails_is_the_peers_fault_and_the_code_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(asked: Grant) -> Grant:
        raise RuntimeError("a fault of the provider's own")

    provider = IdentityProvider(widens=broken)
    async with open_with(provider, tmp_path, monkeypatch) as door:
        begun = await begin(door.client(), "lab")
        answer = await approve(door, token("ada"), begun["user_code"])
        assert code(answer, 500) == "INTERNAL"
        assert "provider's own" not in answer.text
        provider.widens = None
        assert (await approve(door, token("ada"), begun["user_code"])).status_code == 200
