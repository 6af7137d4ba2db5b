"""Event streams held open by the client process, and what has arrived on them."""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from tests.support.bench.wire import BadAnswer

FRAME = b"data: "
"""What each event's frame has once: its count is the count of events."""


class _Reader:
    __slots__ = ("count", "seen", "socket", "tail")

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.tail = b""
        self.count = 0
        self.seen = b""


class Readers:
    """Many subscribers in one loop. Those that stall never read, and have a small buffer to fill."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, _Reader] = {}
        self._stalled: list[socket.socket] = []

    def open(self, job: dict[str, Any]) -> dict[str, Any]:
        """Open `count` streams at `port` with the `question`, `stalled` or not; answers once all are open."""
        question = job["question"].encode("latin-1")
        for _ in range(job["count"]):
            opened = socket.socket()
            if job.get("stalled"):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            opened.settimeout(20)
            opened.connect(("127.0.0.1", job["port"]))
            opened.sendall(question)
            head = b""
            while b": open\n\n" not in head:
                got = opened.recv(4096)
                head += got
                if not got or not head.startswith(b"HTTP/1.1 200"):
                    raise BadAnswer(head[:300].decode("latin-1") or "the stream was closed at once")
            opened.setblocking(False)
            if job.get("stalled"):
                self._stalled.append(opened)
            else:
                self._readers[opened.fileno()] = _Reader(opened)
                self._poll.register(opened.fileno(), select.EPOLLIN)
        return {"open": len(self._readers), "stalled": len(self._stalled)}

    def wait_for(self, job: dict[str, Any]) -> dict[str, Any]:
        """Read until `marker` was seen on every stream; each must have had `events` since the last time."""
        marker = job["marker"].encode()
        keep = max(len(marker), len(FRAME)) - 1
        missing = set(self._readers)
        deadline = time.monotonic() + job.get("within", 60)
        while missing:
            ready = self._poll.poll(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise BadAnswer(f"{len(missing)} streams did not get {job['marker']}")
            for fd, _ in ready:
                reader = self._readers[fd]
                got = reader.socket.recv(1 << 20)
                if not got:
                    raise BadAnswer("a stream was closed by the server")
                text = reader.tail + got
                reader.count += text.count(FRAME) - reader.tail.count(FRAME)
                reader.tail = text[-keep:]
                if fd in missing and marker in text:
                    missing.discard(fd)
        counts = {reader.count for reader in self._readers.values()}
        for reader in self._readers.values():
            reader.count = 0
        if counts - {job["events"]}:
            raise BadAnswer(f"expected {job['events']} events on each stream, got {sorted(counts)}")
        return {"streams": len(self._readers), "events": job["events"]}

    def close(self, job: dict[str, Any]) -> dict[str, Any]:
        """Close all."""
        for reader in self._readers.values():
            self._poll.unregister(reader.socket.fileno())
            reader.socket.close()
        for stalled in self._stalled:
            stalled.close()
        closed = len(self._readers) + len(self._stalled)
        self._readers.clear()
        self._stalled.clear()
        return {"closed": closed}
