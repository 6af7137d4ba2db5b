"""Where the door listens, whether it is reached at its endpoint, and what may stand in between (F33, F34)."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs
import httpx
import trio

from peer.checks.line import ok, problem, warning
from peer.checks.users import user_name
from peer.listening import listen_remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peer.addresses import Address, Endpoint
    from peer.checks.line import Line

PORT: Final = "port"
ENDPOINT: Final = "endpoint"
FIREWALL: Final = "firewall"
MANIFEST: Final = "/.well-known/best"
ANSWER_SECONDS: Final = 5.0
MAX_ANSWER: Final = 1024 * 1024
LISTENING: Final = "0A"
"""A TCP socket's state in /proc/net/tcp while it listens."""
MAX_TABLE: Final = 4 * 1024 * 1024

Origin = Literal["here", "elsewhere", "unknown"]
"""Whose an address is: this machine's, another's, or nobody's that is known."""


def port_lines(listen: Address, own: Sequence[str]) -> tuple[Line, ...]:
    """Whether the address to listen on can be taken, or has our own peer on it.

    Args:
        listen: the address.
        own: the addresses that the running peer is bound to, as its record has them.
    """
    if str(listen) in own or (listen.port == 0 and own):
        return (ok(PORT, f"this machine's own peer listens on {', '.join(own)}"),)
    if listen.port == 0:
        return (ok(PORT, f"the system chooses a free port on {listen.host} at each start"),)
    try:
        _try(listen)
    except socket.gaierror as error:
        what = f"{listen.host} is no address this machine knows ({error.strerror})"
        return (problem(PORT, what, listen_remedy(listen, error)),)
    except OSError as error:
        return (problem(PORT, _why(listen, error), listen_remedy(listen, error)),)
    return (ok(PORT, f"{listen} is free"),)


def _try(listen: Address) -> None:
    """Bind as a peer would and let go at once, without listening; raises OSError as a peer would meet it."""
    family, kind, proto, _, address = socket.getaddrinfo(
        listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, proto) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, listen.host != "::")
        sock.bind(address)


