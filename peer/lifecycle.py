"""A peer's life in one process: start in order, serve, stop in reverse (F37; rule 10 of the house)."""

import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from socket import socket

import attrs
import trio

from actors.holding import hold_keeper_spec
from actors.kernel.child import ChildSpec
from actors.kernel.services import Service, ServiceFailed, Services
from actors.log.linefile import Damaged, NoRoom
from actors.owner import owners_watch_spec
from actors.revoker import revoker_spec
from peer.addresses import Endpoint, bracketed
from peer.carryover import Carried, found_again_spec, left_words
from peer.certificates import CertificateUnusable, OperatorFiles, OwnCertificate, Shown, Source, keeper_spec
from peer.compose import Peer, RuntimeRefused, open_peer, product_version
from peer.devices import DriverRefused
from peer.door.limits import Limits
from peer.door.server import Server, bind
from peer.folder import MAX_SMALL_FILE, NO_ROOM, DataFolder, DoorRecord
from peer.listening import listen_remedy
from peer.requestlog import RequestLog
from peer.settings import Settings
from peer.units import describe_duration, describe_size

logger = logging.getLogger("best_peer.peer")

STOP_SECONDS = 4.5
"""A stop that takes longer ends the process at once: the log is durable, so that loses nothing."""


class StartRefused(Exception):
    """Raised when the peer cannot start; the text is the one line for the person, with what to do."""


def serve(settings: Settings, folder: DataFolder, announce: Callable[[str], None]) -> None:
    """Run a peer until a signal stops it.

    Args:
        settings: checked.
        folder: opened by this process.
        announce: told the one line for people once the door is open.

    Raises:
        StartRefused: a taken port, a certificate that does not load, no container engine that can be used.
        ServiceFailed: a part failed again and again.
    """
    _raise_descriptor_limit()
    sock = _bind(settings)
    _, port = sock.getsockname()[:2]
    endpoint = settings.endpoint.at_port(port)
    source = certificate_source(settings, folder, endpoint)
    shown = None if source is None else _load(source)
    try:
        trio.run(_main, settings, folder, endpoint, sock, source, shown, announce)
    except BaseExceptionGroup as group:
        raise _cause(group, folder.path) from group


