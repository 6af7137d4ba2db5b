"""A certificate, and each test of the server twice: without TLS and with it."""

from __future__ import annotations

import pytest

from tests.support.rawhttp import Pki


@pytest.fixture(scope="session")
def some_pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.make(tmp_path_factory.mktemp("pki"))


@pytest.fixture(params=["plain", "tls"])
def pki(request: pytest.FixtureRequest, some_pki: Pki) -> Pki | None:
    return some_pki if request.param == "tls" else None
