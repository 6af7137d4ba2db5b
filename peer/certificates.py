"""The certificate that the door shows: where it comes from, and its keeping while the peer runs (F34).

A peer's own is made again when its end comes near, an operator's is read again when its files change. Either
way new connections alone see it: a stream that is open lives on with the certificate that it began with.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import stat
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio
from cryptography import x509

from actors.kernel.child import ChildSpec, Restart
from adapters.certificates import RENEW_WITHIN, ensure_certificate
from peer.door.tls import Tls, server_context
from peer.log_text import clean
from peer.logs import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from actors.kernel.mailbox import Mailbox
    from adapters.clock.port import Clock

logger = logging.getLogger(f"{ROOT}.peer")

NAME: Final = "certificate"
LOOK_SECONDS: Final = 5.0
"""How often the keeper looks. A machine's sleep does not count, so it is also how soon after one it does."""
PATIENCE_SECONDS: Final = 20.0
"""How long files may take to be read: an operator's may lie on another machine's disk."""
WARN_WITHIN: Final = timedelta(days=14)
"""A certificate that has less left is warned of, once a day."""
MAX_PEM: Final = 1024 * 1024
"""The largest certificate file read, in bytes."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class CertificateUnusable(Exception):
    """Raised when files make no certificate that the door can show; the text says why."""


@attrs.frozen
class Shown:
    """A certificate as the door shows it."""

    certificate: Path
    """The file that clients pin."""
    pem: str
    """The door's own certificate alone, without those that signed it."""
    not_after: datetime | None
    """When it ends; None where that cannot be read from it."""
    context: ssl.SSLContext = attrs.field(repr=False)
    not_before: datetime | None = None
    """When it begins; None where nobody asks."""
    made: str | None = None
    """Why it was made just now; None where it was there."""
    marks: tuple[tuple[int, ...], ...] = ()
    """What its files looked like when they were read."""


class Source(Protocol):
    """Where the door's certificate comes from. Its methods read files, so they block."""

    @property
    def remedy(self) -> str:
        """What a person does about a certificate that is not, or will soon be no good."""
        ...

    def load(self, now: datetime) -> Shown:
        """The certificate to begin with.

        Raises:
            CertificateUnusable: there is none.
        """
        ...

    def newer(self, shown: Shown, now: datetime) -> Shown | None:
        """Another that is to take the place of the one shown; None where that one stays.

        Raises:
            CertificateUnusable: it should be replaced, and cannot be yet.
        """
        ...


@attrs.frozen
class OwnCertificate:
    """The certificate that a peer makes itself.

    Args:
        folder: where it is kept.
        host: the endpoint's.
        extra: further names and addresses that it bears.
    """

    folder: Path
    host: str
    extra: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """As in `Source`."""
        return f"see that the peer's user may write {self.folder} and that there is room"

    def load(self, now: datetime) -> Shown:
        """The one that is there, or a new one where it no longer serves."""
        try:
            kept = ensure_certificate(self.folder, self.host, self.extra, now)
            context = server_context(Tls(kept.cert_path, kept.key_path))
            pem = _first(_read(kept.cert_path), kept.cert_path)
        except (OSError, ValueError) as error:
            raise CertificateUnusable(_why(error)) from error
        return Shown(kept.cert_path, pem, kept.not_after, context, kept.not_before, kept.reason)

    def newer(self, shown: Shown, now: datetime) -> Shown | None:
        """A new one once fewer than thirty days remain of the one shown, or while it has not begun.

        It has not where it was made as the clock stood in the future: every client whose own is right refuses
        it. Nothing else is a reason while it is served: making it again breaks every client's pin.
        """
        is_begun = shown.not_before is None or shown.not_before <= now
        if is_begun and (shown.not_after is None or shown.not_after - now >= RENEW_WITHIN):
            return None
        return self.load(now)


