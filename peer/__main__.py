"""The program ``best-peer``."""

import sys

from peer.cli.outcome import carry_out


def main() -> int:
    """Carry out this process's command line.

    Returns:
        The exit code: 0 done, 1 refused or invalid, 2 the system stands in the way.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that knows no "…" gets it escaped, rather than ending the command.
            stream.reconfigure(errors="backslashreplace")
    return carry_out(_run)


def _run() -> int | None:
    arguments = sys.argv[1:]
    if not arguments:
        # The way to serve loads nothing of the other commands, nor what parses them.
        from peer.cli.serve import serve

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
