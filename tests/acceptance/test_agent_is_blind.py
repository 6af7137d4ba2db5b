"""The agent shares no code with the product, and knows none of its names."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "acceptance").glob("*.py"))
DOCUMENTS = ROOT / "peer" / "door" / "schemas"
ALLOWED = {"acceptance", "httpx", "jsonschema_rs"} | set(sys.stdlib_module_names)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides where it leads"
            yield str(node.module).partition(".")[0]


def _product_names() -> set[str]:
    """What only this product calls its operations, facts and fields."""
    names: set[str] = set()
    for path in DOCUMENTS.rglob("*-[0-9].[0-9].json"):
        names.add(re.sub(r"-\d+\.\d+$", "", path.stem))
        document = json.loads(path.read_text())
        names.update(str(document[member]) for member in ("title", "commandType") if member in document)
        names.update(document.get("produces", []))
        names.update(_fields(document))
    names.update(path.stem for path in (DOCUMENTS / "workflows").glob("*.json"))
    # One plain word may well be one of the agent's own; a name made of several is nobody else's.
    return {name for name in names if re.search(r"[-_ ]|[a-z][A-Z]", name) and name != "correlationId"}


def _fields(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value.get("properties", {})
        for item in value.values():
            yield from _fields(item)
    elif isinstance(value, list):
        for item in value:
            yield from _fields(item)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_imports_nothing_of_the_product(path: Path) -> None:
    assert set(_imported(ast.parse(path.read_text()))) <= ALLOWED


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_names_nothing_of_the_product(path: Path) -> None:
    source = path.read_text()
    assert [name for name in sorted(_product_names()) if re.search(rf"\b{re.escape(name)}\b", source)] == []


def test_the_names_that_are_looked_for_are_the_product_s() -> None:
    assert {
        "deploy-model",
        "DeployModel",
        "DeploymentReady",
        "memory_bytes",
        "serve-a-model",
    } <= _product_names()
