"""One log line for every request to the door (F35).

The line says where the request came from, its method and path as they arrived, the status, the holder when a
credential opened it, and the milliseconds to the answer's headers. It never holds the query string or a key.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol
from urllib.parse import unquote

from peer.addresses import bracketed
from peer.log_text import cut, without_keys
from peer.logs import ROOT, fields

MAX_PATH: Final = 512
"""Characters of a path; with what escaping may make of them they still fit a field."""
MAX_METHOD: Final = 32


class RequestRecord(Protocol):
    """What the door knows of a request once it was answered, or given up by its client."""

    @property
    def client_host(self) -> str | None:
        """The client's address; None where the connection does not tell."""

    @property
    def client_port(self) -> int | None:
        """The client's port."""

    @property
    def method(self) -> str:
        """The request's method."""

    @property
    def path(self) -> str:
        """The path as it arrived, still percent-encoded."""

    @property
    def status(self) -> int | None:
        """The answer's status; None for a request its client gave up before there was one."""

    @property
    def seconds_to_headers(self) -> float | None:
        """From the request's arrival to the answer's headers, or to the moment it was given up."""

    @property
    def holder(self) -> str | None:
        """The holder whose credential opened it, refused or not."""


class RequestLog:
    """Writes the line, at info under the door's part: ``BEST_PEER_LOG=info,door=warning`` quiets it.

    A call never raises and never waits.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logging.getLogger(f"{ROOT}.door") if logger is None else logger

    def __call__(self, record: RequestRecord) -> None:
        """Write the line of one request; an event stream's is due when it opens."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        seconds = record.seconds_to_headers
        self._logger.info(
            "request abandoned" if record.status is None else "request",
            extra=fields(
                client=_client(record.client_host, record.client_port),
                method=cut(without_keys(record.method), MAX_METHOD),
                path=_path(record.path),
                status=record.status,
                holder=record.holder,
                ms=None if seconds is None else f"{seconds * 1000:.0f}",
            ),
        )


def _client(host: str | None, port: int | None) -> str | None:
    if host is None:
        return None
    return bracketed(host) if port is None else f"{bracketed(host)}:{port}"


def _path(path: str) -> str:
    # A query may hold a key of its own; the record should have none, and this is where it would be read.
    told = path.split("?", 1)[0]
    # Whoever reads the log can undo percent signs: where those spell a key, the path is told as it reads.
    plain = unquote(told)
    shown = without_keys(plain)
    return cut(without_keys(told) if shown == plain else shown, MAX_PATH)
