"""Tables for people, by rich. Import it where one is drawn: it takes longer to load than most commands run.

Colour and lines are for a terminal alone; elsewhere a table is plain columns that nothing cuts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import attrs
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from peer.cli.show import MAX_TEXT, is_terminal, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions

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
        whole: whether its texts are there to be copied: where the terminal is too narrow for one of them,
            each row takes lines of its own and nothing is cut.
        most: characters of a text at most.
    """

    head: str
    right: bool = False
    gives: bool = False
    least: int | None = None
    whole: bool = False
    most: int = MAX_TEXT


def table(title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]], otherwise: str) -> None:
    """Print a table to stdout, or a sentence where it would be empty. No line of it ends in blanks.

    Args:
        title: stands above it.
        columns: as many as each row has cells.
        rows: the cells; they are cleaned here.
        otherwise: the sentence.
    """
    console = console_on(sys.stdout)
    filled = [[safe(cell, column.most) for cell, column in zip(row, columns, strict=True)] for row in rows]
    console.print(Text(title, style="bold"))
    if not filled:
        console.print(Text(f"  {otherwise}"))
        return
    plain = not console.is_terminal
    if _would_cut(columns, filled, console.width):
        console.print("\n".join(_blocks(columns, filled, console.width)), soft_wrap=True)
        return
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
        drawn.add_row(*map(Text, row))
    console.print(_Trimmed(drawn))


@attrs.frozen
class _Trimmed:
    """What rich draws, less the blanks that it fills each line up with: they would be copied and compared."""

    drawn: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in console.render_lines(self.drawn, options, pad=False):
            while line and not line[-1].text.rstrip():
                line.pop()
            if line:
                last = line.pop()
                line.append(Segment(last.text.rstrip(), last.style))
            yield from line
            yield Segment.line()


def _would_cut(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether a table of that width would cut what is to stay whole."""
    least = len(columns) - 1
    for at, column in enumerate(columns):
        longest = max(cell_len(text) for text in (column.head, *(row[at] for row in rows)))
        least += min(longest, column.least or 1) if column.gives and not column.whole else longest
    return any(column.whole for column in columns) and least > width


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Each row as its first cell and, below it, the others by name, as many on a line as fit."""
    for row in rows:
        yield row[0]
        line = ""
        for column, cell in zip(columns[1:], row[1:], strict=True):
            part = f"{column.head}: {cell}"
            if line and cell_len(line) + cell_len(part) + 3 > width:
                yield line
                line = ""
            line = f"{line}   {part}" if line else f"  {part}"
        if line:
            yield line


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
