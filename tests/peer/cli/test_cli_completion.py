"""Completion as the shells themselves carry it out."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from peer.cli.app import make_app
from tests.support.programs import program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.peer.cli.conftest import Ran

SECONDS = 60

_BASH = """
source "$1"
complete -p best-peer || exit 9
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_best_peer
printf '%s\\n' "${COMPREPLY[@]}"
compgen -v | grep -qx _x && echo LEFT-BEHIND
"""


def run(*argv: str, **more: str) -> list[str]:
    ran = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={"PATH": "/usr/bin:/bin", **more},
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


@pytest.fixture
def script(cli: Callable[..., Ran], tmp_path: Path) -> Callable[[str], Path]:
    def write(shell: str) -> Path:
        ran = cli("completion", shell)
        assert (ran.code, ran.err) == (0, "")
        path = tmp_path / f"best-peer.{shell}"
        path.write_text(ran.out)
        return path

    return write


def commands() -> set[str]:
    return {name for name in make_app() if not name.startswith("-")}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["best-peer", "ap"], {"approve"}),
        (["best-peer", "models", ""], {"add", "remove"}),
        (["best-peer", "approve", "BCDF-GHJK", "--mem"], {"--memory"}),
        (["best-peer", "events", "--follow", "--li"], {"--limit"}),
        (["best-peer", "revoke", "x", "--ke"], {"--keep-running"}),
    ],
)
def test_bash_completes_commands_and_options(
    script: Callable[[str], Path], words: list[str], wanted: set[str]
) -> None:
    said = run(program("bash"), "--norc", "-c", _BASH, "bash", str(script("bash")), *words)
    assert said[0] == "complete -F _best_peer best-peer"
    assert set(said[1:]) == wanted


def test_bash_completes_every_command(script: Callable[[str], Path]) -> None:
    said = run(program("bash"), "--norc", "-c", _BASH, "bash", str(script("bash")), "best-peer", "")
    assert set(said[1:]) == commands()


def test_fish_completes_commands_and_options(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("fish")

    def asked(line: str) -> set[str]:
        said = run(program("fish"), "-N", "-c", f"source {path}; complete -C '{line}'", HOME=str(tmp_path))
        return {each.partition("\t")[0] for each in said}

    # In a folder of its own: fish adds the files there.
    assert commands() <= asked("best-peer ")
    assert asked("best-peer approve --mem") == {"--memory"}
    assert {"add", "remove"} <= asked("best-peer models ")


def test_zsh_takes_the_script_and_knows_every_command(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("zsh")
    assert run(program("zsh"), "-f", "-n", str(path)) == []
    path.rename(tmp_path / "_best-peer")
    said = run(
        program("zsh"),
        "-f",
        "-c",
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[best-peer]",
        HOME=str(tmp_path),
    )
    assert said == ["_best-peer"]
    text = (tmp_path / "_best-peer").read_text()
    assert all(f"'{name}:" in text for name in commands())


@pytest.mark.parametrize("shell", ["powershell", "", "bash; rm"])
def test_another_shell_is_refused_with_those_there_are(cli: Callable[..., Ran], shell: str) -> None:
    ran = cli("completion", shell)
    assert (ran.code, ran.out) == (1, "")
    assert "bash, zsh, fish" in ran.line
