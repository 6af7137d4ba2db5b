"""Every rule of BEST 0.9.18 has a test named for it, or stands here with the reason why it has none.

`tests/fixtures/conformance/rules.json` has the rules' ids and levels: M must, S should, O optional, M10 must
from 0.10.0 on, N a pattern. A test shows a rule whose id, in lower case, is a part of its name.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
RULES = HERE.parent / "fixtures" / "conformance" / "rules.json"

NO_TENANTS = "this door has no tenants yet: they come with workspaces"
NOT_OAUTH2 = "the block's type is apiKey"
AUTHORS = "a rule for authors of documents: no request shows it"

DOES_NOT_APPLY = {
    **dict.fromkeys((f"T{number:02}" for number in range(1, 12)), NO_TENANTS),
    "A04": "no service here is open to everybody",
    "A09": NOT_OAUTH2,
    "A10": NOT_OAUTH2,
    "A14": "the block names no page for people",
    "D20": AUTHORS,
    "D23": "a door is its own web origin",
    "D25": "the service's key is the product's name; a peer has no domain of its own",
    "D31": "a rule about the versions to come",
    "E11": "it promises nothing",
    "R21": "there is one door for one kind of people",
}


def shown() -> dict[str, list[str]]:
    """The tests of each rule."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.glob("test_conformance_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_"):
                for identifier in re.findall(r"(?<=_)[a-z]\d\d(?=_)", node.name):
                    found.setdefault(identifier.upper(), []).append(node.name)
    return found


def test_every_rule_has_a_test_or_a_reason() -> None:
    levels = {rule["id"]: rule["level"] for rule in json.loads(RULES.read_text())}
    tests = shown()
    assert set(tests) <= set(levels)
    assert not set(tests) & set(DOES_NOT_APPLY)
    assert set(levels) - set(tests) - set(DOES_NOT_APPLY) == set()
    assert set(DOES_NOT_APPLY) <= set(levels)


def test_what_must_be_is_left_out_for_a_fact_about_this_door_alone() -> None:
    must = {rule["id"] for rule in json.loads(RULES.read_text()) if rule["level"] in {"M", "M10"}}
    left_out = must & set(DOES_NOT_APPLY)
    assert {DOES_NOT_APPLY[rule] for rule in left_out} == {
        NO_TENANTS,
        NOT_OAUTH2,
        AUTHORS,
        "no service here is open to everybody",
    }
