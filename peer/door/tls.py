"""How the door speaks TLS: 1.2 at least, with forward secrecy, and HTTP/1.1 inside it (F34)."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from pathlib import Path

    import trio


@attrs.frozen
class Tls:
    """Where the certificate chain and its key are, both PEM, and the key's password if it has one."""

    certificate: Path
    key: Path
    password: str | None = attrs.field(default=None, repr=False)


def server_context(tls: Tls) -> ssl.SSLContext:
    """What a server needs to show a certificate. Reads both files, so it blocks.

    Raises:
        OSError: a file cannot be read, or the two do not belong together (``ssl.SSLError``).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2; those of 1.3 are all good
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])  # there is no other protocol behind it; most clients offer h2
    # A key with a password and none given would make OpenSSL ask for it at the terminal.
    context.load_cert_chain(tls.certificate, tls.key, tls.password or "")
    return context


async def begins_in_the_clear(transport: trio.SocketStream) -> bool:
    """Whether a client's first byte begins a request in the clear: the upper-case letter of a method.

    No record of TLS begins with one. The byte stays where it is, for who reads the connection next. Waits for
    it as long as the client likes.

    Raises:
        trio.ClosedResourceError: the connection was closed here meanwhile.
    """
    try:
        first = await transport.socket.recv(1, socket.MSG_PEEK)
    except OSError:
        return False  # what reads next meets it again
    return first.isupper()
