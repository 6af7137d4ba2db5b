"""Finding the recipe for what a person asked, and the documents of its steps."""

import re
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from acceptance.discovery import Surface
from acceptance.problems import Faulty, Refused
from acceptance.wire import Wire

SAYS_LITTLE = frozenset(
    {
        "a", "an", "and", "are", "as", "at", "be", "by", "do", "for", "from", "give", "i", "in", "is", "it",
        "its", "me", "my", "of", "on", "one", "or", "please", "that", "the", "then", "there", "this", "to",
        "up", "us", "use", "want", "what", "when", "with", "you", "your",
    }
)  # fmt: skip
"""Words that tell no recipe from another."""
ENDINGS = ("ing", "ed", "es", "s")
SHORTEST_STEM = 4


@dataclass(frozen=True)
class Step:
    """One step, with the catalogue's entry and the document of its operation."""

    kind: Literal["command", "query"]
    name: str
    """The schema's name in the catalogue."""
    dataschema: str
    optional: bool
    guidance: str
    entry: dict[str, Any]
    document: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """A workflow whose every step can be taken."""

    id: str
    name: str
    steps: tuple[Step, ...]


def find_recipe(wire: Wire, surface: Surface, sentence: str) -> Recipe:
    """The recipe that answers a sentence best, and whose steps can bring something about.

    Raises:
        Refused: there is none.
        Faulty: a recipe, a catalogue or a document contradicts another.
    """
    index = wire.document(surface.url("workflows")).get("workflows")
    if not isinstance(index, list):
        raise Faulty("the index of workflows holds no list of them")
    scored = [(likeness(sentence, entry), entry) for entry in index]
    catalogues = None
    for score, entry in sorted(scored, key=lambda pair: -pair[0]):
        if score == 0:
            break
        workflow = wire.document(surface.url("workflows", quote(str(entry["id"]), safe="")))
        if not _starts_by_looking(workflow["steps"]):
            continue
        if catalogues is None:
            catalogues = {
                "command": _entries(wire.document(surface.url("commands")), "commands"),
                "query": _entries(wire.document(surface.url("queries")), "queries"),
            }
        steps = tuple(_step(wire, surface, workflow["id"], step, catalogues) for step in workflow["steps"])
        if any(step.document.get("completes") for step in steps):
            return Recipe(str(workflow["id"]), str(workflow["name"]), steps)
    offered = ", ".join(f"{entry['id']} ({entry['name']})" for entry in index) or "none"
    raise Refused(f"no recipe answers “{sentence}”; the service has: {offered}")


def likeness(sentence: str, entry: dict[str, Any]) -> int:
    """How many of the sentence's words a recipe's id, name or description has."""
    text = " ".join(str(entry.get(name, "")) for name in ("id", "name", "description"))
    return len(_words(sentence) & _words(text))


def _words(text: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"[a-z]+", text.lower()) if word not in SAYS_LITTLE}


def _stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= SHORTEST_STEM:
            word = word[: -len(ending)]
            break
    return word[:-1] if word.endswith("e") and len(word) > SHORTEST_STEM else word


def _starts_by_looking(steps: list[dict[str, Any]]) -> bool:
    """Whether a question to the service comes before the first thing that it is told to do."""
    kinds = [step["kind"] for step in steps]
    return "command" in kinds and "query" in kinds[: kinds.index("command")]


def _entries(catalogue: dict[str, Any], member: str) -> dict[str, dict[str, Any]]:
    entries = catalogue.get(member)
    if not isinstance(entries, list):
        raise Faulty(f"the catalogue holds no list of {member}")
    return {str(entry["dataschema"]): entry for entry in entries}


def _step(
    wire: Wire,
    surface: Surface,
    recipe: str,
    step: dict[str, Any],
    catalogues: dict[str, dict[str, dict[str, Any]]],
) -> Step:
    kind, dataschema = step["kind"], str(step["dataschema"])
    if kind not in catalogues:
        raise Faulty(f"a step of {recipe} is a {kind}: expected a command or a query")
    entry = catalogues[kind].get(dataschema)
    if entry is None:
        raise Faulty(
            f"a step of {recipe} names {dataschema}, which stands in no catalogue that this key sees"
        )
    if not surface.is_ours(dataschema):
        raise Faulty(f"{dataschema} lies elsewhere than the service's operations")
    document = wire.document(dataschema)
    for member in ("commandType", "impact", "workflows"):
        if entry.get(member) != document.get(member):
            raise Faulty(f"{dataschema} says another {member} than its entry in the catalogue")
    if recipe not in entry.get("workflows", []):
        raise Faulty(f"{dataschema} is a step of {recipe} and does not say so")
    return Step(
        kind=kind,
        name=str(entry["schema"]),
        dataschema=dataschema,
        optional=bool(step.get("optional", False)),
        guidance=str(step.get("guidance", "")),
        entry=entry,
        document=document,
    )
