"""The words of a refusal: what a JSON Schema node asks for, and what stood in its place.

What a client sent is told by type and size. A value itself is repeated only where the caller asks for it, and
only one that is short and cannot be a credential: refusals are logged, shown and pasted into conversations.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

MAX_ECHO: Final = 80
"""Characters of a client's value that a message may repeat."""

_RUN: Final = re.compile(r"[A-Za-z0-9_+=-]{16,}")
_BEGINNINGS: Final = ("bp_", "Bearer", "-----BEGIN")
_SECRET_NAMES: Final = re.compile("secret|token$|passw|credential|authorization|api_?key", re.IGNORECASE)
_FORMATS: Final = {
    "date-time": "an RFC 3339 date and time with its offset, such as 2026-01-31T12:00:00Z,",
    "uri": "an absolute URI",
    "uri-reference": "a URI or a relative reference",
}


def describe(node: Mapping[str, Any]) -> str:
    """What a schema node asks for: "a string of 1 to 256 characters"."""
    if "const" in node:
        return _shown(node["const"])
    if "enum" in node:
        return "one of " + ", ".join(_shown(value) for value in node["enum"])
    declared = node.get("type", "object")
    kinds = declared if isinstance(declared, list) else [declared]
    return " or ".join(_described(kind, node) for kind in kinds)


def got(value: object, *, echo: bool = False) -> str:
    """What stood there: with `echo` a short, harmless string or number itself, else its type and size."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            quoted = json.dumps(value) if echo and len(value) <= MAX_ECHO else ""
            if 2 < len(quoted) <= MAX_ECHO and not looks_secret(value):
                return quoted
            return f"a string of {_count(len(value), 'character')}"
        case list():
            return f"a list of {_count(len(value), 'item')}"
        case dict():
            return f"an object with {_count(len(value), 'member')}"
        case _:
            return str(value)[:MAX_ECHO] if echo else "a number"


def looks_secret(text: str) -> bool:
    """Whether `text` may hold a credential: a long run of letters and digits, or a known beginning of one."""
    if any(beginning in text for beginning in _BEGINNINGS):
        return True
    return any(re.search("[0-9]", run) and re.search("[A-Za-z]", run) for run in _RUN.findall(text))


def names_secret(pointer: str) -> bool:
    """Whether the place is named like one where people put credentials."""
    return _SECRET_NAMES.search(pointer) is not None


def segment(part: str | int) -> str:
    """One step of a JSON pointer (RFC 6901); a client's own name is cut, or hidden as a credential."""
    name = str(part)
    if looks_secret(name):
        return "/…"
    cut = name if len(name) <= MAX_ECHO else name[: MAX_ECHO - 1] + "…"
    printable = "".join(char if char.isprintable() else "…" for char in cut)
    return "/" + printable.replace("~", "~0").replace("/", "~1")


def _described(kind: str, node: Mapping[str, Any]) -> str:
    match kind:
        case "string":
            form = _FORMATS.get(node.get("format", ""), "a string")
            size = form + _range(node, "minLength", "maxLength", "characters")
            return f"{size} matching {node['pattern']}" if "pattern" in node else size
        case "integer" | "number":
            article = "an integer" if kind == "integer" else "a number"
            low, high = node.get("minimum"), node.get("maximum")
            return article if low is None or high is None else f"{article} from {low} to {high}"
        case "array":
            return "a list" + _range(node, "minItems", "maxItems", "items")
        case "object":
            return "an object" + _range(node, "minProperties", "maxProperties", "members")
        case "boolean":
            return "true or false"
        case _:
            return kind


def _range(node: Mapping[str, Any], least: str, most: str, unit: str) -> str:
    low, high = node.get(least, 0), node.get(most)
    if high is None:
        return ""
    if low == high:
        return f" of {high} {unit}"
    return f" of {low} to {high} {unit}" if low else f" of at most {high} {unit}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
