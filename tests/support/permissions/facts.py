"""One fact of every type that a peer tells, of whatever content, to see who reads it."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import attrs

from actors.messages import events as e
from actors.messages.envelope import Fact

TYPES: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(e.Event)}
"""Every type of fact, in the order in which a workload comes and goes."""


def fact_of(kind: str, holder: str, correlation: str) -> Fact:
    """A fact of a type, told to a holder under a correlation."""
    event = TYPES[kind]
    required = [field for field in attrs.fields(event) if field.default is attrs.NOTHING]
    hints = get_type_hints(event)
    given = {field.name: _sample(field.name, hints[field.name], holder) for field in required}
    return Fact(event(**given), holder, correlation, None)


def _sample(name: str, kind: Any, holder: str) -> Any:
    if name == "holder":
        return holder
    if name in ("deployment", "job"):
        return f"{name}-that-nobody-made"
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) is tuple:
        return ()
    # A field that may be absent or None as well takes its first shape.
    plain = next((each for each in get_args(kind) if isinstance(each, type)), kind)
    samples: dict[type, Any] = {str: "words", int: 1, bool: True, float: 1.0}
    return samples[plain]
