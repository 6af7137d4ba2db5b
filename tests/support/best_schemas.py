"""The BEST specification's own schemas and fixed texts, from tests/fixtures/best."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = Path(__file__).parents[1] / "fixtures" / "best"
BASE = "https://behavioralstate.io/v1/schemas/"


@cache
def best_schema(reference: str) -> Draft202012Validator:
    """A validator of one schema: `discovery.json`, or `agents/commands.json#/$defs/commandCatalogue`."""
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator({"$ref": BASE + reference}, registry=_registry(), format_checker=checker)


def best_errors(reference: str, value: Any, limit: int = 5) -> list[str]:
    """The first errors of `value` against one schema, as "path: what"; empty where it is valid."""
    found = best_schema(reference).iter_errors(value)
    return [
        f"{error.json_path}: {error.message[:200]}" for _, error in zip(range(limit), found, strict=False)
    ]


def guidance(text: str) -> dict[str, str]:
    """The sign-in guidance's `manifest`, `device` or `token` text of each spec version that changed them."""
    defs = json.loads((SCHEMAS / "discovery.json").read_text())["$defs"]["signInGuidance"]["$defs"]
    return {version: one["properties"][text]["const"] for version, one in defs.items()}


@cache
def _registry() -> Registry[Any]:
    contents = [json.loads(path.read_text()) for path in sorted(SCHEMAS.rglob("*.json"))]
    # The bundled text is older than the spec: 0.9.5 gave a query's document the member `workflows`.
    for one in contents:
        if "querySchemaDocument" in one.get("$defs", ()):
            workflows = {"type": "array", "items": {"type": "string"}}
            one["$defs"]["querySchemaDocument"]["properties"]["workflows"] = workflows
    resources: list[tuple[str, Resource[Any]]] = [
        (one["$id"], Resource.from_contents(one)) for one in contents
    ]
    return Registry().with_resources(resources)
