"""Compiles the tests' `libnvidia-ml.so.1` from `stub.c`."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, Literal

SOURCE: Final = Path(__file__).with_name("stub.c")
NAME: Final = "libnvidia-ml.so.1"
"""What pynvml asks the dynamic linker for."""

Age = Literal["current", "r470"]
"""Which functions it has: today's, or those of a driver from before version 2 of their structures."""

_COMPILE_SECONDS: Final = 120.0
_FLAGS: Final = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")


class NoCompiler(Exception):
    """Raised when the library cannot be made here."""


def compiled(cache: Path, age: Age = "current") -> Path:
    """The library, compiled at most once for each content of its source; runs beside this one may share it.

    Args:
        cache: a folder that the runs share.
        age: which functions it has.

    Raises:
        NoCompiler: there is no gcc.
    """
    flags = (*_FLAGS, f"-Wl,-soname,{NAME}", *(() if age == "current" else ("-DR470",)))
    content = hashlib.sha256(SOURCE.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    library = cache / f"nvml-{content}.so"
    if not library.exists():
        if shutil.which("gcc") is None:
            raise NoCompiler("the tests' NVIDIA driver is compiled with gcc; install it: apt-get install gcc")
        cache.mkdir(parents=True, exist_ok=True)
        fresh = cache / f"nvml-{content}.{os.getpid()}"
        subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(fresh)], check=True, timeout=_COMPILE_SECONDS)
        fresh.replace(library)
    return library


def install(library: Path, folder: Path) -> Path:
    """Put a copy of the library into a folder, under the name that is asked for.

    Every copy is a driver of its own, with the script beside it: one process may load several.
    """
    place = folder / NAME
    shutil.copyfile(library, place)
    return place
