"""The client process: puts load on a server, prompts through a door, holds event streams open.

`python -m tests.support.bench.load` reads jobs as lines of JSON and answers each with a line. Raw sockets and
one epoll loop: it needs a tenth of what the servers need for a request, so it is never what is measured.
"""

from __future__ import annotations

import itertools
import json
import secrets
import select
import sys
import time
from collections.abc import Iterator
from statistics import median, quantiles
from typing import Any

from tests.support.bench.prompting import prompt_through_door
from tests.support.bench.readers import Readers
from tests.support.bench.wire import ID, BadAnswer, Wire

LAST_ANSWERS_SECONDS = 20.0


def run_load(job: dict[str, Any]) -> dict[str, Any]:
    """Ask the questions over and over, on so many connections, each as soon as its last one is answered.

    Args:
        job: `port`, `connections`, `questions` (texts), `status` (expected), and `seconds` or `count`.

    Returns:
        `count`, `seconds` and the `median` and `p99` seconds of one answer.
    """
    questions = _questions([text.encode("latin-1") for text in job["questions"]])
    status = str(job["status"]).encode()
    poll = select.epoll()
    wires = [Wire(job["port"]) for _ in range(job["connections"])]
    by_fd = {wire.socket.fileno(): wire for wire in wires}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    took: list[float] = []
    begun = time.perf_counter()
    end = begun + job.get("seconds", 3600)
    left = job.get("count", 1 << 60)
    waiting = 0
    for wire in wires[: min(len(wires), left)]:
        left -= 1
        waiting += 1
        _ask(wire, next(questions))
    last = begun
    while waiting:
        ready = poll.poll(LAST_ANSWERS_SECONDS)
        if not ready:
            raise BadAnswer(f"no answer for {LAST_ANSWERS_SECONDS:.0f} s")
        for fd, _ in ready:
            wire = by_fd[fd]
            if wire.receive(status) is None:
                continue
            last = time.perf_counter()
            took.append(last - wire.asked_at)
            waiting -= 1
            if wire.renew():
                del by_fd[fd]
                by_fd[wire.socket.fileno()] = wire
                poll.register(wire.socket.fileno(), select.EPOLLIN)
            if last < end and left > 0:
                left -= 1
                waiting += 1
                _ask(wire, next(questions))
    for wire in wires:
        wire.close()
    poll.close()
    return {"count": len(took), "seconds": last - begun, "median": median(took), "p99": _p99(took)}


def _ask(wire: Wire, question: bytes) -> None:
    wire.asked_at = time.perf_counter()
    wire.send(question)


def _questions(templates: list[bytes]) -> Iterator[bytes]:
    # Ids are new on every run of every client: a repeated one would be answered as a retry.
    prefix = secrets.token_hex(5).encode()
    for number, template in enumerate(itertools.cycle(templates)):
        yield template.replace(ID, prefix + b"%010d" % number)


def _p99(took: list[float]) -> float:
    return quantiles(took, n=100)[-1] if len(took) > 1 else took[0]


def main() -> None:
    """Carry out jobs until there are no more."""
    readers = Readers()
    kinds = {
        "load": run_load,
        "prompts": prompt_through_door,
        "open": readers.open,
        "await": readers.wait_for,
        "close": readers.close,
    }
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = kinds[job["do"]](job)
        except (BadAnswer, OSError) as error:
            answer = {"failed": f"{job['do']}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
