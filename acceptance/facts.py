"""Facts: checked against what the service says they are, and told apart into good and bad ends."""

import re
from dataclasses import dataclass
from typing import Any

from acceptance.discovery import Surface
from acceptance.documents import is_free_text, problems_of, room, types_of
from acceptance.problems import Faulty
from acceptance.wire import Wire

ENVELOPE = ("specversion", "id", "source", "type", "datacontenttype", "time", "data")
BAD_NAMES = re.compile(r"(Failed|Rejected|Refused|Error|Denied|TimedOut)$")
BAD_FIELDS = frozenset({"code", "reason", "error", "fix"})
"""Fields that only something that went wrong must have."""


@dataclass(frozen=True)
class Fact:
    """One event whose data fits its document."""

    id: str
    kind: str
    data: dict[str, Any]
    document: dict[str, Any]

    @property
    def went_wrong(self) -> bool:
        """Whether it tells of a failure: by its name, or by what its document says it must carry."""
        return bool(BAD_NAMES.search(self.kind) or BAD_FIELDS.intersection(self.document.get("required", [])))

    @property
    def percent(self) -> int | None:
        """How far something has come, where it says so: a whole number that ends at a hundred."""
        for name, item in self._fields():
            if types_of(item) == {"integer"} and item.get("maximum") == 100 and name in self.data:
                return int(self.data[name])
        return None

    @property
    def words(self) -> str | None:
        """The longest free text it may carry, where it is meant for sentences."""
        texts = [
            (room(item), name) for name, item in self._fields() if is_free_text(item) and name in self.data
        ]
        return str(self.data[max(texts)[1]]) if texts else None

    @property
    def counts(self) -> dict[str, int]:
        """Its whole numbers, by field."""
        return {
            name: self.data[name]
            for name, item in self._fields()
            if "integer" in types_of(item) and isinstance(self.data.get(name), int)
        }

    def _fields(self) -> list[tuple[str, dict[str, Any]]]:
        return list(self.document.get("properties", {}).items())


class FactReader:
    """Turns envelopes into facts; each document is read once."""

    def __init__(self, wire: Wire, surface: Surface) -> None:
        self._wire = wire
        self._surface = surface
        self._documents: dict[str, dict[str, Any]] = {}

    def read(self, envelope: dict[str, Any], correlation: str) -> Fact:
        """Check an envelope and its data.

        Raises:
            Faulty: an attribute lacks, it is another's fact, or its data does not fit its document.
        """
        missing = [name for name in ENVELOPE if name not in envelope]
        if missing or envelope["specversion"] != "1.0" or envelope["datacontenttype"] != "application/json":
            raise Faulty(
                f"a fact that is no event of the protocol (without {', '.join(missing)}): {envelope}"
            )
        if envelope.get("correlationid") != correlation:
            raise Faulty(
                f"{envelope['type']} came under {envelope.get('correlationid')} and not {correlation}"
            )
        dataschema = envelope.get("dataschema")
        if not isinstance(dataschema, str) or not self._surface.is_ours(dataschema):
            raise Faulty(f"{envelope['type']} names no document of this service: {dataschema}")
        if dataschema not in self._documents:
            self._documents[dataschema] = self._wire.document(dataschema)
        document = self._documents[dataschema]
        if problems := problems_of(document, envelope["data"]):
            raise Faulty(f"{envelope['type']} does not fit its own document: {'; '.join(problems)}")
        return Fact(str(envelope["id"]), str(envelope["type"]), envelope["data"], document)
