"""The door's certificate while the peer runs: made again in time, read again when it changes (F34)."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import threading
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trustme

import peer.certificates
from actors.kernel.mailbox import Mailbox, MailboxFull
from adapters.clock.fake import FakeClock
from peer.certificates import (
    LOOK_SECONDS,
    MAX_PEM,
    CertificateKeeper,
    CertificateUnusable,
    OperatorFiles,
    OwnCertificate,
    Shown,
    Source,
)
from peer.door.tls import server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from trio.testing import MockClock

HANG = 20.0
"""A bound on a hang, no measure of speed."""
DAY = timedelta(days=1)


def at(moment: datetime) -> FakeClock:
    return FakeClock(int(moment.timestamp() * 1000))


@attrs.define
class FakeDoor:
    """A door that only remembers what it was told."""

    shown: Shown | None
    records: list[tuple[str, ...]] = attrs.field(factory=list)
    no_room: bool = False

    def show(self, shown: Shown) -> None:
        self.shown = shown

    def record(self, *shown: Shown) -> None:
        if self.no_room:
            raise OSError(28, "No space left on device")
        assert self.shown is not None
        # Whenever it is asked, the door shows one of those that are recorded.
        assert self.shown.pem in [each.pem for each in shown]
        self.records.append(tuple(each.pem for each in shown))


@attrs.frozen
class Counted:
    """A source that tells how often it was looked at."""

    source: Source
    looks: list[datetime] = attrs.field(factory=list)
    remedy: str = "mend it"

    def load(self, now: datetime) -> Shown:
        return self.source.load(now)

    def newer(self, shown: Shown, now: datetime) -> Shown | None:
        try:
            return self.source.newer(shown, now)
        finally:
            self.looks.append(now)


@attrs.frozen
class Kept:
    """A keeper at work."""

    door: FakeDoor
    source: Counted
    clock: FakeClock
    inbox: Mailbox[None]

    async def look(self) -> None:
        """Let it look at what there is now, and wait until it has done what follows."""
        before = len(self.source.looks)
        # The first may have begun before, and what follows from the second is done once there is a third.
        while len(self.source.looks) < before + 3:
            with trio.fail_after(HANG):
                seen = len(self.source.looks)
                with suppress(MailboxFull):
                    self.inbox.tell_nowait(None)
                while len(self.source.looks) == seen:  # noqa: ASYNC110 - a thread makes no event of it
                    await trio.sleep(0.001)


@asynccontextmanager
async def keeping(source: Source, now: datetime, door: FakeDoor | None = None) -> AsyncIterator[Kept]:
    clock = at(now)
    made = Kept(door or FakeDoor(source.load(now)), Counted(source), clock, Mailbox(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CertificateKeeper(made.source, made.door, clock).run, made.inbox)
        yield made
        nursery.cancel_scope.cancel()


NOW = datetime(2026, 10, 19, 12, tzinfo=UTC)


def own(folder: Path) -> OwnCertificate:
    return OwnCertificate(folder / "tls", "127.0.0.1", ())


def put(folder: Path, authority: trustme.CA, **more: Any) -> OperatorFiles:
    """An operator's pair, made and put in its place as a tool for certificates does."""
    folder.mkdir(exist_ok=True)
    leaf = authority.issue_cert("127.0.0.1", **more)
    files = OperatorFiles(folder / "chain.pem", folder / "key.pem")
    for path, blob in (
        (files.certificate, b"".join(pem.bytes() for pem in leaf.cert_chain_pems)),
        (files.key, leaf.private_key_pem.bytes()),
    ):
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(blob)
        unfinished.replace(path)
    return files


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "best_peer.peer" and r.levelno == level]


# The peer's own


async def test_its_own_is_made_again_while_it_runs_and_the_owner_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(own(tmp_path), NOW) as kept:
        first = kept.door.shown
        assert first is not None
        assert first.not_after is not None
        kept.clock.ms = at(first.not_after - 30 * DAY).ms
        await kept.look()
        assert kept.door.shown is first
        assert kept.door.records == []
        kept.clock.advance(1000)
        await kept.look()
        second = kept.door.shown
        assert second.pem != first.pem
        assert second.pem in second.certificate.read_text()
        # Both are recorded for as long as the door may show either.
        assert kept.door.records == [(second.pem, first.pem), (second.pem,)]
        await kept.look()
        assert kept.door.shown is second
    [line] = lines(caplog)
    assert line.startswith(
        f"made a new certificate, {tmp_path}/tls/cert.pem (it ends on 2027-11-20, fewer than"
    )
    assert "send this file to those who connect" in line


