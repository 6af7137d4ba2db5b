"""The certificate that the door shows: its names, its end, its key (F34)."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs
from cryptography import x509

from adapters.certificates import MAX_PEM, RENEW_WITHIN
from peer.checks.line import ok, problem, warning

if TYPE_CHECKING:
    from pathlib import Path

    from peer.checks.line import Line

CERTIFICATE: Final = "certificate"


@attrs.frozen
class Found:
    """A certificate as its file has it."""

    names: tuple[str, ...]
    """Host names in lower case and addresses, as clients compare them."""
    not_before: datetime
    not_after: datetime


def look(certificate: Path, key: Path, host: str, *, is_own: bool) -> tuple[Line, ...]:
    """What there is to say of the files that an https door serves with.

    Args:
        certificate: PEM, the door's own first.
        key: its key.
        host: the endpoint's.
        is_own: whether the peer makes them itself.
    """
    try:
        with certificate.open("rb") as file:
            found = read(file.read(MAX_PEM))
    except FileNotFoundError:
        if is_own:
            return (ok(CERTIFICATE, f"{certificate} is not there yet; the first start makes it"),)
        return (_unusable(f"{certificate} is not there", is_own=is_own),)
    except OSError as error:
        return (_unusable(f"{certificate} cannot be read: {error.strerror or error}", is_own=is_own),)
    except ValueError:
        return (_unusable(f"{certificate} holds no certificate", is_own=is_own),)
    if not os.access(key, os.R_OK):
        return (_unusable(f"its key {key} cannot be read by this user", is_own=is_own),)
    return judge(found, certificate, host, datetime.now(UTC), is_own=is_own)


def read(pem: bytes) -> Found:
    """The first certificate of a file.

    Raises:
        ValueError: there is none.
    """
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension):
        listed: list[str] = []
    else:
        listed = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
        listed += [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return Found(tuple(listed), certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def judge(found: Found, path: Path, host: str, now: datetime, *, is_own: bool) -> tuple[Line, ...]:
    """The lines for a certificate that can be read.

    Args:
        found: the certificate.
        path: where it lies.
        host: the endpoint's.
        now: wall time, aware.
        is_own: whether the peer makes it, and so makes it again at its next start.
    """
    if now < found.not_before:
        return (_unusable(f"{path} begins only on {found.not_before:%Y-%m-%d}", is_own=is_own),)
    if found.not_after <= now:
        return (_unusable(f"{path} ended on {found.not_after:%Y-%m-%d}", is_own=is_own),)
    if not names_host(found.names, host):
        named = ", ".join(found.names[:5]) or "nothing"
        return (_unusable(f"{path} names {named}, and not {host}, the endpoint's host", is_own=is_own),)
    days = (found.not_after - now).days
    text = f"{path} names {host} and is good for {days} days more"
    if found.not_after - now >= RENEW_WITHIN:
        return (ok(CERTIFICATE, text),)
    if is_own:
        return (
            warning(
                CERTIFICATE,
                text,
                "the peer makes a new one in its last thirty days: send that to those who trust this one",
            ),
        )
    return (warning(CERTIFICATE, text, "renew it, and put the new files in its place"),)


def names_host(names: tuple[str, ...], host: str) -> bool:
    """Whether a certificate's names cover a host as clients compare them: whole, or by one wildcard label."""
    try:
        wanted = str(ipaddress.ip_address(host))
    except ValueError:
        wanted = host.lower().removesuffix(".")
        _, dot, parent = wanted.partition(".")
        return wanted in names or bool(dot and f"*.{parent}" in names)
    return wanted in names


def _unusable(what: str, *, is_own: bool) -> Line:
    if is_own:
        return warning(
            CERTIFICATE, what, "start the peer again, which makes a new one: clients then have to trust that"
        )
    return problem(
        CERTIFICATE, what, "put a certificate for that host and its key where the settings name them"
    )
