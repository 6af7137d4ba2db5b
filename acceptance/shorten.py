"""JSON as a person can read it: long texts and lists cut, small things on one line."""

import json
from typing import Any

WIDTH = 100
LONGEST_TEXT = 110
MOST_ITEMS = 4
DEEPEST = 4


def is_plain(value: Any) -> bool:
    """Whether a value is one thing, and not an object or a list."""
    return not isinstance(value, (dict, list))


def readable(name: str, value: Any) -> str:
    """A plain value for a person: what is called bytes as a size, in powers of 1024."""
    if not name.endswith("bytes") or isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    size = float(value)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def shorten(value: Any, depth: int = DEEPEST) -> Any:
    """The same document with what is long or deep cut, and each cut marked."""
    if isinstance(value, str):
        cut = len(value) - LONGEST_TEXT
        return value if cut <= 20 else f"{value[:LONGEST_TEXT].rstrip()} … ({cut} more)"
    if isinstance(value, dict):
        if depth == 0 and value:
            return "{…}"
        return {name: shorten(item, depth - 1) for name, item in value.items()}
    if isinstance(value, list):
        if depth == 0 and value and isinstance(value[0], (dict, list)):
            return "[…]"
        if all(is_plain(item) for item in value) and len(json.dumps(value)) <= WIDTH:
            return value
        kept = [shorten(item, depth - 1) for item in value[:MOST_ITEMS]]
        return kept if len(value) <= MOST_ITEMS else [*kept, f"… ({len(value) - MOST_ITEMS} more)"]
    return value


def pretty(value: Any, indent: str = "") -> str:
    """JSON text, two spaces a level, with what fits a line on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= WIDTH or is_plain(value) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {pretty(item, inner)}" for name, item in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [pretty(item, inner) for item in value]
        opening, closing = "[", "]"
    body = ",\n".join(f"{inner}{part}" for part in parts)
    return f"{opening}\n{body}\n{indent}{closing}"