@attrs.frozen
class OperatorFiles:
    """A certificate of the operator's own, checked for nothing beyond loading.

    Args:
        certificate: a PEM chain, the door's own first.
        key: its private key, PEM and not encrypted.
    """

    certificate: Path
    key: Path

    @property
    def remedy(self) -> str:
        """As in `Source`."""
        return (
            f"put a PEM chain at {self.certificate} and its own key, not encrypted, at {self.key}; "
            "they are read again when they change, without a restart"
        )

    def load(self, now: datetime) -> Shown:  # noqa: ARG002 - their dates are the operator's business
        """The pair that is there."""
        try:
            marks = self._marks()
            context = server_context(Tls(self.certificate, self.key))
            data = _read(self.certificate)
            pem = _first(data, self.certificate)
            if self._marks() != marks:
                raise CertificateUnusable("they changed while they were read")
        except (OSError, ValueError) as error:
            raise CertificateUnusable(_why(error)) from error
        return Shown(self.certificate, pem, _end(pem), context, marks=marks)

    def newer(self, shown: Shown, now: datetime) -> Shown | None:
        """The pair that is there once either file is another than the one that was read."""
        try:
            if self._marks() == shown.marks:
                return None
        except OSError as error:
            raise CertificateUnusable(_why(error)) from error
        return self.load(now)

    def _marks(self) -> tuple[tuple[int, ...], ...]:
        """By what a changed file is known, also one put in its place or behind a link of its name."""
        found = []
        for path in (self.certificate, self.key):
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise CertificateUnusable(f"{path} is no plain file")
            # The time of its change of state too: what was made readable is to be tried again.
            found.append(
                (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            )
        return tuple(found)


class Doorway(Protocol):
    """The door as its certificate's keeper sees it."""

    @property
    def shown(self) -> Shown | None:
        """What it shows now; None where it serves plain http."""
        ...

    def show(self, shown: Shown) -> None:
        """Show another to new connections."""
        ...

    def record(self, *shown: Shown) -> None:
        """Write down for the command line which certificates the door may show. Blocks.

        Raises:
            OSError: it could not be written.
        """
        ...


class CertificateKeeper:
    """Looks, every few seconds and by the wall clock, whether the door should show another certificate.

    By wall time, because a certificate ends by it, and in short steps, because the clock that waits are
    measured on stands still while the machine sleeps.
    """

    def __init__(self, source: Source, door: Doorway, clock: Clock) -> None:
        self._source = source
        self._door = door
        self._clock = clock
        self._thread = trio.CapacityLimiter(1)
        self._fault_told = False
        self._end_told: tuple[str, int] | None = None

    async def run(self, inbox: Mailbox[None]) -> None:
        """Serve for ever; a message makes it look at once."""
        while True:
            await self._look()
            with trio.move_on_after(LOOK_SECONDS):
                await inbox.receive()

    async def _look(self) -> None:
        shown = self._door.shown
        if shown is None:
            return
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        try:
            newer = await self._newer(shown, now)
        except CertificateUnusable as fault:
            self._tell_fault(shown, fault)
        else:
            if newer is not None:
                await self._replace(shown, newer)
                shown = newer
            self._fault_told = False
        self._tell_end(shown, now)

    async def _newer(self, shown: Shown, now: datetime) -> Shown | None:
        try:
            with trio.fail_after(PATIENCE_SECONDS):
                # Given up, it goes on in its thread: all it may still do is put whole files in their place.
                return await trio.to_thread.run_sync(
                    partial(self._source.newer, shown, now), abandon_on_cancel=True, limiter=self._thread
                )
        except trio.TooSlowError:
            raise CertificateUnusable(f"its files did not answer within {PATIENCE_SECONDS:g} s") from None

    async def _replace(self, shown: Shown, newer: Shown) -> None:
        # The record names both for the moment in which the door may show either, so that no command fails.
        await self._record(newer, shown)
        self._door.show(newer)
        await self._record(newer)
        if newer.made is not None:
            logger.warning(
                "made a new certificate, %s (%s): send this file to those who connect, whose clients trust "
                "the one before",
                newer.certificate,
                newer.made,
            )
        elif newer.pem != shown.pem or self._fault_told:
            logger.info(
                "serving with the certificate that is now in %s, to %s", newer.certificate, _day(newer)
            )

    async def _record(self, *shown: Shown) -> None:
        try:
            await trio.to_thread.run_sync(partial(self._door.record, *shown))
        except OSError as error:
            # Clients come first; the commands still find the file itself.
            logger.warning("the door's new certificate could not be recorded: %s", _why(error))

    def _tell_fault(self, shown: Shown, fault: CertificateUnusable) -> None:
        if not self._fault_told:
            self._fault_told = True
            logger.warning(
                "the certificate in %s is to be replaced and cannot be (%s); the door shows the one before, "
                "to %s: %s",
                shown.certificate,
                fault,
                _day(shown),
                self._source.remedy,
            )

    def _tell_end(self, shown: Shown, now: datetime) -> None:
        if shown.not_after is None:
            return
        left = shown.not_after - now
        told = (shown.pem, left // timedelta(days=1))
        if left >= WARN_WITHIN or told == self._end_told:
            return
        self._end_told = told
        state = "ends" if left > timedelta() else "is refused by clients, since it ended"
        logger.warning(
            "the certificate in %s %s on %s: %s", shown.certificate, state, _day(shown), self._source.remedy
        )


def keeper_spec(source: Source, door: Doorway, clock: Clock) -> ChildSpec:
    """How the keeper is supervised: always there."""
    return ChildSpec(
        NAME, lambda: CertificateKeeper(source, door, clock), restart=Restart.PERMANENT, capacity=1
    )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_PEM)


def _first(data: bytes, path: Path) -> str:
    found = _CERTIFICATE.search(data)
    if found is None:
        raise CertificateUnusable(f"{path} holds no certificate in its first {MAX_PEM} bytes")
    return found[0].decode("ascii", "replace")


def _end(pem: str) -> datetime | None:
    """When a certificate ends; None for one that OpenSSL takes and nobody else can read."""
    try:
        return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
    except ValueError:
        return None


def _day(shown: Shown) -> str:
    return "a day that it does not tell" if shown.not_after is None else f"{shown.not_after:%Y-%m-%d}"


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return clean(error.reason or str(error), 80)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return clean(str(error), 80)
