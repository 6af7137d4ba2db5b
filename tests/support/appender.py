"""A program that tells facts and accepts commands as fast as it can, and prints what was acknowledged.

`python -m tests.support.appender FOLDER SEED WRITERS`: one line an acknowledgement, `told EVENT-CONTENT` or
`accepted ID`, written by one system call each, so that it is known however the program ends.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import msgspec
import trio

from actors.log import accepted as accepted_module
from actors.log.accepted import AcceptedLog, Record
from actors.log.eventlog import EventLog
from tests.support.logs import Memory, answered, open_log


async def _tell(log: EventLog, name: str, rng: random.Random) -> None:
    number = 0
    while True:
        texts = [f"{name}-{number + n}:" + "x" * rng.randrange(600) for n in range(rng.choice((1, 1, 2, 5)))]
        await log.tell(*(answered(text, correlation=f"c-{name}-{number}") for text in texts))
        os.write(1, "".join(f"told {text.split(':')[0]}\n" for text in texts).encode())
        number += len(texts)


async def _accept(log: AcceptedLog, unfinished: set[str], name: str, rng: random.Random) -> None:
    number = 0
    while True:
        identifier = f"{name}-{number}"
        data = msgspec.Raw(b'"%b"' % (b"x" * rng.randrange(900)))
        record = Record(
            id=identifier, holder=name, correlationid=f"c-{identifier}", hash="0", type="P", data=data
        )
        unfinished.add(identifier)
        await log.put(record).wait()
        os.write(1, f"accepted {identifier}\n".encode())
        if rng.random() < 0.9:
            unfinished.discard(identifier)
        number += 1


async def _main(folder: Path, seed: int, writers: int) -> None:
    rng = random.Random(seed)
    unfinished: set[str] = set()
    # Names that no earlier run used.
    run = sum(name.startswith("run-") for name in os.listdir(folder))
    os.close(os.open(folder / f"run-{run}", os.O_CREAT))
    # Small, so that a kill meets it being copied.
    accepted_module.COMPACT_BYTES = 30_000
    events = await open_log(folder, Memory())
    accepted = await AcceptedLog.open(
        folder / "accepted.jsonl",
        unfinished=lambda: unfinished,
        found=lambda record: None,
        kept=lambda record: None,
        failed=lambda record: None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(events.run)
        await nursery.start(accepted.run)
        for writer in range(writers):
            nursery.start_soon(_tell, events, f"{run}.{writer}", rng)
            nursery.start_soon(_accept, accepted, unfinished, f"{run}.{writer}", rng)
        os.write(1, b"running\n")


if __name__ == "__main__":
    trio.run(_main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
