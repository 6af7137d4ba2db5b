"""What is said of the certificate that the door shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from adapters.certificates import ensure_certificate
from peer.checks.certificate import Found, judge, look, names_host, read

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PATH = Path("/tls/cert.pem")


def found(days: float = 300, names: tuple[str, ...] = ("peer.example",)) -> Found:
    return Found(names, NOW - timedelta(days=1), NOW + timedelta(days=days))


@pytest.mark.parametrize(
    ("certificate", "is_own", "state"),
    [
        (found(), False, "ok"),
        (found(), True, "ok"),
        (found(20), False, "warning"),
        (found(20), True, "warning"),
        (found(-1), False, "problem"),
        (found(-1), True, "warning"),
        (found(names=("other.example",)), False, "problem"),
        (found(names=("other.example",)), True, "warning"),
        (Found(("peer.example",), NOW + timedelta(days=1), NOW + timedelta(days=9)), False, "problem"),
    ],
)
def test_a_certificate_is_judged_by_its_end_and_its_names(
    certificate: Found, is_own: bool, state: str
) -> None:
    (line,) = judge(certificate, PATH, "peer.example", NOW, is_own=is_own)
    assert line.state == state
    assert str(PATH) in line.what


@pytest.mark.parametrize(
    ("names", "host", "covers"),
    [
        (("peer.example",), "PEER.example.", True),
        (("*.example",), "peer.example", True),
        (("*.example",), "a.peer.example", False),
        (("*.example",), "example", False),
        (("192.0.2.7",), "192.0.2.7", True),
        (("2001:db8::1",), "2001:db8:0::1", True),
        ((), "peer.example", False),
    ],
)
def test_names_cover_a_host_as_clients_compare_them(names: tuple[str, ...], host: str, covers: bool) -> None:
    assert names_host(names, host) is covers


def test_the_peers_own_certificate_is_read(tmp_path: Path) -> None:
    made = ensure_certificate(tmp_path / "tls", "peer.example", (), datetime.now(UTC))
    (line,) = look(made.cert_path, made.key_path, "peer.example", is_own=True)
    assert line.state == "ok"
    assert "396 days" in line.what


def test_files_that_are_missing_or_are_none_are_told(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert look(certificate, key, "x", is_own=True)[0].state == "ok"
    assert look(certificate, key, "x", is_own=False)[0].state == "problem"
    certificate.write_text("nonsense")
    assert "holds no certificate" in look(certificate, key, "x", is_own=False)[0].what
    trustme.CA().issue_cert("peer.example").cert_chain_pems[0].write_to_path(certificate)
    assert "key.pem cannot be read" in look(certificate, key, "peer.example", is_own=False)[0].what
    assert read(certificate.read_bytes()).names == ("peer.example",)
