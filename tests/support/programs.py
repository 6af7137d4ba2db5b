"""Programs of Debian's that a test drives."""

from __future__ import annotations

import shutil

import pytest


def program(name: str, package: str | None = None) -> str:
    """Where a program is; a test that cannot do without it fails with what to install."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is needed: sudo apt-get install {package or name}", pytrace=False)
    return found
