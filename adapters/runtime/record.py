"""What is kept of a workload's program so that a restarted peer finds it (F37)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from adapters.runtime.identity import Identity

RECORD: Final = "record.json"
MAX_RECORD: Final = 256 * 1024
"""Bytes read of a record; a longer file was not written here."""


@attrs.frozen
class Ended:
    """How the program ended, kept so that a crash between its end and the telling of it loses nothing."""

    code: int | None
    out_of_memory: bool


@attrs.frozen
class Record:
    """One start of one workload's program. `secret` names the secret file of the API key, not the key."""

    workload: str
    holder: str
    instance: str
    identity: Identity
    port: int
    program: str
    secret: str | None
    detail: Mapping[str, str]
    ended: Ended | None = None


def write_record(folder: Path, record: Record) -> None:
    """Put the record in its place at once and durably, readable by this user alone."""
    temporary = folder / f"{RECORD}.new"
    text = json.dumps(attrs.asdict(record), indent=1).encode()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(handle)
    temporary.rename(folder / RECORD)
    directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_record(folder: Path) -> Record | None:
    """The record in this folder; None where there is none that can be read."""
    try:
        with (folder / RECORD).open("rb") as file:
            raw = json.loads(file.read(MAX_RECORD))
        return _record(raw)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _record(raw: dict[str, Any]) -> Record:
    ended = raw["ended"]
    return Record(
        workload=str(raw["workload"]),
        holder=str(raw["holder"]),
        instance=str(raw["instance"]),
        identity=Identity(
            pid=int(raw["identity"]["pid"]),
            started=str(raw["identity"]["started"]),
            boot=str(raw["identity"]["boot"]),
        ),
        port=int(raw["port"]),
        program=str(raw["program"]),
        secret=None if raw["secret"] is None else str(raw["secret"]),
        detail={str(key): str(value) for key, value in raw["detail"].items()},
        ended=None if ended is None else Ended(ended["code"], bool(ended["out_of_memory"])),
    )
