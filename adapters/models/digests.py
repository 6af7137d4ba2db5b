"""A file's digest, worked out once and kept beside it (`<file>.sha256`)."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

CHUNK: Final = 1024 * 1024
SUFFIX: Final = ".sha256"
MAX_KEPT: Final = 4096
"""Bytes read of a kept digest."""

Told = Callable[[int, int], None]
"""Called from a thread with bytes done and bytes in all; never blocks."""


def known_digest(path: Path) -> str | None:
    """The digest kept for a file, `sha256:` and 64 hex digits; None where it is of another state of it."""
    try:
        found = path.stat()
        with _kept(path).open("rb") as file:
            kept = json.loads(file.read(MAX_KEPT))
        if kept["size"] == found.st_size and kept["mtime_ns"] == found.st_mtime_ns:
            return checked(str(kept["sha256"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def keep_digest(path: Path, digest: str) -> None:
    """Keep a digest for the file as it is now. In a folder that cannot be written it is not kept."""
    try:
        found = path.stat()
        kept = {
            "sha256": digest.removeprefix("sha256:"),
            "size": found.st_size,
            "mtime_ns": found.st_mtime_ns,
        }
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        temporary.write_text(json.dumps(kept), "ascii")
        temporary.rename(_kept(path))
    except OSError:
        return


def forget_digest(path: Path) -> None:
    """Remove what is kept for a file."""
    _kept(path).unlink(missing_ok=True)


def digest_of(path: Path, check: Callable[[], None], told: Told) -> str:
    """Work a file's digest out and keep it. Blocks for seconds a gigabyte.

    Args:
        path: the file.
        check: called between chunks; what it raises ends the work.
        told: called between chunks.
    """
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        digest, _ = copy_and_digest(file, None, total, check, told)
    keep_digest(path, digest)
    return digest


def copy_and_digest(
    source: IO[bytes], target: IO[bytes] | None, total: int, check: Callable[[], None], told: Told
) -> tuple[str, int]:
    """Read a stream to its end, write it on where there is a target; its digest and its size.

    It stops one chunk past `total` bytes: what is longer than it was announced is never written whole.
    """
    digest = hashlib.sha256()
    done = 0
    while done <= total and (chunk := source.read(CHUNK)):
        check()
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
        done += len(chunk)
        told(min(done, total), total)
    return f"sha256:{digest.hexdigest()}", done


def checked(text: str) -> str | None:
    """A digest as it is written everywhere, from one with or without `sha256:`; None when it is none."""
    text = text.lower().removeprefix("sha256:")
    if len(text) != hashlib.sha256().digest_size * 2 or not set(text) <= set("0123456789abcdef"):
        return None
    return f"sha256:{text}"


def _kept(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)
