"""Where a model may be taken from: a file, a wheel or other zip file, an installed distribution."""

import importlib.metadata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import attrs

from adapters.models.faults import NotAModel, NotHeld, NotReadable

GGUF: Final = ".gguf"
PACKAGES: Final = (".whl", ".zip")
MAX_MEMBERS: Final = 100_000


@attrs.frozen
class Source:
    """An open stream with the name it had there and its size in bytes."""

    name: str
    size_bytes: int
    stream: IO[bytes]


@contextmanager
def open_file(path: Path) -> Iterator[Source]:
    """A model that lies in a file of this machine.

    Raises:
        NotReadable: there is no such file, or it may not be read.
    """
    with _reading(path):
        if not path.is_file():
            raise NotReadable(f"{path} is no file", fix="name the GGUF file itself")
        with path.open("rb") as stream:
            yield Source(path.name, path.stat().st_size, stream)


@contextmanager
def open_package(package: str | Path) -> Iterator[Source]:
    """The largest GGUF file of a wheel or zip file, or of an installed distribution of that name.

    Raises:
        NotAModel: there is none in it, or it is no package.
        NotHeld: no distribution of that name is installed.
        NotReadable: it may not be read.
    """
    path = Path(package)
    if path.suffix.lower() in PACKAGES or path.is_file():
        with _reading(path), _member(path) as source:
            yield source
    else:
        with open_file(_installed(str(package))) as source:
            yield source


@contextmanager
def _member(path: Path) -> Iterator[Source]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            found = [one for one in members[:MAX_MEMBERS] if one.filename.lower().endswith(GGUF)]
            if not found:
                raise NotAModel(
                    f"{path.name} holds no GGUF file",
                    fix="take a package that holds a model in the GGUF format",
                )
            # A package may carry a vocabulary or a projector beside the model: the model is the largest.
            largest = max(found, key=lambda one: one.file_size)
            with archive.open(largest) as stream:
                yield Source(Path(largest.filename).name, largest.file_size, stream)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        # RuntimeError is what zipfile raises for an encrypted member.
        raise NotAModel(f"{path.name} cannot be unpacked: {error}", fix="fetch the package again") from error


def _installed(name: str) -> Path:
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError) as error:
        raise NotHeld(
            f"there is no file and no installed package {name}",
            fix="name a .gguf file, a .whl or .zip file, or install the package first",
        ) from error
    paths = [Path(str(file.locate())) for file in distribution.files or () if file.suffix.lower() == GGUF]
    present = [path for path in paths if path.is_file()]
    if not present:
        raise NotAModel(
            f"the package {name} holds no GGUF file",
            fix="take a package that holds a model in the GGUF format",
        )
    return max(present, key=lambda path: path.stat().st_size)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotReadable(
            f"{path} cannot be read: {error.strerror or error}", fix="let the user that runs this read it"
        ) from error
