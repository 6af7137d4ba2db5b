"""Where the container engine listens, as Docker's own variables say it."""

import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

DEFAULT_SOCKET: Final = Path("/var/run/docker.sock")
TLS_PORT: Final = 2376
PLAIN_PORT: Final = 2375
SUPPORTED: Final = "unix:///path/to/docker.sock, or tcp://host:2376 with DOCKER_TLS_VERIFY=1"


class EndpointRefused(Exception):
    """Raised when Docker's variables name an engine that the peer does not talk to, with what to set."""

    def __init__(self, reason: str, *, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


@attrs.frozen
class Endpoint:
    """One engine's address: a socket of this machine, or TCP.

    Args:
        base_url: what requests are addressed to, `http://docker` for a socket.
        socket: the socket's path; None for TCP.
        tls: how the engine proves itself and we to it; None for a socket and for TCP on loopback.
    """

    base_url: str
    socket: Path | None = None
    tls: ssl.SSLContext | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        return f"unix://{self.socket}" if self.socket is not None else self.base_url


def unix_endpoint(socket: Path = DEFAULT_SOCKET) -> Endpoint:
    """An engine behind a socket of this machine."""
    return Endpoint("http://docker", socket=socket)


def endpoint_from(environment: Mapping[str, str], *, home: Path) -> Endpoint:
    """The engine that `DOCKER_HOST`, `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH` name.

    `home` is the folder that `.docker` lies in, where certificates are when no path says otherwise.

    Raises:
        EndpointRefused: it is reached over what the peer does not speak, or is not protected.
    """
    host = environment.get("DOCKER_HOST", "").strip()
    if not host:
        return unix_endpoint()
    scheme, separator, rest = host.partition("://")
    if separator and scheme == "unix":
        if not rest.startswith("/"):
            raise EndpointRefused(
                f"DOCKER_HOST={host} names no absolute path", fix=f"set DOCKER_HOST to {SUPPORTED}"
            )
        return unix_endpoint(Path(rest))
    if separator and scheme == "tcp":
        return _tcp(host, environment, home)
    raise EndpointRefused(
        f"DOCKER_HOST={_without_credentials(host)} is no address the peer can use",
        fix=f"set DOCKER_HOST to {SUPPORTED}; for an engine behind ssh, forward its socket "
        "(ssh -L /run/user/1000/docker.sock:/var/run/docker.sock host) and name the forwarded one",
    )


def _tcp(host: str, environment: Mapping[str, str], home: Path) -> Endpoint:
    try:
        parts = urlsplit(host)
        name, port = parts.hostname, parts.port
    except ValueError:
        name = port = None
        parts = urlsplit("")
    if not name or parts.path.strip("/") or parts.query or parts.username is not None:
        raise EndpointRefused(
            f"DOCKER_HOST={_without_credentials(host)} is no host and port",
            fix=f"set DOCKER_HOST to {SUPPORTED}",
        )
    shown = f"[{name}]" if ":" in name else name
    if environment.get("DOCKER_TLS_VERIFY"):
        folder = Path(environment.get("DOCKER_CERT_PATH") or home / ".docker")
        return Endpoint(f"https://{shown}:{port or TLS_PORT}", tls=_mutual_tls(folder))
    if not _is_loopback(name):
        # Whoever reads or writes on the way to an engine is root on its machine.
        raise EndpointRefused(
            f"DOCKER_HOST={host} would be asked in the clear, over a network",
            fix="set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to a folder with ca.pem, cert.pem and key.pem",
        )
    return Endpoint(f"http://{shown}:{port or PLAIN_PORT}")


def _mutual_tls(folder: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem", password=_no_password)
    except (OSError, ValueError) as error:
        # ssl.SSLError is an OSError. A protected key ends here instead of asking on a terminal.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise EndpointRefused(
            f"the certificates in {folder} cannot be used: {reason}",
            fix="put ca.pem, cert.pem and key.pem (without a password) there, readable by the peer's user, "
            "or name another folder by DOCKER_CERT_PATH",
        ) from error
    return context


def _no_password() -> str:
    raise ValueError("key.pem asks for a password")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _without_credentials(host: str) -> str:
    scheme, separator, rest = host.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"[:200]
