"""What is said of an address that cannot be listened on depends on why."""

from __future__ import annotations

import errno
import socket

import pytest

from peer.addresses import Address
from peer.listening import listen_remedy

LISTEN = Address("192.0.2.7", 7777)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRNOTAVAIL, ""), "or to 0.0.0.0:7777"),
        (socket.gaierror(socket.EAI_NONAME, ""), "an address of this machine"),
        (OSError(errno.EACCES, ""), "a port from 1024 on"),
        (OSError(errno.EADDRINUSE, ""), "end what listens there"),
    ],
)
def test_each_reason_has_a_remedy_of_its_own(error: OSError, said: str) -> None:
    assert said in listen_remedy(LISTEN, error)
