"""JSON Schema as the service publishes it: checking against it, and asking it what a value may be."""

from typing import Any

import jsonschema_rs

from acceptance.problems import Faulty

MOST_PROBLEMS = 3


def problems_of(schema: Any, value: Any) -> list[str]:
    """What is wrong with a value, each with its place; empty when nothing is.

    Raises:
        Faulty: the schema is none.
    """
    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    except ValueError as error:  # jsonschema_rs.ValidationError is one
        raise Faulty(f"a document of the service is no JSON Schema: {str(error)[:200]}") from error
    found = []
    for problem in validator.iter_errors(value):
        place = "/".join(("", *(str(part) for part in problem.instance_path)))
        found.append(f"{place or '/'}: {problem.message[:200]}")
        if len(found) == MOST_PROBLEMS:
            break
    return found


def fits(schema: Any, value: Any) -> bool:
    """Whether a value is allowed."""
    return not problems_of(schema, value)


def types_of(schema: dict[str, Any]) -> set[str]:
    """The JSON types a schema allows, as far as it says."""
    stated = schema.get("type", [])
    return {stated} if isinstance(stated, str) else set(stated)


def is_number(schema: dict[str, Any]) -> bool:
    """Whether it takes a number and no text."""
    return bool(types_of(schema) & {"integer", "number"})


def is_free_text(schema: dict[str, Any]) -> bool:
    """Whether it takes any words a person may say, and not a name, a choice or an id."""
    bound = ("enum", "const", "pattern", "format")
    return types_of(schema) == {"string"} and not any(name in schema for name in bound)


def room(schema: dict[str, Any]) -> int:
    """The most characters a text may have; without a bound there is always room."""
    return int(schema.get("maxLength", 1 << 62))
