"""``best-peer``: serve the door until a signal (F33, F37)."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

from peer.cli.outcome import Failed, leave_stdout
from peer.folder import DataFolder
from peer.logs import ROOT, configure_logging
from peer.notify import notify
from peer.settings import Settings

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger(f"{ROOT}.peer")


def serve() -> None:
    """Serve this machine's door, with the settings of the environment, until SIGINT or SIGTERM."""
    # Until the peer itself listens for them, and once it has stopped: nothing is lost, so no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    _serve()


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is given
    os._exit(0)


def _serve() -> None:
    settings = Settings.read(os.environ)
    with configure_logging(settings.log), DataFolder.open(settings.data) as folder:
        for warning in (*settings.warnings, *folder.warnings):
            logger.warning("%s", warning)
        # Everything a peer is made of: what refuses the start before it should not wait for that.
        from actors.kernel.services import ServiceFailed
        from peer.lifecycle import StartRefused
        from peer.lifecycle import serve as run_peer

        try:
            run_peer(settings, folder, _announce)
        except (StartRefused, ServiceFailed) as error:
            raise Failed(str(error)) from error


def _announce(line: str) -> None:
    """The one line on stdout, and to systemd; that nobody reads it is no reason not to serve."""
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        leave_stdout()
    notify(os.environ, READY="1", STATUS=line)