def _why(listen: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        user = listener(listen.port, Path("/proc/net"))
        who = "another program" if user is None else f"a program of user {user}"
        return f"{who} listens on port {listen.port} already, so {listen} cannot be taken"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{listen.host} is no address of this machine"
    if error.errno == errno.EACCES:
        return f"this user may not listen on {listen}: ports below 1024 are root's"
    return f"{listen} cannot be listened on: {error.strerror or error}"


def listener(port: int, tables: Path) -> str | None:
    """The user whose program listens on a port, as the kernel's tables say it; None where they do not."""
    for name in ("tcp", "tcp6"):
        try:
            with (tables / name).open(encoding="ascii", errors="replace") as file:
                rows = file.read(MAX_TABLE).splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if len(fields) > 7 and fields[3] == LISTENING and fields[1].endswith(f":{port:04X}"):
                return user_name(int(fields[7]))
    return None


@attrs.frozen
class Asked:
    """What came of asking a door for its manifest at its endpoint.

    Args:
        status: HTTP's; None where none came.
        fault: why none came, in words.
        is_untrusted: the connection failed over its certificate.
    """

    status: int | None = None
    fault: str = ""
    is_untrusted: bool = False


async def endpoint_lines(
    endpoint: Endpoint, certificate: Path | None, *, is_served: bool
) -> tuple[Line, ...]:
    """Whether consumers reach the endpoint, as far as this machine can tell.

    Args:
        endpoint: what they are told, its port known.
        certificate: the file that they may be given to trust; None over plain http.
        is_served: whether a peer serves it now.
    """
    try:
        with trio.fail_after(ANSWER_SECONDS):
            found = await trio.socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except trio.TooSlowError:
        return (_unresolved(endpoint, f"no name server answered within {ANSWER_SECONDS:g} seconds"),)
    except (OSError, UnicodeError) as error:
        return (_unresolved(endpoint, getattr(error, "strerror", None) or str(error)),)
    addresses = sorted({str(each[4][0]) for each in found})
    origin = origin_of(addresses)
    if not is_served:
        return (resolved(endpoint, addresses, origin),)
    asked = await ask(endpoint, certificate)
    if asked.is_untrusted and certificate is not None:
        # With the machine's own authorities: a certificate of the owner's that clients trust anyhow.
        asked = await ask(endpoint, None)
    return (reached(endpoint, asked, origin),)


def _unresolved(endpoint: Endpoint, why: str) -> Line:
    return problem(
        ENDPOINT,
        f"{endpoint.host}, the host of {endpoint}, has no address here ({why})",
        "set BEST_PEER_ENDPOINT to an address or a name that consumers can look up",
    )


def resolved(endpoint: Endpoint, addresses: Sequence[str], origin: Origin) -> Line:
    """The line for an endpoint that nobody serves yet."""
    where = f"{endpoint} is at {', '.join(addresses)}"
    if origin == "here":
        return ok(ENDPOINT, f"{where}, which is this machine")
    return warning(
        ENDPOINT,
        f"{where}, which is no address of this machine",
        "nothing is to be done where a router or a proxy forwards it here; else set BEST_PEER_ENDPOINT to an "
        "address of this machine",
    )


def reached(endpoint: Endpoint, asked: Asked, origin: Origin) -> Line:
    """The line for an endpoint that is asked while a peer serves."""
    if asked.status == httpx.codes.OK:
        return ok(ENDPOINT, f"{endpoint}{MANIFEST} answers")
    if asked.status is not None:
        return problem(
            ENDPOINT,
            f"{endpoint}{MANIFEST} answers {asked.status}: it is no peer's door",
            "set BEST_PEER_ENDPOINT to where this peer is reached, or mend the proxy before it",
        )
    if asked.is_untrusted:
        return problem(
            ENDPOINT,
            f"the certificate that {endpoint} shows is not to be trusted ({asked.fault})",
            "see what listens there, and that its certificate names the endpoint's host",
        )
    what = f"{endpoint} does not answer from here ({asked.fault})"
    if origin == "here":
        return problem(
            ENDPOINT,
            what,
            "see that BEST_PEER_LISTEN covers that address, and that no firewall closes it",
        )
    return warning(
        ENDPOINT,
        what,
        "try it from another network: many routers do not lead back to themselves; forward the port there",
    )


async def ask(endpoint: Endpoint, certificate: Path | None) -> Asked:
    """Ask for the manifest as a consumer would, trusting one certificate or the machine's authorities."""
    try:
        context = await trio.to_thread.run_sync(_trust, certificate)
    except OSError as error:
        return Asked(fault=f"{certificate} cannot be read: {error.strerror or error}", is_untrusted=True)
    try:
        with trio.fail_after(ANSWER_SECONDS):
            # No environment: a proxy that is set for the web would answer in the door's place.
            async with (
                httpx.AsyncClient(verify=context, trust_env=False, timeout=ANSWER_SECONDS) as client,
                client.stream("GET", f"{endpoint}{MANIFEST}") as answer,
            ):
                return Asked(answer.status_code)
    except trio.TooSlowError:
        return Asked(fault=f"no answer within {ANSWER_SECONDS:g} seconds")
    except httpx.HTTPError as error:
        return Asked(fault=str(error) or type(error).__name__, is_untrusted=_is_about_trust(error))


def _trust(certificate: Path | None) -> ssl.SSLContext:
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cafile=str(certificate))
    # The file itself is the anchor, whoever signed it; its names and dates are looked at as a client would.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _is_about_trust(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def origin_of(addresses: Sequence[str]) -> Origin:
    """Whether addresses are this machine's: the first that can be told decides.

    A datagram socket is bound to a port of the system's choice and closed; nothing is sent.
    """
    told: Origin = "unknown"
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                told = "elsewhere"
            continue
        return "here"
    return told


def firewall_lines(listen: Address, root: Path = Path("/")) -> tuple[Line, ...]:
    """What this machine's firewall may do to who comes from elsewhere: a hint, since its rules are root's.

    Args:
        listen: where the door listens.
        root: the file system, for tests.
    """
    if listen.is_loopback:
        return ()
    port = listen.port or "PORT"
    for name, is_on, remedy in (
        ("ufw", _ufw(root), f"sudo ufw allow {port}/tcp"),
        (
            "firewalld",
            (root / "run/firewalld.pid").exists() or (root / "run/firewalld/firewalld.pid").exists(),
            f"sudo firewall-cmd --add-port={port}/tcp --permanent && sudo firewall-cmd --reload",
        ),
        ("nftables", _nftables(root), f"add to its input chain: tcp dport {port} accept"),
    ):
        if is_on:
            return (
                warning(
                    FIREWALL,
                    f"{name} is on and may keep others from port {port} (its rules are shown to root alone)",
                    f"if others cannot reach the door: {remedy}",
                ),
            )
    return (
        ok(
            FIREWALL,
            "none of this machine's is seen (ufw, firewalld, nftables); one before it, a router's or a "
            "provider's, cannot be seen from here",
        ),
    )


def _ufw(root: Path) -> bool:
    return "ENABLED=yes" in _text(root / "etc/ufw/ufw.conf").split()


def _nftables(root: Path) -> bool:
    wanted = root / "etc/systemd/system/sysinit.target.wants/nftables.service"
    text = " ".join(_text(root / "etc/nftables.conf").split())
    return os.path.lexists(wanted) and "policy drop" in text


def _text(path: Path) -> str:
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_ANSWER)
    return ""
