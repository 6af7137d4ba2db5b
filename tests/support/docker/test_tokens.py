"""The token server and the registry that believes it."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.docker import tokens
from tests.support.docker.registry import PASSWORD, USERNAME
from tests.support.docker.use import engine_client, push_as

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.docker.bed import DockerBed


def _claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert isinstance(found, dict)
    return found


def test_a_token_says_what_it_allows_and_until_when(tmp_path: Path) -> None:
    tokens.registry_auth(tmp_path, "http://127.0.0.1:1/token")
    claims = _claims(tokens.mint(tmp_path, ["repository:a/b:pull,push"], lifetime_seconds=60))
    assert claims["access"] == [{"type": "repository", "name": "a/b", "actions": ["pull", "push"]}]
    assert claims["exp"] > claims["iat"] + 60
    ended = _claims(tokens.mint(tmp_path, [], lifetime_seconds=-1))
    assert ended["exp"] < ended["iat"] + 60


@pytest.mark.parametrize(
    ("user", "scope", "gets"),
    [
        (USERNAME, "repository:a:pull,push", ["repository:a:pull,push"]),
        (tokens.OUTSIDER, "repository:public/a:pull", []),
        (None, "repository:a:pull", []),
        (None, "repository:public/a:pull,push", ["repository:public/a:pull"]),
    ],
)
def test_what_is_granted_depends_on_who_asks(user: str | None, scope: str, gets: list[str]) -> None:
    assert tokens.granted([scope], user) == gets


def _auth(**fields: str) -> dict[str, str]:
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()}


@pytest.mark.parametrize(
    ("shows", "status"),
    [
        (_auth(username=USERNAME, password=PASSWORD), 200),
        (_auth(identitytoken=tokens.IDENTITY_TOKEN), 200),
        (_auth(username=tokens.OUTSIDER, password=tokens.OUTSIDER_PASSWORD), 403),
        (_auth(username=USERNAME, password="another"), 500),
        ({}, 403),
    ],
)
def test_an_engine_sees_an_image_with_the_tokens_it_gets(
    docker_bed: DockerBed, shows: dict[str, str], status: int
) -> None:
    reference = push_as(docker_bed, "shell", "tokens/asked")
    asked = reference.replace(docker_bed.registry.address, docker_bed.tokens.address)
    with engine_client(docker_bed) as engine:
        assert engine.get(f"/distribution/{asked}/json", headers=shows).status_code == status


def test_an_engine_sees_what_a_minted_token_says_and_while_it_says_so(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "tokens/minted")
    asked = reference.replace(docker_bed.registry.address, docker_bed.tokens.address)
    folder = docker_bed.tokens.folder
    assert folder
    statuses = []
    with engine_client(docker_bed) as engine:
        for scope, lasts in (("minted:pull", 60), ("another:pull", 60), ("minted:pull", -1)):
            token = tokens.mint(folder, [f"repository:tokens/{scope}"], lifetime_seconds=lasts)
            answer = engine.get(f"/distribution/{asked}/json", headers=_auth(registrytoken=token))
            statuses.append(answer.status_code)
    assert statuses == [200, 403, 401]


def test_the_guarded_registry_wants_its_password(docker_bed: DockerBed) -> None:
    reference = push_as(docker_bed, "shell", "tokens/guarded")
    asked = reference.replace(docker_bed.registry.address, docker_bed.guarded.address)
    username, password = docker_bed.guarded.username, docker_bed.guarded.password
    assert username
    assert password
    with engine_client(docker_bed) as engine:
        known = engine.get(f"/distribution/{asked}/json", headers=_auth(username=username, password=password))
        unknown = engine.get(f"/distribution/{asked}/json", headers=_auth(username=username, password="no"))
    assert (known.status_code, unknown.status_code) == (200, 401)
