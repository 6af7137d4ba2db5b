"""Prompts through the door, as an agent sends them: a command each, and one event stream for all answers."""

from __future__ import annotations

import secrets
import select
import socket
import time
from statistics import median
from typing import Any

from tests.support.bench.wire import ID, BadAnswer, Wire

_CORRELATION = b'"correlationid":"'


class _Answers:
    """The event stream: the correlation ids of the facts that have arrived."""

    def __init__(self, port: int, question: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.sendall(question)
        self._received = b""
        while b": open\n\n" not in self._received:
            got = self.socket.recv(4096)
            self._received += got
            if not got or not self._received.startswith(b"HTTP/1.1 200"):
                raise BadAnswer(self._received[:300].decode("latin-1"))
        self._received = b""
        self.socket.setblocking(False)

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Each whole frame that has arrived: its correlation id, and itself."""
        got = self.socket.recv(1 << 18)
        if not got:
            raise BadAnswer("the event stream was closed")
        *frames, self._received = (self._received + got).split(b"\n\n")
        found = []
        for frame in frames:
            at = frame.find(_CORRELATION)
            if at >= 0:
                at += len(_CORRELATION)
                found.append((frame[at : frame.index(b'"', at)], frame))
        return found


def prompt_through_door(job: dict[str, Any]) -> dict[str, Any]:
    """So many users at once, each sending its next prompt when the last one's answer stood on the stream.

    Args:
        job: `port`, `users`, `count` in all, `question` (the command, with `ID`), `stream` (the request), and
            the `fact` that answers; `patience`, how many seconds may pass with nothing new, 60 without.

    Returns:
        `count`, `seconds`, and the `median` seconds from command to fact.
    """
    fact = f'"type":"{job["fact"]}"'.encode()
    patience = job.get("patience", 60)
    template = job["question"].encode("latin-1")
    answers = _Answers(job["port"], job["stream"].encode("latin-1"))
    poll = select.epoll()
    poll.register(answers.socket.fileno(), select.EPOLLIN)
    wires = [Wire(job["port"]) for _ in range(job["users"])]
    by_fd = {wire.socket.fileno(): wire for wire in wires}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    prefix = secrets.token_hex(5)
    asked: dict[bytes, tuple[Wire, float]] = {}
    # What a user still waits for: the receipt and the answer, whichever comes first.
    missing: dict[Wire, int] = {}
    left, number, took = job["count"], 0, list[float]()

    def ask(wire: Wire) -> None:
        nonlocal left, number
        left -= 1
        number += 1
        name = f"{prefix}{number:010d}".encode()
        missing[wire] = 2
        asked[name] = (wire, time.perf_counter())
        wire.send(template.replace(ID, name))

    def done(wire: Wire) -> None:
        missing[wire] -= 1
        if not missing[wire] and left > 0:
            ask(wire)

    begun = time.perf_counter()
    for wire in wires:
        ask(wire)
    while len(took) < job["count"]:
        ready = poll.poll(patience)
        if not ready:
            raise BadAnswer(f"no answer for {patience} s")
        for fd, _ in ready:
            if fd != answers.socket.fileno():
                wire = by_fd[fd]
                if wire.receive(b"201") is not None:
                    if wire.renew():
                        del by_fd[fd]
                        by_fd[wire.socket.fileno()] = wire
                        poll.register(wire.socket.fileno(), select.EPOLLIN)
                    done(wire)
                continue
            for correlation, frame in answers.receive():
                if correlation not in asked:
                    continue
                if fact not in frame:
                    raise BadAnswer(frame[:600].decode("latin-1"))
                wire, at = asked.pop(correlation)
                took.append(time.perf_counter() - at)
                done(wire)
    lasted = time.perf_counter() - begun
    for wire in wires:
        wire.close()
    answers.socket.close()
    poll.close()
    return {"count": len(took), "seconds": lasted, "median": median(took)}
