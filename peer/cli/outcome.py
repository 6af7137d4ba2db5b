"""How a command ends: done, refused or invalid, or stopped by the system; one line on stderr says why.

`carry_out` is the edge of the process for every command: whatever a command raises becomes a line and an exit
code here, and nowhere else.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from peer.folder import FolderError
from peer.log_text import clean
from peer.setting import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

DONE: Final = 0
REFUSED: Final = 1
"""Refused or invalid, by the door or by a rule, a setting or an argument: another try needs another order."""
SYSTEM: Final = 2
"""The system stands in the way: a folder in use, a taken port, the disk, a door that does not answer."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells have it."""

MAX_LINE: Final = 2000
"""Characters of a line on stderr."""


class CommandError(Exception):
    """Base of what ends a command early; the text is the one line for the person, with what to do."""

    exit_code: ClassVar[int] = REFUSED


class Refused(CommandError):
    """Raised when the order itself cannot be granted or understood."""


class Failed(CommandError):
    """Raised when the order is good and the system did not carry it out."""

    exit_code = SYSTEM


def carry_out(work: Callable[[], int | None]) -> int:
    """Run a command to its end and give its exit code; what stopped it is told on stderr.

    Args:
        work: the command; its value is the exit code, None is `DONE`.
    """
    try:
        code = work() or DONE
        if sys.stdout is not None:  # it is where the caller closed it
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:  # noqa: BLE001 - the process's edge
        return _told(error)
    return code


def say(text: str) -> None:
    """One line on stderr, cleaned; a stderr that nobody reads is no reason to fail."""
    with suppress(OSError, ValueError):
        print(clean(text, MAX_LINE), file=sys.stderr, flush=True)


def _told(error: BaseException) -> int:
    """Say what ended a command; the exit code for it."""
    if isinstance(error, BaseExceptionGroup):
        # Trio's own tasks bring an interrupt in a group.
        interrupt = error.subgroup(KeyboardInterrupt)
        return _unexpected(error) if interrupt is None else INTERRUPTED
    match error:
        case CommandError():
            say(f"best-peer: {error}")
            return error.exit_code
        case SettingsError():
            for problem in error.problems:
                say(f"best-peer: {problem}")
            return REFUSED
        case FolderError():
            say(f"best-peer: {error}")
            return SYSTEM
        case BrokenPipeError():
            # Whoever read the output has had enough: `best-peer events | head` is no failure.
            leave_stdout()
            return DONE
        case OSError():
            leave_stdout()
            place = "" if error.filename is None else f"{error.filename}: "
            say(f"best-peer: {place}{error.strerror or error}; mend that and try again")
            return SYSTEM
        case KeyboardInterrupt():
            return INTERRUPTED
        case _:
            return _unexpected(error)


def _unexpected(error: BaseException) -> int:
    with suppress(OSError, ValueError):
        traceback.print_exception(error, file=sys.stderr)
    say(f"best-peer: this is a fault of best-peer ({type(error).__name__}); report it with the lines above")
    return SYSTEM


def leave_stdout() -> None:
    """Let the interpreter flush into nothing at its end, where it would complain once more."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
