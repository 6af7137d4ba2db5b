"""The envelope of a fact, as it is told, kept and served: one CloudEvent, serialised once (F4).

Beyond BEST's attributes each event carries two CloudEvents extensions: `holder`, whose fact it is, so that
the log says by itself who may read it, and `causationid`, the command that caused it, so that the fold
knows what has completed.
"""

from typing import Any

import attrs
import msgspec

from actors.messages.times import time_text

ID_PREFIX = "evt-"


@attrs.frozen
class Fact:
    """Something that happened, before it is told.

    Args:
        event: one of the classes of `actors.messages.events`; its class name is the event's type.
        holder: the credential whose fact it is; None is the machine's own.
        correlation: ties a chain of commands and facts together.
        causation: the id of the command that caused it.
    """

    event: Any
    holder: str | None = None
    correlation: str | None = None
    causation: str | None = None

    @property
    def type(self) -> str:
        """The event's type, PascalCase."""
        return type(self.event).__name__


class Envelope(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """What stands on a line of the log and goes over the wire, in this order."""

    specversion: str | None = None
    id: str
    source: str
    type: str
    datacontenttype: str | None = None
    dataschema: str | None = None
    time: str
    correlationid: str | None = None
    causationid: str | None = None
    holder: str | None = None
    data: Any


class Head(msgspec.Struct, gc=False):
    """What the index and the fold need of a line; `data` stays bytes until a fold asks."""

    id: str
    type: str
    time: str
    source: str = ""
    correlationid: str | None = None
    causationid: str | None = None
    holder: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


def event_id(seq: int) -> str:
    """The id of fact number `seq`."""
    return f"{ID_PREFIX}{seq}"


def event_seq(identifier: str) -> int | None:
    """The number in an event's id, None when it is not one of ours."""
    digits = identifier.removeprefix(ID_PREFIX)
    if digits == identifier or not digits.isascii() or not digits.isdigit() or len(digits) > 15:
        return None
    return int(digits)


class EnvelopeEncoder:
    """Makes lines: one encoder a log, with the log's own source."""

    def __init__(self, source: str, dataschemas: dict[str, str]) -> None:
        """Args:

        source: the URI-reference that every event of this log names.
        dataschemas: absolute URI of each event type's schema document.
        """
        self.source = source
        self._dataschemas = dataschemas
        self._encode = msgspec.json.Encoder().encode

    def data(self, fact: Fact) -> msgspec.Raw:
        """The fact's event as JSON, for `line`.

        Raises:
            UnicodeEncodeError, TypeError: it holds what JSON cannot.
        """
        return msgspec.Raw(self._encode(fact.event))

    def line(self, fact: Fact, seq: int, now_ms: int, data: msgspec.Raw | None = None) -> bytes:
        """The fact as one line of JSON, without the newline; `data` where it was encoded before."""
        kind = fact.type
        return self._encode(
            Envelope(
                specversion="1.0",
                id=event_id(seq),
                source=self.source,
                type=kind,
                datacontenttype="application/json",
                dataschema=self._dataschemas.get(kind),
                time=time_text(now_ms),
                correlationid=fact.correlation,
                causationid=fact.causation,
                holder=fact.holder,
                data=fact.event if data is None else data,
            )
        )
