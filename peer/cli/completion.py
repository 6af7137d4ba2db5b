"""``best-peer completion``: what a shell needs to complete this program's commands and options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from peer.cli.outcome import Refused
from peer.cli.show import safe

SHELLS = ("bash", "zsh", "fish")

ShellName = Annotated[str, Parameter(metavar="SHELL")]
"""One of `SHELLS`."""


def completion(shell: ShellName, /) -> None:
    """Print the completion of this program for a shell; the examples show where each shell looks for it.

    It is made from the commands of this version: print it anew after an upgrade.

    Args:
        shell: bash, zsh or fish.
    """
    # Not a choice of the parser's own, whose refusal would not say what to do.
    if shell not in SHELLS:
        raise Refused(f"{safe(shell, 40)} is no shell of these: {', '.join(SHELLS)}")
    print(completion_text(shell), end="")


def completion_text(shell: str) -> str:
    """The script for one of `SHELLS`."""
    from peer.cli.app import make_app

    known: Literal["bash", "zsh", "fish"] = "bash" if shell == "bash" else "zsh" if shell == "zsh" else "fish"
    text = make_app().generate_completion(prog_name="best-peer", shell=known)
    if known == "bash":
        # The generator leaves its loop's variable behind in the shell that completes.
        text = text.replace("  local cur prev\n", "  local cur prev _x\n", 1)
    return text.rstrip("\n") + "\n"
