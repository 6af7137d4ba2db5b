"""One run: from a manifest's address to an answer, and everything that was made taken down again."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from acceptance.discovery import Surface, read_manifest
from acceptance.display import Display
from acceptance.documents import problems_of
from acceptance.facts import Fact, FactReader
from acceptance.filling import Filled, Known, Wishes, fill
from acceptance.lookback import Taken, check_nothing_left, compare_with_log
from acceptance.problems import Faulty, Problem, Refused
from acceptance.recipe import Recipe, Step, find_recipe
from acceptance.shorten import is_plain, readable
from acceptance.signin import CLIENT, sign_in
from acceptance.stream import Follower
from acceptance.transcript import Transcript
from acceptance.wire import Wire

SHORT = 70
TWO_LINES = 140


@dataclass(frozen=True)
class Order:
    """What the person asked for, and how patient the person is."""

    manifest: str
    sentence: str
    wishes: Wishes
    connection: str
    approve_with: str | None
    patience: float
    """Seconds that one command may take to its outcome."""
    confirmed: bool
    """Whether the person has agreed beforehand to commands that must be confirmed."""


@dataclass
class Outcome:
    """What came of a run."""

    recipe: str = ""
    question: str = ""
    answer: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)


class Agent:
    """Drives one recipe. It holds the key in memory alone and forgets it when it ends."""

    def __init__(self, wire: Wire, transcript: Transcript, display: Display) -> None:
        self._wire = wire
        self._transcript = transcript
        self._display = display
        self._known = Known()
        self._shown: set[tuple[str, str]] = set()
        """Fields already shown to the person, with their values: said once, they are not said again."""
        self._stands = False
        """Whether a command made something, or may have made something, that a later step undoes."""

    def run(self, order: Order) -> Outcome:
        """Do what was asked.

        Raises:
            Problem: it could not be done; what had been made is taken down as far as the recipe says how.
        """
        surface = self._discover(order)
        self._sign_in(surface, order)
        recipe = self._choose(surface, order)
        outcome = Outcome(recipe=recipe.name, question=order.wishes.question)
        steps = [step for step in recipe.steps if not step.optional]
        for index, step in enumerate(steps):
            with self._taking_down_after(surface, order, steps[index + 1 :], outcome):
                self._take(surface, order, step, outcome)
        if not any(taken.asked for taken in outcome.taken):
            raise Refused(f"no step of the recipe {recipe.id} took the question")
        self._look_back(surface, recipe, outcome.taken)
        return outcome

    def _look_back(self, surface: Surface, recipe: Recipe, taken: list[Taken]) -> None:
        self._transcript.section("Looking back")
        compare_with_log(self._wire, surface, taken)
        self._transcript.say(
            "For each command the log's pages hold what the stream told, in the same order, and the stream "
            "taken up again after its first fact told the rest without gap or repeat."
        )
        for step in recipe.steps:
            if step.kind == "query" and step.optional:
                check_nothing_left(step, taken, self._query(surface, step))
                self._transcript.say(f"`{step.name}` lists nothing of what this run made: it is gone.")
                self._display.detail("nothing of what was made is left, and the log says what was heard")

    def _discover(self, order: Order) -> Surface:
        self._transcript.section("The manifest")
        surface = read_manifest(self._wire, order.manifest)
        self._display.say("manifest", f"{surface.manifest} (protocol {surface.version})")
        self._display.detail(surface.description)
        return surface

    def _sign_in(self, surface: Surface, order: Order) -> None:
        self._transcript.section("Signing in")
        signed_in = sign_in(
            self._wire,
            surface,
            self._display,
            self._transcript.names,
            connection=order.connection,
            approve_with=order.approve_with,
        )
        if signed_in is None:
            return self._transcript.say("The service asks for no key.")
        ends = f", for {signed_in.seconds // 3600} h" if signed_in.seconds else ""
        self._display.detail(f"approved as {signed_in.name}{ends}")
        return self._transcript.say(
            "The code was approved outside this agent. The key, for the connection "
            f"`{signed_in.name}`, is held in memory and written nowhere."
        )

    def _choose(self, surface: Surface, order: Order) -> Recipe:
        self._transcript.section("The recipe")
        self._transcript.say(f"The person said: “{order.sentence}”. Which recipe answers that?")
        recipe = find_recipe(self._wire, surface, order.sentence)
        self._display.say("recipe", recipe.name)
        names = [
            f"`{step.name}` ({step.kind}{', optional' if step.optional else ''})" for step in recipe.steps
        ]
        self._transcript.say(f"Chosen: **{recipe.name}**, with the steps {', '.join(names)}.")
        return recipe

    def _take(self, surface: Surface, order: Order, step: Step, outcome: Outcome) -> None:
        self._transcript.section(f"{step.name}: {step.kind}")
        if step.guidance:
            self._transcript.quote(step.guidance)
        if step.kind == "query":
            self._query(surface, step)
            return
        filled = fill(step.document, self._known, order.wishes)
        self._transcript.table(
            ("field", "value", "how it was found"),
            [(f"`{name}`", _short(filled.data[name]), why) for name, why in filled.why.items()],
        )
        self._display.say("command", f"{step.name} {self._news(filled.data)}".rstrip())
        self._confirm(step, order)
        if filled.asks:
            self._display.detail(f"“{order.wishes.question}”")
        taken = self._command(surface, step, filled, order.patience)
        outcome.taken.append(taken)
        if filled.asks:
            last = taken.facts[-1]
            outcome.answer, outcome.counts = last.words or "", last.counts
            self._transcript.say("The answer:")
            self._transcript.quote(outcome.answer)
            self._display.answer(outcome.answer, outcome.counts)

    def _query(self, surface: Surface, step: Step) -> Any:
        answer = self._wire.get(surface.url("queries", step.name))
        if answer.status != 200:
            raise Faulty(
                f"{step.name} answered {answer.status} to a question without parameters: {answer.body}"
            )
        if problems := problems_of(step.document["response"], answer.body):
            raise Faulty(f"{step.name}'s answer does not fit its document: {'; '.join(problems)}")
        self._transcript.names.learn(answer.body)
        self._known.answers.append((step.name, answer.body))
        self._display.say("query", step.name)
        for name, items in answer.body.items():
            if isinstance(items, list) and items and isinstance(items[0], dict):
                self._display.detail(f"{name} {len(items)}: {_plain(items[0])}")
        return answer.body

    def _command(self, surface: Surface, step: Step, filled: Filled, patience: float) -> Taken:
        """Send a command and follow its facts to one that completes it."""
        envelope = _envelope(step, filled.data)
        correlation = envelope["correlationid"]
        self._transcript.names.number(envelope["id"], "command")
        self._transcript.names.number(correlation, "correlation")
        completes = _completing(step)
        reader = FactReader(self._wire, surface)
        facts: list[Fact] = []
        with Follower(self._wire, surface, correlation) as follower:
            sent = time.monotonic()
            stood, self._stands = self._stands, True
            accepted = self._wire.post_json(surface.url("commands"), envelope)
            if accepted.member("correlationId") != correlation or accepted.member("id") != envelope["id"]:
                raise Faulty(
                    f"{step.name} was accepted under other ids than it was sent with: {accepted.body}"
                )
            with self._display.waiting(f"following {step.name}"):
                for told in follower.facts(patience):
                    fact = reader.read(told, correlation)
                    self._hear(step, fact, time.monotonic() - sent, is_answer=filled.asks)
                    facts.append(fact)
                    if fact.kind in completes:
                        break
        last = facts[-1]
        if last.went_wrong:
            self._stands = stood
            raise Refused(f"{step.name} ended in {last.kind}: {_sentence(last.data)}")
        return Taken(step, correlation, time.monotonic() - sent, tuple(facts), filled.asks)

    def _hear(self, step: Step, fact: Fact, seconds: float, *, is_answer: bool) -> None:
        if fact.kind not in step.document.get("produces", []):
            raise Faulty(f"{step.name} told {fact.kind}, which its document does not say it produces")
        self._transcript.names.number(fact.id, "event")
        self._transcript.names.learn(fact.data)
        self._transcript.fact(seconds, fact.kind, fact.data)
        told = {name: value for name, value in fact.data.items() if not (is_answer and value == fact.words)}
        self._display.fact(seconds, fact.kind, self._news(told))
        self._display.progress(fact.percent)
        self._known.take_fact(fact.kind, fact.data)

    def _confirm(self, step: Step, order: Order) -> None:
        """Heed a command's impact: tell the person, and go no further than the person allowed."""
        impact = step.document.get("impact")
        if impact is None:
            return
        warning = impact.get("warning", "it has consequences that the service does not describe")
        categories = ", ".join(impact["categories"])
        self._transcript.say(f"Its impact ({categories}; confirmation {impact['confirmation']}): {warning}")
        self._display.detail(f"note: {warning}")
        if impact["confirmation"] == "required" and not order.confirmed:
            raise Refused(
                f"{step.name} needs the person's word: {warning} Run again with --confirmed to give it"
            )

    @contextmanager
    def _taking_down_after(
        self, surface: Surface, order: Order, rest: list[Step], outcome: Outcome
    ) -> Iterator[None]:
        """When a step fails, or the person breaks off, still take the steps that undo what was made."""
        try:
            yield
        except (Problem, KeyboardInterrupt) as failure:
            for step in rest:
                if not (self._stands and _undoes(step) and self._is_known(step)):
                    continue
                self._display.say("clean up", f"{step.name}, since what came before it failed")
                try:
                    self._take(surface, order, step, outcome)
                except Problem as problem:
                    failure.add_note(f"and {step.name} failed too: {problem}")
            raise

    def _is_known(self, step: Step) -> bool:
        return all(name in self._known.told for name in step.document.get("required", []))

    def _news(self, data: dict[str, Any]) -> str:
        """The plain fields that the person has not been shown yet, in one line."""
        news = []
        for name, value in data.items():
            if is_plain(value) and (name, str(value)) not in self._shown:
                self._shown.add((name, str(value)))
                news.append(f"{name} {readable(name, value)}")
        return _short(", ".join(news))


def _envelope(step: Step, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        "source": f"urn:{CLIENT}",
        "type": step.entry.get("commandType") or _pascal(step.name),
        "datacontenttype": "application/json",
        "dataschema": step.dataschema,
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "correlationid": str(uuid.uuid4()),
        "data": data,
    }


def _pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _completing(step: Step) -> frozenset[str]:
    completes = step.document.get("completes")
    if not completes:
        raise Faulty(f"the document of {step.name} does not say which facts complete it (completes)")
    return frozenset(completes)


def _undoes(step: Step) -> bool:
    return step.kind == "command" and "destructive" in step.document.get("impact", {}).get("categories", [])


def _plain(data: dict[str, Any]) -> str:
    """An object's fields in two lines at most, a list by its length, what was said once not again."""
    shown: dict[str, str] = {}
    for name, value in data.items():
        if is_plain(value):
            shown.setdefault(str(value), f"{name} {readable(name, value)}")
        elif isinstance(value, list):
            shown[name] = f"{name} {len(value)}"
    return _short(", ".join(shown.values()), TWO_LINES)


def _sentence(data: dict[str, Any]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in data.items())


def _short(value: Any, most: int = SHORT) -> str:
    text = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return text if len(text) <= most else f"{text[:most].rstrip()} …"
