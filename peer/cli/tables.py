"""Tables for people, by rich. Import it where one is drawn: it takes longer to load than most commands run.

Colour and lines are for a terminal alone; elsewhere a table is plain columns that nothing cuts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from peer.cli.show import is_terminal, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PLAIN_WIDTH: Final = 10_000
"""Columns where no terminal says how many: as good as none, so that nothing is cut for a program."""


@attrs.frozen
class Column:
    """One column of a table.

    Args:
        head: its name.
        right: whether figures line up at their right.
        gives: whether it gives way where the terminal is too narrow: its texts wrap between words, and a word
            that does not fit is cut with an ellipsis. Others stay whole.
        least: columns it keeps even then.
    """

    head: str
    right: bool = False
    gives: bool = False
    least: int | None = None


def table(title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], otherwise: str) -> None:
    """Print a table to stdout, or a sentence where it would be empty.

    Args:
        title: stands above it.
        columns: as many as each row has cells.
        rows: the cells; they are cleaned here.
        otherwise: the sentence.
    """
    console = console_on(sys.stdout)
    filled = list(rows)
    console.print(Text(title, style="bold"))
    if not filled:
        console.print(Text(f"  {otherwise}"))
        console.print()
        return
    plain = not console.is_terminal
    drawn = Table(
        box=None if plain else SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 2 if plain else 1, 0, 0),
        header_style="" if plain else "dim",
    )
    for column in columns:
        drawn.add_column(
            column.head,
            justify="right" if column.right else "left",
            no_wrap=not column.gives,
            overflow="ellipsis",
            min_width=column.least,
        )
    for row in filled:
        drawn.add_row(*(Text(safe(cell)) for cell in row))
    console.print(drawn)
    console.print()


def console_on(stream: Any) -> Console:
    """Rich on a stream: colour only on a terminal and not under NO_COLOR; no markup, nothing guessed at."""
    terminal = is_terminal(stream)
    return Console(
        file=stream,
        force_terminal=terminal,
        width=None if terminal else PLAIN_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
