"""The certificate a peer makes itself: made, kept, renewed (F34).

It is one self-signed certificate and its own trust anchor: a client pins the file (``curl --cacert``,
``SSL_CERT_FILE``, ``NODE_EXTRA_CA_CERTS``). Making it again breaks every pin, so that happens only for a
stated reason. Blocks; for start-up.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import attrs
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapters.files import NotPrivate, make_private_folder, read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

LIFETIME: Final = timedelta(days=397)
"""How long a new certificate is good for: the longest that every client takes."""
RENEW_WITHIN: Final = timedelta(days=30)
"""A certificate with less left than this is made again at start."""
BACKDATED: Final = timedelta(days=1)
"""How far before now it begins, for clients whose clock is behind."""
MAX_NAMES: Final = 64
MAX_PEM: Final = 64 * 1024
"""The largest certificate or key file read, in bytes."""


@attrs.frozen(kw_only=True)
class CertificateState:
    """The certificate to serve with, and what was done about it."""

    cert_path: Path
    """PEM, for the server and for clients to pin."""
    key_path: Path
    """PEM, mode 0600."""
    made: bool
    """Whether it was made now, so that clients must pin it anew."""
    reason: str | None
    """Why it was made now, for the start-up line; None when it was kept."""
    not_before: datetime
    not_after: datetime


def ensure_certificate(
    folder: Path, host: str, extra_addresses: Iterable[str], now: datetime
) -> CertificateState:
    """Keep the certificate in ``folder``, or make it where it no longer serves.

    It is made again when there is none, the files are damaged or the key was open to others, the endpoint's
    host is not the one it was made for, or fewer than thirty days of it remain. A change of
    ``extra_addresses`` alone is no reason: they may come and go with a network.

    Args:
        folder: the peer's ``tls`` folder; made where it is missing.
        host: the endpoint's host, a name or an IP address without brackets.
        extra_addresses: further names and addresses to be reached by, the ones bound for instance; the local
            ones are always named.
        now: wall time, aware.

    Raises:
        OSError: it could not be written.
    """
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    names = _names([host, "localhost", "127.0.0.1", "::1", *extra_addresses])[:MAX_NAMES]
    reason, not_before, not_after = _why_made_again(cert_path, key_path, names[0], now)
    if reason is not None:
        make_private_folder(folder)
        certificate, key = _make(names, now)
        # The key first: a stop in between leaves a pair that does not match, which the next start finds.
        write_private(key_path, key)
        write_private(cert_path, certificate.public_bytes(serialization.Encoding.PEM))
        not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return CertificateState(
        cert_path=cert_path,
        key_path=key_path,
        made=reason is not None,
        reason=reason,
        not_before=not_before,
        not_after=not_after,
    )


def _why_made_again(
    cert_path: Path, key_path: Path, wanted: x509.GeneralName, now: datetime
) -> tuple[str | None, datetime, datetime]:
    """Why the certificate there does not serve (None: it does), and from when to when it is good."""
    if not cert_path.exists() and not key_path.exists():
        return "there was none yet", now, now
    try:
        # The certificate itself is no secret: its owner may well have opened the file to hand it out.
        with cert_path.open("rb") as file:
            certificate = x509.load_pem_x509_certificate(file.read(MAX_PEM))
        key = serialization.load_pem_private_key(read_private(key_path, MAX_PEM), password=None)
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        belongs = _public(key) == certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except FileNotFoundError as error:
        return f"{error.filename} was missing", now, now
    except NotPrivate as error:
        return str(error), now, now
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension):
        return "its files were damaged", now, now
    if not belongs:
        return "its key did not belong to it", now, now
    not_before, not_after = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    # The host it was made for is its first name: it bears others besides, and to be among them is not enough.
    if names[:1] != [wanted]:
        before = names[0].value if names else "none"
        reason = f"the endpoint's host changed from {before} to {wanted.value}"
    elif not_before > now:
        reason = f"it begins only on {not_before:%Y-%m-%d}, so the clock was set back"
    elif not_after - now < RENEW_WITHIN:
        reason = f"it ends on {not_after:%Y-%m-%d}, fewer than thirty days from now"
    else:
        reason = None
    return reason, not_before, not_after


def _public(key: PrivateKeyTypes) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """What a certificate can name of these hosts, each once and in order."""
    names: list[x509.GeneralName] = []
    for host in hosts:
        name: x509.GeneralName
        try:
            # An interface's name (fe80::1%eth0) means something on this machine alone.
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            name = x509.DNSName(host.lower().removesuffix("."))
        else:
            if address.is_unspecified:
                continue
            name = x509.IPAddress(address)
        if name not in names:
            names.append(name)
    return names


def _make(names: list[x509.GeneralName], now: datetime) -> tuple[x509.Certificate, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A subject of its own for each: a client that pins several peers tells their certificates apart by it.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"best-peer {serial:040x}"[:50])])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        # Not an authority: rustls refuses one as a server's certificate. And no key usage: without its
        # signing bit older OpenSSL takes no certificate as its own anchor; with it, RFC 5280 wants a CA.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate, pem
