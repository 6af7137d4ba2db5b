"""The program ``best-peer``."""

import sys

DONE = 0
INTERRUPTED = 130
"""As in `peer.cli.outcome`, which is not loaded yet where these are needed."""


def main() -> int:
    """Carry out this process's command line.

    Returns:
        The exit code: 0 done, 1 refused or invalid, 2 the system stands in the way.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A terminal that knows no "…" gets it escaped, rather than ending the command.
                stream.reconfigure(errors="backslashreplace")
        # Inside: loading it takes as long as a person takes to think better of a command.
        from peer.cli.outcome import carry_out

        return carry_out(_run)
    except KeyboardInterrupt:
        # A peer that has not begun to serve loses nothing.
        return INTERRUPTED if sys.argv[1:] else DONE


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

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
