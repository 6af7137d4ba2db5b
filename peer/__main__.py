"""The program ``best-peer``."""

import os
import signal
import sys
import threading
from types import FrameType

DONE = 0
INTERRUPTED = 130
"""As in `peer.cli.outcome`, which is not loaded yet where these are needed."""


def main() -> int:
    """Carry out this process's command line.

    Returns:
        The exit code: 0 done, 1 refused or invalid, 2 the system stands in the way.
    """
    try:
        _leave_quietly_on_interrupt()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A terminal that knows no "…" gets it escaped, rather than ending the command.
                stream.reconfigure(errors="backslashreplace")
        # Inside: loading it takes as long as a person takes to think better of a command.
        from peer.cli.outcome import carry_out

        return carry_out(_run)
    except KeyboardInterrupt:
        # A peer that has not begun to serve loses nothing.
        return _interrupted()
    finally:
        _heed_interrupts()


def _leave_quietly_on_interrupt() -> None:
    """While it is being loaded Ctrl-C ends it at once.

    An exception may come up anywhere in what is loaded, and some of that makes another error of it.
    """
    first = threading.current_thread() is threading.main_thread()
    if first and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is given
    os._exit(_interrupted())


def _interrupted() -> int:
    return INTERRUPTED if sys.argv[1:] else DONE


def _heed_interrupts() -> None:
    """From here a command ends by an exception, and puts away what it had begun."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run() -> int | None:
    arguments = sys.argv[1:]
    if not arguments:
        try:
            # The way to serve loads nothing of the other commands, nor what parses them.
            from peer.cli.serve import serve
        except KeyboardInterrupt:
            return DONE
        serve()
        return None
    if arguments == ["--version"]:
        from importlib.metadata import version

        print(f"best-peer {version('best-peer')}")
        return None
    from peer.cli.app import run

    _heed_interrupts()
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
