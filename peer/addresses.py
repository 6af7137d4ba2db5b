"""Where the peer listens and what address it advertises (F33, F34): parsing, and what counts as loopback.

A credential travels in every request, so "is this loopback" decides whether plain http is served. What cannot
be shown to be loopback is not: a name other than ``localhost`` counts as elsewhere, whatever it resolves to.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal
from urllib.parse import urlsplit

import attrs

LISTEN_EXPECTED: Final = "host:port or [v6]:port"
ENDPOINT_EXPECTED: Final = "http:// or https:// with a host, and a port or a path where needed; no query"
HOST_EXPECTED: Final = "an IP address or a host name"
MAX_ENDPOINT: Final = 512
"""The longest endpoint read, in characters: it stands before every URL in every document of the door."""

Scheme = Literal["http", "https"]
_DEFAULT_PORTS: Final = (("http", 80), ("https", 443))
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_PATH = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]+)*", re.ASCII)
# ip_address takes anything at all as the interface after "%".
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]+(?:%[A-Za-z0-9._-]{1,32})?", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


class AddressError(ValueError):
    """Raised when a text is not an address or an endpoint; the text says what was expected."""


@attrs.frozen
class Address:
    """A host and a TCP port to listen on; port 0 lets the system choose one."""

    host: str
    """An IP address in its shortest form, without brackets, or a host name in lower case."""
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    @property
    def is_every_interface(self) -> bool:
        """Whether it listens wherever the machine is reachable, so that it names no address to advertise."""
        address = _ip(self.host)
        mapped = getattr(address, "ipv4_mapped", None)
        return address is not None and (
            address.is_unspecified or (mapped is not None and mapped.is_unspecified)
        )

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


@attrs.frozen
class Endpoint:
    """The base URL that consumers are told, with no slash at its end."""

    scheme: Scheme
    host: str
    """As in `Address`: no brackets, lower case."""
    port: int
    """The scheme's own where the URL names none; 0 while the system has yet to choose it."""
    path: str = ""
    """Empty, or a path that starts with a slash and does not end with one."""

    @property
    def is_loopback(self) -> bool:
        """Whether its host is this machine for whoever reads it."""
        return is_loopback(self.host)

    def at_port(self, port: int) -> Endpoint:
        """The same endpoint with the port the listener was bound to, where its own was left open (0)."""
        return self if self.port else attrs.evolve(self, port=port)

    def __str__(self) -> str:
        port = "" if (self.scheme, self.port) in _DEFAULT_PORTS else f":{self.port}"
        return f"{self.scheme}://{bracketed(self.host)}{port}{self.path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: 127.0.0.0/8, ::1 or ``localhost``."""
    address = _ip(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def bracketed(host: str) -> str:
    """A host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def parse_host(text: str) -> str:
    """Read an IP address (IPv6 with or without brackets) or a host name, and give its plain form.

    Raises:
        AddressError: it is neither.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    address = _ip(bare)
    if address is not None and (bare == text or address.version == 6) and _ADDRESS.fullmatch(bare):
        return str(address)
    labels = text.removesuffix(".").split(".")
    # A name whose last part is a number is an old spelling of an IPv4 address ("0", "127.1"): the resolver
    # would turn it into an address that nobody reads in it.
    if (
        len(text) > 253
        or not all(_LABEL.fullmatch(label) for label in labels)
        or re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1], re.IGNORECASE)
    ):
        raise AddressError(f"expected {HOST_EXPECTED}")
    return text.lower()


def parse_listen(text: str) -> Address:
    """Read ``host:port`` or ``[v6]:port``; port 0 is allowed.

    Raises:
        AddressError: it is not of that form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or (":" in host and not host.startswith("[")):
        raise AddressError(f"expected {LISTEN_EXPECTED}")
    if int(port) > 65535:
        raise AddressError("expected a port from 0 to 65535")
    try:
        return Address(parse_host(host), int(port))
    except AddressError:
        raise AddressError(f"expected {LISTEN_EXPECTED}") from None


def parse_endpoint(text: str) -> Endpoint:
    """Read a base URL: http or https, a host, a port and a path if any; a slash at its end is left off.

    Port 0 stands for the one the door will listen on.

    Raises:
        AddressError: it is no such URL; the text names the part that is off.
    """
    if len(text) > MAX_ENDPOINT:
        raise AddressError(f"expected at most {MAX_ENDPOINT} characters")
    # urlsplit drops control characters in silence and reads most texts as some URL: both are ruled out here.
    if not text.isascii() or not text.isprintable() or " " in text:
        raise AddressError("expected plain ASCII, a host name in its xn-- form and no space")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise AddressError(f"expected {ENDPOINT_EXPECTED}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AddressError(f"expected {ENDPOINT_EXPECTED}")
    if "@" in parts.netloc:
        raise AddressError("expected no user name or password in it")
    if "?" in text or "#" in text:
        raise AddressError("expected no query and no fragment")
    if parts.netloc.endswith(":"):
        raise AddressError("expected a port, or none and no colon")
    path = parts.path.rstrip("/")
    if not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise AddressError("expected a plain path, or none")
    host = parse_host(bracketed(parts.hostname))
    if "%" in host:
        raise AddressError("expected a host that others can reach, without an interface's name (%...)")
    if Address(host, 0).is_every_interface:
        raise AddressError("expected the one address that consumers reach, not every interface")
    scheme: Scheme = "https" if parts.scheme == "https" else "http"
    return Endpoint(scheme, host, dict(_DEFAULT_PORTS)[scheme] if port is None else port, path)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
