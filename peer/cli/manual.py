"""What ``--help`` says of each command beside its options: examples, exit codes, files, environment.

A command's purpose and its options stand in its own docstring; here is what a manual page has besides. Each
example is one that the parser takes, which a test sees to.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Pairs = tuple[tuple[str, str], ...]

INDENT: Final = "   "
DEEPER: Final = "      "
GAP: Final = 2
MOST_LEFT: Final = 24
"""Columns of what stands at the left of its explanation; a longer one has it on the next line."""

_DONE: Final = ("0", "Done.")
_REFUSED: Final = ("1", "Refused, or the command line is wrong; one line on standard error says why.")
_SYSTEM: Final = (
    "2",
    "The system stands in the way: no peer answers, the folder is another user's, the disk.",
)
_INTERRUPTED: Final = ("130", "Ctrl-C.")
_EXITS: Final[Pairs] = (_DONE, _REFUSED, _SYSTEM, _INTERRUPTED)

_DATA: Final = (
    "BEST_PEER_DATA",
    "The data folder of the peer that is meant; ~/.best-peer where it is not set.",
)
_NO_COLOR: Final = ("NO_COLOR", "Set to anything, no colour is used on a terminal.")
_ASKED: Final[Pairs] = (
    ("door.json", "In the data folder: where the running peer's door is."),
    ("admin-token", "In the data folder: what opens its owner's side. Only the peer's user reads it."),
)


@attrs.frozen
class Manual:
    """What is said of one command.

    Args:
        examples: command lines, each with what it does.
        exits: exit codes, each with when.
        files: what it reads or writes.
        environment: variables that bear on it.
    """

    examples: Pairs
    exits: Pairs = _EXITS
    files: Pairs = _ASKED
    environment: Pairs = (_DATA,)


MANUALS: Final[Mapping[tuple[str, ...], Manual]] = {
    (): Manual(
        examples=(
            ("best-peer", "Serve, with Docker and this machine's cards."),
            ("best-peer check", "See first what is in the way, and what to do about it."),
            ("BEST_PEER_RUNTIME=process BEST_PEER_GPU=none best-peer", "Serve GGUF files on the processor."),
            ("best-peer approve BCDF-GHJK", "Let in the agent that shows this code."),
        ),
        exits=(
            ("0", "A signal stopped it, or a command is done."),
            ("1", "A setting is wrong, or a command was refused."),
            ("2", "The system stands in the way: the folder, the port, the driver, Docker."),
            _INTERRUPTED,
        ),
        files=(
            ("~/.best-peer", "The data folder: the log, keys as hashes, the admin token, the certificate."),
            ("~/.config/best-peer/env", "Settings, a line each, where the systemd unit starts it."),
        ),
        # All settings follow, each with its default.
        environment=(),
    ),
    ("approve",): Manual(
        examples=(
            ("best-peer approve BCDF-GHJK", "Let it in; its key may do everything."),
            (
                "best-peer approve BCDF-GHJK --may deploy,prompt --memory 40G --expires 8h",
                "It may serve models in 40 GiB of device memory, for eight hours.",
            ),
            (
                "best-peer approve BCDF-GHJK --may metrics --yes",
                "A key for a collector, which reads metrics alone; nobody is asked.",
            ),
            ("best-peer approve BCDF-GHJK --yes --json", "For a program: whom it let in, and with what."),
        ),
        exits=(
            _DONE,
            ("1", "Refused: the code waits for nobody, or the answer was no."),
            _SYSTEM,
            _INTERRUPTED,
        ),
    ),
    ("deny",): Manual(
        examples=(("best-peer deny BCDF-GHJK", "Turn away the agent that shows this code."),),
        exits=(_DONE, ("1", "Refused: the code waits for nobody."), _SYSTEM, _INTERRUPTED),
    ),
    ("revoke",): Manual(
        examples=(
            ("best-peer revoke my-laptop", "Close its keys and end what runs under them."),
            ("best-peer revoke my-laptop --keep-running", "Close its keys and leave its work."),
            ("best-peer revoke my-laptop", "Later: end the work that was left."),
            ("best-peer revoke my-laptop --json", "For a program: what was taken back, and what runs on."),
        ),
        exits=(
            ("0", "Done; what did not end yet is named, and the peer goes on trying."),
            ("1", "Refused: there is no such key."),
            ("2", "The disk did not keep it, or no peer answers: do it again."),
            _INTERRUPTED,
        ),
    ),
    ("keys",): Manual(
        examples=(
            ("best-peer keys", "Who is let in, what each may do and holds, and who waits."),
            ("best-peer keys my-laptop", "All of one connection's, ended ones too."),
            ("best-peer keys --all --json", "For a program."),
        ),
        environment=(_DATA, _NO_COLOR),
    ),
    ("hold",): Manual(
        examples=(
            ("best-peer hold --for 2h", "Every device, the CPU included, takes no new work for two hours."),
            ("best-peer hold --while 4242", "While process 4242 runs; stays here, and Ctrl-C releases."),
            (
                "best-peer hold --device gpu-0 --now --reason maintenance",
                "One card until best-peer release; what runs on it ends, and its holders read why.",
            ),
            ("best-peer hold --until 2026-10-20T22:00", "Until ten in the evening of this machine's zone."),
        ),
        exits=(
            ("0", "Held; with --while, it has ended: with the process, by its time, a release or Ctrl-C."),
            ("1", "Refused: there is no such device or process, or the time is none."),
            _SYSTEM,
            _INTERRUPTED,
        ),
    ),
    ("release",): Manual(
        examples=(
            ("best-peer release", "Every device takes work again."),
            ("best-peer release --device gpu-0", "That one alone."),
        ),
        exits=(_DONE, ("1", "Refused: there is no such device."), _SYSTEM, _INTERRUPTED),
    ),
    ("status",): Manual(
        examples=(
            ("best-peer status", "Devices, workloads and keys."),
            ("best-peer status --json", "For a program, keys that ended included."),
        ),
        environment=(_DATA, _NO_COLOR),
    ),
    ("events",): Manual(
        examples=(
            ("best-peer events --follow", "What happens, as it happens."),
            ("best-peer events --since 2h --type JobFinished,JobFailed", "How jobs ended in two hours."),
            ("best-peer events --correlation ID --json", "All that came of one command, for a program."),
        ),
        exits=(
            ("0", "Done; also when the reader had enough, or Ctrl-C ends --follow."),
            _REFUSED,
            ("2", "The system stands in the way: the folder may not be read."),
            _INTERRUPTED,
        ),
        files=(("events/DAY.jsonl", "In the data folder: what was told, one file a UTC day."),),
    ),
    ("check",): Manual(
        examples=(
            ("best-peer check", "Look at this machine, whether the peer runs or not."),
            (
                "best-peer check --environment ~/.config/best-peer/env",
                "With the settings that the systemd unit has.",
            ),
            ("best-peer check --json", "For a program."),
        ),
        exits=(
            ("0", "Nothing is in the way; there may be warnings."),
            ("1", "At least one line is a problem, or the command line is wrong."),
            _INTERRUPTED,
        ),
        files=(
            ("/proc, /etc", "What the kernel and this machine's firewall say of themselves, read alone."),
            *_ASKED,
        ),
        environment=(
            _DATA,
            ("BEST_PEER_*", "The settings that are looked at, unless a peer runs: then its own."),
            ("DOCKER_HOST", "As for docker itself, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH too."),
            _NO_COLOR,
        ),
    ),
    ("models",): Manual(
        examples=(
            ("best-peer models", "What may be deployed, and from how much memory on."),
            ("best-peer models add model.gguf", "Bring one in."),
        ),
        files=(("models/", "In the data folder, unless BEST_PEER_MODELS names another: the GGUF files."),),
        environment=(_DATA, ("BEST_PEER_MODELS", "The folder of models."), _NO_COLOR),
    ),
    ("models", "add"): Manual(
        examples=(
            ("best-peer models add ~/Downloads/model.gguf", "Copy a file in."),
            (
                "best-peer models add model.gguf --name small --size 98362432",
                "Under a name, of a size in bytes.",
            ),
        ),
        exits=(
            ("0", "Done; also where that very model is there already."),
            ("1", "Refused: it is no model, not the one that was meant, or its name is another's."),
            *_EXITS[2:],
        ),
        files=(("models/", "In the data folder, unless BEST_PEER_MODELS names another: where it goes."),),
        environment=(_DATA, ("BEST_PEER_MODELS", "The folder of models.")),
    ),
    ("models", "remove"): Manual(
        examples=(
            ("best-peer models remove small", "Remove one by name; on a terminal you are asked."),
            ("best-peer models remove small --yes", "Without being asked."),
        ),
        exits=(
            _DONE,
            ("1", "Refused: there is none, a deployment serves it, or the answer was no."),
            *_EXITS[2:],
        ),
        files=(("models/", "In the data folder, unless BEST_PEER_MODELS names another."), *_ASKED),
        environment=(_DATA, ("BEST_PEER_MODELS", "The folder of models.")),
    ),
    ("service",): Manual(
        examples=(
            (
                (
                    "mkdir -p ~/.config/systemd/user && "
                    "best-peer service > ~/.config/systemd/user/best-peer.service"
                ),
                "Put the user unit in place; then systemctl --user enable --now best-peer.",
            ),
            (
                "best-peer service --system --program /opt/best-peer/bin/best-peer",
                "The machine's unit, for /etc/systemd/system/best-peer.service.",
            ),
        ),
        exits=(_DONE, _REFUSED, _INTERRUPTED),
        files=(
            ("~/.config/best-peer/env", "Settings that the user unit reads, a line each: NAME=value."),
            ("/etc/best-peer/env", "Those of the machine's unit."),
        ),
        environment=(),
    ),
    ("completion",): Manual(
        examples=(
            (
                (
                    "mkdir -p ~/.local/share/bash-completion/completions && "
                    "best-peer completion bash > ~/.local/share/bash-completion/completions/best-peer"
                ),
                "For bash, with its bash-completion.",
            ),
            (
                "mkdir -p ~/.zfunc && best-peer completion zsh > ~/.zfunc/_best-peer",
                "For zsh, where ~/.zfunc is in fpath.",
            ),
            (
                (
                    "mkdir -p ~/.config/fish/completions && "
                    "best-peer completion fish > ~/.config/fish/completions/best-peer.fish"
                ),
                "For fish.",
            ),
        ),
        exits=(_DONE, _REFUSED, _INTERRUPTED),
        files=(),
        environment=(),
    ),
}


def manual_text(chain: tuple[str, ...], width: int) -> str:
    """The part of a command's help that follows its options; empty where there is none.

    Args:
        chain: the command's words.
        width: columns of the terminal.
    """
    manual = MANUALS.get(chain)
    if manual is None:
        return ""
    parts = [
        _section("Examples", _examples(manual.examples, width)),
        _section("Exit codes", _columns(manual.exits, width)),
    ]
    if manual.files:
        parts.append(_section("Files", _columns(manual.files, width)))
    if manual.environment:
        parts.append(_section("Environment", _columns(manual.environment, width)))
    return "\n".join(parts)


def _section(title: str, lines: Iterator[str]) -> str:
    return "\n".join([f"{INDENT}{title}", *lines, ""])


def _examples(pairs: Pairs, width: int) -> Iterator[str]:
    for command, words in pairs:
        # A command that takes several lines can still be pasted.
        lines = textwrap.wrap(
            command,
            width - len(" \\"),
            initial_indent=INDENT,
            subsequent_indent=DEEPER,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (f"{line} \\" for line in lines[:-1])
        yield lines[-1]
        yield from _wrapped(words, width, DEEPER, DEEPER)


def _columns(pairs: Pairs, width: int) -> Iterator[str]:
    left = max(len(name) for name, _ in pairs)
    is_apart = left > MOST_LEFT or width < 2 * left
    indent = DEEPER if is_apart else " " * (len(INDENT) + left + GAP)
    for name, words in pairs:
        head = f"{INDENT}{name:<{left + GAP}}"
        if is_apart:
            yield f"{INDENT}{name}"
            head = DEEPER
        yield from _wrapped(words, width, head, indent)


def _wrapped(words: str, width: int, first: str, then: str) -> list[str]:
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)
