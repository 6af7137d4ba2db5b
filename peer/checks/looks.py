"""Everything that `best-peer check` looks at, for the settings that a peer has or would start with."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from peer.addresses import AddressError, parse_endpoint
from peer.checks import certificate, clock, containers, driver, engines, machine, network, running, storage
from peer.checks.line import Look, in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peer.addresses import Endpoint
    from peer.checks.line import Line
    from peer.checks.running import Running
    from peer.folder import DoorRecord
    from peer.settings import Settings

ANSWER_SECONDS: Final = 20.0
"""For what is asked over the network more than once: each question has a shorter bound of its own."""


def looks_for(settings: Settings, found: Running | None, version: str) -> tuple[Look, ...]:
    """What to look at, in the order that people read it.

    Args:
        settings: what a peer has, or would start with.
        found: the peer that runs over their data folder.
        version: this program's own.
    """
    record = None if found is None else found.record
    listening = () if record is None else record.listen
    return (
        Look(running.PEER, partial(running.look, settings.data, version), ANSWER_SECONDS),
        _driver(settings),
        _runtime(settings),
        Look(storage.DATA, in_thread(partial(storage.look, settings.data))),
        Look(network.PORT, in_thread(partial(network.port_lines, settings.listen, listening))),
        _endpoint(settings, record),
        *_certificate(settings),
        Look(network.FIREWALL, in_thread(partial(network.firewall_lines, settings.listen))),
        Look(clock.CLOCK, in_thread(partial(clock.look, settings.data))),
        Look(machine.FILES, in_thread(machine.open_files)),
        Look(machine.MEMORY, in_thread(partial(machine.memory, Path("/proc/meminfo")))),
        Look(machine.SERVICE, in_thread(_service)),
    )


def _driver(settings: Settings) -> Look:
    if settings.gpu == "none":
        return _said(driver.SUBJECT, driver.no_driver_wanted())
    return Look(driver.SUBJECT, driver.look, driver.LOOK_SECONDS)


def _runtime(settings: Settings) -> Look:
    match settings.runtime:
        case "docker":
            ask = partial(containers.look, settings.docker, wants_cards=settings.gpu != "none")
            return Look(containers.SUBJECT, ask)
        case "native":
            return Look(engines.ENGINE, partial(engines.look_at_ollama, settings.engine_host))
        case "process":
            # Headers of two hundred models, on a slow disk.
            read = partial(engines.look_at_llamacpp, settings.models, settings.llama_server)
            return Look(engines.ENGINE, read, ANSWER_SECONDS)
        case "fake":
            return _said(engines.ENGINE, engines.nothing_real())


def _endpoint(settings: Settings, record: DoorRecord | None) -> Look:
    """Where a running peer says that it is reached, its port known; else where the settings say."""
    endpoint: Endpoint = settings.endpoint
    trusted: Path | None = None
    if record is not None:
        trusted = None if record.certificate is None else Path(record.certificate)
        try:
            endpoint = parse_endpoint(record.endpoint)
        except AddressError:
            record = None
    ask = partial(network.endpoint_lines, endpoint, trusted, is_served=record is not None)
    return Look(network.ENDPOINT, ask, ANSWER_SECONDS)


def _certificate(settings: Settings) -> tuple[Look, ...]:
    if settings.endpoint.scheme != "https":
        return ()
    own = settings.data / "tls"
    is_own = settings.tls_cert is None
    look = partial(
        certificate.look,
        settings.tls_cert or own / "cert.pem",
        settings.tls_key or own / "key.pem",
        settings.endpoint.host,
        is_own=is_own,
    )
    return (Look(certificate.CERTIFICATE, in_thread(look)),)


def _service() -> tuple[Line, ...]:
    return machine.service(Path.home(), Path("/var/lib/systemd/linger"), os.getuid())


def _said(subject: str, lines: Sequence[Line]) -> Look:
    """Lines that need no looking."""

    async def run() -> Sequence[Line]:
        return lines

    return Look(subject, run)
