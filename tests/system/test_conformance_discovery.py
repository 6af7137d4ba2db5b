"""BEST 0.9.18, section 1: the manifest of a door that serves. Each test is named for the rules it shows."""

from __future__ import annotations

import platform
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.answers import code
from tests.support.best_schemas import best_errors
from tests.support.peers import OpenDoor, open_door
from tests.support.probes import strings_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.agents import Agent

AGENTS = "io.best.agents."
SAMPLES = {"schema": "deploy-model", "version": "1.0", "id": "serve-a-model"}
QUERIES = {"schema": "get-workloads", "version": "1.0"}
EVENTS = {"schema": "deployment-ready", "version": "1.0"}
_URL = re.compile(r"https?://|\bwww\.|\{\w+\}")
_HEADER = re.compile(r"\b(?:Authorization|Bearer|X-[A-Z][A-Za-z]+(?:-[A-Z][A-Za-z]+)*)\b")
# Words of the consumer's own side: its program, its settings, its other connections.
_CONSUMER = re.compile(
    r"mcp\.json|settings\.json|\.env\b|config(?:uration)? file|your (?:client|config|settings|connections?)\b"
    r"|environment variable|(?:sign|log)[ -]?in\b|(?:store|save|write) (?:the|your) (?:key|credential)",
    re.IGNORECASE,
)


async def manifest(door: OpenDoor) -> dict[str, Any]:
    answer = await door.client().get("/.well-known/best")
    best: dict[str, Any] = answer.json()["best"]
    return best


def route(path: str) -> str:
    """A path of the manifest with something that is there in its place holders."""
    values = QUERIES if path.startswith("/queries") else EVENTS if path.startswith("/events") else SAMPLES
    return path.format(**values)


async def test_d01_d02_d03_the_manifest_is_public_json_and_fits_its_schema(door: OpenDoor) -> None:
    for headers in ({}, {"x-api-key": "bp_wrong"}, {"authorization": "Bearer bp_wrong"}):
        answer = await door.client(**headers).get("/.well-known/best")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        document = answer.json()
        assert set(document) == {"best"}
        assert best_errors("discovery.json", document) == []
    best = document["best"]
    assert best["version"] == "0.9.18"
    assert len(best["services"]) == 1
    assert best["capabilities"]


async def test_d04_d06_services_and_capabilities_say_all_that_is_asked(door: OpenDoor) -> None:
    best = await manifest(door)
    for service in best["services"].values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", service["version"])
        assert service["description"]
        assert service["http"]["endpoint"] == door.endpoint
    for capability in best["capabilities"]:
        assert re.fullmatch(r"\d+\.\d+\.\d+", capability["version"])
        assert capability["description"]
        assert capability["spec"].startswith("https://")
        assert capability["schema"].endswith(".json")


async def test_d05_paths_go_behind_an_endpoint_that_has_a_path_of_its_own(tmp_path: Path) -> None:
    async with open_door(tmp_path, path="/machine/") as door:
        assert urlsplit(door.endpoint).path == "/machine"
        agent = await door.sign_in()
        for path in ("/commands", "/queries", "/events", "/workflows", "/.well-known/best"):
            assert (await agent.http.get(f"{door.endpoint}{path}")).status_code == 200
        listed = (await agent.get("/commands")).json()["commands"]
        assert all(one["dataschema"].startswith(f"{door.endpoint}/commands/") for one in listed)
        deployment = await door.deploy(agent)
        assert deployment.startswith("dep-")


async def test_d07_d15_every_capability_belongs_to_the_one_service_and_it_has_some(door: OpenDoor) -> None:
    best = await manifest(door)
    assert {one["service"] for one in best["capabilities"]} == set(best["services"])


async def test_d08_d09_names_are_the_specs_and_the_core_is_there(door: OpenDoor) -> None:
    names = {one["name"] for one in (await manifest(door))["capabilities"]}
    assert names == {AGENTS + name for name in ("commands", "events", "queries", "workflows")}


async def test_d10_d11_d12_every_listed_route_works_and_none_is_partial(door: OpenDoor, agent: Agent) -> None:
    seen = set()
    for capability in (await manifest(door))["capabilities"]:
        assert capability["status"] == "active"
        assert capability["endpoints"]
        for endpoint in capability["endpoints"]:
            path = route(endpoint["path"])
            seen.add((endpoint["method"], endpoint["path"]))
            if path == "/events/stream":
                async with agent.stream():
                    continue
            answer = await agent.http.request(endpoint["method"], path)
            # A POST without a body is refused for what it lacks; what must not be is 404, 405 or 501.
            assert answer.status_code == (415 if endpoint["method"] == "POST" else 200), (path, answer.text)
    assert {("GET", "/commands"), ("POST", "/commands"), ("GET", "/events"), ("GET", "/queries")} <= seen
    assert {("GET", "/queries/{schema}"), ("GET", "/queries/{schema}/{version}")} <= seen
    assert {("GET", "/workflows"), ("GET", "/workflows/{id}")} <= seen


