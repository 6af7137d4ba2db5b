"""A small file of records that are all kept: keys. Appended with group commit, folded at start."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import trio

from actors.log.journal import Batch, Journal
from actors.log.linefile import Damaged, LineFile, lines_of

R = TypeVar("R")


class RecordLog(Generic[R]):
    """One file of one kind of record; made by `open`, written by `run`."""

    def __init__(self, file: LineFile, apply: Callable[[R], None]) -> None:
        self._file = file
        self._apply = apply
        self._encode = msgspec.json.Encoder().encode
        self._journal = Journal[R, bytes](
            prepare=lambda records: b"".join(self._encode(r) + b"\n" for r in records),
            write=self._write,
            committed=self._committed,
        )

    @classmethod
    async def open(cls, path: Path, kind: object, apply: Callable[[R], None]) -> "RecordLog[R]":
        """Read and fold what there is; cut off what a crash tore.

        Args:
            path: the file, made when missing.
            kind: the records' type, as msgspec decodes it.
            apply: folds one record.

        Raises:
            Damaged: a record cannot be read, or what stands before one is none. Passing over it might
                bring back a key that was revoked.
            OSError: the file cannot be read or written.
        """
        file = LineFile(path)
        try:
            file.set_aside_from(_fold(path, msgspec.json.Decoder(kind).decode, apply))
        except BaseException:
            file.close()
            raise
        return cls(file, apply)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled."""
        try:
            await self._journal.run(task_status=task_status)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file: for who opened a log and does not run it."""
        self._file.close()

    def put(self, record: R) -> Batch[R]:
        """Put a record; wait on the batch.

        Raises:
            JournalUnavailable: nothing was put.
        """
        return self._journal.put(record)

    async def append(self, record: R) -> None:
        """Put a record and wait until it is durable and folded.

        Raises:
            NoRoom, JournalUnavailable: see `Batch.wait`.
        """
        await self._journal.append(record)

    def _write(self, data: bytes) -> None:
        self._file.append(data)

    def _committed(self, records: list[R], data: bytes) -> None:  # noqa: ARG002 - the journal's signature
        for record in records:
            self._apply(record)


def _fold(path: Path, decode: Callable[[bytes], R], apply: Callable[[R], None]) -> int:
    """Apply each record of a file; where its last whole one ends."""
    start = good = 0
    for line in lines_of(path):
        end = start + len(line)
        record = _decoded(path, decode, line, start)
        if record is not None:
            if good != start:
                raise _damaged(path, f"bytes {good} to {start} are no record, and records follow them")
            apply(record)
            good = end
        start = end
    return good


def _decoded(path: Path, decode: Callable[[bytes], R], line: bytes, start: int) -> R | None:
    """The record; None for what a torn write may have left."""
    if not line.endswith(b"\n"):
        return None
    try:
        return decode(line)
    except msgspec.ValidationError as error:
        # Whole, so not torn: another version wrote it, and what it took back must not be granted again.
        raise _damaged(path, f"the record at byte {start} is of no kind known here ({error})") from error
    except msgspec.DecodeError:
        return None


def _damaged(path: Path, what: str) -> Damaged:
    fix = "start the version that wrote it, or put back a copy of the file"
    return Damaged(errno.EILSEQ, f"{what}; {fix}", str(path))
