"""BEST 0.9.18, section 11: workflows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.support.answers import code
from tests.support.best_schemas import best_errors

if TYPE_CHECKING:
    from tests.support.agents import Agent
    from tests.support.peers import OpenDoor


async def recipes(agent: Agent) -> list[dict[str, Any]]:
    index = (await agent.get("/workflows")).json()
    assert best_errors("agents/workflows.json#/$defs/workflowIndex", index) == []
    assert index["workflows"]
    found = []
    for entry in index["workflows"]:
        answer = await agent.get(f"/workflows/{quote(entry['id'], safe='')}")
        assert answer.status_code == 200
        recipe = answer.json()
        assert best_errors("agents/workflows.json#/$defs/workflow", recipe) == []
        assert {name: recipe[name] for name in ("id", "name", "description")} == entry
        found.append(recipe)
    return found


async def test_f01_f02_the_index_names_recipes_and_each_has_its_steps(agent: Agent) -> None:
    for recipe in await recipes(agent):
        assert recipe["steps"]
    assert code(await agent.get("/workflows/none"), 404) == "NOT_FOUND"


async def test_f03_every_step_is_a_live_operation_of_this_door(door: OpenDoor, agent: Agent) -> None:
    for recipe in await recipes(agent):
        for step in recipe["steps"]:
            assert step["dataschema"].startswith(f"{door.endpoint}/{_plural(step['kind'])}/")
            assert (await agent.http.get(step["dataschema"])).status_code == 200


def _plural(kind: str) -> str:
    return {"command": "commands", "query": "queries"}[kind]


async def test_f04_ids_are_safe_in_a_path(agent: Agent) -> None:
    for recipe in await recipes(agent):
        assert re.fullmatch(r"[a-z0-9]+(?:[.-][a-z0-9]+)*", recipe["id"])
        assert quote(recipe["id"], safe="") == recipe["id"]


async def test_f05_operations_and_recipes_name_each_other(agent: Agent) -> None:
    named: dict[str, set[str]] = {}
    for kind in ("commands", "queries"):
        for entry in (await agent.get(f"/{kind}")).json()[kind]:
            for workflow in entry.get("workflows", ()):
                named.setdefault(workflow, set()).add(entry["dataschema"])
    steps = {
        recipe["id"]: {step["dataschema"] for step in recipe["steps"]} for recipe in await recipes(agent)
    }
    assert named == steps


async def test_f06_reading_a_recipe_runs_nothing(agent: Agent) -> None:
    for recipe in await recipes(agent):
        answer = await agent.http.post(f"/workflows/{recipe['id']}")
        assert code(answer, 405) == "METHOD_NOT_ALLOWED"
    assert await agent.events() == []


async def test_f07_guidance_is_about_the_steps_alone(agent: Agent) -> None:
    for recipe in await recipes(agent):
        for step in recipe["steps"]:
            guidance = step.get("guidance", "")
            assert not re.search(r"https?://|\bkey\b|config|your (?:client|other)", guidance, re.IGNORECASE)
