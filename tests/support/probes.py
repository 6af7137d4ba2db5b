"""Asking a door questions and noting what was seen: the parts the validator's probes are made of."""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import attrs
import httpx
from jsonschema import Draft202012Validator

from tests.support.best_schemas import best_errors

Level = Literal["pass", "warn", "fail", "skip"]
_SIGN_IN_NAME = re.compile(r"(?:sign[-_]?(?:in|up|out)|log[-_]?(?:in|out))$", re.IGNORECASE)
_CLIENT_WORDS = re.compile(
    r"mcp\.json|settings\.json|\.env\b|\bconfig(?:uration)? files?\b|\byour (?:client|configuration)\b"
    r"|\b(?:generate|invent|make up|mint) (?:an? |your )?(?:\w+ ){0,2}(?:secret|password|token|api key)",
    re.IGNORECASE,
)
_ROUTING = re.compile(r"x-(?:source|target|queue|component|route|handler)", re.IGNORECASE)


@attrs.frozen
class Check:
    """One thing looked at: the part of the checklist, how it went, and what was seen."""

    section: str
    level: Level
    message: str


def json_of(answer: httpx.Response) -> Any:
    """The body as JSON, None where it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def type_of(answer: httpx.Response) -> str:
    """The content type without its parameters."""
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip()


def strings_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every string of a JSON value with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from strings_in(item, f"{path}/{name}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from strings_in(item, f"{path}/{place}")


@attrs.define
class Probe:
    """Asks, and keeps what was found; `operations` gathers the names that catalogues list."""

    client: httpx.Client
    checks: list[Check] = attrs.field(factory=list)
    operations: set[str] = attrs.field(factory=set)

    def say(self, section: str, level: Level, message: str) -> None:
        """Note one finding."""
        self.checks.append(Check(section, level, message))

    def expect(self, section: str, holds: bool, message: str, *, otherwise: Level = "fail") -> bool:
        """Note a pass where it `holds`, else `otherwise`; gives `holds`."""
        self.say(section, "pass" if holds else otherwise, message)
        return holds

    def ask(self, section: str, method: str, url: str, **more: Any) -> httpx.Response | None:
        """Send one request; no answer at all is a failure."""
        try:
            return self.client.request(method, url, **more)
        except httpx.HTTPError as error:
            self.say(section, "fail", f"{method} {url} got no answer: {error!r}")
            return None


@attrs.frozen
class Surface:
    """The routes of one capability, asked as the credential allows."""

    probe: Probe
    section: str
    endpoint: str
    headers: dict[str, str]

    def get(self, url: str) -> httpx.Response | None:
        return self.probe.ask(self.section, "GET", url, headers=self.headers)

    def expect(self, holds: bool, message: str, *, otherwise: Level = "fail") -> bool:
        return self.probe.expect(self.section, holds, message, otherwise=otherwise)

    def listed(self, schema: str) -> list[dict[str, Any]]:
        """The entries of the capability's index, empty where it is not one; every name is looked at."""
        answer = self.get(f"{self.endpoint}/{self.section}")
        if answer is None or not self.expect(answer.status_code == 200, f"index: {answer.status_code}"):
            return []
        body = json_of(answer)
        errors = best_errors(schema, body)
        if not self.expect(not errors, "; ".join(errors) or "the index fits its schema"):
            return []
        entries: list[dict[str, Any]] = body[self.section]
        for entry in entries:
            name = entry.get("schema") or entry["id"]
            self.probe.operations.add(name)
            for text in (name, entry.get("commandType", "")):
                if _SIGN_IN_NAME.search(text):
                    self.probe.say(self.section, "warn", f"{text} is named after signing in")
        return entries

    def document(self, entry: dict[str, Any]) -> httpx.Response | None:
        answer = self.get(entry["dataschema"])
        if answer is None or not self.expect(
            answer.status_code == 200, f"{entry['schema']}: {answer.status_code}"
        ):
            return None
        return answer

    def commands(self) -> None:
        entries = self.listed("agents/commands.json#/$defs/commandCatalogue")
        for entry in entries[:20]:
            absolute = bool(urlsplit(entry["dataschema"]).netloc)
            self.expect(absolute, f"dataschema of {entry['schema']} is absolute")
            self.expect("commandType" in entry, f"commandType of {entry['schema']}", otherwise="warn")
        for place, entry in enumerate(entries[:12]):
            answer = self.document(entry) if place == 0 else self.get(entry["dataschema"])
            if answer is not None and answer.status_code == 200:
                kind = type_of(answer)
                fits = kind in {"application/schema+json", "application/json"}
                self.expect(fits, f"{entry['schema']} is {kind}", otherwise="warn")
                routed = [path for path, _ in strings_in(json_of(answer)) if _ROUTING.search(path)]
                self.expect(not routed, f"{entry['schema']} names no routing {routed}", otherwise="warn")
        unknown = self.get(f"{self.endpoint}/commands/best-validate-nonexistent/9.9")
        if unknown is not None:
            said = f"unknown document: {unknown.status_code}"
            self.expect(unknown.status_code == 404, said, otherwise="warn")
        for kind in ("application/json", "application/cloudevents+json"):
            self.unknown_type(kind)

    def unknown_type(self, kind: str) -> None:
        envelope = {
            "specversion": "1.0",
            "id": f"best-validate-{kind}",
            "source": "urn:best-validate",
            "type": "BestValidateNonexistentType",
            "datacontenttype": "application/json",
            "dataschema": f"{self.endpoint}/commands/best-validate-nonexistent-type/1.0",
            "time": "2026-01-01T00:00:00Z",
            "data": {},
        }
        headers = {**self.headers, "content-type": kind}
        url = f"{self.endpoint}/commands"
        answer = self.probe.ask(self.section, "POST", url, content=json.dumps(envelope), headers=headers)
        if answer is None:
            return
        status = answer.status_code
        refused = status in {400, 422} or (status == 401 and not self.headers)
        level: Level = "fail" if status in {404, 405, 501} else "warn"
        self.expect(refused, f"unknown type as {kind}: {status}", otherwise=level)
        if status in {400, 422}:
            errors = best_errors("error.json", json_of(answer))
            self.expect(not errors, f"the refusal is a BEST error {errors}", otherwise="warn")

    def events(self) -> None:
        answer = self.get(f"{self.endpoint}/events")
        if answer is None or not self.expect(answer.status_code == 200, f"page: {answer.status_code}"):
            return
        body = json_of(answer)
        listed = body.get("events") if isinstance(body, dict) else None
        if self.expect(isinstance(listed, list), "the page has a list of events") and listed:
            errors = best_errors("cloudEvent.json#/$defs/cloudEvent", listed[0])
            self.expect(not errors, f"the first event is an envelope {errors}", otherwise="warn")

    def queries(self) -> None:
        entries = self.listed("agents/queries.json#/$defs/queryCatalogue")
        if not self.expect(bool(entries), "the catalogue has queries", otherwise="warn"):
            return
        answer = self.document(entries[0])
        document = json_of(answer) if answer is not None else None
        if not isinstance(document, dict) or "response" not in document:
            self.probe.say(self.section, "fail", "the document has no response")
            return
        ran = self.get(f"{self.endpoint}/queries/{entries[0]['schema']}")
        if ran is None or not self.expect(ran.status_code in {200, 400}, f"run bare: {ran.status_code}"):
            return
        if ran.status_code == 200:
            checker = Draft202012Validator.FORMAT_CHECKER
            found = Draft202012Validator(document["response"], format_checker=checker).iter_errors(
                json_of(ran)
            )
            errors = [error.message[:200] for error in found]
            self.expect(not errors, f"the answer fits its schema {errors[:3]}", otherwise="warn")

    def workflows(self) -> None:
        for entry in self.listed("agents/workflows.json#/$defs/workflowIndex")[:8]:
            answer = self.get(f"{self.endpoint}/workflows/{quote(entry['id'], safe='')}")
            if answer is None or not self.expect(
                answer.status_code == 200, f"{entry['id']}: {answer.status_code}"
            ):
                continue
            recipe = json_of(answer)
            errors = best_errors("agents/workflows.json#/$defs/workflow", recipe)
            if not self.expect(not errors, f"{entry['id']} fits its schema {errors}"):
                continue
            text = " ".join(value for _, value in strings_in(recipe))
            self.expect(not _CLIENT_WORDS.search(text), f"{entry['id']} is about its steps", otherwise="warn")
            if not self.steps(recipe["steps"]):
                return

    def steps(self, steps: list[dict[str, Any]]) -> bool:
        """Follow each step's dataschema; False when the door asked for a pause, which ends the walk."""
        for step in steps:
            target = urlsplit(step["dataschema"])
            if not self.expect(bool(target.netloc), f"step {step['dataschema']} is absolute"):
                continue
            if target.netloc != urlsplit(self.endpoint).netloc:
                continue
            answer = self.get(step["dataschema"])
            if answer is not None and answer.status_code == 429:
                self.probe.say(self.section, "skip", "the door asked for a pause")
                return False
            if answer is not None:
                self.expect(answer.status_code == 200, f"step {step['dataschema']}: {answer.status_code}")
        return True
