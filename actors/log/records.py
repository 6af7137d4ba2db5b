"""A small file of records that are all kept: keys. Appended with group commit, folded at start."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import trio

from actors.log.journal import Batch, Journal
from actors.log.linefile import LineFile, lines_of

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
            OSError: the file cannot be read or written.
            msgspec.DecodeError: a line that is not the last is no record.
        """
        file = LineFile(path)
        decode = msgspec.json.Decoder(kind).decode
        offset = 0
        for line in lines_of(path):
            if not line.endswith(b"\n"):
                break
            apply(decode(line))
            offset += len(line)
        file.set_aside_from(offset)
        return cls(file, apply)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled."""
        try:
            await self._journal.run(task_status=task_status)
        finally:
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
