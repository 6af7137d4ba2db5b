"""The discovery manifest: fits the spec's schema, holds to its discipline, carries the fixed words (F1)."""

import re
from typing import Any

import orjson
import pytest

from peer.door.manifest import (
    BEST_VERSION,
    DEVICE_AUTHORIZATION_PATH,
    SERVICE,
    TOKEN_PATH,
    SignInGuidance,
    authentication,
    root_manifest,
)
from tests.support.best_schemas import best_errors, guidance
from tests.support.probes import strings_in

ENDPOINT = "https://door.example:7777/machine"


@pytest.fixture
def best() -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(root_manifest(f"{ENDPOINT}/", "0.1.0"))
    assert best_errors("discovery.json", document) == []
    assert list(document) == ["best"]
    best: dict[str, Any] = document["best"]
    return best


def test_the_service_is_ours_and_serves_every_capability(best: dict[str, Any]) -> None:
    assert best["version"] == BEST_VERSION
    assert list(best["services"]) == [SERVICE]
    assert best["services"][SERVICE]["http"] == {"endpoint": ENDPOINT}
    names = {one["name"] for one in best["capabilities"]}
    assert names == {f"io.best.agents.{name}" for name in ("commands", "events", "queries", "workflows")}
    assert {one["service"] for one in best["capabilities"]} == {SERVICE}


def test_every_capability_lists_the_routes_it_must_have(best: dict[str, Any]) -> None:
    routes = {
        one["name"].rpartition(".")[2]: {(e["method"], e["path"]) for e in one["endpoints"]}
        for one in best["capabilities"]
    }
    assert routes == {
        "commands": {("GET", "/commands"), ("POST", "/commands"), ("GET", "/commands/{schema}/{version}")},
        "events": {("GET", "/events"), ("GET", "/events/stream"), ("GET", "/events/{schema}/{version}")},
        "queries": {
            ("GET", "/queries"),
            ("GET", "/queries/{schema}"),
            ("GET", "/queries/{schema}/{version}"),
        },
        "workflows": {("GET", "/workflows"), ("GET", "/workflows/{id}")},
    }
    pushes = {one["name"]: one["push"] for one in best["capabilities"] if "push" in one}
    assert pushes == {"io.best.agents.events": {"sse": True}}


def test_the_root_block_tells_how_a_key_is_had(best: dict[str, Any]) -> None:
    block = best["authentication"]
    assert block == authentication(ENDPOINT)
    assert (block["type"], block["scheme"], block["in"]) == ("apiKey", "X-Api-Key", "header")
    assert block["deviceAuthorizationUrl"] == ENDPOINT + DEVICE_AUTHORIZATION_PATH
    assert block["tokenUrl"] == ENDPOINT + TOKEN_PATH
    assert block["scopes"] == ["deploy", "jobs", "prompt", "workspaces", "metrics"]
    assert "authentication" not in best["services"][SERVICE]


def test_the_sign_in_words_are_those_of_the_declared_version(best: dict[str, Any]) -> None:
    held = SignInGuidance.load()
    assert best["authentication"]["note"] == held.manifest
    for which in ("manifest", "device", "token"):
        assert getattr(held, which) == guidance(which)[BEST_VERSION]


def test_words_of_a_version_we_do_not_hold_are_not_invented() -> None:
    with pytest.raises(KeyError):
        SignInGuidance.load("0.0.1")


def test_descriptions_are_short_and_name_no_address_header_operation_or_step(best: dict[str, Any]) -> None:
    barred = re.compile(
        r"https?://|\bwww\.|\{\w+\}|Authorization|Bearer|\bX-[A-Z]|\bGET\b|\bPOST\b"
        r"|\b(deploy|undeploy|run|stop|revoke|get)-\w+|\bfirst\b|\bthen\b"
    )
    described = [(path, text) for path, text in strings_in(best) if path.endswith("/description")]
    assert len(described) == 1 + 4 + 11
    for path, text in described:
        assert len(text) <= 500, path
        assert barred.search(text) is None, (path, text)


def test_no_uri_is_a_template_and_nothing_is_internal(best: dict[str, Any]) -> None:
    for path, text in strings_in(best):
        if "://" in text:
            assert "{" not in text, path
            assert text.startswith((ENDPOINT, "https://behavioralstate.io/")), path


@pytest.mark.parametrize(("version", "shown"), [("0.1.0", "0.1.0"), ("2.10.3rc1.dev4+g12", "2.10.3")])
def test_the_version_is_shown_as_three_numbers(version: str, shown: str) -> None:
    document = orjson.loads(root_manifest(ENDPOINT, version))
    assert document["best"]["services"][SERVICE]["version"] == shown


def test_a_version_without_three_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="three numbers"):
        root_manifest(ENDPOINT, "unknown")