async def test_d13_no_command_is_a_capability(door: OpenDoor, agent: Agent) -> None:
    named = [one["name"] for one in (await manifest(door))["capabilities"]]
    for command in (await agent.get("/commands")).json()["commands"]:
        for name in named:
            assert not name.endswith((command["schema"], command["commandType"]))


async def test_d14_what_answers_401_is_what_the_manifest_announces(door: OpenDoor) -> None:
    best = await manifest(door)
    assert best["authentication"]["type"] == "apiKey"
    bare = door.client()
    for path in ("/.well-known/best", "/device", "/nowhere"):
        assert (await bare.get(path)).status_code != 401
    for url in (best["authentication"]["deviceAuthorizationUrl"], best["authentication"]["tokenUrl"]):
        assert (await bare.post(url)).status_code != 401


async def test_d16_d17_d18_descriptions_are_short_and_hold_no_instructions(
    door: OpenDoor, agent: Agent
) -> None:
    best = await manifest(door)
    operations = [one["schema"] for one in (await agent.get("/commands")).json()["commands"]]
    operations += [one["schema"] for one in (await agent.get("/queries")).json()["queries"]]
    for path, text in strings_in(best):
        if path.endswith("/description"):
            assert len(text) <= 500
            assert not _URL.search(text), path
            assert not _HEADER.search(text), path
            assert not any(name in text for name in operations), path
        if "://" in text and not path.endswith("/note"):
            assert "{" not in text, path


async def test_d19_g05_no_text_tells_a_consumer_how_to_arrange_its_own_side(
    door: OpenDoor, agent: Agent
) -> None:
    paths = ["/.well-known/best", "/commands", "/queries", "/workflows"]
    texts: dict[str, Any] = {path: (await agent.get(path)).json() for path in paths}
    for kind in ("commands", "queries"):
        for entry in texts[f"/{kind}"][kind]:
            texts[entry["dataschema"]] = (await agent.http.get(entry["dataschema"])).json()
    for entry in texts["/workflows"]["workflows"]:
        texts[entry["id"]] = (await agent.get(f"/workflows/{entry['id']}")).json()
    texts["401"] = (await door.client().get("/commands")).json()
    texts["403"] = (await (await door.sign_in(scopes=["metrics"])).get("/commands")).json()
    for name, text in texts.items():
        for path, words in strings_in(text):
            if path != "/best/authentication/note":  # the spec's own words
                assert not _CONSUMER.search(words), (name, path, words)


@pytest.mark.parametrize(
    "path",
    [
        "/llms.txt",
        "/llms-full.txt",
        "/openapi.json",
        "/swagger.json",
        "/AGENTS.md",
        "/.well-known/ai-plugin.json",
    ],
)
async def test_d21_nothing_else_describes_the_operations(door: OpenDoor, path: str) -> None:
    assert code(await door.client().get(path), 404) == "NOT_FOUND"


async def test_d22_there_is_no_page_of_instructions_for_connecting(door: OpenDoor) -> None:
    for path in ("/", "/connect", "/docs"):
        assert (await door.client().get(path)).status_code == 404
    page = (await door.client().get("/device")).text
    assert "<" in page
    assert "mcp" not in page.lower()
    assert "/commands" not in page


async def test_d24_every_name_in_the_certificate_leads_to_the_manifest(tmp_path: Path) -> None:
    async with open_door(tmp_path, https=True) as door:
        for host in ("127.0.0.1", "localhost"):
            url = door.endpoint.replace("127.0.0.1", host)
            answer = await door.client().get(f"{url}/.well-known/best")
            assert answer.status_code == 200
            assert answer.json()["best"]["services"]


async def test_d26_d27_d28_nothing_is_declared_that_is_not_there(door: OpenDoor) -> None:
    best = await manifest(door)
    assert set(best) == {"version", "authentication", "services", "capabilities"}
    for service in best["services"].values():
        assert set(service) == {"version", "description", "http"}


async def test_d29_what_is_pushed_is_declared(door: OpenDoor) -> None:
    pushed = {one["name"]: one["push"] for one in (await manifest(door))["capabilities"] if "push" in one}
    assert pushed == {f"{AGENTS}events": {"sse": True}}


async def test_d30_the_manifest_holds_nothing_of_the_machine(door: OpenDoor, agent: Agent) -> None:
    await door.deploy(agent)
    text = (await door.client().get("/.well-known/best")).text
    data = door.peer.folder
    for secret in (str(data.path), data.instance_id, agent.holder, agent.key, platform.node(), "small"):
        assert secret not in text


async def test_d05_the_endpoint_is_the_one_that_consumers_reach(door: OpenDoor) -> None:
    urls = [text for _, text in strings_in(await manifest(door)) if re.match(r"https?://", text)]
    own = [url for url in urls if not url.startswith("https://behavioralstate.io/")]
    assert own
    assert {httpx.URL(url).netloc for url in own} == {httpx.URL(door.endpoint).netloc}
