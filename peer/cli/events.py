"""``best-peer events``: the log, as a person wants to read it, whether the peer runs or not (F4)."""

from __future__ import annotations

import difflib
import select
import shutil
import sys
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import attrs
import msgspec
from cyclopts import Parameter

from actors.messages.envelope import Head
from actors.messages.events import Event
from peer.cli.eventfiles import EventFiles, Place
from peer.cli.eventlines import json_line, person_line
from peer.cli.options import Flag, Identifier, Since, Words, since_text
from peer.cli.outcome import Failed, Refused, say
from peer.cli.place import data_folder
from peer.cli.show import is_terminal, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cyclopts import Token

MOST_LINES: Final = 100_000
"""The most that ``--limit`` may ask for: they are kept until the first of them is known."""
FOLLOWED_FROM: Final = 10
"""Lines of history that ``--follow`` begins with, where nothing else was said."""
LOOK_SECONDS: Final = 0.25
"""How often the files are looked at."""


def _lines(_: type, tokens: Sequence[Token]) -> int:
    text = tokens[0].value
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_LINES))
    if not is_number or not 1 <= int(text) <= MOST_LINES:
        raise ValueError(f"expected a whole number from 1 to {MOST_LINES}")
    return int(text)


Lines = Annotated[int, Parameter(converter=_lines, metavar="N")]
"""How many lines."""

_heads: Final = msgspec.json.Decoder(Head)
_envelopes: Final = msgspec.json.Decoder(dict[str, Any])


def events(
    *,
    follow: Flag = False,
    type: Words = (),  # noqa: A002 - the option's name
    correlation: Identifier | None = None,
    since: Since | None = None,
    limit: Lines | None = None,
    json: Flag = False,
) -> None:
    """Read the event log in this peer's data folder, oldest first; the peer need not run.

    Shows what happened and to whom, never what was asked or answered.

    Args:
        follow: Go on as new events are told, until Ctrl-C. Begins with the ten newest, unless --since or
            --limit says otherwise.
        type: Only these types, such as DeploymentReady.
        correlation: Only what has this correlation id.
        since: Only what was told since a time (2026-10-19T14:00) or for a time (2h).
        limit: Only the newest so many.
        json: One JSON object a line on standard output, whole but for content.
    """
    try:
        start = None if since is None else since_text(since, datetime.now(UTC))
    except ValueError as error:
        raise Refused(f"--since {safe(since, 40)} is refused: {error}") from error
    for each in type:
        _check_type(each)
    files = EventFiles(data_folder())
    view = View(files, Wanted(frozenset(type), correlation, start), as_json=json)
    try:
        if follow:
            if limit is None and start is None:
                limit = FOLLOWED_FROM
            _follow(view, limit)
        else:
            view.print(view.newest(limit, files.end()) if limit else view.all(Place()))
            view.tell_what_is_missing()
    except PermissionError as error:
        raise Failed(f"{error.filename} may not be read: run this as the user who runs the peer") from error


@attrs.frozen
class Wanted:
    """Which facts to show; every part that is there must hold."""

    types: frozenset[str] = frozenset()
    correlation: Identifier | None = None
    since: str | None = None
    """As the log writes times, whose text sorts as they do."""

    def holds(self, head: Head) -> bool:
        """Whether a fact is one of them."""
        return (
            (not self.types or head.type in self.types)
            and (self.correlation is None or head.correlationid == self.correlation)
            and (self.since is None or head.time >= self.since)
        )


@attrs.define(eq=False)
class View:
    """The facts that are wanted, as lines."""

    files: EventFiles
    wanted: Wanted
    as_json: bool
    at: Place = attrs.field(factory=Place)
    """Behind the last line looked at."""
    shown: int = 0
    no_facts: int = 0
    """Lines that are none."""

    def all(self, start: Place) -> Iterator[str]:
        """Everything wanted behind a place, in order."""
        if self.wanted.since is not None:
            start = max(start, self.files.since_day(self.wanted.since[:10]))
        for line, behind in self.files.forward(start):
            self.at = behind
            text = self._text(line)
            if text is not None:
                yield text

    def newest(self, count: int, end: Place) -> Iterator[str]:
        """The newest `count` wanted before a place, in order; reads backwards, as far as it must."""
        self.at = end
        found: deque[str] = deque()
        for line in self.files.backward(end):
            text = self._text(line)
            if text is not None:
                found.appendleft(text)
                if len(found) == count:
                    break
        yield from found

    def print(self, lines: Iterator[str]) -> None:
        """Print lines to stdout as they come."""
        for line in lines:
            print(line)
            self.shown += 1

    def tell_what_is_missing(self) -> None:
        """Say on stderr when there is nothing, and what could not be read."""
        if unread := self.no_facts + self.files.passed_over:
            say(f"{unread} lines of the log are no events and are left out")
        elif not self.shown:
            if self.wanted == Wanted():
                data = self.files.data
                if data.exists():
                    say(f"Nothing was told yet in {data}.")
                else:  # a mistyped BEST_PEER_DATA, or a peer that was never started
                    say(
                        f"Nothing was told yet: there is no {data}. "
                        "The first start makes it; BEST_PEER_DATA names another."
                    )
            else:
                say(f"No such event in {self.files.data}; best-peer events shows all there are.")

    def _text(self, line: bytes) -> str | None:
        try:
            head = _heads.decode(line)
            if not self.wanted.holds(head):
                return None
            if self.as_json:
                return json_line(_envelopes.decode(line))
            return person_line(head, msgspec.json.decode(head.data, type=dict[str, Any]), _columns())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.no_facts += 1
            return None


def _follow(view: View, limit: int | None) -> None:
    try:
        if limit is not None:
            view.print(view.newest(limit, view.files.end()))
        follow(view, view.at, _pause)
    except KeyboardInterrupt:
        return  # how a person ends it


def follow(view: View, start: Place, pause: Callable[[], bool]) -> None:
    """Print what comes behind a place, for as long as anybody reads.

    Args:
        view: what to show.
        start: where to go on from.
        pause: waits a moment; False ends it.
    """
    view.at = start
    while True:
        view.at = view.files.settled(view.at)
        view.print(view.all(view.at))
        sys.stdout.flush()
        if not pause():
            return


def _pause() -> bool:
    """Wait a moment; whether stdout is still read. Without that look a quiet log would keep us for ever."""
    if sys.stdout is None:
        return False
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)  # errors and hang-ups are told unasked
    return not reader.poll(LOOK_SECONDS * 1000)


def _columns() -> int | None:
    """Columns of the terminal, asked for each line since it may be made wider; None where there is none."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def _check_type(kind: str) -> None:
    """Refuse a type that no event has: what shows nothing would read as if nothing had happened."""
    known = sorted(each.__name__ for each in get_args(Event))
    if kind not in known:
        close = difflib.get_close_matches(kind, known, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
        raise Refused(f"--type {safe(kind, 60)} is refused: no event is called that; {hint}")
