"""One connection of a load client: a raw socket kept alive, and enough HTTP/1.1 to know an answer's end."""

from __future__ import annotations

import socket

ID = b"@@@@@@@@ID@@@@@@@@@@"
"""Where a question needs an id of its own; as long as the id."""

_CLOSE = b"connection: close"
_LENGTH = b"content-length:"
_CHUNKED = b"transfer-encoding: chunked"


class BadAnswer(Exception):
    """Raised when an answer is not the expected one; the text shows its beginning."""


class Wire:
    """A connection that asks one question at a time, and connects anew when the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._received = bytearray()
        self._closes = False
        self.asked_at = 0.0
        self.socket = self._connect()

    def send(self, question: bytes) -> None:
        """Send a whole question; it fits the socket's buffer."""
        sent = self.socket.send(question)
        if sent != len(question):
            raise BadAnswer(f"only {sent} of {len(question)} bytes could be sent at once")

    def receive(self, status: bytes) -> bytes | None:
        """Take what has arrived: the answer's body once it is whole, else None.

        Raises:
            BadAnswer: its status is another one, or the connection was closed.
        """
        got = self.socket.recv(1 << 18)
        if not got:
            raise BadAnswer("the server closed the connection before it had answered")
        self._received += got
        at = self._received.find(b"\r\n\r\n")
        if at < 0:
            return None
        head = bytes(self._received[:at]).lower()
        if not head.startswith(b"http/1.1 " + status):
            raise BadAnswer(bytes(self._received[:600]).decode("latin-1"))
        body = self._body(head, at + 4)
        if body is not None:
            self._received.clear()
            self._closes = _CLOSE in head
        return body

    def renew(self) -> bool:
        """After an answer: connect again where the server said that it closes; whether it did."""
        if not self._closes:
            return False
        self.socket.close()
        self._closes = False
        self.socket = self._connect()
        return True

    def close(self) -> None:
        """Let it go."""
        self.socket.close()

    def _body(self, head: bytes, start: int) -> bytes | None:
        at = head.find(_LENGTH)
        if at >= 0:
            end = start + int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
            return bytes(self._received[start:end]) if len(self._received) >= end else None
        if _CHUNKED in head:
            return bytes(self._received[start:]) if self._received.endswith(b"0\r\n\r\n") else None
        raise BadAnswer(f"an answer without a length: {head.decode('latin-1')}")

    def _connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        return made