async def test_one_that_was_made_while_the_clock_stood_in_the_future_is_made_again_once_it_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was shown until a restart, and every client whose own clock was right refused it."""
    async with keeping(own(tmp_path), NOW) as kept:
        first = kept.door.shown
        kept.clock.ms = at(NOW - 1 * DAY).ms  # it bears a day from before it was made
        await kept.look()
        assert kept.door.shown is first
        kept.clock.advance(-1000)
        await kept.look()
        second = kept.door.shown
        assert second is not first
        await kept.look()
        assert kept.door.shown is second
    [line] = lines(caplog)
    assert "it begins only on 2026-10-18, so the clock was set back" in line


async def test_it_looks_at_the_wall_clock_soon_after_a_machine_slept(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The clock that waits are measured on stands still meanwhile, and nobody sends it a message."""
    async with keeping(own(tmp_path), NOW) as kept:
        mock_clock.rate = 1.0  # or nothing bounds a hang of this test
        await kept.look()
        first = kept.door.shown
        kept.clock.advance(380 * 86_400_000)
        mock_clock.jump(LOOK_SECONDS)
        with trio.fail_after(HANG):
            while kept.door.shown is first:  # noqa: ASYNC110 - a thread makes no event of it
                await trio.sleep(0.001)


async def test_a_new_one_that_cannot_be_made_leaves_the_old_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device", str(tmp_path / "tls/key.pem"))

    async with keeping(own(tmp_path), NOW) as kept:
        first = kept.door.shown
        monkeypatch.setattr("peer.certificates.ensure_certificate", full)
        kept.clock.advance(370 * 86_400_000)
        for _ in range(3):
            await kept.look()
        assert kept.door.shown is first
        [line] = lines(caplog)
        assert "cannot be" in line
        assert f"{tmp_path}/tls/key.pem: No space left on device" in line
        assert "mend it" in line
        monkeypatch.undo()
        await kept.look()
        assert kept.door.shown is not first


# The operator's


async def test_files_of_the_operators_own_are_taken_when_they_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    authority = trustme.CA()
    async with keeping(put(tmp_path, authority), NOW) as kept:
        first = kept.door.shown
        await kept.look()
        assert kept.door.shown is first
        put(tmp_path, authority)
        await kept.look()
        second = kept.door.shown
        assert first is not None
        assert second is not None
        assert second.pem != first.pem
        assert (tmp_path / "chain.pem").read_text().startswith(second.pem)
        assert kept.door.records == [(second.pem, first.pem), (second.pem,)]
        os.utime(tmp_path / "chain.pem")
        await kept.look()
    [line] = lines(caplog, logging.INFO)
    assert line.startswith(f"serving with the certificate that is now in {tmp_path}/chain.pem, to ")


def test_a_file_that_was_written_over_with_its_old_times_and_size_is_a_change(tmp_path: Path) -> None:
    """As a copy does that keeps the times."""
    files = put(tmp_path, trustme.CA())
    shown = files.load(NOW)
    before = files.key.stat()
    files.key.write_bytes(files.key.read_bytes())
    os.utime(files.key, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.newer(shown, NOW) is not None


def test_no_more_of_a_file_is_read_than_a_chain_may_be_long(tmp_path: Path) -> None:
    files = put(tmp_path, trustme.CA())
    filled = b"#" * (MAX_PEM - 1) + b"\n" + files.certificate.read_bytes()
    files.certificate.write_bytes(filled)
    with pytest.raises(CertificateUnusable, match="no certificate in its first"):
        files.load(NOW)


async def test_a_link_that_names_another_file_is_a_change(tmp_path: Path) -> None:
    """As certbot does, and a volume of Kubernetes."""
    authority = trustme.CA()
    for name in ("one", "two"):
        put(tmp_path / name, authority)
    live = tmp_path / "live"
    live.symlink_to(tmp_path / "one")
    async with keeping(OperatorFiles(live / "chain.pem", live / "key.pem"), NOW) as kept:
        first = kept.door.shown
        (tmp_path / "next").symlink_to(tmp_path / "two")
        (tmp_path / "next").replace(live)
        await kept.look()
        assert kept.door.shown is not first


def swap_key(files: OperatorFiles, other: OperatorFiles) -> None:
    shutil.copy(other.key, files.key)


def cut_certificate(files: OperatorFiles, other: OperatorFiles) -> None:
    files.certificate.write_bytes(other.certificate.read_bytes()[:200])


def empty(files: OperatorFiles, other: OperatorFiles) -> None:
    files.certificate.write_bytes(b"")


def remove(files: OperatorFiles, other: OperatorFiles) -> None:
    files.key.unlink()


def pipe(files: OperatorFiles, other: OperatorFiles) -> None:
    files.key.unlink()
    os.mkfifo(files.key)


@pytest.mark.parametrize("spoil", [swap_key, cut_certificate, empty, remove, pipe])
async def test_a_pair_that_is_not_right_yet_keeps_the_one_before_with_one_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[OperatorFiles, OperatorFiles], None],
) -> None:
    caplog.set_level(logging.INFO)
    authority = trustme.CA()
    files, other = put(tmp_path / "a", authority), put(tmp_path / "b", authority)
    async with keeping(files, NOW) as kept:
        first = kept.door.shown
        spoil(files, other)
        for _ in range(3):
            await kept.look()
        assert kept.door.shown is first
        assert kept.door.records == []
        [line] = lines(caplog)
        assert line.startswith(f"the certificate in {files.certificate} is to be replaced and cannot be (")
        assert "mend it" in line
        assert "PRIVATE" not in line
        files.key.unlink(missing_ok=True)
        put(tmp_path / "a", authority)
        await kept.look()
        assert kept.door.shown is not first
        assert len(lines(caplog, logging.INFO)) == 1
        spoil(files, other)
        await kept.look()
        assert len(lines(caplog)) == 2


