"""``best-peer check``: what is in the way of serving, and what to do about it (the first hour's doctor)."""

from __future__ import annotations

import os
import sys
import textwrap
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import attrs
from cyclopts import Parameter

from peer.cli.options import Flag
from peer.cli.outcome import DONE, REFUSED, Refused
from peer.cli.show import is_terminal, print_json, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from peer.checks.line import Line
    from peer.checks.running import Running
    from peer.settings import Settings

DISTRIBUTION: Final = "best-peer"
MAX_WIDTH: Final = 100
SETTINGS_SECONDS: Final = 10.0
NARROW: Final = 60
"""Columns under which the columns of a line would leave too little for its words."""
MAX_WORDS: Final = 600
"""Characters of a finding or a remedy that are shown."""
_COLOURS: Final = {"ok": "\x1b[32m", "warning": "\x1b[33m", "problem": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"
STATE_WIDTH: Final = 9
SUBJECT_WIDTH: Final = 13

EnvironmentFile = Annotated[Path, Parameter(metavar="FILE")]
"""A file such as systemd's ``EnvironmentFile=`` takes."""


def check(*, environment: EnvironmentFile | None = None, json: Flag = False) -> int:
    """Look at everything that serving rests on, and say for each whether it is well or what to do.

    The settings, the running peer, the card's driver, Docker and NVIDIA's toolkit or the engine that is used
    instead, the data folder and its disk, the port, the endpoint, the certificate, the firewall, the clock,
    memory and limits. Each line is ok, a warning (the peer serves, you may want to mend it) or a problem (it
    does not start, or does not serve what its settings say).

    Changes nothing, needs no root, and takes half a minute at most. Run it as the user who runs the peer,
    whether it runs or not: of one that runs, the settings are those it was started with; else those of this
    shell. Shows no key, no token and no setting's secret.

    Args:
        environment: Read settings from this file too, as the systemd unit does from ~/.config/best-peer/env.
        json: One JSON object on standard output: worst, and lines of state, subject, what and remedy.
    """
    import trio

    from peer.checks.line import worst

    environ, ignored = _environ(environment)
    program_version = version(DISTRIBUTION)
    lines: list[Line] = []
    printer = None if json else _Printer()

    def told(line: Line) -> None:
        lines.append(line)
        if printer is not None:
            printer.show(line)

    trio.run(_look, environ, ignored, program_version, told)
    if json:
        shown = [attrs.asdict(each) for each in lines]
        print_json({"version": program_version, "worst": worst(lines), "lines": shown})
    else:
        print(f"\n{_summary(lines)}")
    return REFUSED if worst(lines) == "problem" else DONE


async def _look(
    environ: Mapping[str, str],
    ignored: Sequence[Line],
    program_version: str,
    told: Callable[[Line], None],
) -> None:
    """Look at everything, and tell each line as it is found; after the program, what was ignored before."""
    import trio

    from peer.checks.line import look_at_all, problem
    from peer.checks.looks import looks_for
    from peer.checks.machine import program

    for line in (*program(program_version), *ignored):
        told(line)
    with trio.move_on_after(SETTINGS_SECONDS) as bound:
        # In a thread: what settings name may lie on a disk that hangs.
        read = partial(_settings, environ)
        chosen, found, about = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    if bound.cancelled_caught:
        told(
            problem(
                "settings",
                f"what they name could not be read within {SETTINGS_SECONDS:g} seconds",
                "see whether the disk of the data folder, or of a file that a setting names, hangs",
            )
        )
        return
    for line in about:
        told(line)
    await look_at_all(looks_for(chosen, found, program_version), told)


def _settings(environ: Mapping[str, str]) -> tuple[Settings, Running | None, tuple[Line, ...]]:
    """The settings to look at, the peer over their data folder, and what there is to say of both."""
    from peer.checks import running, settings

    chosen, about = settings.read(environ)
    found = running.find(chosen.data)
    if found is None or found.environ is None:
        return chosen, found, about
    differing = running.differing(found.environ, environ)
    # What it was started with is the truth about it, whatever this shell has.
    chosen, about = settings.read(found.environ)
    return chosen, found, (*differing, *about)


def _environ(file: Path | None) -> tuple[dict[str, str], tuple[Line, ...]]:
    """This shell's variables and the file's, and what there is to say of the file."""
    from peer.checks.settings import read_file

    if file is None:
        return dict(os.environ), ()
    try:
        found, ignored = read_file(file.expanduser())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Refused(f"--environment {safe(file)} cannot be read: {why or error}") from error
    return {**os.environ, **found}, ignored


class _Printer:
    """Prints lines as they come: whole where a program reads, wrapped and with colour on a terminal."""

    def __init__(self) -> None:
        self._width: int | None = None
        self._has_colour = False
        if is_terminal(sys.stdout):
            from peer.cli.tables import console_on

            console = console_on(sys.stdout)
            self._width = min(MAX_WIDTH, console.width)
            self._has_colour = not (console.no_color or console.is_dumb_terminal)

    def show(self, line: Line) -> None:
        """Print one line, and below it what to do. The state is a word; its colour says nothing more."""
        is_narrow = self._width is not None and self._width < NARROW
        subject = f"{line.subject}: " if is_narrow else f"{line.subject:<{SUBJECT_WIDTH}}"
        beside = "    " if is_narrow else " " * (STATE_WIDTH + SUBJECT_WIDTH)
        state = f"{line.state} " if is_narrow else f"{line.state:<{STATE_WIDTH}}"
        text = self._wrapped(f"{state}{subject}{safe(line.what, MAX_WORDS)}", "", beside)
        if self._has_colour:
            text = f"{_COLOURS[line.state]}{line.state}{_PLAIN}{text.removeprefix(line.state)}"
        print(text)
        if line.remedy is not None:
            print(self._wrapped(f"-> {safe(line.remedy, MAX_WORDS)}", beside, f"{beside}   "))

    def _wrapped(self, text: str, first: str, then: str) -> str:
        if self._width is None:
            return f"{first}{text}"
        # Words stay whole, so that a command or a path can be copied.
        return textwrap.fill(
            text,
            self._width,
            initial_indent=first,
            subsequent_indent=then,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _summary(lines: Sequence[Line]) -> str:
    from peer.checks.line import STATES

    counts = {state: sum(line.state == state for line in lines) for state in STATES}
    parts = [
        f"{counts[state]} {state}{'' if counts[state] == 1 else 's'}"
        for state in ("problem", "warning")
        if counts[state]
    ]
    return f"{', '.join(parts)}, {counts['ok']} ok." if parts else f"All {counts['ok']} are ok."
