"""Layers of images, made from files; the same files make the same layer, kept for the next run."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORM = 2
"""To be raised whenever the same entries make another layer than before."""

UNUSED_SECONDS = 14 * 86400
"""A layer that no run wanted for so long is not kept."""


@attrs.frozen
class Entry:
    """A file, a link or a folder in a layer.

    Args:
        path: where, absolute.
        data: what is in it.
        source: the file of this machine that is in it instead.
        link: where it points, for a symbolic link.
        mode: its rights; a folder's when neither data, source nor link is given.
        owner: its user and group.
        capability: a file capability in the kernel's form, as the extended attribute holds it.
    """

    path: str
    data: bytes | None = None
    source: Path | None = None
    link: str | None = None
    mode: int = 0o755
    owner: int = 0
    capability: bytes | None = None

    def key(self) -> list[object]:
        """What tells it from another, without reading a file of this machine."""
        found: list[object] = [self.path, self.link, self.mode, self.owner]
        found.append(self.data and hashlib.sha256(self.data).hexdigest())
        found.append(self.capability and self.capability.hex())
        if self.source is not None:
            about = self.source.stat()
            found += [str(self.source), about.st_size, about.st_mtime_ns]
        return found


@attrs.frozen
class Layer:
    """A layer as a registry serves it: `digest` and `size` of what is at `path`, gzipped."""

    digest: str
    size: int
    path: Path
    diff_id: str


def cache_folder() -> Path:
    """Where layers are kept between runs. Removing it costs the next run a few seconds."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "best-peer-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_layer(entries: Iterable[Entry]) -> Layer:
    """The layer with these entries, from the cache where it is there."""
    entries = _ordered(entries)
    return kept_layer(json.dumps([entry.key() for entry in entries]), lambda: entries)


def kept_layer(key: str, make: Callable[[], Iterable[Entry]]) -> Layer:
    """The layer that was made under this key, or is made now: for entries that are slow to find.

    Args:
        key: says all that the entries depend on.
        make: finds them.
    """
    name = hashlib.sha256(f"{FORM} {key}".encode()).hexdigest()[:32]
    packed, about = cache_folder() / f"{name}.tar.gz", cache_folder() / f"{name}.json"
    if not about.exists():
        _write(_ordered(make()), packed, about)
    os.utime(about)
    os.utime(packed)
    facts = json.loads(about.read_text())
    return Layer(digest=facts["digest"], size=facts["size"], path=packed, diff_id=facts["diff_id"])


def forget_unused_layers() -> None:
    """Remove what no run wanted for two weeks."""
    oldest = time.time() - UNUSED_SECONDS
    for kept in cache_folder().iterdir():
        # Another run may be removing the same ones.
        with suppress(FileNotFoundError):
            if kept.stat().st_mtime >= oldest:
                continue
            if kept.is_dir():
                shutil.rmtree(kept)
            else:
                kept.unlink()


def _ordered(entries: Iterable[Entry]) -> list[Entry]:
    return sorted({entry.path: entry for entry in entries}.values(), key=lambda entry: entry.path)


def _write(entries: list[Entry], packed: Path, about: Path) -> None:
    # Renamed into place, the description last: two runs may make the same layer at once.
    with tempfile.TemporaryDirectory(dir=packed.parent) as made:
        part = Path(made) / packed.name
        with part.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as zipped:
            hashed = _Hashing(zipped)
            with tarfile.open(None, "w|", cast("IO[bytes]", hashed), format=tarfile.PAX_FORMAT) as archive:
                for entry in entries:
                    _add(archive, entry)
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        facts = {"digest": f"sha256:{digest}", "size": part.stat().st_size, "diff_id": hashed.digest()}
        described = Path(made) / about.name
        described.write_text(json.dumps(facts))
        part.replace(packed)
        described.replace(about)


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path.lstrip("/"))
    info.mode, info.uid, info.gid, info.mtime = entry.mode, entry.owner, entry.owner, 0
    if entry.capability is not None:
        info.pax_headers = {
            "SCHILY.xattr.security.capability": entry.capability.decode("utf-8", "surrogateescape")
        }
    if entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        archive.addfile(info)
    elif entry.source is not None:
        with entry.source.open("rb") as source:
            info.size = os.fstat(source.fileno()).st_size
            archive.addfile(info, source)
    elif entry.data is not None:
        info.size = len(entry.data)
        archive.addfile(info, io.BytesIO(entry.data))
    else:
        info.type = tarfile.DIRTYPE
        archive.addfile(info)


class _Writable(Protocol):
    def write(self, data: bytes, /) -> int: ...


class _Hashing:
    """A file that is written once, from front to back, and knows the digest of it."""

    def __init__(self, target: _Writable) -> None:
        self._target = target
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._target.write(data)

    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"