def test_what_to_do_names_both_files(tmp_path: Path) -> None:
    files = OperatorFiles(tmp_path / "chain.pem", tmp_path / "key.pem")
    assert str(files.certificate) in files.remedy
    assert str(files.key) in files.remedy
    assert "without a restart" in files.remedy


def test_files_that_change_while_they_are_read_are_read_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = put(tmp_path, trustme.CA())

    def meanwhile(tls: Any) -> ssl.SSLContext:
        context = server_context(tls)
        put(tmp_path, trustme.CA())
        return context

    monkeypatch.setattr("peer.certificates.server_context", meanwhile)
    with pytest.raises(CertificateUnusable, match="changed while they were read"):
        files.load(NOW)


async def test_one_that_ends_soon_is_warned_of_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = put(tmp_path, trustme.CA(), not_after=NOW + 30 * DAY)
    async with keeping(files, NOW) as kept:
        kept.clock.ms = at(NOW + 16 * DAY).ms
        await kept.look()
        assert lines(caplog) == []
        kept.clock.advance(1000)
        for _ in range(3):
            await kept.look()
        assert lines(caplog) == [f"the certificate in {files.certificate} ends on 2026-11-18: mend it"]
        for day in range(1, 4):
            kept.clock.advance(86_400_000)
            await kept.look()
            assert len(lines(caplog)) == 1 + day
        kept.clock.ms = at(NOW + 31 * DAY).ms
        await kept.look()
        assert "is refused by clients, since it ended on 2026-11-18" in lines(caplog)[-1]
        told = len(lines(caplog))
        put(tmp_path, trustme.CA())
        await kept.look()
        await kept.look()
        assert len(lines(caplog)) == told


async def test_files_that_do_not_answer_are_told_and_keep_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer.certificates, "PATIENCE_SECONDS", 0.05)
    files = put(tmp_path, trustme.CA())
    answers, asked = threading.Event(), threading.Event()

    @attrs.frozen
    class Hanging:
        remedy: str = "mend it"

        def load(self, now: datetime) -> Shown:
            return files.load(now)

        def newer(self, shown: Shown, now: datetime) -> Shown | None:
            asked.set()
            answers.wait(HANG)
            return None

    inbox: Mailbox[None] = Mailbox(1)
    keeper = CertificateKeeper(Hanging(), FakeDoor(files.load(NOW)), at(NOW))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, inbox)
        with trio.fail_after(HANG):
            while not lines(caplog):  # noqa: ASYNC110 - a thread makes no event of it
                await trio.sleep(0.001)
        assert asked.is_set()
        nursery.cancel_scope.cancel()
    answers.set()
    assert "its files did not answer within 0.05 s" in lines(caplog)[0]


async def test_a_record_that_cannot_be_written_keeps_no_client_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    async with keeping(put(tmp_path, authority), NOW) as kept:
        first = kept.door.shown
        kept.door.no_room = True
        put(tmp_path, authority)
        await kept.look()
        assert kept.door.shown is not first
    assert "could not be recorded" in lines(caplog)[0]
