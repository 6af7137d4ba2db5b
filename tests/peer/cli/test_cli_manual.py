"""Help of the quality of a manual page: every command's examples, exit codes and files, at any width."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from peer.cli.app import make_app
from peer.cli.manual import MANUALS, manual_text
from peer.folder import DataFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cyclopts import App

    from tests.peer.cli.conftest import Ran


def chains(app: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command by its words, serving first."""
    yield chain
    for name in app:
        if not name.startswith("-"):
            yield from chains(app[name], (*chain, name))


CHAINS = tuple(chains(make_app()))


def named(chain: tuple[str, ...]) -> str:
    return " ".join(chain) or "best-peer"


def test_every_command_has_a_manual_and_every_manual_a_command() -> None:
    assert set(MANUALS) == set(CHAINS)


@pytest.mark.parametrize("chain", CHAINS, ids=named)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_help_says_what_for_how_and_how_it_ends_at_any_width(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, chain: tuple[str, ...], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ran = cli(*chain, "--help")
    assert (ran.code, ran.err) == (0, "")
    lines = [line.rstrip() for line in ran.out.splitlines()]
    assert lines[0].startswith(f"Usage: {' '.join(('best-peer', *chain))}")
    # Its purpose, a sentence.
    assert re.match(r"[A-Z]", lines[lines.index("") + 1])
    titles = [
        line.strip() for line in lines if re.fullmatch(r"   (Examples|Exit codes|Files|Environment)", line)
    ]
    assert titles[:2] == ["Examples", "Exit codes"]
    # What is longer is one word that must stay whole: a path, or a setting's name.
    long = [line for line in lines if len(line) > min(width, 100)]
    assert all(len(line.removesuffix(" \\").split()) == 1 for line in long), long


@pytest.mark.parametrize("chain", CHAINS, ids=named)
def test_each_example_is_taken_by_the_parser_and_is_of_its_command(chain: tuple[str, ...]) -> None:
    for command, words in MANUALS[chain].examples:
        assert words.endswith(".")
        # A folder that the shell needs is not there in a fresh home.
        line = re.sub(r"^mkdir -p \S+ && ", "", command).partition(" > ")[0]
        arguments = [word for word in shlex.split(line) if not re.fullmatch(r"BEST_PEER_\w+=\w+", word)]
        assert arguments.pop(0) == "best-peer"
        if not chain:
            continue
        assert tuple(arguments[: len(chain)]) == chain
        make_app().parse_args(arguments)


@pytest.mark.parametrize("chain", CHAINS, ids=named)
def test_exit_codes_are_those_that_commands_end_with(chain: tuple[str, ...]) -> None:
    codes = [code for code, _ in MANUALS[chain].exits]
    assert codes[0] == "0"
    assert set(codes) <= {"0", "1", "2", "130"}


@pytest.mark.parametrize("width", [40, 80])
def test_an_example_that_takes_several_lines_can_be_pasted(width: int) -> None:
    text = manual_text(("approve",), width)
    joined = re.sub(r" \\\n *", " ", text)
    for command, _ in MANUALS["approve",].examples:
        assert f"   {command}\n" in joined


def test_files_in_the_data_folder_are_those_a_peer_has(tmp_path: Path) -> None:
    files = {
        name for manual in MANUALS.values() for name, words in manual.files if words.startswith("In the data")
    }
    with DataFolder.open(tmp_path / "data") as folder:
        there = {path.name for path in folder.path.iterdir()} | {folder.door.name}
    assert {name.partition("/")[0] for name in files} <= there


def test_help_of_what_is_no_command_is_refused(cli: Callable[..., Ran]) -> None:
    assert cli("nonsense", "--help").line.startswith("best-peer: nonsense is no command")
    assert cli("models", "nonsense", "-h").line.startswith("best-peer: nonsense is no command")
    assert cli("deny", "--", "--help").code != 0
