"""The commands of ``best-peer``, put together: what each takes is said in its own module."""

from __future__ import annotations

import difflib
import itertools
import shutil
import textwrap
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError
from cyclopts.exceptions import CoercionError, MissingArgumentError, UnknownOptionError
from cyclopts.help import DefaultFormatter, PanelSpec
from rich.box import Box

from peer.cli import models
from peer.cli.approve import approve
from peer.cli.check import check
from peer.cli.completion import completion
from peer.cli.deny import deny
from peer.cli.events import events
from peer.cli.hold import hold
from peer.cli.keys import keys
from peer.cli.manual import INDENT, manual_text
from peer.cli.outcome import Refused
from peer.cli.release import release
from peer.cli.revoke import revoke
from peer.cli.serve import serve
from peer.cli.service import service
from peer.cli.show import safe
from peer.cli.status import status
from peer.settings_text import settings_help

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DISTRIBUTION: Final = "best-peer"
MAX_WIDTH: Final = 100

MAX_VALUE: Final = 40
"""Characters of a refused value that are shown."""

_HELP: Final = """\
Puts this machine and its accelerators behind a Behavioral State Protocol door.

Without a command it serves until SIGINT or SIGTERM, and prints one line when it is ready. Every command exits
with 0 when it is done, 1 when it was refused or is invalid, 2 when the system stands in the way.
"""
_SETTINGS: Final = "Settings, read from the environment when the peer starts"
_HELP_FLAGS: Final = frozenset({"--help", "-h"})
_OF_COMMANDS: Final = ((), ("models",))
"""What takes the name of a command, and no argument of its own."""
# Help is columns and blank lines: no frames, which only a terminal could show.
_NO_LINES: Final = Box("    \n" * 7 + "    ", ascii=True)


def run(arguments: Sequence[str]) -> int | None:
    """Carry out one command line; the exit code, None is 0.

    Raises:
        Refused: it is none of ours.
    """
    app = make_app()
    try:
        words = list(itertools.takewhile(lambda word: word != "--", arguments))
        if not _HELP_FLAGS.isdisjoint(words):
            _help(app, [word for word in words if word not in _HELP_FLAGS])
            return None
        result = app(arguments)
    except CycloptsError as error:
        raise Refused(_words(app, error)) from error
    return result if isinstance(result, int) else None


def _help(app: App, words: list[str]) -> None:
    """Print the help of the command that these words begin with."""
    found, _, left = app.parse_commands(words)
    chain = tuple(found)
    if chain in _OF_COMMANDS and left and not left[0].startswith("-"):
        raise UnusedCliTokensError(unused_tokens=left, command_chain=chain)
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    console = app.console
    console.width = width
    with console.capture() as captured:
        app.help_print(chain, console=console)
    # The columns of the parser's help are filled up to the terminal's edge.
    for line in captured.get().splitlines():
        print(line.rstrip())
    print(manual_text(chain, width), end="")
    if not chain:
        title = textwrap.fill(_SETTINGS, width, initial_indent=INDENT, subsequent_indent=INDENT)
        print(f"\n{title}\n{settings_help(width)}")


def make_app() -> App:
    """The program's parser; nothing is kept between two."""
    app = App(
        name="best-peer",
        help=_HELP,
        help_format="markdown",
        help_formatter=DefaultFormatter(panel_spec=PanelSpec(box=_NO_LINES, padding=(0, 0, 0, 2))),
        group_parameters=Group("Options"),
        # It serves without a command, so that may be left out.
        usage="Usage: best-peer [COMMAND]",
        version=f"best-peer {version(DISTRIBUTION)}",
        default_command=serve,
        # What goes wrong is told in one line by `outcome.carry_out`, for every command alike.
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    owners = (approve, deny, revoke, hold, release, status, events, check, service, completion)
    for command in owners:
        app.command(command)
    # An argument that may be left out has no name in the line that the parser would make.
    app.command(keys, usage="Usage: best-peer keys [OPTIONS] [NAME]")
    of_models = App(
        name="models",
        help="List the models that this peer may serve, bring one in, or remove one.",
        usage="Usage: best-peer models [COMMAND] [OPTIONS]",
        default_command=models.list_models,
        group_parameters=Group("Options"),
    )
    of_models.command(models.add)
    of_models.command(models.remove)
    app.command(of_models)
    return app


def _words(app: App, error: CycloptsError) -> str:
    """What is wrong with a command line, and where to look."""
    chain = list(error.command_chain or ())
    match error:
        case UnusedCliTokensError(unused_tokens=[first, *_]) if tuple(chain) in _OF_COMMANDS:
            level = app[chain[0]] if chain else app
            what = f"{safe(first, 60)} is no command{_near(first, level)}"
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            what = f"{safe(first, 60)} is one argument too many"
        case UnknownOptionError(token=token):
            option = (token.keyword or token.value).partition("=")[0]
            known = [name for each in error.argument_collection for name in each.names]
            what = f"{safe(option, 60)} is no option here{_near(option, known)}"
        case MissingArgumentError(argument=argument) if argument is not None:
            what = f"{error.keyword} needs a value" if error.keyword else f"{argument.name} is missing"
        case CoercionError(token=token) if token is not None and token.keyword:
            expected = "expected no value" if error.msg is None else error.msg
            value = safe(token.value, MAX_VALUE) or "''"
            what = f"{token.keyword} {value} is refused: {expected}"
        case _:
            error.verbose = False
            what = str(error).rstrip(".")
    return f"{what}; {' '.join(['best-peer', *chain])} --help says what it takes"


def _near(word: str, known: Iterable[str]) -> str:
    """The word that was meant, most likely; nothing where none is like it."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f": did you mean {close[0]}?" if close else ""
