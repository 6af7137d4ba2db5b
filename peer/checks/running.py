"""The peer that runs over the data folder, if one does: whether it answers, and its settings (F14, F37)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from peer.checks.line import ok, problem, warning
from peer.cli.door import Door
from peer.cli.outcome import CommandError
from peer.folder import DoorRecord, FolderError, NoDoor, is_held
from peer.settings_names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from peer.checks.line import Line

PEER: Final = "peer"
TAKEN: Final = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "HOME", "PATH")
"""Variables that settings rest on, besides those of the peer's own."""
MAX_ENVIRON: Final = 4 * 1024 * 1024
MAX_NAMES: Final = 5


@attrs.frozen
class Running:
    """What is known of the peer over a data folder without asking it.

    Args:
        record: where its door is; None where it has not opened it yet.
        environ: the settings it was started with; None where they are not to be read.
    """

    record: DoorRecord | None
    environ: Mapping[str, str] | None


def find(data: Path, processes: Path = Path("/proc")) -> Running | None:
    """The peer that runs over a data folder; None where none does, or that cannot be told.

    `look` says so in words when the folder is another user's.
    """
    try:
        if not is_held(data):
            return None
        record = DoorRecord.read(data / "door.json")
    except NoDoor:
        return Running(None, None)
    except FolderError:
        return None
    return Running(record, _environ_of(record.pid, processes))


def _environ_of(pid: int, processes: Path) -> Mapping[str, str] | None:
    """The settings among a process's variables, as it was started with them."""
    try:
        with (processes / str(pid) / "environ").open("rb") as file:
            raw = file.read(MAX_ENVIRON)
    except OSError:
        return None
    pairs = (part.decode("utf-8", "surrogateescape").partition("=") for part in raw.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals and is_setting(name)}


def is_setting(name: str) -> bool:
    """Whether a variable bears on a peer's settings."""
    return name.startswith(PREFIX) or name in TAKEN


def differing(running: Mapping[str, str], here: Mapping[str, str]) -> tuple[Line, ...]:
    """A line where this shell sets anything else than the running peer was started with."""
    names = sorted(
        name for name in here if name.startswith(PREFIX) and here[name] != running.get(name, here[name] + "?")
    )
    if not names:
        return ()
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (
        warning(
            PEER,
            f"it was started with other settings than this shell has: {', '.join(names[:MAX_NAMES])}{more}",
            "start it again from here to have them take effect; what follows is about those it has",
        ),
    )


async def look(data: Path, version: str) -> tuple[Line, ...]:
    """Whether a peer runs over a data folder, and whether it answers its owner.

    Args:
        data: the folder.
        version: this program's own.
    """
    try:
        if not is_held(data):
            return (ok(PEER, f"none runs over {data}; best-peer starts one"),)
        answer = await Door.find(data).get("/admin/status")
    except (CommandError, FolderError) as error:
        what, semicolon, fix = str(error).partition("; ")
        if not semicolon:
            what, _, fix = str(error).rpartition(": ")
        return (problem(PEER, what, fix),)
    peer = answer.get("peer")
    served = str(peer.get("version")) if isinstance(peer, dict) else "unknown"
    if served != version:
        return (
            warning(
                PEER,
                f"one runs over {data} and answers, of version {served}, and this program is {version}",
                "start it again to have the version that is installed",
            ),
        )
    return (ok(PEER, f"one runs over {data} and answers, of this version"),)
