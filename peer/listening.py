"""What to do where the door cannot listen on its address, as a start and `best-peer check` say it (F14)."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peer.addresses import Address


def listen_remedy(listen: Address, error: OSError) -> str:
    """What the machine's owner can do about an address that was refused.

    Args:
        listen: the address.
        error: what binding it met.
    """
    # An error of the resolver's has a number of its own, which may be that of another error of the system's.
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return (
            "set BEST_PEER_LISTEN to an address of this machine (ip addr lists them), "
            f"or to 0.0.0.0:{listen.port} to listen on all of them"
        )
    if error.errno == errno.EACCES:
        return "set BEST_PEER_LISTEN to a port from 1024 on"
    return "set BEST_PEER_LISTEN to a free address and port, or end what listens there"
