"""What one setting is, and what is said when its value is refused (F33).

The settings themselves are in `peer.settings`; here are the parts of its table: the entry, the readers that
only settings need, and the problems that stop a start.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from adapters.images.port import InvalidReference
from adapters.images.reference import parse as parse_reference
from peer.log_text import field_text
from peer.units import MIB, NONE, parse_size_or_none

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SHOWN: Final = 120
"""Characters of a refused value that are shown."""
MAX_VALUE: Final = 4096
"""Characters of a value that are read: the longest path there can be."""
LEAST_MEMORY: Final = 6 * MIB
LEAST_TASKS: Final = 2
"""What a container starts with, its init and one program; a ceiling under it would end every one at once."""
_USER = re.compile(r"(?<=://)[^/@]*@")


@attrs.frozen(kw_only=True)
class Setting:
    """One entry of the table: a ``BEST_PEER_*`` variable, from which start, help and documents are made."""

    name: str
    parse: Callable[[str], object]
    """Reads a value that is not empty; raises ValueError whose text says what was expected."""
    takes: str
    """What it takes, in words or as its choices: ``host:port or [v6]:port``."""
    help: str
    """What it is for, one line for people."""
    default: str | None = None
    """The value when it is not set, as it would be written; None where it follows from something else."""
    otherwise: str = ""
    """In words, what holds when it is not set and has no default of its own."""
    secret: bool = False
    """Whether its value is never shown, refused or not."""

    @property
    def default_words(self) -> str:
        """The default for people."""
        return self.otherwise if self.default is None else self.default

    @property
    def unset_it(self) -> str:
        """The fix that always helps."""
        return f"correct it, or unset it ({self.default_words})"


def entry(**parts: Any) -> dict[str, Setting]:
    """The metadata that makes an attrs field a setting; the parts are `Setting`'s."""
    return {"setting": Setting(**parts)}


@attrs.frozen(kw_only=True)
class Problem:
    """Why a start was refused over one variable: what it is, what was expected, what to do."""

    variable: str
    shown: str | None
    """The value as it may be shown; None where the variable is not set."""
    expected: str
    fix: str
    involves: frozenset[str] = frozenset()
    """The other variables that the judgement rests on."""

    def __str__(self) -> str:
        what = (
            f"{self.variable} is not set"
            if self.shown is None
            else f"{self.variable}={self.shown} is refused"
        )
        return f"{what}: {self.expected}; {self.fix}"


class SettingsError(Exception):
    """Raised when a peer cannot start with the settings it was given; the text is a line for each bad one."""

    code: ClassVar[str] = "BAD_SETTINGS"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


def shown(value: object, *, secret: bool = False) -> str:
    """A value as it may stand in an error: bounded, on one line, with nothing secret in it."""
    return "(not shown)" if secret else field_text(_USER.sub("...@", str(value)), MAX_SHOWN)


def one_of(*choices: str) -> Callable[[str], str]:
    """A reader of one of these words."""

    def parse(text: str) -> str:
        if text in choices:
            return text
        *others, last = choices
        raise ValueError(f"expected {', '.join(others)} or {last}" if others else f"expected {last}")

    return parse


def whole_number(text: str, *, minimum: int = 1) -> int:
    """Read a whole number from ``minimum`` to a million.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"[0-9]{1,7}", text, re.ASCII) or not minimum <= int(text) <= 1_000_000:
        raise ValueError(f"expected a whole number from {minimum} to 1000000")
    return int(text)


def percent(text: str) -> float:
    """Read a percentage as a ratio.

    Raises:
        ValueError: it is no whole number from 1 to 100.
    """
    number = whole_number(text.removesuffix("%"))
    if number > 100:
        raise ValueError("expected a percentage from 1 to 100")
    return number / 100


def memory_ceiling(text: str) -> int | None:
    """Read a ceiling on memory under which a container can start, or ``none``.

    Raises:
        ValueError: it is neither.
    """
    return parse_size_or_none(text, minimum=LEAST_MEMORY)


def task_ceiling(text: str) -> int | None:
    """Read a ceiling on processes and threads under which a container can start, or ``none``.

    Raises:
        ValueError: it is neither.
    """
    if text.lower() == NONE:
        return None
    try:
        return whole_number(text, minimum=LEAST_TASKS)
    except ValueError as error:
        raise ValueError(f"{error}, or {NONE}") from None


def image_text(text: str) -> str:
    """Read a reference to an image.

    Raises:
        ValueError: it is none.
    """
    try:
        parse_reference(text)
    except InvalidReference as fault:
        raise ValueError(f"{fault.reason}; {fault.fix}") from None
    return text


def path_text(text: str) -> Path:
    """Read a path; what it must name is checked where its home and working folder are known.

    Raises:
        ValueError: no path can be that.
    """
    if "\0" in text or len(text) > MAX_VALUE:
        raise ValueError("expected a path")
    return Path(text)


def absolute(path: Path, home: Path | None) -> Path:
    """The path from the root: ``~`` stands for ``home``, and a relative one starts at the working folder.

    Raises:
        ValueError: it begins with ``~`` and there is no home, or the folder it starts at is gone.
    """
    if path.parts[:1] == ("~",):
        if home is None:
            raise ValueError("expected a path without ~, since HOME is not set")
        path = home.joinpath(*path.parts[1:])
    try:
        return Path(os.path.abspath(path))
    except FileNotFoundError:
        raise ValueError("expected a path from the root, since the working folder is gone") from None
