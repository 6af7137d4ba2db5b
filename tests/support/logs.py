"""What tests of the log share: facts, a fold that remembers, a disk that fails as told, one that is full."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

import attrs
import msgspec
import orjson
import pytest
import trio

from actors.log.eventlog import EventLog, Fold
from actors.log.index import EventQuery
from actors.messages import events as e
from actors.messages.envelope import EnvelopeEncoder, Fact, Head
from adapters.clock.fake import FakeClock

SOURCE = "urn:best-peer:0123456789abcdef"
ENCODER = EnvelopeEncoder(SOURCE, {"PromptAnswered": "https://peer.example/events/PromptAnswered/1.0"})
EVERYTHING = EventQuery(reader=None)


def answered(
    text: str, *, holder: str | None = "h-1", correlation: str | None = None, causation: str | None = None
) -> Fact:
    """A fact with a content that a test knows again."""
    event = e.PromptAnswered("dep-1", text, "m.gguf", 1, 2, "stop")
    return Fact(event, holder, correlation, causation)


@attrs.define
class Memory:
    """A fold that remembers the contents it was given, and when."""

    contents: list[str] = attrs.field(factory=list)
    times: list[str] = attrs.field(factory=list)

    def apply(self, fact: Fact, time: str) -> None:
        self.contents.append(fact.event.content)
        self.times.append(time)

    def replay(self, head: Head) -> None:
        self.contents.append(msgspec.json.decode(head.data)["content"])
        self.times.append(head.time)


class Wall(Protocol):
    """Wall time."""

    def now_ms(self) -> int: ...


async def open_log(data: Path, fold: Fold | None = None, clock: Wall | None = None) -> EventLog:
    """A log that is read and not yet written."""
    return await EventLog.open(data, ENCODER, clock or FakeClock(), fold or Memory())


@asynccontextmanager
async def writing(log: EventLog) -> AsyncIterator[EventLog]:
    """Run the log's pen in the test's block; everything told is durable when it ends."""
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        yield log
        nursery.cancel_scope.cancel()


async def told(data: Path, *facts: Fact, clock: Wall | None = None) -> None:
    """Open a log, tell these one by one, and close it."""
    async with writing(await open_log(data, clock=clock)) as log:
        for fact in facts:
            await log.tell(fact)


def contents(lines: list[bytes]) -> list[str]:
    """What the facts on these lines say."""
    return [orjson.loads(line)["data"]["content"] for line in lines]


def ids(lines: list[bytes]) -> list[str]:
    """Their ids."""
    return [orjson.loads(line)["id"] for line in lines]


async def whole_page(log: EventLog, query: EventQuery = EVERYTHING, limit: int = 100) -> list[bytes]:
    """Every line that answers, by paging to the end."""
    lines: list[bytes] = []
    after: int | None = None
    while True:
        page = await log.page(query, after, limit)
        assert len(page.lines) <= limit
        lines += page.lines
        if page.after is None:
            return lines
        after = page.after


def day_files(data: Path) -> dict[str, bytes]:
    """The day files by name, with what is in them."""
    return {path.name: path.read_bytes() for path in sorted((data / "events").glob("*.jsonl"))}


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(os.listdir(folder))


def open_files() -> set[str]:
    """What this process holds open, below any temporary folder."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if "jsonl" in target:
                found.add(f"{number} {target}")
    return found


class Syncs:
    """In place of `os.fdatasync`: counted, held, and made to fail once for each error put here."""

    def __init__(self, real: Callable[[int], None]) -> None:
        self._real = real
        self.count = 0
        self.errors: deque[int] = deque()
        self._may_go = threading.Event()
        self._may_go.set()

    def __call__(self, fd: int) -> None:
        self.count += 1
        assert self._may_go.wait(20)
        if self.errors:
            number = self.errors.popleft()
            raise OSError(number, os.strerror(number))
        self._real(fd)

    def hold(self) -> None:
        """Let no sync end, until `release`."""
        self._may_go.clear()

    def release(self) -> None:
        self._may_go.set()


@contextmanager
def watched_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    """Replace fdatasync for a test."""
    syncs = Syncs(os.fdatasync)
    monkeypatch.setattr(os, "fdatasync", syncs)
    yield syncs
    syncs.release()


class FullDisk(Protocol):
    """A folder on a file system whose room a test takes away and gives back."""

    path: Path

    def fill(self) -> None:
        """From now on an append of a few kilobytes is written in part and then refused."""

    def free(self) -> None:
        """There is room again."""


@attrs.define
class SmallTmpfs:
    """A real small file system, really full. Needs root."""

    path: Path

    @classmethod
    @contextmanager
    def mounted(cls, path: Path, options: str = "size=512k") -> Iterator[SmallTmpfs]:
        path.mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", path],
            check=True,
            capture_output=True,
        )
        try:
            yield cls(path)
        finally:
            subprocess.run(["umount", path], check=True, capture_output=True)

    def fill(self) -> None:
        with open(self.path / "filler", "ab", buffering=0) as filler:
            for size in (65536, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def free(self) -> None:
        (self.path / "filler").unlink()


@attrs.define
class SizeLimit:
    """This process's limit on the size of a file, a few bytes above the largest here: for any user."""

    path: Path

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[SizeLimit]:
        path.mkdir(exist_ok=True)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            yield cls(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def fill(self) -> None:
        sizes = (p.stat().st_size for p in self.path.rglob("*") if p.is_file())
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes, default=0) + 100, hard))

    def free(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def can_mount(tmp: Path) -> bool:
    """Whether this user may mount a tmpfs."""
    try:
        with SmallTmpfs.mounted(tmp):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def no_room() -> OSError:
    """What a full disk says."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
