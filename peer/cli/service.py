"""``best-peer service``: a systemd unit that runs this peer, printed and not installed."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from peer.cli.options import Flag
from peer.cli.outcome import Refused, say
from peer.cli.show import safe

PROGRAM: Final = "best-peer"
USER_UNIT: Final = "best-peer.service"
SYSTEM_UNIT: Final = "best-peer-system.service"
START: Final = "ExecStart="
_UNFIT: Final = frozenset("\"'\\$")
"""What systemd takes in no program's path, however it is quoted."""

ProgramPath = Annotated[Path, Parameter(metavar="PATH")]
"""A program to start."""


def service(*, system: Flag = False, program: ProgramPath | None = None) -> None:
    """Print a systemd unit that starts this peer, tells when its door is open, and restarts it when it fails.

    Nothing is installed: put it where systemd looks, as the examples show. It reads settings from
    ~/.config/best-peer/env, a line each. What the peer serves runs on while it is restarted.

    Args:
        system: The unit for the machine's own systemd, under a user of its own, in place of this user's.
        program: The best-peer to start; the one that is asked, where not said.
    """
    if program is None:
        program = Path("/usr/local/bin") / PROGRAM if system else _this_program()
    elif not program.is_absolute() or not str(program).isprintable() or _UNFIT & set(str(program)):
        raise Refused(
            f"--program {safe(program)} is refused: expected a path from the root, "
            f"without any of {' '.join(sorted(_UNFIT))}"
        )
    elif not os.access(program, os.X_OK) or program.is_dir():
        # It may be put there later, or be another machine's.
        say(f"warning: --program {safe(program)} is no program that this user can start here")
    print(unit_text(program, system=system), end="")


def unit_text(program: Path, *, system: bool = False) -> str:
    """The unit, as a file of systemd's.

    Args:
        program: what it starts, from the root.
        system: whether it is for the machine's own systemd.
    """
    text = (files("peer") / "service" / (SYSTEM_UNIT if system else USER_UNIT)).read_text(encoding="utf-8")
    lines = (f"{START}{_quoted(program)}" if line.startswith(START) else line for line in text.splitlines())
    return "\n".join(lines) + "\n"


def _this_program() -> Path:
    """The program as it was called, by its link and not by what that leads to: an upgrade turns the link."""
    called = Path(sys.argv[0])
    if called.name == PROGRAM:
        return Path(os.path.abspath(called))
    beside = Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    return beside if beside.exists() or found is None else Path(os.path.abspath(found))


def _quoted(program: Path) -> str:
    """A path as the first word of a command line of systemd's."""
    text = str(program).replace("%", "%%")
    return f'"{text}"' if " " in text else text