async def _main(
    settings: Settings,
    folder: DataFolder,
    endpoint: Endpoint,
    sock: socket,
    source: Source | None,
    shown: Shown | None,
    announce: Callable[[str], None],
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            stop = _Stop(nursery.cancel_scope, folder.door)
            nursery.start_soon(_stop_on_signal, signals, stop)
            async with open_peer(settings, folder, endpoint=str(endpoint)) as peer:
                front = Front(peer, sock, shown)
                await _serve_until_stopped(peer, endpoint, front, source, stop, announce)
            nursery.cancel_scope.cancel("the peer has stopped")
    folder.door.unlink(missing_ok=True)


async def _serve_until_stopped(
    peer: Peer,
    endpoint: Endpoint,
    front: "Front",
    source: Source | None,
    stop: "_Stop",
    announce: Callable[[str], None],
) -> None:
    more = () if source is None else (keeper_spec(source, front, peer.house.clock),)
    services = Services(
        [
            Service("the log", peer.house.store.run, grace_seconds=2.0),
            Service("the workloads", Work(peer, more).run, peer.house.workers.stop, grace_seconds=1.5),
            Service("the door", front.run, front.stop, grace_seconds=2.5),
        ]
    )
    stop.services = services
    async with trio.open_nursery() as nursery:
        await nursery.start(services.run)
        stop.left = lambda: left_words(Carried.of(peer.house.store.world))
        front.record(*([] if front.shown is None else [front.shown]))
        gc.collect()
        gc.freeze()  # what lives as long as the peer need not be looked at again by every collection
        announce(_ready_line(endpoint, front.address, peer.folder.path, front.shown, peer.settings))


@attrs.define(eq=False)
class _Stop:
    """What a signal ends: the services, or a start that has not come so far."""

    start: trio.CancelScope
    record: Path
    """The door's, for the command line."""
    services: Services | None = None
    left: Callable[[], str] | None = None
    """What runs on, for the log; None while a start has not come so far that this is known."""

    def __call__(self) -> None:
        # While it listens still: whoever takes its place must not be sent the admin token.
        with contextlib.suppress(OSError):
            self.record.unlink(missing_ok=True)
        if self.services is None:
            self.start.cancel("asked to stop")
        else:
            self.services.stop()


async def _stop_on_signal(signals: AsyncIterator[int], stop: _Stop) -> None:
    async for number in signals:
        left = "" if stop.left is None else f"; {stop.left()}"
        logger.info("stopping on %s%s", signal.Signals(number).name, left)
        _exit_hard_after(STOP_SECONDS)
        stop()
        break
    async for _ in signals:
        os._exit(130)


class Work:
    """The workers, and at each start what recovery takes up."""

    def __init__(self, peer: Peer, more: Sequence[ChildSpec] = ()) -> None:
        """Args:

        more: standing workers besides those of the peer itself.
        """
        self._peer = peer
        self._more = more

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled."""
        house = self._peer.house
        async with trio.open_nursery() as nursery:
            await nursery.start(house.workers.run)
            standing = [revoker_spec(house, self._peer.tree), hold_keeper_spec(house, self._peer.tree)]
            if house.busy is not None:
                standing.append(owners_watch_spec(house, house.busy))
            for spec in (*standing, *self._peer.background, *self._more):
                house.workers.spawn(spec)
            carried = Carried.of(house.store.world)
            self._peer.tree.recover()
            if carried:
                house.workers.spawn(found_again_spec(house, carried))
            task_status.started()


class Front:
    """The server before the door. A restart listens anew at the same place."""

    def __init__(self, peer: Peer, sock: socket, shown: Shown | None) -> None:
        """Args:

        sock: the first one it listens on.
        shown: its certificate; None serves plain http.
        """
        self._peer = peer
        self._sock: socket | None = sock
        self._server: Server | None = None
        self.shown = shown
        self.address: tuple[str, int] = sock.getsockname()[:2]

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until stopped or cancelled."""
        sock, self._sock = self._sock, None
        server = self._server = Server(
            self._peer.app,
            sock or bind(*self.address),
            tls=None if self.shown is None else self.shown.context,
            limits=Limits(),
            on_request_done=RequestLog(),
            reword=self._peer.app.reword,
        )
        await server.run(task_status=task_status)

    async def stop(self) -> None:
        """Take no more, end streams, let answers finish within the grace."""
        self._peer.streams.end_everything()
        if self._server is not None:
            self._server.stop()

    def show(self, shown: Shown) -> None:
        """Show another certificate to new connections, and after a restart."""
        self.shown = shown
        if self._server is not None:
            self._server.show(shown.context)

    def record(self, *shown: Shown) -> None:
        """Write down where the door is and which certificates it may show, newest first. Blocks.

        Raises:
            OSError: as `write_private`.
        """
        peer = self._peer
        DoorRecord(
            endpoint=str(peer.settings.endpoint.at_port(self.address[1])),
            listen=(f"{bracketed(self.address[0])}:{self.address[1]}",),
            certificate=str(shown[0].certificate) if shown else None,
            pid=os.getpid(),
            version=product_version(),
            models=str(peer.settings.models),
            # One too large for the record is found by its file.
            pins=tuple(each.pem for each in shown if len(each.pem) <= MAX_SMALL_FILE // 4),
        ).write(peer.folder.door)


def _cause(group: BaseExceptionGroup[BaseException], data: Path) -> BaseException:
    """What the person is told: the part that failed, or why it could not start; else the whole group."""
    told = group.subgroup((ServiceFailed, DriverRefused, RuntimeRefused, OSError, NoRoom))
    while told is not None:
        first = told.exceptions[0]
        if isinstance(first, BaseExceptionGroup):
            told = first
            continue
        if isinstance(first, ServiceFailed):
            return first
        if isinstance(first, DriverRefused | RuntimeRefused):
            return StartRefused(str(first))
        return StartRefused(f"the peer could not start: {_why(first, data)}")
    return group


def _why(error: BaseException, data: Path) -> str:
    if isinstance(error, Damaged):
        # It says itself what to do.
        return f"{error.filename}: {error.strerror}"
    no_room = isinstance(error, NoRoom) or (isinstance(error, OSError) and error.errno in NO_ROOM)
    if no_room:
        return f"there is no room left on the file system of {data}; free some there and start again"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; see that the peer's user may read and write it"
    return f"{error}; see that the peer's user may read and write all that lies in {data}"


def _bind(settings: Settings) -> socket:
    listen = settings.listen
    try:
        return bind(listen.host, listen.port)
    except OSError as error:
        raise StartRefused(
            f"cannot listen on {listen}: {error.strerror or error}; {listen_remedy(listen, error)}"
        ) from error


def certificate_source(settings: Settings, folder: DataFolder, endpoint: Endpoint) -> Source | None:
    """Where the door's certificate comes from; None where it serves plain http."""
    if endpoint.scheme != "https":
        return None
    if settings.tls_cert is not None and settings.tls_key is not None:
        return OperatorFiles(settings.tls_cert, settings.tls_key)
    extra = () if settings.listen.is_every_interface else (settings.listen.host,)
    return OwnCertificate(folder.tls, endpoint.host, extra)


def _load(source: Source) -> Shown:
    try:
        shown = source.load(datetime.now(UTC))
    except CertificateUnusable as error:
        raise StartRefused(f"the door has no certificate ({error}): {source.remedy}") from error
    whose = (
        "a certificate this peer made" if isinstance(source, OwnCertificate) else "its owner's certificate"
    )
    why = "" if shown.made is None else f", made now: {shown.made}"
    logger.info("https with %s, %s%s", whose, shown.certificate, why)
    return shown


def _ready_line(
    endpoint: Endpoint, address: tuple[str, int], data: Path, shown: Shown | None, settings: Settings
) -> str:
    trust = ""
    if shown is not None:
        why = "" if shown.made is None else f" made now since {shown.made}"
        trust = f", certificate {shown.certificate}{why}"
    return (
        f"best-peer is serving its door: {endpoint} (listening on {address[0]} port {address[1]}{trust}), "
        f"data in {data}{_busy_words(settings)}"
    )


def _busy_words(settings: Settings) -> str:
    """When a card takes no new work since its owner uses it; nothing where no card is read (F28)."""
    if settings.gpu == "none":
        return ""
    if not settings.busy:
        return "; a card takes work whoever uses it (BEST_PEER_BUSY=off)"
    return (
        f"; a card is busy once other programs have held more than {describe_size(settings.busy_memory)} or "
        f"used more than {settings.busy_utilisation:.0%} of it for {describe_duration(settings.busy_after)}, "
        f"and free {describe_duration(settings.free_after)} after"
    )


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _exit_hard_after(seconds: float) -> None:
    def end() -> None:
        sys.stderr.flush()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
