"""What is in the images: a shell, a Python, and files of a test's own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.docker.images import Image, make_image
from tests.support.docker.layers import Entry, Layer, kept_layer, make_layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NOBODY = 65534

_PASSWD = f"root:x:0:0:root:/root:/bin/sh\nnobody:x:{NOBODY}:{NOBODY}:nobody:/:/bin/sh\n"
_GROUP = f"root:x:0:\nnogroup:x:{NOBODY}:\n"
_UNWANTED = {
    "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "pydoc_data", "distutils",
    "site-packages", "dist-packages", "__pycache__",
}  # fmt: skip
"""Of Python's own library: what nothing in an image uses, and what is large."""

PYTHON = "/usr/bin/python3"
PACKAGES = "/opt/packages"


def shell_layer() -> Layer:
    """Busybox with all its names, the users root and nobody, and /in, /out and /tmp."""
    busybox = shutil.which("busybox")
    assert busybox, "the images need busybox-static"
    names = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    folders = ("/bin", "/dev", "/etc", "/in", "/proc", "/root", "/sys", "/usr", "/usr/bin", "/var")
    return make_layer(
        [
            *(Entry(folder) for folder in folders),
            Entry("/out", owner=NOBODY),
            Entry("/tmp", mode=0o1777),
            Entry("/etc/passwd", data=_PASSWD.encode(), mode=0o644),
            Entry("/etc/group", data=_GROUP.encode(), mode=0o644),
            Entry("/bin/busybox", source=Path(busybox)),
            *(Entry(f"/bin/{name}", link="busybox") for name in names if name != "busybox"),
        ]
    )


def python_layer() -> Layer:
    """The Python that runs the tests, with its standard library and no packages, placed as it is here."""
    program = Path(sys.executable).resolve()
    about = program.stat()
    key = f"{sorted(_UNWANTED)} {program} {sys.version} {about.st_size} {about.st_mtime_ns}"
    return kept_layer(key, lambda: _python(program))


def _python(program: Path) -> list[Entry]:
    library = Path(sys.base_prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    files = [program]
    for path in library.rglob("*"):
        parts = set(path.relative_to(library).parts)
        if path.is_file() and not parts & _UNWANTED and not any(part.startswith("config-") for part in parts):
            files.append(path)
    return [*_files(files), Entry("/usr"), Entry("/usr/bin"), Entry(PYTHON, link=str(program))]


def files_layer(files: Mapping[str, bytes | Path], *, site_packages: Iterable[str] = ()) -> Layer:
    """Files of a test's own, and packages of the environment that runs the tests.

    Args:
        files: contents, or what to copy from here (a folder with all that is in it), by place in the image.
            What begins with `#!` and programs of this machine may be executed.
        site_packages: names of importable modules or packages, put where the image's Python finds them.
    """
    entries: list[Entry] = []
    for place, content in files.items():
        if isinstance(content, bytes):
            is_program = content.startswith((b"#!", b"\x7fELF"))
            entries += [Entry(place, data=content, mode=0o755 if is_program else 0o644), *_folders(place)]
        else:
            entries += _copied(content, place)
    for name in site_packages:
        found = next((path for path in _places(name) if path.exists()), None)
        assert found, f"the environment has no package {name}"
        entries += _copied(found, f"{PACKAGES}/{found.name}")
    return make_layer(entries)


def build_image(
    *layers: Layer,
    files: Mapping[str, bytes | Path] | None = None,
    config: Mapping[str, Any] | None = None,
    oci: bool = False,
) -> Image:
    """The shell image with these layers and files on top, run as `config` says."""
    own = [files_layer(files)] if files else []
    return make_image([shell_layer(), *layers, *own], {"Cmd": ["sh"], **(config or {})}, oci=oci)


def build_python_image(
    *,
    files: Mapping[str, bytes | Path] | None = None,
    site_packages: Iterable[str] = (),
    config: Mapping[str, Any] | None = None,
) -> Image:
    """An image with a shell and a Python that imports these packages of ours; see `files_layer`.

    It runs no command of its own unless `config` says so (`{"Entrypoint": ["/serve"], "Cmd": [...]}`).
    """
    layers = [shell_layer(), python_layer()]
    if files or site_packages:
        layers.append(files_layer(files or {}, site_packages=site_packages))
    said = {"Cmd": ["python3"], "Env": [f"PATH=/bin:/usr/bin:{PACKAGES}/bin", f"PYTHONPATH={PACKAGES}"]}
    more = dict(config or {})
    said["Env"] += more.pop("Env", [])
    return make_image(layers, {**said, **more})


def _places(name: str) -> Iterator[Path]:
    for folder in map(Path, sys.path):
        yield folder / name
        yield folder / f"{name}.py"
        yield from folder.glob(f"{name}.*.so")


def _copied(source: Path, place: str) -> list[Entry]:
    if not source.is_dir():
        return [*_file(source, place), *_folders(place)]
    entries = []
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            where = f"{place}/{path.relative_to(source)}"
            entries += [*_file(path, where), *_folders(where)]
    return entries


def _files(paths: Iterable[Path]) -> list[Entry]:
    entries = []
    for path in paths:
        entries += [*_file(path, str(path)), *_folders(str(path))]
    return entries


def _file(source: Path, place: str) -> list[Entry]:
    """The file, and where it is a program or a library of this machine, what it is linked to."""
    mode = 0o755 if source.stat().st_mode & 0o100 else 0o644
    entries = [Entry(place, source=source, mode=mode)]
    with source.open("rb") as file:
        is_program = file.read(4) == b"\x7fELF"
    for needed in _linked(source) if is_program else ():
        entries += [Entry(needed, source=Path(needed).resolve()), *_folders(needed)]
    return entries


def _linked(program: Path) -> list[str]:
    done = subprocess.run(["ldd", str(program)], check=False, capture_output=True, text=True)
    return [path for path in re.findall(r"(/\S+) \(0x", done.stdout) if not path.startswith(f"{program}")]


def _folders(place: str) -> list[Entry]:
    return [Entry(str(folder)) for folder in Path(place).parents if str(folder) != "/"]
