"""`accepted.jsonl`: every command the door took, so that none is lost and a retry is answered (F3, F8).

A command is kept whole until it completes, then as id, hash, holder and correlation. Ids and correlations
are one space of names, each owned by the credential that used it first.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
import trio

from actors.log.journal import Batch, Journal, JournalStatistics
from actors.log.keyrows import KeyRows
from actors.log.linefile import LineFile, NoRoom, lines_of, sync_folder

logger = logging.getLogger("best_peer.log")

COMPACT_BYTES = 16 << 20
"""The file is compacted at start, and when it has doubled past this many bytes."""

_WORTHWHILE = 8
"""At start: when at least one in so many commands has completed and still stands there whole."""

_COPY_BYTES = 8 << 20
_CHECKPOINT_EVERY = 4096


class Record(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """A line. `data` is there until the command has completed and the file was compacted."""

    id: str
    holder: str
    correlationid: str
    hash: str
    type: str = ""
    at: str = ""
    subject: str | None = None
    device: str | None = None
    device_uuid: str | None = None
    boxed: bool | None = None
    data: msgspec.Raw = msgspec.Raw(b"")

    @property
    def is_whole(self) -> bool:
        """Whether the command can still be run from it."""
        return bool(self.data)


class _Payload:
    __slots__ = ("keep", "lines", "offset")

    def __init__(self, lines: list[bytes], keep: frozenset[str] | None) -> None:
        self.lines = lines
        self.keep = keep
        self.offset = 0


class _Store:
    """The file and where its lines begin: replaced as one, so that a reader never mixes two files."""

    __slots__ = ("file", "offsets")

    def __init__(self, file: LineFile, offsets: array[int]) -> None:
        self.file = file
        self.offsets = offsets


class AcceptedLog:
    """Who sent what, durably; made by `open`, written by `run`."""

    def __init__(
        self,
        path: Path,
        unfinished: Callable[[], Collection[str]],
        kept: Callable[[Record], None],
        failed: Callable[[Record], None],
    ) -> None:
        """Args:

        path: the file.
        unfinished: ids of accepted commands that have not completed; asked on the loop.
        kept: called with each record once it is durable, whoever still waits for it.
        failed: called with each record that was not kept, or not known to be.
        """
        self._path = path
        self._unfinished = unfinished
        self._kept = kept
        self._not_kept = failed
        self._store = _Store(LineFile(path), array("Q"))
        self._ids = KeyRows()
        self._names = KeyRows()
        self._waiting: dict[str, tuple[Record, Batch[Record]]] = {}
        # Each name's holder, and how many waiting records bear it: one may fail while another still waits.
        self._waiting_names: dict[str, tuple[str, int]] = {}
        self._compact_at = COMPACT_BYTES
        self._whole = 0
        self._retired: list[LineFile] = []
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Record).decode
        self._journal = Journal[Record, _Payload](
            prepare=self._prepare, write=self._write, committed=self._committed, failed=self._failed
        )

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        unfinished: Callable[[], Collection[str]],
        found: Callable[[Record], None],
        kept: Callable[[Record], None],
        failed: Callable[[Record], None],
    ) -> AcceptedLog:
        """Read the file and give each record to `found`; cut off what a crash tore.

        Raises:
            OSError: the file cannot be read or written.
        """
        log = cls(path, unfinished, kept, failed)
        try:
            await log._replay(found)
        except BaseException:
            log.close()
            raise
        return log

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compact where that frees much, then write until cancelled.

        Raises:
            OSError: the file is in an unknown state: open it anew.
        """
        try:
            keep = frozenset(self._unfinished())
            if self._whole - len(keep) > len(self._store.offsets) // _WORTHWHILE:
                await trio.to_thread.run_sync(self._compact, keep)
            else:
                self._compact_at = max(COMPACT_BYTES, 2 * self._store.file.size)
            await self._journal.run(task_status=task_status)
        finally:
            self.close()

    def close(self) -> None:
        """Close the file: for who opened a log and does not run it."""
        self._store.file.close()
        self._close_retired()

    def put(self, record: Record) -> Batch[Record]:
        """Make a record durable; wait on the batch. Never a checkpoint.

        Raises:
            JournalUnavailable: nothing was put.
        """
        batch = self._journal.put(record)
        self._waiting[record.id] = (record, batch)
        for name in {record.id, record.correlationid}:
            _, count = self._waiting_names.get(name, ("", 0))
            self._waiting_names[name] = (record.holder, count + 1)
        return batch

    def find(self, identifier: str) -> tuple[Record, Batch[Record] | None] | None:
        """The command of that id, with its batch while it is not durable yet."""
        waiting = self._waiting.get(identifier)
        if waiting is not None:
            return waiting
        for row in self._ids.rows(identifier):
            record = self._at(row)
            if record.id == identifier:
                return record, None
        return None

    def owner(self, name: str) -> str | None:
        """The holder that used a name first, as a command's id or as a correlation; None when nobody did."""
        waiting = self._waiting_names.get(name)
        if waiting is not None:
            return waiting[0]
        for names in (self._ids, self._names):
            for row in names.rows(name):
                record = self._at(row)
                if name in (record.id, record.correlationid):
                    return record.holder
        return None

    def __len__(self) -> int:
        return len(self._store.offsets)

    def statistics(self) -> JournalStatistics:
        """The pen's figures."""
        return self._journal.statistics()

    async def _replay(self, found: Callable[[Record], None]) -> None:
        offset, bad_from = 0, -1
        for count, line in enumerate(lines_of(self._path)):
            try:
                record = self._decode(line)
                whole = line.endswith(b"\n")
            except msgspec.DecodeError:
                whole = False
            if whole:
                if bad_from >= 0:
                    logger.error(
                        "%s: bytes %d to %d are no command and are passed over", self._path, bad_from, offset
                    )
                    bad_from = -1
                self._enter(record, offset)
                self._whole += record.is_whole
                found(record)
            elif bad_from < 0:
                bad_from = offset
            offset += len(line)
            if count % _CHECKPOINT_EVERY == 0:
                await trio.lowlevel.checkpoint()
        if bad_from >= 0:
            self._store.file.set_aside_from(bad_from)

    def _close_retired(self) -> None:
        while self._retired:
            self._retired.pop().close()

    def _at(self, row: int) -> Record:
        store = self._store
        return self._decode(store.file.line_at(store.offsets[row]))

    def _enter(self, record: Record, offset: int) -> None:
        offsets = self._store.offsets
        row = len(offsets)
        offsets.append(offset)
        self._ids.add(record.id, row)
        if record.correlationid != record.id:
            self._names.add(record.correlationid, row)

    def _forget_waiting(self, record: Record) -> None:
        self._waiting.pop(record.id, None)
        for name in {record.id, record.correlationid}:
            holder, count = self._waiting_names.pop(name)
            if count > 1:
                self._waiting_names[name] = (holder, count - 1)

    def _prepare(self, records: list[Record]) -> _Payload:
        keep = None
        if self._store.file.size >= self._compact_at:
            keep = frozenset(self._unfinished())
        return _Payload([self._encode(record) for record in records], keep)

    def _write(self, payload: _Payload) -> None:
        if payload.keep is not None:
            self._compact(payload.keep)
        payload.offset = self._store.file.append(b"\n".join(payload.lines) + b"\n")

    def _committed(self, records: list[Record], payload: _Payload) -> None:
        offset = payload.offset
        for record, line in zip(records, payload.lines, strict=True):
            self._enter(record, offset)
            self._forget_waiting(record)
            self._kept(record)
            offset += len(line) + 1
        self._close_retired()

    def _failed(self, records: list[Record]) -> None:
        for record in records:
            self._forget_waiting(record)
            self._not_kept(record)

    def _compact(self, keep: frozenset[str]) -> None:
        """Write the file anew with completed commands shortened; without room for that, change nothing."""
        # Not at each batch again: copying it all only to find the disk full would slow every command.
        self._compact_at = self._store.file.size + COMPACT_BYTES
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        try:
            file = LineFile(fresh)
        except NoRoom:
            return
        try:
            offsets = self._copy_shortened(file, keep)
            os.replace(fresh, self._path)
        except NoRoom:
            file.close()
            fresh.unlink(missing_ok=True)
            return
        except BaseException:
            file.close()
            fresh.unlink(missing_ok=True)
            raise
        file.path = self._path
        # Not closed here: the loop may be reading it this very moment.
        self._retired.append(self._store.file)
        self._store = _Store(file, offsets)
        self._compact_at = max(COMPACT_BYTES, 2 * file.size)
        sync_folder(self._path.parent)

    def _copy_shortened(self, file: LineFile, keep: frozenset[str]) -> array[int]:
        offsets, store = array("Q"), self._store
        chunk: list[bytes] = []
        size = chunk_size = 0
        for offset in store.offsets:
            line = store.file.line_at(offset)
            record = self._decode(line)
            if record.is_whole and record.id not in keep:
                line = self._encode(_short(record))
            offsets.append(size)
            size += len(line) + 1
            chunk_size += len(line) + 1
            chunk.append(line)
            if chunk_size > _COPY_BYTES:
                file.append(b"\n".join(chunk) + b"\n")
                chunk, chunk_size = [], 0
        if chunk:
            file.append(b"\n".join(chunk) + b"\n")
        return offsets


def _short(record: Record) -> Record:
    return Record(id=record.id, holder=record.holder, correlationid=record.correlationid, hash=record.hash)
