"""Releases for `scripts/install.sh`: small made-up ones, and wheels of what is installed here."""

from __future__ import annotations

import hashlib
import re
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAM: Final = """\
import sys


def main():
    if sys.argv[1:] == ["--version"]:
        print("best-peer {version}")
    elif sys.argv[1:3] == ["service", "--program"]:
        print("# Written by best-peer service")
        print("ExecStart=" + sys.argv[3])
    else:
        return 1
    return {code}
"""
_NOT_CARRIED: Final = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def made_up_wheel(folder: Path, version: str, *, works: bool = True, size: int = 0) -> Path:
    """A wheel of best-peer that has no packages to fetch and does nothing but say its version.

    Args:
        folder: where to put it.
        version: its version.
        works: whether its program ends well.
        size: bytes of ballast, which make it another file of the same version.
    """
    files = {
        "made_up.py": _PROGRAM.format(version=version, code=0 if works else 3).encode(),
        "ballast.txt": b"x" * size,
    }
    about = {
        "METADATA": f"Metadata-Version: 2.1\nName: best-peer\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\nbest-peer = made_up:main\n",
    }
    path = folder / f"best_peer-{version}-py3-none-any.whl"
    info = f"best_peer-{version}.dist-info"
    _write(path, info, {**files, **{f"{info}/{name}": text.encode() for name, text in about.items()}})
    return path


def sign(folder: Path) -> None:
    """Write the SHA256SUMS of a release's folder, as scripts/release does."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.whl"))
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(lines))


def wheelhouse(folder: Path, distribution: str) -> None:
    """Wheels of all that a distribution needs, made from what is installed here: no index is asked."""
    folder.mkdir(exist_ok=True)
    for each in _closure(distribution):
        _repack(each, folder)


def _closure(distribution: str) -> Iterator[metadata.Distribution]:
    seen, ahead = {_plain(distribution)}, [distribution]
    while ahead:
        for text in metadata.distribution(ahead.pop()).requires or ():
            needed = Requirement(text)
            # Extras of what is needed are not followed; a missing one fails the install that is tested.
            if _plain(needed.name) in seen or not (
                needed.marker is None or needed.marker.evaluate({"extra": ""})
            ):
                continue
            seen.add(_plain(needed.name))
            ahead.append(needed.name)
            yield metadata.distribution(needed.name)


def _repack(distribution: metadata.Distribution, folder: Path) -> None:
    files: dict[str, bytes] = {}
    info = ""
    for path in distribution.files or ():
        if path.parts[0] == ".." or path.suffix == ".pyc":
            continue  # a script, which an installer makes anew
        if path.parts[0].endswith(".dist-info"):
            info = path.parts[0]
            if path.parts[-1] in _NOT_CARRIED:
                continue
        files[str(path)] = Path(str(path.locate())).read_bytes()
    tags = [
        tag.split("-") for tag in re.findall(r"^Tag: (\S+)$", files[f"{info}/WHEEL"].decode(), re.MULTILINE)
    ]
    # A file's name has each part's choices once: py2.py3-none-any.
    named = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    _write(folder / f"{info.removesuffix('.dist-info')}-{named}.whl", info, files)


def _write(path: Path, info: str, files: dict[str, bytes]) -> None:
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**files, f"{info}/RECORD": record.encode()}.items():
            archive.writestr(name, data)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
