"""Following a command's facts: by a stream opened before it is sent, taken up again where it broke."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import httpx

from acceptance.discovery import Surface
from acceptance.problems import Faulty, Refused, Unreachable
from acceptance.wire import Wire

LONGEST_FRAME = 16 * 1024 * 1024
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
MOST_PAGES = 1000


@dataclass(frozen=True)
class Frame:
    """One server-sent event; `data` is its lines joined."""

    id: str | None
    data: str


class Frames:
    """Server-sent events out of text in any pieces (the HTML standard, 9.2.6). Comments give nothing."""

    def __init__(self) -> None:
        self._rest = ""
        self._id: str | None = None
        self._data: list[str] = []
        self._size = 0

    def feed(self, text: str) -> Iterator[Frame]:
        """What is whole now; raises Faulty for a frame without end."""
        # A carriage return at the end may be half of a line's end: it waits for what follows.
        held = self._rest + text
        cut = held.endswith("\r")
        whole = (held[:-1] if cut else held).replace("\r\n", "\n").replace("\r", "\n")
        *lines, self._rest = whole.split("\n")
        self._rest += "\r" if cut else ""
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                frame = Frame(self._id, "\n".join(self._data))
                self._data, self._size = [], 0
                yield frame
        if self._size + len(self._rest) > LONGEST_FRAME:
            raise Faulty(f"the stream tells a fact of more than {LONGEST_FRAME} characters")

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(value)
        elif name == "id" and "\0" not in value:
            self._id = value


class Follower:
    """The facts under one correlation id, each once, through any number of broken streams.

    Open it (`with`) before the command is sent, so that nothing is told unheard.
    """

    def __init__(self, wire: Wire, surface: Surface, correlation: str, *, after: str | None = None) -> None:
        self._wire = wire
        self._surface = surface
        self._filter = {"correlationId": correlation}
        self._last = after
        self._seen: set[str] = set()
        self._open = ExitStack()
        self._pieces: Iterator[str] | None = None
        self.breaks = 0
        """How often the stream was taken up again."""

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def facts(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Envelopes as they come.

        Raises:
            Refused: `seconds` went by.
            Unreachable: the stream broke and could not be had again in that time.
        """
        ends = time.monotonic() + seconds
        pause = FIRST_PAUSE
        frames = Frames()
        while True:
            try:
                for piece in self._pieces or ():
                    pause = FIRST_PAUSE
                    for frame in frames.feed(piece):
                        yield from self._new(frame)
                    _check(ends, seconds)
            except httpx.HTTPError:
                pass  # taken up again below, like one that the service closed
            _check(ends, seconds)
            self.breaks += 1
            frames = Frames()
            self._open.close()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                self._connect()
            except Unreachable:
                if time.monotonic() + pause > ends:
                    raise
                continue
            if self._last is None:
                # Nothing was heard yet that the stream could go on from: what was missed stands in the log.
                for envelope in history(self._wire, self._surface, self._filter["correlationId"]):
                    yield from self._new(Frame(envelope["id"], json.dumps(envelope)))

    def _connect(self) -> None:
        opened = self._wire.stream(self._surface.url("events", "stream"), self._filter, self._last)
        self._pieces = self._open.enter_context(opened)

    def _new(self, frame: Frame) -> Iterator[dict[str, Any]]:
        try:
            envelope = json.loads(frame.data)
        except ValueError:
            raise Faulty(f"the stream tells what is no JSON: {frame.data[:200]}") from None
        if not isinstance(envelope, dict) or frame.id != envelope.get("id"):
            raise Faulty(f"the stream's id {frame.id} is not that of the fact it stands by")
        self._last = frame.id
        if frame.id not in self._seen:
            self._seen.add(str(frame.id))
            yield envelope


def history(
    wire: Wire, surface: Surface, correlation: str, *, page: int | None = None
) -> list[dict[str, Any]]:
    """Every fact under a correlation id that the log has, through as many pages as there are."""
    found: list[dict[str, Any]] = []
    params = {"correlationId": correlation, **({"limit": str(page)} if page else {})}
    for _ in range(MOST_PAGES):
        answer = wire.get(surface.url("events"), params)
        if answer.status != 200:
            raise Faulty(f"the log's page answered {answer.status}")
        found += answer.member("events")
        if "nextCursor" not in answer.body:
            return found
        params = {**params, "after": str(answer.body["nextCursor"])}
    raise Faulty(f"the log's pages have no end after {MOST_PAGES}")


def _check(ends: float, seconds: float) -> None:
    if time.monotonic() > ends:
        raise Refused(f"no outcome within {seconds:.0f} s; give it more with --patience")
