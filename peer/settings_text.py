"""The settings in words, for ``best-peer --help`` and ``docs/settings.md``: made from the table (F33)."""

from __future__ import annotations

import textwrap
from typing import Final

from peer.settings import settings_table
from peer.settings_names import RETIRED

WIDTH: Final = 100
_INTRODUCTION: Final = """\
# Settings

Made by `scripts/make-settings-docs` from `peer/settings.py`; change it there.

The peer reads its settings from the environment when it starts. Each is checked then, and one that is
wrong stops the start with a line that names the variable, its value, what was expected and what to do. A
`BEST_PEER_*` variable that is no setting is named in the log and has no effect. A value may not be empty:
unset the variable instead.

A size is bytes, or a number with `K`, `M`, `G` or `T`, in powers of 1024: `40G` is 40 x 2^30 bytes. A
duration is seconds, or a number with `s`, `m`, `h` or `d`. In a path, `~` is your home folder.
"""
_RULES: Final = """\
## http and https

An `http://` endpoint is served only when the listen address and the endpoint's host are both loopback
(127.0.0.0/8, ::1 or `localhost`); otherwise the peer refuses to start and names which is off. Where a VPN
encrypts every hop to and from the peer, `BEST_PEER_CLEARTEXT=vpn` says so, and http is served with a warning.

For an `https://` endpoint the peer makes a certificate of its own, keeps it in `tls/` in the data folder, and
makes it again when the endpoint's host changes or fewer than thirty days of it remain, also while it runs.
`BEST_PEER_TLS_CERT` and `BEST_PEER_TLS_KEY`, always both, name files of your own instead; they are checked
for loading alone, and read again when they change. [The network](network.md) says how clients trust either.
"""


def settings_help(width: int = WIDTH) -> str:
    """The settings for a terminal: name and default, and below them what it takes and does."""
    lines: list[str] = []
    for setting in settings_table():
        head = f"{setting.name} (default: {setting.default_words})"
        lines += textwrap.wrap(
            head, width, initial_indent="   ", subsequent_indent=" " * 9, break_long_words=False
        )
        words = f"{setting.help} Takes {setting.takes}."
        lines += textwrap.wrap(words, width, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines) + "\n"


def settings_markdown() -> str:
    """The whole of ``docs/settings.md``."""
    rows = ["| variable | takes | default | what it does |", "| --- | --- | --- | --- |"]
    for setting in settings_table():
        default = setting.otherwise if setting.default is None else f"`{setting.default}`"
        rows.append(
            f"| `{setting.name}` | {_cell(setting.takes)} | {_cell(default)} | {_cell(setting.help)} |"
        )
    retired = ["| variable | what to do |", "| --- | --- |"]
    retired += [f"| `{name}` | {_cell(instead)} |" for name, instead in RETIRED.items()]
    return "\n".join(
        [
            _INTRODUCTION,
            *rows,
            "",
            _RULES,
            "## No longer settings",
            "",
            "Any of these that is set stops the start.",
            "",
            *retired,
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
