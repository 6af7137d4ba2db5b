"""The settings that a start here would take, and what is wrong with them (F33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from peer.checks.line import ok, problem, warning
from peer.setting import SettingsError
from peer.settings import Settings
from peer.settings_checks import in_the_clear
from peer.settings_names import INSTALLER, PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from peer.checks.line import Line

SETTINGS: Final = "settings"
MAX_TRIES: Final = 8
"""Each takes away every variable that was refused; what is refused then was hidden behind them."""

MAX_NUMBERS: Final = 5
"""Lines of a file that are named."""


def read(environ: Mapping[str, str]) -> tuple[Settings, tuple[Line, ...]]:
    """The settings, without those that are wrong, and the lines for what is wrong.

    Everything else is looked at with what is left, so that one typing error does not hide the machine.

    Args:
        environ: the environment to read.
    """
    left, lines = dict(environ), []
    refused: set[str] = set()
    for _ in range(MAX_TRIES):
        try:
            settings = Settings.read(left)
        except SettingsError as error:
            taken: set[str] = set()
            for each in error.problems:
                rests_on = {each.variable, *each.involves}
                # It may be wrong only since another value was taken away: that one is mended first.
                if refused.isdisjoint(rests_on):
                    what, _, fix = str(each).rpartition("; ")
                    lines.append(problem(SETTINGS, what, fix))
                taken |= rests_on & left.keys()
                for name in rests_on:
                    left.pop(name, None)
            refused |= taken
        else:
            return settings, (*lines, *_judge(settings, environ, is_good=not lines))
    # Only what the machine itself lacks is left, a home for instance.
    return Settings.read({"HOME": "/"}), tuple(lines)


def _judge(settings: Settings, environ: Mapping[str, str], *, is_good: bool) -> list[Line]:
    lines = []
    for each in settings.unknown:
        what, _, fix = each.rpartition(": ")
        lines.append(warning(SETTINGS, what, fix))
    if in_the_clear(settings):
        lines.append(
            warning(
                SETTINGS,
                f"{settings.endpoint} is served in the clear, since BEST_PEER_CLEARTEXT=vpn is set",
                "see that a VPN encrypts every hop, or set BEST_PEER_ENDPOINT to an https:// address",
            )
        )
    if is_good and not lines:
        named = sorted(n for n in environ if n.startswith(PREFIX) and n not in INSTALLER)
        shown = f"{', '.join(named)}, and the defaults for the rest" if named else "the defaults"
        lines.append(ok(SETTINGS, f"they are valid: {shown}"))
    return lines


def read_file(path: Path) -> tuple[dict[str, str], tuple[Line, ...]]:
    """The variables of a file such as systemd's ``EnvironmentFile=`` takes, and the line for what is none.

    Args:
        path: lines ``NAME=value``, values quoted or not; ``#`` and ``;`` begin comments.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no text.
    """
    found: dict[str, str] = {}
    bad: list[int] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier():
            bad.append(number)
            continue
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    return found, _ignored(path, bad)


def _ignored(path: Path, numbers: Sequence[int]) -> tuple[Line, ...]:
    if not numbers:
        return ()
    shown = ", ".join(map(str, numbers[:MAX_NUMBERS]))
    more = f" and {len(numbers) - MAX_NUMBERS} more" if len(numbers) > MAX_NUMBERS else ""
    is_one = len(numbers) == 1
    # Not what stands there, which may be a secret that lost its name.
    what = f"line{' ' if is_one else 's '}{shown}{more} of {path} {'is' if is_one else 'are'} no NAME=value"
    fix = "write NAME=value there, or begin the line with #: systemd ignores it"
    return (warning(SETTINGS, what, fix),)
