"""Telling systemd that the door is open: one datagram to the socket it names, as sd_notify(3) says."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET: Final = "NOTIFY_SOCKET"
SECONDS: Final = 1.0
"""The socket's queue is systemd's to empty; a peer that serves does not wait for it."""


def notify(environ: Mapping[str, str], **fields: str) -> None:
    """Tell a service manager, where one asked to be told; that it cannot be told is no reason not to serve.

    Args:
        environ: the environment, which says where.
        fields: what to tell, such as ``READY="1"``; no value may have a line's end in it.
    """
    address = environ.get(SOCKET, "")
    if address[:1] not in ("/", "@"):
        return
    text = "".join(f"{name}={value}\n" for name, value in fields.items() if "\n" not in value)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(SECONDS)
        # A name of Linux's own name space for sockets begins with a zero byte, written as "@".
        sock.sendto(text.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
